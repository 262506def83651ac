"""Who does not read holds the other side back: nothing piles up in the gateway, and nothing is lost."""

import asyncio
import hashlib
import random

import pytest
from gateways import until, until_still
from unanswered_ports import silent_port

from gateway.testing.local_gateway import LocalGateway
from gateway.testing.raw_connection import Peer
from gateway.testing.scripts import build_answer, build_chunk, build_head, serve

from .through import HOSTS, client_of, get, listener_of, meanwhile, post, post_chunked, through

#: What the kernels may hold on the way: `tcp_rmem` allows 32 MB in one buffer.
KERNELS_BYTES = 44 << 20
OFFERED_BYTES = 64 << 20
#: The bound for what one stalled connection keeps in the gateway.
HELD_BYTES = 256 << 10


def held_bytes(gateway: LocalGateway) -> int:
    """What the gateway keeps for its connections beyond what the kernels have."""
    listener = listener_of(gateway)
    clients = [connection.transport for connection in listener.connections]
    upstreams = [connection.transport for group in listener.router.groups for connection in group.members[0].pool.open]
    return sum(transport.get_write_buffer_size() for transport in (*clients, *upstreams))


async def stuck(peer: Peer) -> None:
    await until_still(lambda: peer.n_sent)


@pytest.mark.parametrize("framing", ["length", "chunked", "open"])
async def test_unread_answer_applies_backpressure_to_the_upstream(framing: str) -> None:
    """And when it reads again, everything arrives."""
    block = random.Random(7).randbytes(1 << 16)
    count = OFFERED_BYTES // len(block)
    start = {
        "length": build_head(200, [("Content-Length", str(OFFERED_BYTES))]),
        "chunked": build_head(200, [("Transfer-Encoding", "chunked")]),
        "open": build_head(200),
    }[framing]
    unit = build_chunk(block) if framing == "chunked" else block
    expected = hashlib.sha256(unit * count)

    async def flood(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(start)
        for _ in range(count):
            await peer.send(unit, timeout_s=None)
        if framing == "chunked":
            await peer.send(b"0\r\n\r\n")

    async with through(flood) as (gateway, upstream), client_of(gateway, rcvbuf=8192) as client:
        await client.send(get())
        seen = await client.read_head()
        await stuck(upstream.connections[0])
        assert upstream.connections[0].n_sent < KERNELS_BYTES
        assert held_bytes(gateway) < HELD_BYTES
        before = client.n_received
        sha = hashlib.sha256()
        left = len(unit) * count
        while left:
            data = await client.read_some()
            sha.update(data[:left])
            left -= len(data[:left])
        assert sha.digest() == expected.digest()
        assert before < 1 << 20 and seen


@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_unread_upload_applies_backpressure_to_the_client(framing: str) -> None:
    """And when it reads again, everything arrives."""
    go = asyncio.Event()
    block = random.Random(8).randbytes(1 << 16)
    count = OFFERED_BYTES // len(block)
    body_sha = hashlib.sha256(block * count).digest()

    async def slow(peer: Peer) -> None:
        request_head = await peer.read_head()
        await go.wait()
        sha = hashlib.sha256()
        if b"chunked" in request_head:
            while size := int((await peer.read_until(b"\r\n"))[:-2], 16):
                sha.update((await peer.read_exactly(size + 2))[:-2])
            await peer.read_until(b"\r\n")
        else:
            for _ in range(count):
                sha.update(await peer.read_exactly(len(block)))
        await peer.send(build_answer(200, sha.digest()))

    async with through(slow, rcvbuf=8192) as (gateway, upstream), client_of(gateway) as client:

        async def upload() -> None:
            if framing == "length":
                await client.send(post(b"").replace(b"Content-Length: 0", b"Content-Length: %d" % OFFERED_BYTES))
                for _ in range(count):
                    await client.send(block, timeout_s=None)
            else:
                await client.send(post_chunked(b""))
                for _ in range(count):
                    await client.send(build_chunk(block), timeout_s=None)
                await client.send(b"0\r\n\r\n")

        uploading = asyncio.create_task(upload())
        await upstream.wait_connections(1)
        await stuck(client)
        assert client.n_sent < KERNELS_BYTES
        assert held_bytes(gateway) < 2 * HELD_BYTES
        go.set()
        await uploading
        assert (await client.read_response()).payload == body_sha


async def test_an_upload_waits_for_the_connection_upstream() -> None:
    """While it is being made, little of the body is taken from the client."""
    with silent_port() as port:
        config = {"upstreams": [{"name": "up", "base_url": f"http://127.0.0.1:{port}", "timeouts": {"connect": "30s"}}]}
        async with LocalGateway({**config, "allowed_hosts": HOSTS}) as gateway, client_of(gateway) as client:
            uploading = asyncio.create_task(client.send(post(bytes(OFFERED_BYTES)), timeout_s=None))
            await stuck(client)
            assert client.n_sent < KERNELS_BYTES
            uploading.cancel()
            await asyncio.gather(uploading, return_exceptions=True)


async def test_connections_are_usable_after_a_jam() -> None:
    """A pause on either side does not outlive its request."""
    big = bytes(3_000_000)

    async def script(peer: Peer) -> None:
        while True:
            request = await peer.read_request(timeout_s=None)
            await peer.send(build_answer(200, request.payload), timeout_s=None)

    async with through(script) as (gateway, upstream), client_of(gateway, rcvbuf=8192) as client:
        for turn in range(6):
            body = big if turn % 2 == 0 else b"small"
            sending = asyncio.create_task(client.send(post(body) + get(b"/v1/behind")))
            await stuck(client)
            assert (await client.read_response()).payload == body
            assert (await client.read_response()).payload == b""
            await sending
        assert len(upstream.connections) == 1


@pytest.mark.parametrize("target", [b"/nope", b"/metrics", b"/v1/x"])
async def test_unread_small_answers_apply_backpressure_to_the_client(target: bytes) -> None:
    """Pipelined requests without end, answered by the gateway, by a page or by the upstream: no answer piles up."""
    request = get(target)
    origin = serve(build_answer(200, bytes(5000)))
    async with (
        through(origin, keep_bytes=0, allowed_hosts=["gw.example"]) as (gateway, _),
        client_of(gateway, rcvbuf=4096) as client,
    ):
        async with meanwhile(client.send(request * (OFFERED_BYTES // len(request)), timeout_s=None)):
            await until(lambda: any(connection.blocked_since for connection in listener_of(gateway).connections))
            held = list[int]()

            def looked() -> int:
                held.append(held_bytes(gateway))
                return client.n_sent

            assert await until_still(looked) < OFFERED_BYTES
            assert max(held) < HELD_BYTES
        for _ in range(500):
            assert (await client.read_response()).status in (200, 404)
