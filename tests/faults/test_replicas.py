"""Gateways as processes on one store, of which one dies or stands still while others need it."""

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from gateways import until, until_read
from mcp.shared.exceptions import MCPError

from gateway.contracts.storage.store import Json
from tests.mcp_server.conftest import calm as calm
from tests.mcp_server.replicated import balanced_client
from tests.mcp_server.serving import ACCEPT, INITIALIZE, OLDER, server, texts
from tests.support.gateway_process import GatewayProcess


@dataclass
class Gateways:
    """Gateways with the service `here`."""

    processes: Sequence[GatewayProcess]

    @property
    def urls(self) -> Sequence[str]:
        return [process.base_url for process in self.processes]

    async def get(self, at: int, path: str) -> Any:
        session = aiohttp.ClientSession(self.urls[at])
        async with session, session.get(path) as response:
            return await response.json()

    async def post(self, at: int, path: str, message: Json, fields: dict[str, str]) -> tuple[int, str]:
        session = aiohttp.ClientSession(self.urls[at])
        async with session, session.post(path, json=message, headers=fields) as response:
            return response.status, await response.text()

    async def open_session(self, at: int) -> dict[str, str]:
        """Open a session at one gateway, and return the fields of a request in it."""
        session = aiohttp.ClientSession(self.urls[at])
        async with session, session.post("/mcp", json=INITIALIZE, headers=ACCEPT) as response:
            return {**ACCEPT, "Mcp-Session-Id": response.headers["Mcp-Session-Id"], "MCP-Protocol-Version": OLDER}

    async def until_service(self, at: int, **facts: object) -> Json:
        """Return the service `here` of a gateway once it has these facts."""

        def has_facts(service: Json) -> bool:
            return facts.items() <= service.items()

        return dict(await until_read(lambda: self.get(at, "/mcp/services/here"), has_facts, timeout_s=120))


@asynccontextmanager
async def gateways(folder: Path, *, count: int = 2, here: Json | None = None, **config: Any) -> AsyncIterator[Gateways]:
    content: Json = {
        "mcp": {"servers": {"here": {**server(), **(here or {})}}, "serve": {"wait": "60s"}},
        "upstreams": [{"name": "up", "base_url": "http://127.0.0.1:9/v1"}],
        "store": f"sqlite:///{folder / 'gateway.db'}",
        **config,
    }
    async with AsyncExitStack() as stack:
        started = [await stack.enter_async_context(GatewayProcess(json.dumps(content))) for _ in range(count)]
        made = Gateways(started)
        for at in range(count):
            await made.until_service(at, state="running")
        yield made


def call(tool: str, number: int = 7, **arguments: object) -> Json:
    params = {"name": f"here__{tool}", "arguments": arguments}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


class RunningCall:
    """A call whose tool runs, and does not end by itself: it reads from a pipe to which nothing is written."""

    def __init__(self, answer: "asyncio.Task[tuple[int, str]]", pipe: int) -> None:
        self.answer = answer
        self._pipe = pipe

    @classmethod
    async def begin(cls, made: Gateways, fields: dict[str, str], folder: Path, *, at: int) -> "RunningCall":
        """Make a call at a gateway, and return once its tool has opened the pipe."""
        path = folder / "pipe"
        os.mkfifo(path)
        answer = asyncio.create_task(made.post(at, "/mcp", call("wait", text=str(path)), fields))
        opened: list[int] = []

        def is_read() -> bool:
            with contextlib.suppress(OSError):  # there is no reader yet
                opened.append(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
            return bool(opened)

        await until(is_read)
        return cls(answer, opened[0])

    def end(self) -> None:
        """Let the tool end with an empty text."""
        os.close(self._pipe)


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGSTOP])
async def test_session_ends_with_its_gateway(sent: signal.Signals, tmp_path: Path, calm: dict[str, object]) -> None:
    """A call under way may have run, and its client hears that. The session is not found any more, and a client begins
    a new one at another gateway. The record says that the outcome is not known.
    """
    async with gateways(tmp_path, **calm) as made:
        owner = made.processes[0]
        fields = await made.open_session(0)
        calling = await RunningCall.begin(made, fields, tmp_path, at=1)
        owner.signal(sent)
        status, answer = await calling.answer
        assert status == 200 and "it is not known whether it has run" in answer
        again = call("echo", 8, text="hi")
        status, answer = await until_read(lambda: made.post(1, "/mcp", again, fields), lambda seen: seen[0] == 404)
        assert "Session not found" in answer
        async with balanced_client([made.urls[1]]) as (client, _):
            assert texts(await client.call_tool("here__echo", {"text": "again"})) == "again"
        if sent == signal.SIGSTOP:
            owner.signal(signal.SIGCONT)
        states = {run["state"] for run in (await made.get(1, "/context/runs"))["data"]}
        assert "completed" in states and states <= {"completed", "running", "unknown", "interrupted", "failed"}, states


async def test_client_begins_anew_after_its_gateway_died(tmp_path: Path, calm: dict[str, object]) -> None:
    """The official client gets the end of its session as an error, and nothing hangs."""
    async with gateways(tmp_path, count=3, **calm) as made, balanced_client(made.urls) as (client, balancer):
        assert texts(await client.call_tool("here__echo", {"text": "one"})) == "one"
        owner = next(at for at in range(3) if balancer.seen[0][1] == at)
        await made.processes[owner].kill()
        balancer.only = (owner + 1) % 3
        with pytest.raises(MCPError, match=r"terminated|not found"):
            await client.call_tool("here__echo", {"text": "two"})


