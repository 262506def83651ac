"""Answers are framed as said, and the serving loop behaves as an honest origin."""

import pytest

from gateway.testing.messages import Request, dechunk
from gateway.testing.raw_connection import PEER_LEFT, connect
from gateway.testing.scripts import (
    build_answer,
    build_chunk,
    build_event,
    build_event_stream,
    build_event_stream_answer,
    build_head,
    build_ok_answer,
    serve,
)
from gateway.testing.upstream import FakeUpstream

GET = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"


def test_an_answer_has_the_headers_given_and_its_framing_and_nothing_else() -> None:
    """No Date, no Server, no Content-Type."""
    assert build_answer(404, b"no", [("X-A", "1"), (b"x-b", b"2")]) == (
        b"HTTP/1.1 404 Not Found\r\nX-A: 1\r\nx-b: 2\r\nContent-Length: 2\r\n\r\nno"
    )


def test_scripted_answer_can_be_chunked() -> None:
    """One chunk, and the last one."""
    assert build_answer(200, b"hello", chunked=True) == (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
    )


@pytest.mark.parametrize("code", [100, 103, 204, 304])
def test_answers_without_a_body_get_no_framing(code: int) -> None:
    """RFC 9110 section 8.6."""
    assert b"content-length" not in build_answer(code).lower()


def test_given_framing_headers_override_the_default() -> None:
    """So that an answer can lie."""
    lying = build_answer(200, b"hi", [("content-length", "10")])
    assert lying == b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhi"


def test_a_head_can_have_any_code_and_reason() -> None:
    """Unknown codes have an empty reason."""
    assert build_head(299) == b"HTTP/1.1 299 \r\n\r\n"
    assert build_head(200, reason="Fine") == b"HTTP/1.1 200 Fine\r\n\r\n"


def test_an_event_stream_has_one_chunk_per_event() -> None:
    """And the last chunk."""
    body = build_event_stream([build_event("1"), build_event(b"[DONE]")])
    assert body == b"9\r\ndata: 1\n\n\r\ne\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
    assert dechunk(build_event_stream_answer([build_event("1")]).partition(b"\r\n\r\n")[2])[0] == b"data: 1\n\n"


def test_an_event_without_its_blank_line_is_refused() -> None:
    """The error says how to make one."""
    with pytest.raises(ValueError, match=r"not so b'1': use event\(data\)"):
        build_event_stream([b"1"])


def test_empty_chunk_produces_no_bytes() -> None:
    """It would end the body."""
    assert build_chunk(b"") == b""


async def test_serve_keeps_the_connection_for_every_request() -> None:
    """One connection, answers made from the requests."""

    def echo(request: Request) -> bytes:
        return build_answer(200, request.target + request.payload)

    async with FakeUpstream(serve(echo)) as upstream, connect(upstream.host, upstream.port) as client:
        for number in range(3):
            await client.send(b"POST /%d HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi" % number)
            assert (await client.read_response()).payload == b"/%dhi" % number
        assert len(upstream.connections) == 1 and len(upstream.requests) == 3


async def test_serve_says_continue_before_it_reads_the_body() -> None:
    """A client that waits for 100 gets it."""
    async with FakeUpstream(serve(build_ok_answer())) as upstream, connect(upstream.host, upstream.port) as client:
        await client.send(b"POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        assert await client.read_head() == b"HTTP/1.1 100 Continue\r\n\r\n"
        await client.send(b"hi")
        assert (await client.read_response()).status == 200


async def test_serve_sends_no_body_to_head() -> None:
    """And goes on serving."""
    async with FakeUpstream(serve(build_ok_answer())) as upstream, connect(upstream.host, upstream.port) as client:
        await client.send(GET.replace(b"GET", b"HEAD"))
        assert (await client.read_response(method="HEAD")).list_values(b"content-length") == [b"11"]
        await client.send(GET)
        assert (await client.read_response()).payload == b'{"ok":true}'


@pytest.mark.parametrize(
    ("request_bytes", "reply"),
    [
        (GET.replace(b"Host", b"Connection: Close\r\nHost"), build_ok_answer()),
        (GET.replace(b"1.1", b"1.0"), build_ok_answer()),
        (GET, build_answer(200, b"x", [("Connection", "close")])),
        (GET, b"HTTP/1.1 200 OK\r\n\r\nuntil the end"),
    ],
)
async def test_serve_closes_where_closing_is_due(request_bytes: bytes, reply: bytes) -> None:
    """Asked for by either side, HTTP/1.0, or a body that only a close can end."""
    async with FakeUpstream(serve(reply)) as upstream, connect(upstream.host, upstream.port) as client:
        await client.send(request_bytes)
        assert (await client.read_response()).raw == reply
        assert await client.wait_end() == "eof"


async def test_serve_ends_when_the_client_leaves_in_mid_request() -> None:
    """Quietly: the request is not recorded."""
    async with FakeUpstream(serve(build_ok_answer())) as upstream:
        async with connect(upstream.host, upstream.port) as client:
            await client.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhi")
        await upstream.wait_connections(1)
        await upstream.wait_open(0)
        assert upstream.requests == [] and upstream.connections[0].ended == "eof"


def test_peer_left_covers_both_ends() -> None:
    """FIN and RST."""
    assert issubclass(ConnectionResetError, PEER_LEFT) and issubclass(EOFError, PEER_LEFT)
