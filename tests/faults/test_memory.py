"""Memory of a gateway process under what could make it grow (`make soak` prints the figures)."""

import asyncio
import contextlib
import hashlib
import os
from collections.abc import AsyncIterator

import pytest
from functional.through import get, post
from gateways import Usage, config, exchange, fetch, scrape, until_sample

from gateway.testing.raw_connection import Peer, connect
from gateway.testing.scripts import build_answer, build_chunk, build_head, build_ok_answer, serve
from gateway.testing.upstream import FakeUpstream, Script
from tests.support.gateway_process import GatewayProcess

pytestmark = pytest.mark.soak

KIB = 1 << 10
BODY_BYTES = 200_000_000
PIECE = os.urandom(1_000_000)


@contextlib.asynccontextmanager
async def measured(*scripts: Script, **sections: object) -> AsyncIterator[tuple[GatewayProcess, FakeUpstream, Usage]]:
    """A gateway process that has served a first request, and what it takes from the system."""
    async with (
        FakeUpstream(*scripts, keep_bytes=0) as upstream,
        GatewayProcess(config(upstream.base_url, **sections)) as gateway,
    ):
        for _ in range(20):
            await fetch(gateway, b"/nowhere")
            await fetch(gateway, b"/metrics")
        yield gateway, upstream, Usage(gateway.pid)


async def steady(usage: Usage) -> int:
    """The memory in use once it no longer changes."""
    before = -1
    while abs(before - (before := usage.rss_bytes)) > 64 * KIB:
        await asyncio.sleep(1)  # no event says that a process has stopped to grow
    return before


