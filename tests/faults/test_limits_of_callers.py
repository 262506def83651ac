"""Limits of callers over several workers: exact under ten times the load, and when a worker is killed."""

import asyncio
import os
import signal
import time

import pytest
from functional.several import CHAT
from functional.through import get, post
from gateways import all_workers, config, exchange, key, scrape, until, until_read, workers_of

from gateway.testing.raw_connection import PEER_LEFT, Peer, connect
from gateway.testing.scripts import LAST_CHUNK, build_answer, build_chunk, build_head, serve
from gateway.testing.upstream import FakeUpstream
from tests.support.gateway_process import GatewayProcess

KEY = "sk-limited"
OURS = b"X-Gateway-Key: sk-limited"
MOST, TIMES, CLIENTS = 300, 10, 24
BODY = b'{"model": "m", "messages": []}'
USED = 50
COUNTED = serve(
    build_answer(
        200,
        b'{"object": "chat.completion", "model": "m", "choices": [], "usage": {"prompt_tokens": 30, '
        b'"completion_tokens": 20, "total_tokens": %d}}' % USED,
        [("Content-Type", "application/json")],
    )
)


def limited(upstream: FakeUpstream, *, workers: int, **limits: object) -> str:
    keys = [{**key(KEY), "limits": limits}]
    return config(upstream.base_url, workers=workers, keys=keys, metrics={"public": True})


async def _overload(gateway: GatewayProcess, message: bytes) -> list[int]:
    """The statuses of `TIMES` as many requests as the limit lets through, on connections to all workers."""

    async def client() -> list[int]:
        async with connect(gateway.host, gateway.port) as peer:
            return [(await exchange(peer, message)).status for _ in range(MOST * TIMES // CLIENTS)]

    found = await asyncio.gather(*(client() for _ in range(CLIENTS)))
    return [status for statuses in found for status in statuses]


@pytest.mark.parametrize("workers", [2, 4])
async def test_request_limit_per_minute_is_exact_under_tenfold_load(workers: int) -> None:
    """Never more than the limit reach the upstream, and at most one in a hundred fewer."""
    async with FakeUpstream(serve(build_answer(200, b"fine"))) as upstream:
        async with GatewayProcess(limited(upstream, workers=workers, requests_per_minute=MOST)) as gateway:
            await all_workers(gateway)
            began_s = time.monotonic()
            statuses = await _overload(gateway, post(BODY, CHAT, OURS))
            windows = 1 + int((time.monotonic() - began_s) // 60)
            samples = await scrape(gateway)
        seen = len(upstream.requests)
    assert MOST * 0.99 <= seen <= MOST * windows
    assert (statuses.count(200), statuses.count(429)) == (seen, MOST * TIMES - seen)
    assert samples['gateway_limit_refused_total{limit="requests_per_minute",scope="key"}'] == MOST * TIMES - seen


async def test_token_limit_per_minute_counts_the_upstream_usage() -> None:
    """Over both workers. What was under way when the limit was reached may lie above it."""
    async with FakeUpstream(COUNTED) as upstream:
        async with GatewayProcess(limited(upstream, workers=2, tokens_per_minute=MOST * USED)) as gateway:
            await all_workers(gateway)
            began_s = time.monotonic()
            await _overload(gateway, post(BODY, CHAT, OURS))
            windows = 1 + int((time.monotonic() - began_s) // 60)
        seen = len(upstream.requests)
    assert MOST * 0.99 <= seen <= MOST * windows + CLIENTS


async def test_killed_workers_release_their_concurrency_slots() -> None:
    """All that was under way in them is over; their successors let in as much as before."""

    async def streams(peer: Peer) -> None:
        request = await peer.read_request()
        stream = [("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked")]
        await peer.send(build_head(200, stream) + build_chunk(b"begun"))
        if request.target.endswith(b"/held"):
            await peer.wait_end(timeout_s=None)
        await peer.send(LAST_CHUNK)

    upstream = FakeUpstream(streams)
    async with upstream, GatewayProcess(limited(upstream, workers=2, concurrent=4)) as gateway:
        dead = await all_workers(gateway)
        held = [asyncio.create_task(_held(gateway)) for _ in range(4)]
        await until(lambda: len(upstream.requests) == 4)
        assert await _status(gateway) == 429
        for worker in dead:
            os.kill(worker.pid, signal.SIGKILL)
        await asyncio.gather(*held)
        await until(lambda: len(workers_of(gateway)) == 2 and not set(dead) & set(workers_of(gateway)))
        assert await until_read(lambda: _status(gateway), lambda status: status == 200)


async def _held(gateway: GatewayProcess) -> None:
    """Reads a stream until its worker dies."""
    async with connect(gateway.host, gateway.port) as peer:
        await peer.send(get(b"/v1/held", OURS))
        with pytest.raises(PEER_LEFT):
            await peer.read_until(LAST_CHUNK)


async def _status(gateway: GatewayProcess) -> int:
    """The status of a request; 0 where no worker answers."""
    try:
        async with connect(gateway.host, gateway.port) as peer:
            return (await exchange(peer, get(b"/v1/x", OURS))).status
    except PEER_LEFT:
        return 0
