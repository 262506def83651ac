"""Figures of a gateway process under load and hostile input (`make soak` prints them)."""

import asyncio
import contextlib
import json
import os
import statistics
import sys
from array import array
from collections.abc import AsyncIterator, Callable, Iterable

import pytest
from functional.through import HOSTS, get, post
from gateways import Stopwatch, config, exchange

from gateway.testing.local_gateway import LocalGateway
from gateway.testing.raw_connection import PEER_LEFT, Peer, connect
from gateway.testing.scripts import (
    LAST_CHUNK,
    build_answer,
    build_chunk,
    build_event,
    build_head,
    build_ok_answer,
    serve,
)
from gateway.testing.upstream import FakeUpstream
from tests.support.gateway_process import GatewayProcess

pytestmark = pytest.mark.soak

STREAM_HEAD = build_head(200, [("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked")])


def quantile(values: Iterable[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


async def test_streams_do_not_mix() -> None:
    """10,000 streams, 100 at a time, each with words of its own: no foreign byte."""
    foreign = 0

    async def script(peer: Peer) -> None:
        while True:
            word = (await peer.read_request(timeout_s=None)).payload
            await peer.send(STREAM_HEAD)
            for n in range(5):
                await peer.send(build_chunk(build_event(word + b" %d" % n)))
            await peer.send(LAST_CHUNK)

    async def stream(client: Peer, number: int) -> None:
        nonlocal foreign
        word = b"stream-%d" % number
        response = await exchange(client, post(word), timeout_s=20)
        foreign += response.payload != b"".join(build_event(word + b" %d" % n) for n in range(5))

    async def client_of(first: int) -> None:
        async with connect(gateway.host, gateway.port, keep_bytes=0) as client:
            for number in range(first, 10_000, 100):
                await stream(client, number)

    async with (
        FakeUpstream(script, keep_bytes=0) as upstream,
        GatewayProcess(config(upstream.base_url)) as gateway,
    ):
        await asyncio.gather(*(client_of(first) for first in range(100)))
        print(f"\n10,000 streams over {len(upstream.connections)} connections: {foreign} with foreign bytes")
        assert len(upstream.requests) == 10_000
    assert foreign == 0


async def test_stray_upstream_answers_reach_no_client() -> None:
    """1,000 answers that nobody asked for, written into idle pooled connections: no foreign byte."""
    pairs, rounds, strays, foreign = 10, 100, 0, 0

    class Stray:
        """An upstream that answers, and once its client has the answer sends one more."""

        def __init__(self) -> None:
            self.answered = asyncio.Event()

        async def __call__(self, peer: Peer) -> None:
            nonlocal strays
            word = (await peer.read_request(timeout_s=None)).payload
            await peer.send(build_answer(200, word))
            await self.answered.wait()
            self.answered.clear()
            strays += 1
            await peer.send(build_answer(200, b"STRAY"))
            await peer.wait_end()

    async def client_of(number: int, script: Stray) -> None:
        nonlocal foreign
        async with connect(gateway.host, gateway.port, keep_bytes=0) as client:
            for n in range(rounds):
                word = b"mine-%d" % n
                message = post(word, b"/v1/%d/x" % number, method=b"POST" if n % 2 else b"PUT")
                foreign += (await exchange(client, message)).payload != word
                script.answered.set()
                await asyncio.sleep(0.001 * (n % 5 + 1))  # the stray answer comes before, with or after the next word

    async with contextlib.AsyncExitStack() as stack:
        scripts = [Stray() for _ in range(pairs)]
        upstreams = [await stack.enter_async_context(FakeUpstream(script)) for script in scripts]
        entries = [
            {"name": f"u{i}", "base_url": upstream.base_url, "paths": [f"/v1/{i}/"]}
            for i, upstream in enumerate(upstreams)
        ]
        gateway = await stack.enter_async_context(GatewayProcess(config(None, upstreams=entries)))
        await asyncio.gather(*(client_of(number, script) for number, script in enumerate(scripts)))
    print(f"\n{strays} stray answers in idle connections: {foreign} reached a client")
    assert strays >= 0.99 * pairs * rounds
    assert foreign == 0


@contextlib.asynccontextmanager
async def child(call: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Runs a coroutine of this module in a process of its own, so that it slows nobody here."""
    source = f"import uvloop; from faults.test_load import *; uvloop.run({call})"
    path = os.pathsep.join(entry for entry in sys.path if entry)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", source),
        env={**os.environ, "PYTHONPATH": path},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield process
        assert process.stdin is not None
        process.stdin.close()
        assert await process.wait() == 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()


async def watched_gateway(upstream_url: str) -> None:
    """Serves until standard input ends; says its port, and in the end how late (s) a timer of 2 ms was."""
    loop, lags = asyncio.get_running_loop(), array("d")

    def tick(due: float) -> None:
        now = loop.time()
        lags.append(now - due)
        loop.call_later(0.002, tick, now + 0.002)

    async with LocalGateway(
        {"upstreams": [{"name": "up", "base_url": upstream_url}], "allowed_hosts": HOSTS}
    ) as gateway:
        print(gateway.port, flush=True)
        tick(loop.time())
        await loop.run_in_executor(None, sys.stdin.read)
    print(json.dumps([len(lags), quantile(lags, 0.5), quantile(lags, 0.999), max(lags)]))


async def load(host: str, port: int, seconds: float) -> None:
    """Requests and streams without a pause: 32 clients, half of them with bodies of 100 kB."""
    body = os.urandom(100_000)
    running = Stopwatch()

    async def client_of(number: int) -> None:
        async with connect(host, port, keep_bytes=0) as client:
            while running.s < seconds:
                message = post(body) if number % 2 else post(b'{"stream": true}', b"/v1/stream")
                assert (await exchange(client, message, timeout_s=20)).status == 200

    await asyncio.gather(*(client_of(number) for number in range(32)))


async def test_event_loop_lag_stays_low_under_load() -> None:
    """20 s of mixed load without a pause: the timers of the gateway's loop fire within 20 ms, 99.9 % of the time."""
    stream = STREAM_HEAD + b"".join(build_chunk(build_event("x" * 200)) for _ in range(64)) + LAST_CHUNK
    script = serve(
        lambda request: stream if request.target.endswith(b"/stream") else build_answer(200, request.payload)
    )
    async with FakeUpstream(script, keep_bytes=0) as upstream:
        async with child(f"watched_gateway({upstream.base_url!r})") as gateway:
            assert gateway.stdout is not None
            port = int(await gateway.stdout.readline())
            async with child(f"load('127.0.0.1', {port}, 20.0)"):
                pass
        timers, *lags = json.loads(await gateway.stdout.read())
    usual_ms, late_ms, latest_ms = (lag * 1e3 for lag in lags)
    print(
        f"\nevent loop under load: {timers} timers p50 {usual_ms:.1f} ms, p99.9 {late_ms:.1f} ms, "
        f"at most {latest_ms:.1f} ms late; {len(upstream.requests)} requests"
    )
    assert timers > 1_000 and late_ms <= 20


async def test_overload_is_refused_quickly_and_accepted_requests_finish() -> None:
    """Ten times as much as may be under way, for 10 s: the excess gets 503 in 100 ms, what was accepted finishes."""
    refused: list[float] = []
    accepted: list[float] = []
    running = Stopwatch()

    async def script(peer: Peer) -> None:
        while True:
            await peer.read_request(timeout_s=None)
            await asyncio.sleep(0.1)  # the time that each request is under way
            await peer.send(build_ok_answer())

    async def client_of(number: int) -> None:
        async with connect(gateway.host, gateway.port, keep_bytes=0) as client:
            await asyncio.sleep(number / 1_000)  # the clients come one after the other
            while running.s < 10:
                asked = Stopwatch()
                response = await exchange(client, post(b"{}"))
                if response.status == 503:
                    assert response.list_values(b"retry-after") == [b"1"]
                (accepted if response.status == 200 else refused).append(asked.s)
                await asyncio.sleep(max(0.1 - asked.s, 0))  # the rate of the load

    async with (
        FakeUpstream(script, keep_bytes=0) as upstream,
        GatewayProcess(config(upstream.base_url, limits={"concurrent": 10})) as gateway,
    ):
        await asyncio.gather(*(client_of(number) for number in range(100)))
    print(
        f"\noverload: {len(accepted)} accepted, all answered by the upstream; {len(refused)} refused in "
        f"p50 {quantile(refused, 0.5) * 1e3:.1f} ms, at most {max(refused) * 1e3:.1f} ms"
    )
    assert len(accepted) == len(upstream.requests) and len(refused) > 5 * len(accepted)
    assert max(refused) <= 0.1


async def test_slow_request_heads_barely_slow_a_healthy_client() -> None:
    """1,000 of them for 10 s: a healthy client is at most 50 ms slower, and all of them are closed in 12 s."""

    async def healthy(until: Callable[[], bool]) -> list[float]:
        times = []
        async with connect(gateway.host, gateway.port, keep_bytes=0) as client:
            while not until():
                took = Stopwatch()
                assert (await exchange(client)).status == 200
                times.append(took.s)
                await asyncio.sleep(0.02)  # the rate of the healthy client
        return times

    async def slow() -> float:
        async with connect(gateway.host, gateway.port) as client:
            began = Stopwatch()
            dripping = asyncio.create_task(client.drip(get() * 10, every_s=1.0))
            await client.wait_end(timeout_s=120)
            dripping.cancel()
            with contextlib.suppress(asyncio.CancelledError, *PEER_LEFT):
                await dripping
            return began.s

    async with FakeUpstream() as upstream, GatewayProcess(config(upstream.base_url)) as gateway:
        alone = Stopwatch()
        usual = await healthy(lambda: alone.s > 3)
        ends = asyncio.gather(*(slow() for _ in range(1_000)))
        meanwhile = await healthy(ends.done)
        closed = await ends
    before_ms, during_ms = (quantile(times, 0.99) * 1e3 for times in (usual, meanwhile))
    print(f"\n1,000 slow heads: healthy p99 {before_ms:.1f} -> {during_ms:.1f} ms; all closed in {max(closed):.1f} s")
    assert during_ms <= before_ms + 50
    assert max(closed) <= 12


async def test_cancelled_requests_close_the_upstream_within_100_ms() -> None:
    """The client leaves a stream or a request that waits, 500 times: the upstream connection ends within 100 ms."""
    left: dict[bytes, Stopwatch] = {}
    times: list[float] = []

    async def script(peer: Peer) -> None:
        request = await peer.read_request()
        if int(request.payload) % 2:
            await peer.send(STREAM_HEAD + build_chunk(b"begun"))
        with contextlib.suppress(*PEER_LEFT):
            await peer.wait_end(timeout_s=None)
        times.append(left[request.payload].s)

    async with FakeUpstream(script) as upstream, GatewayProcess(config(upstream.base_url)) as gateway:
        for number in range(500):
            async with connect(gateway.host, gateway.port) as client:
                await client.send(post(b"%d" % number))
                await upstream.wait_requests(number + 1)
                if number % 2:
                    await client.read_until(b"begun")
                left[b"%d" % number] = Stopwatch()
                (client.reset if number % 3 else client.close)()
            await upstream.wait_open(0)
    print(f"\n500 cancelled requests: p50 {statistics.median(times) * 1e3:.1f} ms, most {max(times) * 1e3:.1f} ms")
    assert len(times) == 500 and max(times) <= 0.1


@pytest.mark.parametrize("workers", [1, 2])
async def test_gateway_is_ready_within_a_second(workers: int) -> None:
    """Ready within a second, taking the median of 7 starts."""
    times = []
    async with FakeUpstream() as upstream:
        for _ in range(7):
            starting = Stopwatch()
            async with GatewayProcess(config(upstream.base_url, workers=workers)):
                times.append(starting.s)
    print(f"\nready after {statistics.median(times):.2f} s ({workers} workers), at least {min(times):.2f} s")
    assert statistics.median(times) <= 1