async def test_draining_gateway_gives_its_sessions_up(tmp_path: Path, calm: dict[str, object]) -> None:
    """A call under way goes on; a new one is for another gateway."""
    async with gateways(tmp_path, **calm) as made:
        fields = await made.open_session(0)
        calling = await RunningCall.begin(made, fields, tmp_path, at=1)
        made.processes[0].signal(signal.SIGTERM)
        status = 200
        while status == 200:
            status, answer = await made.post(1, "/mcp", {"jsonrpc": "2.0", "id": 9, "method": "ping"}, fields)
        assert status == 404 and "Session not found" in answer
        calling.end()
        status, answer = await calling.answer
        assert status == 200 and '"isError":false' in answer


async def test_workers_of_one_gateway_share_sessions(tmp_path: Path, calm: dict[str, object]) -> None:
    """Whichever worker takes the connection."""
    async with gateways(tmp_path, count=1, workers=3, **calm) as made:
        fields = await made.open_session(0)
        for number in range(20):
            status, answer = await made.post(0, "/mcp", call("echo", number, text="hi"), fields)
            assert status == 200 and '"hi"' in answer


async def read_pid(made: Gateways, at: int, *, number: int = 1) -> str:
    """The process of the server that answers calls at a gateway, or the error in its place."""
    async with balanced_client([made.urls[at]], mode="auto") as (client, _):
        return texts(await client.call_tool("here__pid", {}))


async def test_server_runs_once_for_all_gateways(tmp_path: Path, calm: dict[str, object]) -> None:
    """All of them have its tools and call the same process."""
    async with gateways(tmp_path, count=3, here={"run": "one"}, **calm) as made:
        pids = {await read_pid(made, at) for at in range(3)}
        assert len(pids) == 1 and next(iter(pids)).isdecimal()
        places = [(await made.get(at, "/mcp/services/here"))["runs_at"] for at in range(3)]
        assert len(set(places)) == 1 and places[0].startswith("127.0.0.1:")


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM])
async def test_server_moves_when_its_gateway_is_gone(
    sent: signal.Signals, tmp_path: Path, calm: dict[str, object]
) -> None:
    """A call under way may have run, and is not made again. The next one runs at another gateway. A gateway that comes
    back uses that one, too.
    """
    async with gateways(tmp_path, here={"run": "one"}, **calm) as made:
        first = await read_pid(made, 0)
        before = (await made.get(1, "/mcp/services/here"))["runs_at"]
        owner = await _find_owner(made)
        other = 1 - owner
        if sent != signal.SIGTERM:
            fields = await made.open_session(other)
            calling = await RunningCall.begin(made, fields, tmp_path, at=other)
        made.processes[owner].signal(sent)
        if sent != signal.SIGTERM:
            status, answer = await calling.answer
            assert status == 200 and "whether it had an effect is not known" in answer
        service = await made.until_service(other, state="running")
        await until_read(
            lambda: made.get(other, "/mcp/services/here"), lambda seen: seen["runs_at"] not in (None, before)
        )
        service = await made.until_service(other, state="running")
        assert service["runs_at"] != before and await read_pid(made, other) != first
        if sent == signal.SIGSTOP:
            made.processes[owner].signal(signal.SIGCONT)
            await until_read(lambda: read_pid(made, owner), lambda pid: pid != first and pid.isdecimal())
            assert await read_pid(made, owner) == await read_pid(made, other)


async def _find_owner(made: Gateways) -> int:
    """The gateway that runs the server."""
    for at, url in enumerate(made.urls):
        session = aiohttp.ClientSession(url)
        async with session, session.get("/metrics") as response:
            if 'gateway_mcp_server_here{server="here"} 1' in await response.text():
                return at
    raise AssertionError("no gateway runs it")


async def test_program_that_ends_is_started_again_for_all(tmp_path: Path, calm: dict[str, object]) -> None:
    """Its gateway starts it; the calls of others that were under way may have run."""
    async with gateways(tmp_path, here={"run": "one"}, **calm) as made:
        owner = await _find_owner(made)
        first = await read_pid(made, 1 - owner)
        fields = await made.open_session(1 - owner)
        calling = await RunningCall.begin(made, fields, tmp_path, at=1 - owner)
        os.kill(int(first), signal.SIGKILL)
        status, answer = await calling.answer
        assert status == 200 and "whether it had an effect is not known" in answer
        await until_read(lambda: read_pid(made, 1 - owner), lambda pid: pid.isdecimal() and pid != first)
        assert await read_pid(made, owner) == await read_pid(made, 1 - owner)


async def test_cancelled_call_is_cancelled_at_the_server(tmp_path: Path, calm: dict[str, object]) -> None:
    """The one program that all gateways use hears of it."""
    async with gateways(tmp_path, here={"run": "one"}, **calm) as made:
        other = 1 - await _find_owner(made)
        fields = await made.open_session(other)
        calling = await RunningCall.begin(made, fields, tmp_path, at=other)
        cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
        assert (await made.post(other, "/mcp", cancelled, fields))[0] == 202

        async def count() -> str:
            async with balanced_client([made.urls[other]], mode="auto") as (client, _):
                return texts(await client.call_tool("here__cancelled", {}))

        await until_read(count, lambda found: found == "1")
        calling.answer.cancel()
