"""Slow clients, and clients that do not read, are ended in time; those that behave do not notice."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from functional.through import client_of, error_of, get, post, through
from gateways import Stopwatch, exchange, until_sample, until_still

from gateway.testing.local_gateway import LocalGateway
from gateway.testing.raw_connection import PEER_LEFT, Peer
from gateway.testing.scripts import build_head

from .bounded import UVLOOP, deadlines

#: Each deadline in its test, unless the test says otherwise.
DEADLINE_S = 0.3


async def end_of(client: Peer, *, begun: Stopwatch) -> bytes:
    """What the client still got; its connection must end by the deadline, and not before it."""
    await client.wait_end()
    assert begun.s >= DEADLINE_S
    return bytes(client.received)


@contextlib.asynccontextmanager
async def dripping(client: Peer, data: bytes) -> AsyncIterator[None]:
    """Meanwhile the client sends a byte every 50 ms."""
    task = asyncio.create_task(client.drip(data, every_s=0.05))
    yield
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError, *PEER_LEFT):
        await task


async def test_silent_client_is_disconnected() -> None:
    """Closed without a word: there is no request to answer."""
    async with through(limits={"head_timeout": DEADLINE_S}) as (gateway, _):
        begun = Stopwatch()
        async with client_of(gateway) as client:
            assert await end_of(client, begun=begun) == b""


async def ended_after(gateway: LocalGateway, *begun: bytes) -> list[bytes]:
    """What clients that sent this and no more still got, each on a connection of its own, at the same time."""

    async def one(data: bytes) -> bytes:
        waited = Stopwatch()
        async with client_of(gateway) as client:
            await client.send(data)
            return await end_of(client, begun=waited)

    return await asyncio.gather(*map(one, begun))


async def test_unfinished_request_head_returns_408() -> None:
    """408, and nothing at the upstream."""
    async with through(limits={"head_timeout": DEADLINE_S}) as (gateway, upstream):
        for received in await ended_after(gateway, b"G", b"GET /v1/x HTTP/1.1\r\n", get()[:-2], b"\r\nG"):
            assert received.startswith(b"HTTP/1.1 408 ")
        assert not upstream.connections


async def test_the_head_deadline_counts_from_the_first_byte() -> None:
    """Whatever trickles in; also for the second request of a connection, long after the first."""
    slow = b"GET /v1/x HTTP/1.1\r\nHost: h\r\nX: " + b"a" * 1000
    async with (
        through(limits={"head_timeout": DEADLINE_S}) as (gateway, _),
        client_of(gateway) as used,
    ):
        await exchange(used)
        await asyncio.sleep(2 * DEADLINE_S)  # a connection that is older than the deadline is the case
        begun = Stopwatch()
        async with client_of(gateway) as new, dripping(new, slow), dripping(used, slow):
            received = await asyncio.gather(end_of(new, begun=begun), end_of(used, begun=begun))
        assert all(b"HTTP/1.1 408 " in data for data in received)
        assert (await deadlines(gateway))["head"] == 2


async def test_an_idle_connection_is_closed() -> None:
    """`limits.keepalive` after the last answer, without a word."""
    async with through(limits={"keepalive": DEADLINE_S}) as (gateway, _), client_of(gateway) as client:
        begun = Stopwatch()
        response = await exchange(client)
        assert await end_of(client, begun=begun) == response.raw and client.ended == "eof"


async def test_stalled_request_body_returns_408() -> None:
    """408 after `limits.body_idle`, however it is framed; the upstream connections are closed too."""
    length, chunked = post(b"x" * 100), get(b"/v1/x", b"Transfer-Encoding: chunked", method=b"POST")
    async with through(limits={"body_idle": DEADLINE_S}) as (gateway, upstream):
        for received in await ended_after(gateway, length[:-1], length[:-100], chunked + b"5\r\nhel", chunked):
            assert received.startswith(b"HTTP/1.1 408 ") and b"request_timeout" in received
        await upstream.wait_open(0)
        assert not upstream.requests and await deadlines(gateway) == {"body": 4}


async def test_stalled_body_to_an_own_page_is_closed() -> None:
    """The same deadline; the page's answer, if it came at once, is the last one."""
    begun = get(b"/health/live", b"Content-Length: 10").replace(b"gw.example", b"localhost") + b"12345"
    async with through(limits={"body_idle": DEADLINE_S}) as (gateway, _), client_of(gateway) as client:
        await client.send(begun)
        await client.wait_end()
        assert await deadlines(gateway) == {"body": 1}


