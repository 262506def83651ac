"""Reads return exactly what was asked for, say why they cannot, and ends are seen as they were made."""

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator

import pytest
from functional.through import breathe

from gateway.testing.raw_connection import Peer, connect
from gateway.testing.scripts import build_answer, build_event_stream_answer
from gateway.testing.upstream import FakeUpstream, Script

GET = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@contextlib.asynccontextmanager
async def client_of(script: Script, *, rcvbuf: int | None = None) -> AsyncIterator[Peer]:
    """A client connected to an upstream that runs `script`."""
    async with (
        FakeUpstream(script, rcvbuf=rcvbuf) as upstream,
        connect(upstream.host, upstream.port, rcvbuf=rcvbuf) as client,
    ):
        await upstream.wait_connections(1)
        yield client


def says(data: bytes) -> Script:
    """Sends `data` unasked and ends the connection with FIN."""

    async def script(peer: Peer) -> None:
        await peer.send(data)
        await peer.half_close()
        await peer.wait_end()

    return script


async def test_reads_take_the_requested_bytes_and_leave_the_rest() -> None:
    """Head, token, count, whatever there is, rest."""
    async with client_of(says(b"A\r\n\r\nuntil;12345-drop-more")) as client:
        assert await client.read_head() == b"A\r\n\r\n"
        assert await client.read_until(b";") == b"until;"
        assert await client.read_exactly(5) == b"12345"
        await client.discard(6)
        assert await client.read_some() == b"more"
        assert await client.read_some() == b""
        assert await client.read_rest() == b""


async def test_failed_read_reports_expected_and_received_bytes() -> None:
    """So that a failing test explains itself."""
    async with client_of(says(b"HTTP/1.1 200 OK\r\n")) as client:
        with pytest.raises(EOFError, match=r"before b'\\r\\n\\r\\n' came: 17 bytes .* ending in b'HTTP/1.1 200"):
            await client.read_head()
        assert client.ended == "eof"
    async with FakeUpstream() as upstream, connect(upstream.host, upstream.port) as client:
        await client.send(b"GET ")
        with pytest.raises(TimeoutError, match=r"waited 0.01 s for a response: 0 bytes received so far.*; 4 sent"):
            await client.read_response(timeout_s=0.01)
        assert client.ended == "open"


async def test_a_read_that_timed_out_loses_nothing() -> None:
    """What came so far is there for the next read."""
    proceed = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.send(b"first half, ")
        await proceed.wait()
        await peer.send(b"second half")
        await peer.wait_end()

    async with client_of(script) as client:
        with pytest.raises(TimeoutError):
            await client.read_exactly(23, timeout_s=0.05)
        proceed.set()
        assert await client.read_exactly(23) == b"first half, second half"


@pytest.mark.parametrize(
    ("response", "method", "body", "rest"),
    [
        (build_answer(200, b"hello"), "GET", b"hello", b""),
        (build_answer(200, b"hello"), "HEAD", b"", b"hello"),
        (b"HTTP/1.1 204 No Content\r\nContent-Length: 3\r\n\r\nhi!", "GET", b"", b"hi!"),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", "GET", b"", b""),
        (b"HTTP/1.1 200 OK\r\n\r\ntunnel", "CONNECT", b"", b"tunnel"),
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\nframes", "GET", b"", b"frames"),
        (b"HTTP/1.1 200 OK\r\n\r\nto the end", "GET", b"to the end", b""),
        (CHUNKED + b"1;x\r\na\r\n0\r\nT: 1\r\n\r\nmore", "GET", b"1;x\r\na\r\n0\r\nT: 1\r\n\r\n", b"more"),
    ],
)
async def test_a_body_is_read_by_its_framing(response: bytes, method: str, body: bytes, rest: bytes) -> None:
    """RFC 9112 section 6.3, raw, and not a byte further."""
    async with client_of(says(response)) as client:
        assert (await client.read_response(method=method)).raw_body == body
        assert await client.read_rest() == rest


async def test_read_head_and_read_body_match_read_response() -> None:
    """For scripts that act between the two."""
    async with client_of(says(build_answer(200, b"hello"))) as client:
        assert await client.read_body(await client.read_head()) == b"hello"


