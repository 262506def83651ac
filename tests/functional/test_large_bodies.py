"""Large bodies cost the gateway no memory: its own process is watched while they pass. (make soak)"""

import asyncio
import hashlib
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from gateways import until_still

from gateway.testing.raw_connection import Peer, connect
from gateway.testing.scripts import build_answer, build_chunk, build_head, serve
from gateway.testing.upstream import FakeUpstream, Script
from tests.support.gateway_process import GatewayProcess

from .through import breathe, get, post, post_chunked

pytestmark = pytest.mark.soak

BLOCK = random.Random(21).randbytes(1 << 18)
BLOCKS = 800  # 200 MiB
ALLOWED_BYTES = 16 << 20
STALLED_BYTES = 256 << 10


def resident_bytes(gateway: GatewayProcess, *, peak: bool = True) -> int:
    """The largest amount of memory that the gateway ever held, or what it holds now."""
    status = Path(f"/proc/{gateway.pid}/status").read_text(encoding="ascii")
    name = "VmHWM:" if peak else "VmRSS:"
    return int(next(line for line in status.splitlines() if line.startswith(name)).split()[1]) << 10


@asynccontextmanager
async def process(*scripts: Script) -> AsyncIterator[tuple[GatewayProcess, FakeUpstream]]:
    """A gateway in a process of its own that has served some requests already."""
    async with FakeUpstream(serve(build_answer(200, b"warm")), *scripts, keep_bytes=0) as upstream:
        config = f"upstreams: [{{name: up, base_url: '{upstream.base_url}'}}]\nallowed_hosts: [gw.example]\n"
        async with GatewayProcess(config) as gateway:
            async with connect(gateway.host, gateway.port) as client:
                for _ in range(200):
                    await client.send(post(bytes(10_000)))
                    await client.read_response()
                # The warm connection is not the one under test: it is told to go.
                await client.send(get(b"/v1/x", b"Connection: close"))
                await client.read_response()
            for peer in upstream.connections:
                peer.close()
            await breathe()
            yield gateway, upstream


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_large_answer_passes_through(chunked: bool) -> None:
    """200 MB, with a length and in chunks: the same bytes, and no more than 16 MB of memory on top."""
    unit = build_chunk(BLOCK) if chunked else BLOCK

    async def flood(peer: Peer) -> None:
        await peer.read_request()
        framing = ("Transfer-Encoding", "chunked") if chunked else ("Content-Length", str(len(BLOCK) * BLOCKS))
        await peer.send(build_head(200, [framing]))
        for _ in range(BLOCKS):
            await peer.send(unit)
        if chunked:
            await peer.send(b"0\r\n\r\n")

    async with process(flood) as (gateway, _):
        before = resident_bytes(gateway)
        async with connect(gateway.host, gateway.port, keep_bytes=0) as client:
            await client.send(get())
            start = await client.read_head()
            await client.discard(len(unit) * BLOCKS + 5 * chunked, timeout_s=60)
            expected = hashlib.sha256(start)
            for _ in range(BLOCKS):
                expected.update(unit)
            expected.update(b"0\r\n\r\n" * chunked)
            assert client.sha256.digest() == expected.digest()
        grown = resident_bytes(gateway) - before
        print(f"200 MB answer, {'chunks' if chunked else 'length'}: +{grown >> 10} KiB")
        assert grown <= ALLOWED_BYTES


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_large_upload_passes_through(chunked: bool) -> None:
    """As an answer does."""
    unit = build_chunk(BLOCK) if chunked else BLOCK
    total = len(unit) * BLOCKS + 5 * chunked
    shas: list[bytes] = []

    async def swallow(peer: Peer) -> None:
        await peer.read_head()
        before = peer.sha256.copy()
        await peer.discard(total, timeout_s=60)
        shas.extend((before.digest(), peer.sha256.digest()))
        await peer.send(build_answer(200, b"thanks"))

    async with process(swallow) as (gateway, upstream):
        before = resident_bytes(gateway)
        async with connect(gateway.host, gateway.port) as client:
            request = post_chunked(b"") if chunked else post(b"").replace(b"Length: 0", b"Length: %d" % total)
            await client.send(request)
            for _ in range(BLOCKS):
                await client.send(unit)
            await client.send(b"0\r\n\r\n" * chunked)
            assert (await client.read_response(timeout_s=60)).payload == b"thanks"
        grown = resident_bytes(gateway) - before
        assert upstream.connections[-1].n_received > total
        print(f"200 MB upload, {'chunks' if chunked else 'length'}: +{grown >> 10} KiB")
        assert grown <= ALLOWED_BYTES


async def test_stalled_readers_use_bounded_memory() -> None:
    """Fifty clients that stop reading an endless stream: at most 256 KiB each."""

    async def endless(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(build_head(200, [("Transfer-Encoding", "chunked")]))
        while True:
            await peer.send(build_chunk(BLOCK), timeout_s=None)

    async with process(endless) as (gateway, upstream):
        before = resident_bytes(gateway)
        clients = [await connect(gateway.host, gateway.port, rcvbuf=8192) for _ in range(50)]
        for client in clients:
            await client.send(get())
            await client.read_head()
        await until_still(lambda: sum(peer.n_sent for peer in upstream.connections), pause_s=0.5)
        grown = resident_bytes(gateway) - before
        for client in clients:
            client.reset()
        await upstream.wait_open(0)
        print(f"50 stalled readers: +{grown >> 10} KiB")
        assert grown <= 50 * STALLED_BYTES


async def test_aborted_streams_leak_no_memory() -> None:
    """10,000 streams whose clients leave: memory stays where it was after the first thousand."""

    async def stream(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(build_head(200, [("Transfer-Encoding", "chunked")]) + build_chunk(b"data: 1\n\n"))
        await peer.wait_end(timeout_s=None)

    async def one() -> None:
        async with connect(gateway.host, gateway.port) as client:
            await client.send(get())
            await client.read_head()

    async with process(stream) as (gateway, upstream):
        settled = 0
        for turn in range(200):
            await asyncio.gather(*(one() for _ in range(50)))
            if turn == 20:
                settled = resident_bytes(gateway, peak=False)
        await upstream.wait_open(0)
        grown = resident_bytes(gateway, peak=False) - settled
        print(f"10,000 aborted streams: +{grown >> 10} KiB")
        assert grown <= 4 << 20
