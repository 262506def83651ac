"""One worker's life: reload and drain, seen by the clients it has."""

import asyncio
import json
import signal
from pathlib import Path

import pytest
from functional.through import get, post
from gateways import Stopwatch, config, exchange, fetch, scrape, until, until_read, until_refused

from gateway.testing.messages import Response
from gateway.testing.raw_connection import Peer, connect
from gateway.testing.scripts import LAST_CHUNK, build_answer, build_chunk, build_head, build_ok_answer, serve
from gateway.testing.upstream import FakeUpstream
from tests.support.gateway_process import GatewayProcess

#: Whatever ends within this limit did not need it.
PATIENT = {"drain": "10m"}

READY = get(b"/health/ready").replace(b"gw.example", b"localhost")


async def streaming(peer: Peer) -> None:
    """A stream that goes on until the request after it, which is answered by its end."""
    await peer.read_request()
    await peer.send(build_head(200, [("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked")]))
    await peer.send(build_chunk(b"begun"))
    await peer.wait_end(timeout_s=None)


async def test_drain_finishes_streams_and_refuses_new_connections() -> None:
    """SIGTERM: not ready any more, for who is connected; no new connections; streams finish; then code 0."""
    finish = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(build_head(200, [("Transfer-Encoding", "chunked")]) + build_chunk(b"begun"))
        await finish.wait()
        await peer.send(build_chunk(b"done") + LAST_CHUNK)

    async with (
        FakeUpstream(script, serve(build_answer(200, b"ok"))) as upstream,
        GatewayProcess(config(upstream.base_url, limits=PATIENT)) as gateway,
        connect(gateway.host, gateway.port) as stream,
        connect(gateway.host, gateway.port) as probe,
        connect(gateway.host, gateway.port) as busy,
        connect(gateway.host, gateway.port) as idle,
    ):
        await stream.send(get())
        await stream.read_until(b"begun\r\n")
        assert (await exchange(probe, READY)).status == 200
        for client in (busy, idle):
            assert (await exchange(client)).status == 200
        gateway.signal(signal.SIGTERM)
        await until_refused(gateway)
        not_ready = await exchange(probe, READY)
        assert not_ready.status == 503 and json.loads(not_ready.payload) == {"status": "draining"}
        last = await exchange(busy)
        assert last.status == 200 and last.list_values(b"connection") == [b"close"]
        assert await busy.wait_end() == "eof"
        assert await idle.wait_end() == "eof" and not idle.received.endswith(b"close\r\n\r\nok")
        finish.set()
        await stream.read_until(LAST_CHUNK)
        assert await gateway.wait() == 0
        assert stream.received.endswith(build_chunk(b"done") + LAST_CHUNK)


async def test_drain_limit_cuts_remaining_streams_visibly() -> None:
    """At `limits.drain` what is left is cut so that it shows; then code 0."""
    async with (
        FakeUpstream(streaming) as upstream,
        GatewayProcess(config(upstream.base_url, limits={"drain": "500ms"})) as gateway,
        connect(gateway.host, gateway.port) as client,
    ):
        await client.send(get())
        await client.read_until(b"begun\r\n")
        ending = Stopwatch()
        gateway.signal(signal.SIGTERM)
        assert await client.wait_end() == "reset"
        assert ending.s > 0.4
        assert await gateway.wait() == 0
        assert not client.received.endswith(LAST_CHUNK)
        await upstream.wait_open(0)


async def test_balancer_sees_the_stop_before_connections_are_refused() -> None:
    """During `limits.stop_delay`: not ready, and all that comes is served, on connections that end with the answer."""
    async with (
        FakeUpstream(serve(build_ok_answer(b"fine"))) as upstream,
        GatewayProcess(config(upstream.base_url, limits={"stop_delay": "1h"})) as gateway,
    ):
        gateway.signal(signal.SIGTERM)
        ready = await until_read(lambda: fetch(gateway, b"/health/ready"), lambda answer: answer.status == 503)
        assert ready.payload == b'{"status": "draining"}'
        late = await fetch(gateway)
        assert (late.status, late.payload, late.list_values(b"connection")) == (200, b"fine", [b"close"])
        gateway.signal(signal.SIGTERM)
        assert await gateway.wait() == 0


async def test_drain_follows_the_stop_delay() -> None:
    """By itself, with code 0."""
    async with GatewayProcess(config(None, limits={"stop_delay": "50ms"})) as gateway:
        stopping = Stopwatch()
        gateway.signal(signal.SIGTERM)
        assert await gateway.wait() == 0
        assert stopping.s > 0.05


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_second_signal_ends_the_worker_at_once(number: signal.Signals) -> None:
    """Long before `limits.drain`, with code 0, and what was open is cut visibly."""
    async with (
        FakeUpstream(streaming) as upstream,
        GatewayProcess(config(upstream.base_url, limits=PATIENT)) as gateway,
        connect(gateway.host, gateway.port) as client,
    ):
        await client.send(get())
        await client.read_until(b"begun\r\n")
        gateway.signal(number)
        await until_refused(gateway)
        gateway.signal(number)
        assert await gateway.wait() == 0
        assert await client.wait_end() == "reset"


