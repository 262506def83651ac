"""Requests that come in pieces, too early or too many: each is answered once, in order."""

import asyncio

import pytest
from measuring import Effort

from gateway.testing.messages import Request
from gateway.testing.raw_connection import Peer
from gateway.testing.scripts import build_answer, build_head, serve

from .through import ask, breathe, client_of, get, in_pieces, post, post_chunked, refusal, through


def echo(request: Request) -> bytes:
    return build_answer(200, request.target + b" " + request.payload)


async def payloads(client: Peer, n: int) -> list[bytes]:
    return [(await client.read_response()).payload for _ in range(n)]


REQUESTS = {
    "get": get(b"/v1/a", b"X-Long: " + b"v" * 30),
    "length": post(b"0123456789", b"/v1/a"),
    "chunked": post_chunked(b"5\r\n01234\r\n05;a=b\r\n56789\r\n0\r\nX-T: 1\r\n\r\n", b"/v1/a"),
}


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
async def test_a_request_may_be_cut_anywhere(request_: bytes) -> None:
    """In two pieces at every offset; the next request on the connection is not disturbed."""
    async with through(serve(echo)) as (gateway, upstream), client_of(gateway) as client:
        for at in range(1, len(request_)):
            await in_pieces(client, request_[:at], request_[at:])
            await client.send(get(b"/v1/next"))
            assert await payloads(client, 2) == [echo(upstream.requests[-2]).split(b"\r\n\r\n")[1], b"/v1/next "]
        sent = upstream.requests[0].raw
        assert all(request.raw == sent for request in upstream.requests[::2])
        assert len(upstream.connections) == 1


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
async def test_a_request_may_come_byte_by_byte(request_: bytes) -> None:
    """Twice on one connection, and then in one piece."""
    async with through(serve(echo)) as (gateway, upstream), client_of(gateway) as client:
        for pieces in ([bytes([b]) for b in request_], [bytes([b]) for b in request_], [request_]):
            await in_pieces(client, *pieces)
            assert (await client.read_response()).status == 200
    first, *others = [request.raw for request in upstream.requests]
    assert others == [first, first]


@pytest.mark.parametrize("at", range(0, 300, 7))
async def test_a_stream_of_requests_may_be_cut_anywhere(at: int) -> None:
    """A segment that ends one request and begins another one."""
    stream = b"".join(
        (post(b"abc", b"/v1/1"), get(b"/v1/2"), post_chunked(b"3\r\nxyz\r\n0\r\n\r\n", b"/v1/3"), get(b"/v1/4"))
    )
    async with through(serve(echo)) as (gateway, upstream), client_of(gateway) as client:
        await in_pieces(client, stream[:at], stream[at : at + 40], stream[at + 40 :])
        assert await payloads(client, 4) == [b"/v1/1 abc", b"/v1/2 ", b"/v1/3 xyz", b"/v1/4 "]
        assert len(upstream.requests) == 4


async def test_a_thousand_pipelined_requests_are_answered_in_order() -> None:
    """Each once, over one upstream connection."""
    stream = b"".join(get(b"/v1/%d" % i) if i % 3 else post(b"x" * i, b"/v1/%d" % i) for i in range(1000))
    async with through(serve(echo)) as (gateway, upstream), client_of(gateway) as client:
        sending = asyncio.create_task(client.send(stream))
        assert [p.split(b" ")[0] for p in await payloads(client, 1000)] == [b"/v1/%d" % i for i in range(1000)]
        await sending
        assert len(upstream.requests) == 1000 and len(upstream.connections) == 1


async def test_pipelined_flood_is_read_only_up_to_a_bound() -> None:
    """While one answer is awaited, what comes behind is held to a bound: the client is held back."""
    waiting = asyncio.Event()

    async def slow(peer: Peer) -> None:
        await peer.read_request()
        await waiting.wait()
        await peer.send(build_answer(200, b"late"))
        await serve(echo)(peer)

    requests = get(b"/v1/y", b"X: " + b"x" * 8000) * 8000  # 64 MB
    async with through(slow) as (gateway, upstream), client_of(gateway) as client:
        await client.send(get())
        await upstream.wait_requests(1)
        with pytest.raises(TimeoutError):
            await client.send(requests, timeout_s=0.3)
        assert client.n_sent < 48_000_000  # what the kernels hold, not what was offered
        assert len(upstream.requests) == 1
        waiting.set()
        assert await payloads(client, 3) == [b"late", b"/v1/y ", b"/v1/y "]


async def test_pipelined_request_waits_for_the_slow_answer_before_it() -> None:
    """A fast request pipelined behind a slow one waits; own pages too."""
    go = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await go.wait()
        await peer.send(build_answer(200, b"slow"))
        await serve(echo)(peer)

    async with through(script) as (gateway, upstream), client_of(gateway) as client:
        await client.send(post(b"abc") + get(b"/") + get(b"/v1/fast") + get(b"/v2/none"))
        await upstream.wait_requests(1)
        await breathe(20)
        assert client.n_received == 0 and len(upstream.requests) == 1
        go.set()
        assert await payloads(client, 3) == [b"slow", b'{"status": "ok"}', b"/v1/fast "]
        assert (await client.read_response()).status == 404


async def test_errors_keep_their_place_in_the_order() -> None:
    """A declined request between good ones is answered between them, and the connection goes on."""
    async with through(serve(echo)) as (gateway, upstream), client_of(gateway) as client:
        await client.send(get(b"/v1/1") + post(b"abc", b"/v2/x") + get(b"/v1/2") + get(b"/v2/y") + get(b"/v1/3"))
        responses = [await client.read_response() for _ in range(5)]
    assert [response.status for response in responses] == [200, 404, 200, 404, 200]
    assert [request.target for request in upstream.requests] == [b"/v1/1", b"/v1/2", b"/v1/3"]


