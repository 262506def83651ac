"""A gateway with an upstream for passthrough, a model for the context lane, and a tool whose calls are counted."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from crash.effects import Json, effects, settings
from crash.talk import CHAT, asking, session_with
from functional.through import HOSTS, post
from gateways import until_read

from gateway.demo.app import start_demo
from gateway.testing.messages import describe_differences
from gateway.testing.raw_connection import connect
from gateway.testing.upstream import FakeUpstream
from tests.support.gateway_process import GatewayProcess

#: A call takes this long behind its effect: long enough to take the disk away meanwhile.
CALL_S = 0.5


@dataclass(frozen=True)
class Answered:
    """An answer that is no stream."""

    status: int
    headers: Mapping[str, str]
    json: Json

    @property
    def code(self) -> str:
        return str(self.json["error"]["code"])

    @property
    def run_id(self) -> str:
        """The run's, which is the request's where this began it."""
        return self.headers["x-request-id"]


@dataclass
class Lane:
    """`folder` has the ledger, `place` is the store."""

    gateway: GatewayProcess
    upstream: FakeUpstream
    session: aiohttp.ClientSession
    folder: Path
    place: Path

    def done(self, run: str) -> int:
        """How often the tool had its effect for this run."""
        return len(effects(self.folder, run))

    async def tool(self, run: str) -> Answered:
        return await self.chat(f'tool ledger {{"run": "{run}", "n": 1}}')

    async def chat(self, words: str) -> Answered:
        return await self._post(CHAT, asking(words))

    async def decide(self, approval_id: str, decision: str = "approve") -> Answered:
        return await self._post(f"/context/approvals/{approval_id}", {"decision": decision})

    async def _post(self, path: str, body: Json) -> Answered:
        async with self.session.post(path, json=body) as response:
            return Answered(response.status, response.headers, await response.json())

    async def get(self, path: str) -> Json:
        async with self.session.get(path) as response:
            assert response.status == 200, await response.text()
            found: Json = await response.json()
            return found

    async def run(self, run_id: str, *, state: str) -> Json:
        """The run, once it is in this state."""
        return await until_read(lambda: self.get(f"/context/runs/{run_id}"), lambda run: run["state"] == state)

    async def state_of(self, approval_id: str) -> str:
        return str((await self.get(f"/context/approvals/{approval_id}"))["state"])

    async def passes_unchanged(self) -> None:
        """One request past the context lane, whose bytes are the same at the upstream."""
        body = b'{"n": 1.0,  "n": 1e5}'
        message = post(body, b"/v1/x?a=%20b", b"X-Odd: y")
        async with connect(self.gateway.host, self.gateway.port) as client:
            await client.send(message)
            response = await client.read_response()
        assert response.payload == b'{"ok":true}'
        assert not describe_differences(message, self.upstream.requests[-1].raw, may_differ=frozenset((b"host",)))

    def complaints(self) -> list[str]:
        """What the log says of the store that nobody asked for."""
        lines = self.gateway.read_stderr().splitlines()
        return [line for line in lines if "the store failed" in line]


@asynccontextmanager
async def running(
    folder: Path, *, place: Path | None = None, env: Mapping[str, str] | None = None, workers: int = 1
) -> AsyncIterator[Lane]:
    place = place or folder / "gateway.db"
    async with FakeUpstream() as upstream:
        demo = await start_demo()
        try:
            config = configured(folder, place=place, upstream=upstream.base_url, model=demo.base_url)
            args = ("--workers", str(workers))
            async with (
                GatewayProcess(json.dumps(config), args=args, env=env) as gateway,
                session_with(gateway) as session,
            ):
                yield Lane(gateway, upstream, session, folder, place)
        finally:
            await demo.close()
    assert "Traceback" not in gateway.read_stderr(), gateway.read_stderr()
    assert gateway.returncode == 0


def configured(folder: Path, *, place: Path, upstream: str, model: str) -> Json:
    upstreams = [{"name": "up", "base_url": upstream}, {"name": "demo", "base_url": model}]
    config = settings(folder, upstreams=upstreams, context={"upstream": "demo"}, store=f"sqlite:///{place}")
    config["tools"]["ledger"]["with"]["after_s"] = CALL_S
    config["allowed_hosts"] = HOSTS
    return config