async def test_reload_applies_to_new_requests_and_ignores_bad_files() -> None:
    """Used from the next request on; a stream under way ends where it began; a bad file changes nothing but a count."""
    success, failure = (f'gateway_config_reloads_total{{result="{result}"}}' for result in ("success", "failure"))
    finish = asyncio.Event()

    async def old(peer: Peer) -> None:
        await peer.read_request(timeout_s=None)
        await peer.send(build_head(200, [("Transfer-Encoding", "chunked")]) + build_chunk(b"old"))
        await finish.wait()
        await peer.send(build_chunk(b"done") + LAST_CHUNK)

    def payload(response: Response) -> bytes:
        assert response.status == 200
        return response.payload

    async with (
        FakeUpstream(old) as first,
        FakeUpstream(serve(build_answer(200, b"new"))) as second,
        GatewayProcess(config(first.base_url)) as gateway,
        connect(gateway.host, gateway.port) as stream,
        connect(gateway.host, gateway.port) as client,
    ):
        await stream.send(get())
        await stream.read_until(b"old\r\n")
        file = gateway.folder.joinpath("gateway.yaml")

        async def reload(text: str | bytes) -> None:
            before = await scrape(gateway)
            file.write_bytes(text if isinstance(text, bytes) else text.encode())
            gateway.signal(signal.SIGHUP)
            reloads = before[success] + before[failure]
            await until_read(lambda: scrape(gateway), lambda after: after[success] + after[failure] != reloads)

        await reload(config(second.base_url))
        assert payload(await exchange(client)) == b"new" and payload(await fetch(gateway)) == b"new"
        for bad in (b"upstreams: [", b"nonsense: 1", b"\xff\xfe", b"upstreams: [{name: up, base_url: 'ftp://x'}]"):
            await reload(bad)
            assert payload(await exchange(client)) == b"new"
        file.unlink()
        gateway.signal(signal.SIGHUP)
        await until(lambda: gateway.read_stderr().count("reload failed") == 5)
        counts = await scrape(gateway)
        assert (counts[success], counts[failure]) == (1, 5)
        assert payload(await exchange(client)) == b"new"
        finish.set()
        await stream.read_until(LAST_CHUNK)
        await first.wait_open(0)
        errors = [json.loads(line)["event"] for line in gateway.read_stderr().splitlines() if "failed" in line]
        assert all("the old configuration stays in use" in error for error in errors)


async def test_reloads_lose_no_request() -> None:
    """20 of them while requests come without a pause."""
    async with (
        FakeUpstream() as upstream,
        GatewayProcess(config(upstream.base_url)) as gateway,
        connect(gateway.host, gateway.port) as client,
    ):
        statuses = []
        for n in range(20):
            gateway.signal(signal.SIGHUP)
            for _ in range(10):
                statuses.append((await exchange(client)).status)
                statuses.append((await fetch(gateway)).status)
            await until(lambda n=n: gateway.read_stderr().count("configuration reloaded") > n)
        assert statuses == [200] * 400


@pytest.mark.parametrize("workers", [1, 2])
async def test_start_receives_the_exits_of_its_confinement_trials(tmp_path: Path, workers: int) -> None:
    """Tools try the machine with processes of their own before the gateway is ready, while other signals wait."""
    tools = {"execute_command": {"cwd": str(tmp_path)}}
    async with GatewayProcess(config(None, tools=tools, workers=workers)) as gateway:
        assert "what the tools need of this machine was not found out" not in gateway.read_stderr()


_STUCK = """
import asyncio
import threading

from pydantic import BaseModel

from gateway.agent import call_execution as effect
from gateway.plugin import Plugin, ToolResult, ToolSpec
from gateway.server import worker

worker.CLOSES_S, effect.TOOL_GRACE_S, effect.TOOL_ENDS_S = 2.0, 0.01, 0.01


class Config(BaseModel):
    pass


class Stuck:
    async def list_tools(self):
        return (ToolSpec(name="stuck", description="x", parameters={"type": "object"}, category="text"),)

    async def refusal(self, call, exchange):
        return None

    async def call(self, call, exchange):
        open(BEGAN, "x").close()
        while True:
            try:
                await HOW
            except asyncio.CancelledError:
                continue

    async def close(self):
        pass


PLUGIN = Plugin(Config, lambda config, host: Stuck())
"""


@pytest.mark.parametrize("how", ["asyncio.sleep(3600)", "asyncio.to_thread(threading.Event().wait)"])
async def test_stuck_plugin_does_not_block_shutdown(tmp_path: Path, how: str) -> None:
    """Neither a task that goes on in spite of its cancellation, nor a thread. A person is asked what came of it."""
    file = tmp_path / "plugins/tools/stuck.py"
    file.parent.mkdir(parents=True)
    file.write_text(_STUCK.replace("HOW", how).replace("BEGAN", repr(str(tmp_path / "began"))))
    settings = {
        "plugins": {"folder": str(tmp_path / "plugins")},
        "store": f"sqlite:///{tmp_path}/gateway.db",
        "tools": {"stuck": {}},
        "limits": {"drain": "0s"},
    }
    asked = {"model": "demo", "messages": [{"role": "user", "content": 'tool stuck {"risk_level": "low"}'}]}
    body = json.dumps(asked).encode()
    async with GatewayProcess(json.dumps(settings)) as gateway, connect(gateway.host, gateway.port) as client:
        await client.send(post(body, b"/context/v1/chat/completions").replace(b"gw.example", b"localhost"))
        await until((tmp_path / "began").exists)
        gateway.signal(signal.SIGTERM)
        assert await gateway.wait() == 1
        assert "the gateway has not ended 2 s after it began to close" in gateway.read_stderr()
        await gateway.start()
        runs = await until_read(lambda: fetch(gateway, b"/context/runs"), lambda page: b"unknown" in page.payload)
        (run,) = json.loads(runs.payload)["data"]
        assert run["state"] == "unknown"