async def test_informational_answers_are_collected() -> None:
    """Their heads, in order; the final answer is the one returned."""
    early = [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n"]
    async with client_of(says(b"".join(early) + build_answer(201))) as client:
        response = await client.read_response()
    assert response.status == 201 and list(response.informational) == early


@pytest.mark.parametrize(
    "response",
    [
        CHUNKED + b"ZZ\r\n",
        CHUNKED + b"2\r\nabc\r\n",
        CHUNKED.replace(b"chunked", b"x\r\nContent-Length: +1"),
        b"HTTP/1.1 OK\r\n\r\n",
    ],
)
async def test_broken_framing_is_an_error(response: bytes) -> None:
    """ValueError, not a guess."""
    async with client_of(says(response)) as client:
        with pytest.raises(ValueError, match=r"chunk|Content-Length|status"):
            await client.read_response()


STREAM = build_event_stream_answer([b"data: 1\n\n", b"data: 2\n\n"])


@pytest.mark.parametrize("length", range(0, len(STREAM), 7))
async def test_a_truncated_answer_is_never_taken_for_a_whole_one(length: int) -> None:
    """Cut with FIN: EOFError at every offset; the bytes that came are in `received`."""
    async with client_of(says(STREAM[:length])) as client:
        with pytest.raises(EOFError):
            await client.read_response()
        assert bytes(client.received) == STREAM[:length] and client.ended == "eof"


async def test_reset_is_distinguished_from_eof() -> None:
    """RST after a close-delimited body is an error, and `ended` says so."""

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(b"HTTP/1.1 200 OK\r\n\r\npart")
        await peer.read_exactly(1)
        peer.reset()
        assert peer.ended == "closed"

    async with client_of(script) as client:
        await client.send(GET)
        assert await client.read_until(b"part")
        await client.send(b"!")
        with pytest.raises(ConnectionResetError):
            await client.read_rest()
        assert client.ended == "reset" and await client.wait_end() == "reset"


async def test_sending_on_a_reset_connection_raises_connection_error() -> None:
    """ConnectionError, and `ended` is reset."""

    async def script(peer: Peer) -> None:
        peer.reset()

    async with FakeUpstream(script) as upstream, connect(upstream.host, upstream.port) as client:
        await upstream.wait_connections(1)
        await upstream.wait_open(0)
        with pytest.raises(ConnectionError):
            await client.send(bytes(1 << 20))
        assert client.ended == "reset"


async def test_half_close_ends_one_direction() -> None:
    """The other side sees FIN and can still answer."""

    async def script(peer: Peer) -> None:
        assert await peer.wait_end() == "eof"
        await peer.send(b"still here")

    async with client_of(script) as client:
        await client.half_close()
        assert await client.read_rest() == b"still here"


async def test_drip_sends_in_pieces() -> None:
    """Each piece is one send; between them the other side sees the bytes so far."""
    seen: list[bytes] = []

    async def script(peer: Peer) -> None:
        while data := await peer.read_some():
            seen.append(data)

    async with FakeUpstream(script) as upstream:
        async with connect(upstream.host, upstream.port) as client:
            await client.drip(b"slowloris", size=4, every_s=0.02)
        await upstream.wait_connections(1)
        await upstream.wait_open(0)
    assert b"".join(seen) == b"slowloris" and len(seen) > 1 and seen[0] == b"slow"


async def test_closing_wakes_a_task_that_reads() -> None:
    """It gets ConnectionAbortedError instead of waiting for ever; later calls too."""
    async with FakeUpstream() as upstream:
        client = await connect(upstream.host, upstream.port)
        reading = asyncio.create_task(client.read_head(timeout_s=None))
        await breathe()
        client.close()
        client.close()
        with pytest.raises(ConnectionAbortedError, match="this side has closed"):
            await reading
        with pytest.raises(ConnectionAbortedError):
            await client.send(b"x")
        assert client.ended == "closed" and repr(client) == "<Peer closed, 0 bytes received, 0 sent>"


async def test_concurrent_read_and_send_are_supported() -> None:
    """Full duplex: an echo of 8 MiB through small buffers."""

    async def echo(peer: Peer) -> None:
        while data := await peer.read_some():
            await peer.send(data)

    payload = bytes(range(256)) * (1 << 15)
    async with client_of(echo, rcvbuf=65536) as client:
        sending = asyncio.create_task(client.send(payload))
        await client.discard(len(payload), timeout_s=120)
        await sending
        assert client.sha256.digest() == hashlib.sha256(payload).digest()
        assert len(client.received) == 1 << 20


async def test_two_readers_of_one_connection_are_refused() -> None:
    """They would take each other's bytes."""
    async with FakeUpstream() as upstream, connect(upstream.host, upstream.port) as client:
        first = asyncio.create_task(client.read_head())
        await breathe()
        with pytest.raises(RuntimeError, match="two tasks read one connection"):
            await client.read_head()
        first.cancel()


async def test_request_keeps_raw_body_payload_and_trailers() -> None:
    """Head, raw body, payload, trailers."""
    raw_body = b"3\r\nabc\r\n0\r\nX-T: 1\r\n\r\n"
    async with FakeUpstream() as upstream, connect(upstream.host, upstream.port) as client:
        await client.send(b"PUT /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" + raw_body)
        assert (await client.read_response()).status == 200
    (request,) = upstream.requests
    assert request.raw_body == raw_body and request.payload == b"abc" and request.trailers == ((b"X-T", b"1"),)


async def test_connecting_works_with_await_too() -> None:
    """And the peer closes itself as a context manager."""
    async with FakeUpstream() as upstream:
        async with await connect("localhost", upstream.port) as client:
            await client.send(GET)
            assert (await client.read_response()).status == 200
        assert client.ended == "closed"


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "example.org", "::"])
def test_other_addresses_than_loopback_are_refused(host: str) -> None:
    """Before anything is sent, with the way out in the text."""
    with pytest.raises(ValueError, match=r"use 127\.0\.0\.1, ::1 or localhost"):
        connect(host, 80)
