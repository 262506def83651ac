"""Runs of workflows as their page begins them: whose they are, which model they ask, what holds while they last."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
import yaml
from gateways import key, until, until_read

from gateway.contracts.storage.store import Json
from gateway.testing.local_gateway import LocalGateway
from tests.e2e.models import Answer, Model, says

ASK = {"name": "ask", "description": "x", "steps": [{"name": "said", "model": "Hi"}]}
THEN = {
    "name": "then",
    "description": "x",
    "steps": [
        {"name": "said", "model": "Which file?"},
        {"name": "read", "tool": "file_operations", "with": {"operation": "read", "path": "{{steps.said}}"}},
    ],
}


@dataclass
class World:
    gateway: LocalGateway
    model: Model
    session: aiohttp.ClientSession
    config: Json

    async def run(self, name: str = "ask", **headers: str) -> tuple[int, Json, Mapping[str, str]]:
        return await self.post(name, {}, **headers)

    async def post(self, name: str, body: Json, **headers: str) -> tuple[int, Json, Mapping[str, str]]:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.session.post(f"/workflows/{name}/runs", json=body, headers=sent) as response:
            return response.status, await response.json(), response.headers

    def header(self, name: bytes) -> list[list[bytes]]:
        """The values of a header in every request to the model."""
        return [request.list_values(name) for request in self.model.upstream.requests]


@asynccontextmanager
async def gateway(
    folder: Path, *answers: Answer, upstream: Json | None = None, **config: object
) -> AsyncIterator[World]:
    flows, work = folder / "flows", folder / "work"
    for place in (flows, work):
        place.mkdir(mode=0o700)
    for workflow in (ASK, THEN):
        file = flows / f"{workflow['name']}.yaml"
        file.write_text(yaml.safe_dump(workflow))
        file.chmod(0o600)
    (work / "notes.txt").write_text("Behind the mirror.")
    async with Model(*answers) as model:
        content: Json = {
            "upstreams": [{"name": "up", "base_url": model.upstream.base_url, **(upstream or {})}],
            "store": "sqlite:///:memory:",
            "workflows": {"folder": str(flows)},
            "tools": {"file_operations": {"roots": [str(work)]}},
            **config,
        }
        async with LocalGateway(content) as made, aiohttp.ClientSession(made.base_url) as session:
            yield World(made, model, session, content)


async def test_workflow_run_id_is_its_request_id(tmp_path: Path) -> None:
    """In its header, its body, and in what its errors say."""
    async with gateway(tmp_path, says("Hello."), says("no.txt")) as world:
        _, done, headers = await world.run()
        assert done["id"] == headers["X-Context-Run-Id"] and done["id"].startswith("run_")
        status, failed, headers = await world.run("then")
        message = failed["error"]["message"]
        assert status == 422 and f"(run {headers['x-request-id']})" in message


async def test_workflow_run_forwards_client_credential_but_not_gateway_key(tmp_path: Path) -> None:
    """As in a chat: it is kept nowhere."""
    keys = [key("gw-key", "context")]
    async with gateway(tmp_path, says("Hello."), keys=keys) as world:
        credential = {"Authorization": "Bearer sk-client"}
        assert (await world.run(**credential))[1]["error"]["code"] == "invalid_api_key"
        status, done, _ = await world.run(X_Gateway_Key="gw-key", X_Mine="1", **credential)
        assert (status, done["caller"]) == (200, keys[0]["name"])
        assert world.header(b"authorization") == [[b"Bearer sk-client"]] and world.header(b"x-mine") == [[b"1"]]
        assert world.header(b"x-gateway-key") == [[]] and "sk-client" not in json.dumps(done)


async def test_upstream_key_replaces_client_credential_of_a_workflow_run(tmp_path: Path) -> None:
    """Then the gateway's key may come where a client of OpenAI has its own."""
    async with gateway(
        tmp_path, says("Hello."), upstream={"api_key": "sk-up"}, keys=[key("gw-key", "context")]
    ) as world:
        assert (await world.run(Authorization="Bearer gw-key"))[0] == 200
        assert world.header(b"authorization") == [[b"Bearer sk-up"]]


async def test_the_model_of_a_run_chooses_its_upstream(tmp_path: Path) -> None:
    """By `upstreams[].models`."""
    async with Model(says("Large.")) as large, gateway(tmp_path, says("Small.")) as world:
        other = {"name": "other", "base_url": large.upstream.base_url, "models": ["large-*"]}
        await world.gateway.reload({**world.config, "upstreams": [*world.config["upstreams"], other]})
        assert (await world.post("ask", {"model": "large-1"}))[1]["result"] == "Large."
        assert (await world.post("ask", {"model": "small"}))[1]["result"] == "Small."
        assert [body["model"] for body in (*large.asked, *world.model.asked)] == ["large-1", "small"]


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"X-Context-Chain": "nope"}, 400, "invalid_header"),
        ({"X-Context-Chian": "assistant"}, 400, "invalid_header"),
        ({"X-Context-Prompt": "nope"}, 404, "prompt_not_found"),
        ({"X-Context-Tools": "http_*"}, 400, "invalid_header"),
        ({"X-Context-Tools": "read_result"}, 422, "workflow_failed"),
    ],
)
async def test_context_headers_apply_to_workflow_runs(
    tmp_path: Path, headers: dict[str, str], status: int, code: str
) -> None:
    """Those of a chat, and as strictly; tools that were narrowed away are not there for a step either."""
    async with gateway(tmp_path, says("notes.txt")) as world:
        told = await world.run("then", **headers)
        assert (told[0], told[1]["error"]["code"]) == (status, code)


async def test_tool_removed_by_reload_fails_the_next_workflow_step(tmp_path: Path) -> None:
    """Each call is looked at right before it runs, by the configuration in use."""
    go = asyncio.Event()
    async with gateway(tmp_path, says(go, "notes.txt"), says("notes.txt")) as world:
        asking = asyncio.create_task(world.run("then"))
        await until(lambda: world.model.asked)
        await world.gateway.reload({**world.config, "tools": {}})
        go.set()
        status, done, _ = await asking
        assert (status, done["error"]["code"]) == (422, "workflow_failed")
        assert "file_operations" in done["error"]["message"]


async def test_async_workflow_run_completes_after_client_disconnect(tmp_path: Path) -> None:
    """202 is said once it is on record; its connection may go."""
    go = asyncio.Event()
    async with gateway(tmp_path, says(go, "notes.txt")) as world:
        status, begun, _ = await world.run("then", Prefer="respond-async")
        assert (status, begun["state"]) == (202, "running")
        await world.session.close()
        go.set()
        async with aiohttp.ClientSession(world.gateway.base_url) as session:

            async def state() -> str:
                async with session.get(f"/context/runs/{begun['id']}") as response:
                    return str((await response.json())["state"])

            await until_read(state, lambda now: now == "completed")