async def test_requests_after_a_malformed_request_are_not_read() -> None:
    """The answers before it are delivered; what follows it is nobody's."""
    async with through(serve(echo)) as (gateway, upstream), client_of(gateway) as client:
        await client.send(get(b"/v1/1") + b"BAD\r\n\r\n" + get(b"/v1/2"))
        assert [(await client.read_response()).status for _ in range(2)] == [200, 400]
        assert await client.wait_end() == "eof"
        assert [request.target for request in upstream.requests] == [b"/v1/1"]


async def test_requests_after_connection_close_are_not_read() -> None:
    """`Connection: close` and HTTP/1.0 end the connection with their answer."""
    for last in (
        get(b"/v1/1", b"Connection: close"),
        get(b"/v1/1", version=b"1.0"),
        get(b"/v2/x", b"Connection: Close"),
    ):
        async with through(serve(echo)) as (gateway, upstream), client_of(gateway) as client:
            await client.send(last + get(b"/v1/2"))
            assert (await client.read_response()).list_values(b"connection") == [b"close"]
            assert await client.wait_end() == "eof"
            assert not [request for request in upstream.requests if request.target == b"/v1/2"]


async def test_empty_lines_before_a_request_are_skipped() -> None:
    """Some, as RFC 9112 section 2.2 asks: at the beginning, between requests, in a segment of their own."""
    async with through(serve(echo)) as (gateway, _), client_of(gateway) as client:
        await client.send(b"\r\n" + get(b"/v1/1") + b"\r\n\r\n" + get(b"/v1/2") + b"\r\n")
        assert await payloads(client, 2) == [b"/v1/1 ", b"/v1/2 "]
        await in_pieces(client, b"\r\n", b"\r", b"\n" + get(b"/v1/3"))
        assert await payloads(client, 1) == [b"/v1/3 "]


async def test_a_flood_of_empty_lines_is_refused() -> None:
    """10,000 of them are no request."""
    async with through() as (gateway, upstream):
        assert (await refusal(gateway, b"\r\n" * 10_000)).status == 400
        assert (await refusal(gateway, b"\r\n" * 10_000 + get())).status == 400
        assert not upstream.connections


async def test_trickled_empty_lines_end_at_the_head_timeout() -> None:
    """One by one they do not keep a connection open."""
    async with through(limits={"head_timeout": "0.2s"}) as (gateway, _), client_of(gateway) as client:
        ended = asyncio.create_task(client.read_rest(timeout_s=120))
        while not ended.done():
            await client.send(b"\r\n")
            await asyncio.sleep(0.02)  # a client that trickles is the case
        assert await ended == b""  # they began no request that an answer could be for


async def test_a_head_in_small_pieces_is_cheap() -> None:
    """16 KB byte by byte cost about a second of CPU, the client included: nothing quadratic in the size of the head."""
    request = get(b"/v1/x", *[b"X-%d: %b" % (i, b"v" * 1000) for i in range(16)])
    async with through() as (gateway, _), client_of(gateway) as client:
        effort = Effort()
        for byte in request:
            await client.send(bytes((byte,)))
            await asyncio.sleep(0)
        assert (await client.read_response()).status == 200
        assert effort.cpu_s < 5


@pytest.mark.parametrize("limit", [1024, 32768])
async def test_a_head_beyond_the_limit_is_refused_while_it_comes(limit: int) -> None:
    """414 for a long line, 431 for long headers: without waiting for their end."""
    async with through(limits={"head": limit}) as (gateway, upstream):
        assert (await refusal(gateway, b"GET /v1/" + b"x" * (limit + 100))).status == 414
        assert (await refusal(gateway, get(b"/v1/x", b"X: " + b"y" * (limit + 100)))).status == 431
        assert (await refusal(gateway, b"GET /v1/x HTTP/1.1\r\nX: " + b"y" * (limit + 100))).status == 431
        assert (await refusal(gateway, get(b"/v1/" + b"x" * limit))).status == 414
        assert (await ask(gateway, get(b"/v1/x", b"X: " + b"y" * (limit - 100)))).status == 200
        assert len(upstream.requests) == 1


async def test_client_that_leaves_within_its_head_gets_no_answer() -> None:
    """Silently, whatever it had sent."""
    async with through(logging={"access": True}) as (gateway, upstream):
        for part in (b"", b"G", get()[:-1], get()[:20]):
            async with client_of(gateway) as client:
                await client.send(part)
                await client.half_close()
                assert await client.wait_end() == "eof"
                assert client.n_received == 0
        assert not upstream.connections


async def test_bodiless_answers_keep_pipelined_answers_in_order() -> None:
    """HEAD, 204 and 304 have no body: the next answer begins right behind the head."""
    replies = {
        b"HEAD": build_head(200, [("Content-Length", "50")]),
        b"GET": build_answer(204),
        b"PUT": build_head(304, [("Content-Length", "50"), ("ETag", "x")]),
        b"POST": build_answer(200, b"end"),
    }
    async with (
        through(serve(lambda request: replies[request.method])) as (gateway, upstream),
        client_of(gateway) as client,
    ):
        await client.send(get(method=b"HEAD") + get() + get(method=b"PUT") + post(b""))
        for method, status in (("HEAD", 200), ("GET", 204), ("PUT", 304), ("POST", 200)):
            assert (await client.read_response(method=method)).status == status
        assert len(upstream.connections) == 1
