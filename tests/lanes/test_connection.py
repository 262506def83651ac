"""The client's connection keeps time, order and bounds."""

import asyncio
import socket

import pytest
from functional.through import breathe
from gateways import until

from gateway.contracts.errors import GatewayError
from gateway.http.request_head import HeadLimits
from gateway.lanes.client import ClientTimeouts
from gateway.lanes.connection import HELD_LIMIT_BYTES, LINGER_LIMIT_BYTES
from gateway.lanes.router import AcceptLimits
from gateway.testing.raw_connection import PEER_LEFT, Peer
from gateway.testing.scripts import build_answer, build_ok_answer, serve

from .assembled import HOST, Lane, assembled

GET = b"GET /v1/x HTTP/1.1\r\nHost: gw\r\n\r\n"


async def accepted(lane: Lane, n: int = 1) -> None:
    async with asyncio.timeout(120):
        while len(lane.listener.connections) < n:
            await asyncio.sleep(0)


async def silent(peer: Peer) -> None:
    await peer.read_request()
    await peer.wait_end()


async def test_connection_without_a_request_is_closed_at_the_head_timeout() -> None:
    """Silently: there is nothing to answer."""
    async with assembled(timeouts=ClientTimeouts(head_s=10)) as lane, lane.client() as client:
        await accepted(lane)
        lane.later(9)
        await breathe(10)
        assert client.ended == "open"
        lane.later(11)
        assert await client.read_rest() == b""
        assert dict(lane.metrics.deadlines) == {"connect": 1}


@pytest.mark.parametrize("stray", [b"\r\n", b"\r", b"\r\n\r\n"])
async def test_stray_newline_after_a_request_is_ignored(stray: bytes) -> None:
    """Old clients send one behind a body: no 408, no end before the idle time, and the next request is answered."""
    async with assembled(timeouts=ClientTimeouts(head_s=10, keepalive_s=75)) as lane, lane.client() as client:
        await client.send(GET + stray)
        first = await client.read_response()
        await breathe(10)
        lane.later(74)
        await breathe(10)
        assert client.n_received == len(first.raw) and client.ended == "open"
        await client.send(b"\n"[: stray.count(b"\r") - stray.count(b"\n")] + GET)
        await client.read_response()
        await client.send(stray)
        await breathe(10)
        lane.later(76)
        assert await client.read_rest() == b""
        assert not lane.metrics.deadlines


@pytest.mark.parametrize("part", [b"G", GET[:-2], b"\r\nG"])
async def test_slow_head_returns_408(part: bytes) -> None:
    """Counted from its first byte, however it drips: 408, and the end."""
    async with assembled(timeouts=ClientTimeouts(head_s=10)) as lane, lane.client() as client:
        await client.send(part)
        await accepted(lane)
        await breathe(10)
        lane.later(9)
        await client.send(part[:1])
        await breathe(10)
        lane.later(11)
        assert (await client.read_rest()).startswith(b"HTTP/1.1 408 ")
        assert dict(lane.metrics.deadlines) == {"head": 1}


async def test_idle_connection_is_closed_at_the_keepalive_timeout() -> None:
    """After its last answer, silently; that is no fault of anybody."""
    async with assembled(timeouts=ClientTimeouts(keepalive_s=75)) as lane, lane.client() as client:
        for _ in range(2):
            await client.send(GET)
            await client.read_response()
            lane.later(74)
        lane.later(76)
        assert await client.read_rest() == b""
        assert not lane.metrics.deadlines


async def test_declined_request_restarts_the_keepalive_timeout() -> None:
    """As an answered one does."""
    async with assembled() as lane, lane.client() as client:
        await client.send(GET.replace(b"/v1/", b"/v9/"))
        assert (await client.read_response()).status == 404
        lane.later(74)
        await client.send(GET)
        assert (await client.read_response()).status == 200


