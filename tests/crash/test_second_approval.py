"""Two gateways on one store, and a call that two keys must approve: the first approval is at one, which is killed."""

import hashlib
import json
from pathlib import Path

import aiohttp
from gateways import until_read

from tests.support.gateway_process import GatewayProcess

from .effects import ASKS, Json, broken_chain, effects, settings
from .talk import CHAT, asking


def holder(name: str) -> Json:
    digest = hashlib.sha256(name.encode()).hexdigest()
    return {"name": name, "sha256": digest, "scopes": ["context", "approve"], "tenant": "team"}


async def sent(gateway: GatewayProcess, key: str, path: str, body: Json | None = None) -> tuple[int, Json]:
    """The answer to a request with the key of this name."""
    session, method = aiohttp.ClientSession(gateway.base_url), "GET" if body is None else "POST"
    async with session, session.request(method, path, json=body, headers={"X-Gateway-Key": key}) as response:
        return response.status, await response.json()


async def test_first_of_two_approvals_survives_a_gateway_kill(tmp_path: Path) -> None:
    """kill -9 right behind its answer. The same key counts once at the other gateway, too; another one lets it run."""
    keys = [holder(name) for name in ("agent", "anna", "ben")]
    config = json.dumps(settings(tmp_path, keys=keys, approvals={"require": [{"approvals": 2}], "self": "refuse"}))
    async with GatewayProcess(config) as one, GatewayProcess(config) as other:
        words = asking(f'tool ledger {{"run": "second", "n": {ASKS}}}')
        _, answer = await sent(one, "agent", CHAT, words)
        (approval,) = answer["context"]["approvals"]
        path, approve = f"/context/approvals/{approval['id']}", {"decision": "approve", "sha256": approval["sha256"]}
        assert (await sent(one, "anna", path, approve))[0] == 200
        await one.kill()
        status, waits = await sent(other, "ben", path)
        assert (status, waits["state"], [each["by"] for each in waits["approved_by"]]) == (200, "pending", ["anna"])
        again = [await sent(other, name, path, approve) for name in ("anna", "agent")]
        assert [(status, body["error"]["code"]) for status, body in again] == [
            (409, "approved_already"),
            (403, "own_call"),
        ]
        assert effects(tmp_path) == []
        assert (await sent(other, "ben", path, approve))[1]["state"] == "approved"
        await until_read(lambda: sent(other, "ben", path), lambda found: found[1]["state"] == "done")
        assert len(effects(tmp_path, "second")) == 1 and broken_chain(tmp_path / "gateway.db") is None