async def test_stalled_readers_use_bounded_memory() -> None:
    """200 clients that ask for a large answer and do not read it: at most 256 KiB each."""
    readers = 200

    async def flood(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(build_head(200, [("Content-Length", str(BODY_BYTES))]))
        while True:
            await peer.send(PIECE, timeout_s=None)

    async with measured(flood, limits={"write": "10m"}) as (gateway, _, usage), contextlib.AsyncExitStack() as stack:
        before = await steady(usage)
        for _ in range(readers):
            client = await stack.enter_async_context(connect(gateway.host, gateway.port, rcvbuf=4096))
            await client.send(get())
        each = (await steady(usage) - before) / readers
        print(f"\n{readers} stalled readers: {each / KIB:.0f} KiB each")
    assert each <= 256 * KIB


@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_large_upload_uses_bounded_memory(framing: str) -> None:
    """200 MB to an upstream that reads slowly at first: every byte arrives, and at most 16 MB are held."""
    arrived: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def slow(peer: Peer) -> None:
        await peer.read_head()
        await asyncio.sleep(1)  # an upstream that reads late is the case
        digest = hashlib.sha256()
        if framing == "length":
            for _ in range(BODY_BYTES // len(PIECE)):
                digest.update(await peer.read_exactly(len(PIECE), timeout_s=120))
        else:
            while size := int(await peer.read_until(b"\r\n", timeout_s=120), 16):
                digest.update(await peer.read_exactly(size, timeout_s=120))
                await peer.read_exactly(2)
            await peer.read_exactly(2)
        arrived.set_result(digest.hexdigest())
        await peer.send(build_ok_answer())

    expected = hashlib.sha256()
    async with measured(slow) as (gateway, _, usage), connect(gateway.host, gateway.port) as client:
        before = await steady(usage)
        usage.forget_peak()
        if framing == "length":
            await client.send(get(b"/v1/x", b"Content-Length: %d" % BODY_BYTES, method=b"POST"))
        else:
            await client.send(get(b"/v1/x", b"Transfer-Encoding: chunked", method=b"POST"))
        for _ in range(BODY_BYTES // len(PIECE)):
            expected.update(PIECE)
            await client.send(PIECE if framing == "length" else build_chunk(PIECE), timeout_s=None)
        if framing == "chunked":
            await client.send(b"0\r\n\r\n")
        assert (await client.read_response(timeout_s=120)).status == 200
        grown = usage.peak_bytes - before
        print(f"\n{BODY_BYTES // 10**6} MB up, {framing}: {grown / 1e6:+.1f} MB")
    assert await arrived == expected.hexdigest()
    assert grown <= 16_000_000


@pytest.mark.parametrize("framing", ["length", "chunked", "close"])
async def test_large_download_uses_bounded_memory(framing: str) -> None:
    """200 MB from an upstream to a client that reads slowly at first: the same."""
    fields = {"length": ("Content-Length", str(BODY_BYTES)), "chunked": ("Transfer-Encoding", "chunked")}

    async def flood(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(build_head(200, [fields[framing]] if framing in fields else []))
        for _ in range(BODY_BYTES // len(PIECE)):
            await peer.send(build_chunk(PIECE) if framing == "chunked" else PIECE, timeout_s=None)
        if framing == "chunked":
            await peer.send(b"0\r\n\r\n")

    sent, got = hashlib.sha256(), hashlib.sha256()
    async with measured(flood) as (gateway, _, usage), connect(gateway.host, gateway.port, keep_bytes=0) as client:
        before = await steady(usage)
        usage.forget_peak()
        await client.send(get())
        await client.read_head()
        await asyncio.sleep(1)  # a client that reads late is the case
        for _ in range(BODY_BYTES // len(PIECE)):
            sent.update(PIECE)
            if framing == "chunked":
                assert int(await client.read_until(b"\r\n", timeout_s=120), 16) == len(PIECE)
            got.update(await client.read_exactly(len(PIECE), timeout_s=120))
            if framing == "chunked":
                await client.read_exactly(2)
        grown = usage.peak_bytes - before
        print(f"\n{BODY_BYTES // 10**6} MB down, {framing}: {grown / 1e6:+.1f} MB")
    assert got.digest() == sent.digest()
    assert grown <= 16_000_000


@pytest.mark.parametrize("state", ["new", "used"])
async def test_idle_connections_use_bounded_memory(state: str) -> None:
    """9,500 of them (files of this process permitting 10,000): at most 25 kB each, which is 250 MB for 10,000."""
    number = 9_500
    limits = {"connections": 20_000, "head_timeout": "10m", "keepalive": "10m"}
    async with (
        measured(serve(build_ok_answer()), limits=limits) as (gateway, _, usage),
        contextlib.AsyncExitStack() as stack,
    ):
        before = await steady(usage)
        for _ in range(number):
            client = await stack.enter_async_context(connect(gateway.host, gateway.port, keep_bytes=0))
            if state == "used":
                assert (await exchange(client)).status == 200
        await until_sample(gateway, "gateway_client_connections", number + 1, timeout_s=60)
        each = (await steady(usage) - before) / number
        print(f"\n{number} idle connections ({state}): {each / 1000:.1f} kB each, {each / 100:.0f} MB for 10,000")
    assert each <= 25_000


async def aborted_streams(gateway: GatewayProcess, number: int) -> None:
    """So many streams that their clients leave in the middle, 100 at a time."""

    async def one(leave_by_reset: bool) -> None:
        async with connect(gateway.host, gateway.port, keep_bytes=0) as client:
            await client.send(post(b'{"stream": true}'))
            await client.read_until(b"begun", timeout_s=120)
            if leave_by_reset:
                client.reset()

    for _ in range(number // 100):
        await asyncio.gather(*(one(bool(n % 2)) for n in range(100)))


async def test_aborted_streams_leak_no_memory_or_files() -> None:
    """10,000: memory and open files stay where they were after the first 3,000."""

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(build_head(200, [("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked")]))
        await peer.send(build_chunk(b"begun"))
        await peer.wait_end(timeout_s=None)

    async with measured(script) as (gateway, upstream, usage):
        await aborted_streams(gateway, 3_000)
        await upstream.wait_open(0, timeout_s=120)
        before, files = await steady(usage), usage.open_files
        await aborted_streams(gateway, 10_000)
        await upstream.wait_open(0, timeout_s=120)
        await until_sample(gateway, "gateway_client_connections", 1)
        after = await steady(usage)
        print(f"\n10,000 aborted streams: {(after - before) / 1e6:+.2f} MB, {usage.open_files - files:+d} open files")
        assert (await scrape(gateway))['gateway_upstream_pool_connections{state="busy",upstream="up"}'] == 0
        assert abs(usage.open_files - files) <= 2
    assert after - before <= 0.05 * before


async def test_many_requests_and_connections_leak_no_memory() -> None:
    """100,000 requests on one connection, then 20,000 connections: back to where it was, within 5 %."""
    async with measured(serve(build_ok_answer())) as (gateway, _, usage):

        async def pipelined(number: int) -> None:
            async with connect(gateway.host, gateway.port, keep_bytes=0) as client:
                for _ in range(number // 100):
                    await client.send(get() * 100)
                    for _ in range(100):
                        assert (await client.read_response()).status == 200

        async def connections(number: int) -> None:
            for _ in range(number // 50):
                await asyncio.gather(*(fetch(gateway) for _ in range(50)))

        await pipelined(10_000)
        await connections(2_000)
        before, files = await steady(usage), usage.open_files
        await pipelined(100_000)
        await connections(20_000)
        after = await steady(usage)
        print(f"\n100,000 requests, 20,000 connections: {(after - before) / 1e6:+.2f} MB of {before / 1e6:.0f}")
        assert usage.open_files - files <= 2
    assert after - before <= 0.05 * before


async def test_consecutive_large_answers_leak_no_memory() -> None:
    """1,000 answers of 1 MB one after the other: nothing of them stays."""
    async with measured(serve(build_answer(200, PIECE))) as (gateway, _, usage):
        async with connect(gateway.host, gateway.port, keep_bytes=0) as client:
            for _ in range(50):
                await exchange(client)
            before = await steady(usage)
            for _ in range(1_000):
                await exchange(client)
        after = await steady(usage)
        print(f"\n1,000 answers of 1 MB: {(after - before) / 1e6:+.2f} MB")
    assert after - before <= 0.05 * before