async def test_client_that_does_not_read_is_disconnected() -> None:
    """After the time for writing, visibly, and its upstream with it; a reader that goes on in time is not."""

    async def flood(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            await peer.send(bytes(1 << 16), timeout_s=None)

    async with assembled(flood, timeouts=ClientTimeouts(write_s=60)) as lane, lane.client(rcvbuf=8192) as client:
        await client.send(GET)
        await accepted(lane)
        (connection,) = lane.listener.connections
        await until(lambda: connection.blocked_since is not None)
        lane.later(59)
        assert client.ended == "open" and lane.listener.connections
        lane.later(61)
        await lane.upstream.wait_open(0)
        assert await client.wait_end() == "reset"
        assert dict(lane.metrics.deadlines) == {"write": 1}


async def test_slowly_reading_client_is_not_disconnected() -> None:
    """Its kernel shows reading in large pieces: the next one may take as long as the last, at a slow reader's rate."""

    async def flood(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            await peer.send(bytes(1 << 16), timeout_s=None)

    async def until_blocked(*, since: float) -> None:
        await until(lambda: connection.blocked_since is not None and connection.blocked_since > since)

    async with assembled(flood, timeouts=ClientTimeouts(write_s=60)) as lane, lane.client(keep_bytes=0) as client:
        await client.send(GET)
        await accepted(lane)
        (connection,) = lane.listener.connections
        await until_blocked(since=0.0)
        lane.later(1)
        before = lane.listener.clock()
        await client.discard(2_000_000)
        await until_blocked(since=before)
        lane.later(120)
        assert client.ended == "open" and lane.listener.connections
        lane.later(1000)
        await lane.upstream.wait_open(0)
        assert dict(lane.metrics.deadlines) == {"write": 1}


async def test_connection_over_the_limit_gets_503_with_retry_after() -> None:
    """503 with Retry-After at once, before anything was read; the others go on."""
    async with assembled(limits=AcceptLimits(connections=2)) as lane, lane.client() as one, lane.client() as two:
        await accepted(lane, 2)
        async with lane.client() as three:
            response = await three.read_response()
            assert (response.status, response.list_values(b"retry-after")) == (503, [b"1"])
            assert await three.wait_end() == "eof"
        for client in (one, two):
            await client.send(GET)
            assert (await client.read_response()).status == 200


async def test_refused_client_still_sending_gets_its_answer() -> None:
    """What it still sends is read and dropped for a while, or the kernel would take the answer back."""
    async with assembled() as lane, lane.client() as client:
        await client.send(b"BAD\r\n\r\n" + bytes(500_000))
        assert (await client.read_rest()).startswith(b"HTTP/1.1 400 ")
        assert not lane.upstream.connections


async def test_refused_client_that_keeps_sending_is_disconnected() -> None:
    """After a bounded amount, and after a bounded time."""
    async with assembled() as lane, lane.client() as client:
        await client.send(b"BAD\r\n\r\n")
        with pytest.raises(PEER_LEFT):
            await client.send(bytes(LINGER_LIMIT_BYTES * 2))
        await lane.until_idle()
    async with assembled() as lane, lane.client() as client:
        await client.send(b"BAD\r\n\r\n")
        await client.read_rest()
        assert lane.listener.connections
        lane.later(5)
        await lane.until_idle()


async def test_pipelined_bytes_are_buffered_within_a_bound() -> None:
    """Then reading stops, until the request under way is answered."""
    async with assembled(silent) as lane, lane.client() as client:
        await client.send(GET)
        await lane.upstream.wait_requests(1)
        (connection,) = lane.listener.connections
        assert not lane.listener.paused
        sending = asyncio.create_task(client.send(bytes(20_000_000), timeout_s=None))
        async with asyncio.timeout(120):
            while connection not in lane.listener.paused:
                await asyncio.sleep(0)
        held = len(connection.take_held_bytes())
        assert HELD_LIMIT_BYTES < held < HELD_LIMIT_BYTES + (1 << 19)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


async def test_head_limits_return_414_and_431() -> None:
    """Also while it comes."""
    async with assembled(limits=AcceptLimits(head=HeadLimits(bytes=2000, fields=5))) as lane:
        for raw, status in (
            (GET.replace(b"\r\n\r\n", b"\r\nA: " + b"x" * 2000), b"431"),
            (b"GET /" + b"x" * 2000, b"414"),
            (GET.replace(b"\r\n\r\n", b"\r\nA: 1" * 5 + b"\r\n\r\n"), b"431"),
        ):
            async with lane.client() as client:
                await client.send(raw)
                assert (await client.read_rest()).split(b" ")[1] == status


async def test_a_second_request_waits_for_its_turn() -> None:
    """One turn at a time: the next one begins when the answer is written."""
    async with assembled(serve(lambda r: build_answer(200, r.target))) as lane, lane.client() as client:
        await client.send(GET.replace(b"x", b"1") + GET.replace(b"x", b"2"))
        assert [(await client.read_response()).payload for _ in range(2)] == [b"/v1/1", b"/v1/2"]
        assert len(lane.upstream.connections) == 1


async def test_early_answer_during_upload_does_not_block_the_next_request() -> None:
    """An early answer meets the end of the upload, and half a head behind that: reading goes on with the next turn."""
    loop = asyncio.get_running_loop()
    client = socket.socket()
    client.setblocking(False)

    async def answers_early(peer: Peer) -> None:
        await peer.read_until(b"{")
        loop.call_soon(client.send, b"}" + GET[:-4])  # in the same turn of the loop as the answer, just before it
        await peer.send(build_ok_answer())
        await asyncio.Event().wait()

    post = b"POST /v1/x HTTP/1.1\r\nHost: gw\r\nContent-Length: 2\r\n\r\n{"
    with client:
        async with assembled(answers_early, serve(build_answer(200, b"second"))) as lane:
            await loop.sock_connect(client, (HOST, lane.port))
            client.send(post)
            assert (await asyncio.wait_for(loop.sock_recv(client, 65536), 120)).startswith(b"HTTP/1.1 200 ")
            await breathe(10)
            client.send(GET[-4:])
            assert (await asyncio.wait_for(loop.sock_recv(client, 65536), 120)).endswith(b"second")
            assert len(lane.upstream.connections) == 2


async def test_gateway_error_answers_are_in_the_access_log() -> None:
    """In metrics and in the access log, without anything from the request but method and path."""
    async with assembled() as lane, lane.client() as client:
        await client.send(GET.replace(b"/v1/x", b"/v9/y?secret=1"))
        await client.read_response()
        await client.send(b"BAD\r\n\r\n")
        await client.read_response()
        facts = [(record["method"], record["path"], record["status"]) for record in lane.log]
        assert facts == [(b"GET", b"/v9/y", 404), (b"-", b"-", 400)]


async def test_gateway_error_repr_has_code_and_message() -> None:
    """A GatewayError names its code; its repr has it and the message."""
    error = GatewayError("overloaded", "Too much.", retry_after_s=1)
    assert (repr(error), error.facts.status) == ("GatewayError('overloaded', 'Too much.')", 503)