@pytest.mark.parametrize("target", [b"/v1/x", b"/v1/chat/completions"])
async def test_dripping_request_body_returns_408(target: bytes) -> None:
    """A byte now and then keeps no connection open: 408, as for a body that stopped; by length and in chunks."""
    lines = (b"X-Context-Mode: context", b"Content-Type: application/json") if target.endswith(b"completions") else ()
    framings = (b"Content-Length: 100000", b"Transfer-Encoding: chunked"), (b"x" * 9999, b"1\r\nx\r\n" * 2000)
    async with through(limits={"body_idle": DEADLINE_S}) as (gateway, upstream):
        for framing, body in zip(*framings, strict=True):
            async with client_of(gateway) as client:
                begun = get(target, *lines, framing, method=b"POST").replace(b"gw.example", b"localhost")
                await client.send(begun)
                async with dripping(client, body):
                    received = await client.read_rest()
                assert received.startswith(b"HTTP/1.1 408 ") and b"bytes a second" in received
        await upstream.wait_open(0)
        assert await deadlines(gateway) == {"body": 2}


async def test_an_upstream_that_drips_its_head_is_a_504() -> None:
    """A head is one when it is whole: its first bytes do not give an upstream more time for the rest."""

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.drip(b"HTTP/1.1 200 OK\r\nX: " + b"a" * 1000, every_s=0.05)

    timeouts = {"timeouts": {"first_byte": DEADLINE_S}}
    async with through(script, upstream=timeouts) as (gateway, _), client_of(gateway) as client:
        response = await exchange(client)
        assert response.status == 504 and error_of(response)["code"] == "upstream_timeout"


async def test_slow_request_body_is_accepted() -> None:
    """Some bytes now and then, for several times the deadline."""
    async with through(limits={"body_idle": 1}) as (gateway, _), client_of(gateway) as client:
        await client.drip(post(b"x" * 3000), size=300, every_s=0.3)
        assert (await client.read_response()).status == 200


def flooding(stated_bytes: int) -> object:
    """An upstream whose answer has this many bytes; it stops with its connection."""

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(build_head(200, [("Content-Length", str(stated_bytes))]))
        for _ in range(stated_bytes // 100_000):
            await peer.send(bytes(100_000), timeout_s=None)
        await peer.wait_end(timeout_s=None)

    return script


async def test_client_that_does_not_read_is_reset_after_write_timeout() -> None:
    """RST after `limits.write`; the upstream is held back meanwhile and let go then."""
    script = flooding(50_000_000)
    async with through(script, limits={"write": DEADLINE_S}) as (gateway, upstream):
        async with client_of(gateway, rcvbuf=4096) as client:
            await client.send(get())
            await upstream.wait_connections(1)
            await upstream.wait_open(0)
            assert upstream.connections[0].n_sent < 25_000_000, "the upstream was held back"
            assert await client.wait_end() == "reset"
        assert await deadlines(gateway) == {"write": 1}


@UVLOOP
async def test_slow_reader_does_not_hit_the_write_timeout() -> None:
    """It reads steadily, far less than the kernel could hold, for several times the deadline."""
    async with (
        through(flooding(50_000_000), limits={"write": 2}) as (gateway, _),
        client_of(gateway, rcvbuf=16384, keep_bytes=0) as client,
    ):
        await client.send(get())
        reading = Stopwatch()
        while reading.s < 5:
            await client.discard(4000)
            await asyncio.sleep(0.01)  # a client that reads slowly is the case
        assert await deadlines(gateway) == {}


@UVLOOP
async def test_unread_close_delimited_answer_ends_with_a_reset() -> None:
    """Only a FIN delimits it, and the gateway still holds the end of it when the deadline strikes: no FIN then.

    How much the kernel holds is its own choice, so many sizes are tried: one of them leaves a rest with the gateway.
    """

    async def script(peer: Peer) -> None:
        total = int((await peer.read_request()).target.rpartition(b"/")[2])
        await peer.send(build_head(200) + bytes(total), timeout_s=None)

    async with contextlib.AsyncExitStack() as stack:
        gateway, _ = await stack.enter_async_context(through(script, limits={"write": DEADLINE_S}))
        clients: dict[int, Peer] = {}
        for total in range(2_000_000, 5_000_000, 50_000):
            client = await stack.enter_async_context(client_of(gateway, rcvbuf=4096, keep_bytes=0))
            await client.send(get(b"/v1/%d" % total))
            clients[total + len(build_head(200)) + len(b"Connection: close\r\n")] = client
        await until_sample(gateway, "gateway_client_connections", 1)
        ends = [(await client.wait_end(), client.n_received == whole) for whole, client in clients.items()]
    assert ("eof", False) not in ends
    assert ("eof", True) in ends and ("reset", False) in ends, "some fit into the kernel, some did not"


async def test_upstream_is_paused_while_the_client_does_not_read() -> None:
    """And its whole answer arrives once the client reads again."""
    total = 20_000_000
    async with (
        through(flooding(total)) as (gateway, upstream),
        client_of(gateway, rcvbuf=4096, keep_bytes=0) as client,
    ):
        await client.send(get())
        await client.read_head()
        await upstream.wait_connections(1)
        assert await until_still(lambda: upstream.connections[0].n_sent) < total, "held back"
        await client.discard(total, timeout_s=120)
