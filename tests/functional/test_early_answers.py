"""Answers that come before the request is whole: interim ones, refusals of an upload, streams both ways."""

import asyncio

import pytest
from measuring import LoopTime

from gateway.testing.raw_connection import PEER_LEFT, Peer
from gateway.testing.scripts import CONTINUE, LAST_CHUNK, build_answer, build_chunk, build_head, serve

from .through import FINE, breathe, client_of, error_of, get, in_pieces, listener_of, post, post_chunked, through

TOO_LARGE = build_answer(413, b'{"error":"too large"}')
EXPECTING = (b"Expect: 100-continue",)
UPLOAD = post(b"", b"/v1/files").replace(b"Content-Length: 0", b"Content-Length: 100000000")


async def test_continue_answer_is_forwarded_from_the_upstream() -> None:
    """The gateway does not invite the body by itself: it forwards Expect, and 100 when that comes."""
    invite = asyncio.Event()

    async def script(peer: Peer) -> None:
        request_head = await peer.read_head()
        assert b"\r\nExpect: 100-continue\r\n" in request_head
        await invite.wait()
        await peer.send(CONTINUE)
        await peer.finish_request(request_head)
        await peer.send(build_answer(200, b"thanks"))

    async with through(script) as (gateway, upstream), client_of(gateway) as client:
        request = post(b"body", b"/v1/x", *EXPECTING)
        await client.send(request[:-4])
        await upstream.wait_connections(1)
        await breathe(20)
        assert client.n_received == 0
        invite.set()
        assert await client.read_head() == CONTINUE
        await client.send(b"body")
        assert (await client.read_response()).payload == b"thanks"
        assert upstream.requests[0].payload == b"body"


async def test_a_continued_exchange_leaves_the_connections_usable() -> None:
    """Several on one connection, chunked and with a length, expected and not."""
    async with (
        through(serve(lambda r: build_answer(200, r.payload))) as (gateway, upstream),
        client_of(gateway) as client,
    ):
        for request, body in (
            (post(b"abc", b"/v1/x", *EXPECTING), b"abc"),
            (post_chunked(b"3\r\nxyz\r\n0\r\n\r\n", b"/v1/x", *EXPECTING), b"xyz"),
            (post(b"def"), b"def"),
        ):
            cut = request.index(b"\r\n\r\n") + 4
            await client.send(request[:cut])
            if b"100" in request:
                assert await client.read_head() == CONTINUE
            await client.send(request[cut:])
            assert (await client.read_response()).payload == body
        assert len(upstream.connections) == 1


async def test_body_sent_before_the_continue_answer_is_forwarded() -> None:
    """The body in the same segment: 100 is passed on all the same, and the answer is right."""
    async with through(serve(lambda r: build_answer(200, r.payload))) as (gateway, _), client_of(gateway) as client:
        await client.send(post(b"abc", b"/v1/x", *EXPECTING))
        response = await client.read_response()
        assert (response.payload, response.informational) == (b"abc", (CONTINUE,))


async def test_final_answer_instead_of_continue_closes_both_connections() -> None:
    """417 or 413 before the body: delivered, and both connections end, since the body may still come."""

    async def script(peer: Peer) -> None:
        await peer.read_head()
        await peer.send(TOO_LARGE)
        await peer.wait_end()

    async with through(script) as (gateway, upstream), client_of(gateway) as client:
        await client.send(UPLOAD.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n"))
        response = await client.read_response()
        assert (response.status, response.list_values(b"connection")) == (413, [b"close"])
        assert await client.wait_end() == "eof"
        await upstream.wait_open(0)


async def test_interim_answers_are_passed_on() -> None:
    """103 with its links, 102, unknown ones: in order, before the final answer; a 100 nobody asked for is not."""
    early = [
        build_head(103, [("Link", "</a>; rel=preload"), ("link", "</b>")]),
        build_head(102),
        build_head(199, [("X", "y")], reason="Odd"),
    ]
    for parts in (
        [b"".join(early) + CONTINUE + build_answer(200, b"hi")],
        [*early, CONTINUE, build_answer(200, b"hi")],
    ):

        async def script(peer: Peer, parts: list[bytes] = parts) -> None:
            for _ in range(2):
                await peer.read_request()
                await in_pieces(peer, *parts)

        async with through(script) as (gateway, upstream), client_of(gateway) as client:
            for _ in range(2):
                await client.send(get())
                response = await client.read_response()
                assert (response.informational, response.raw) == (tuple(early), build_answer(200, b"hi"))
            assert len(upstream.connections) == 1


async def test_http_1_0_clients_get_no_interim_answers() -> None:
    """HTTP/1.0 does not know them (RFC 9110 section 15.2); nor does its Expect mean anything."""
    async with through(serve(build_head(103, [("Link", "x")]) + CONTINUE + build_answer(200, b"hi"))) as (gateway, _):
        for lines in ((), EXPECTING):
            async with client_of(gateway) as client:
                await client.send(get(b"/v1/x", *lines, version=b"1.0"))
                assert (await client.read_rest()).startswith(b"HTTP/1.1 200 OK\r\n")


async def test_endless_interim_answers_become_a_502() -> None:
    """And a connection that dies between an interim and the final answer is one too, without a second try."""

    async def flood(peer: Peer) -> None:
        await peer.read_request()
        while True:
            await peer.send(build_head(102) * 100)

    async def die(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(build_head(103))
        await breathe()

    async with through(flood, die) as (gateway, upstream), client_of(gateway) as client:
        for _ in range(2):
            await client.send(get())
            response = await client.read_response()
            assert (response.status, error_of(response)["code"]) == (502, "upstream_error")
        assert len(upstream.requests) == 2


@pytest.mark.parametrize("end", ["close", "reset", "wait"])
async def test_an_early_refusal_of_an_upload_is_delivered(end: str) -> None:
    """413 in the middle of a large body, however its sender then ends: the client gets it, and then the end."""

    async def script(peer: Peer) -> None:
        await peer.read_head()
        await peer.discard(100_000)
        await peer.send(TOO_LARGE)
        if end == "wait":
            await peer.wait_end()
        elif end == "reset":
            await breathe(20)
            peer.reset()

    async with through(script) as (gateway, upstream):
        for _ in range(10):
            async with client_of(gateway) as client:
                sending = asyncio.create_task(upload(client))
                response = await client.read_response()
                assert (response.raw_body, response.status) == (b'{"error":"too large"}', 413)
                assert response.list_values(b"connection") == [b"close"]
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
        await upstream.wait_open(0)
        assert not upstream.requests


async def upload(client: Peer) -> None:
    """A body that is larger than what is read of it."""
    try:
        await client.send(UPLOAD)
        for _ in range(1000):
            await client.send(bytes(50_000))
    except PEER_LEFT:
        pass


async def test_early_refusal_reaches_a_client_that_sends_before_reading() -> None:
    """It sends a body of moderate size before it reads anything: the answer is still there."""

    async def script(peer: Peer) -> None:
        await peer.read_head()
        await peer.send(TOO_LARGE)
        await peer.wait_end()

    body = bytes(600_000)
    async with through(script) as (gateway, _), client_of(gateway) as client:
        await client.send(post(body))
        await breathe(20)
        response = await client.read_response()
        assert response.status == 413
        if response.list_values(b"connection") == [b"close"]:
            assert await client.wait_end() == "eof"


async def test_an_upstream_that_answered_early_is_not_used_again() -> None:
    """Its request was not whole: the rest would be read as the next one."""

    async def script(peer: Peer) -> None:
        await peer.read_head()
        await peer.send(build_answer(200, b"enough"))
        await peer.wait_end()

    async with through(script, serve(build_answer(200, b"next"))) as (gateway, upstream):
        async with client_of(gateway) as client:
            await client.send(post(bytes(1000))[:-500])
            assert (await client.read_response()).payload == b"enough"
        await upstream.wait_open(0)
        async with client_of(gateway) as client:
            await client.send(get())
            assert (await client.read_response()).payload == b"next"
        assert len(upstream.connections) == 2


@pytest.mark.parametrize("end", ["close", "wait"])
@pytest.mark.parametrize(
    "request_", [get(), post(b"{}"), post(bytes(300_000)), post_chunked(build_chunk(b"x") + LAST_CHUNK)]
)
async def test_upstream_answer_sent_on_accept_reaches_the_client(request_: bytes, end: str) -> None:
    """A server at its limit says 503 before it has read anything: with its Retry-After, not as an error of ours."""
    busy = build_answer(503, b"at my limit", [("Retry-After", "7"), ("Connection", "close")])

    async def script(peer: Peer) -> None:
        await peer.send(busy)
        if end == "wait":
            await peer.wait_end()

    async with through(script) as (gateway, upstream):
        for _ in range(20):
            async with client_of(gateway) as client:
                await client.send(request_)
                response = await client.read_response()
                assert (response.status, response.payload) == (503, b"at my limit")
                assert response.list_values(b"retry-after") == [b"7"]
        await upstream.wait_open(0)
        assert not listener_of(gateway).router.groups[0].members[0].pool.open


async def test_an_upstream_that_closes_on_accept_is_a_502() -> None:
    """At once, and nothing is left of it."""

    async def closes(peer: Peer) -> None:
        peer.close()

    async with through(closes) as (gateway, upstream):
        for request_ in (get(), post(b"{}")) * 5:
            async with client_of(gateway) as client:
                await client.send(request_)
                response = await client.read_response()
                assert (response.status, error_of(response)["code"]) == (502, "upstream_error")
        await upstream.wait_open(0)
        assert not listener_of(gateway).router.groups[0].members[0].pool.open


@pytest.mark.parametrize("first", ["body", "answer"])
async def test_early_answer_keeps_other_requests_off_the_unfinished_connection(first: str) -> None:
    """Answered on the head while the body arrives here: no other request goes out behind a missing body."""
    whole = asyncio.Event()

    async def impatient(peer: Peer) -> None:
        await peer.read_head()
        sends = [client.send(b"body"), peer.send(build_answer(429, b"slow down"))]  # both before the loop looks again
        await asyncio.gather(*(sends if first == "body" else sends[::-1]))
        await whole.wait()
        await peer.wait_end()

    async with through(impatient, FINE) as (gateway, upstream), client_of(gateway) as client:
        await client.send(post(b"body")[:-4])
        assert (await client.read_response()).status == 429
        async with client_of(gateway) as other:
            await other.send(post(b"{}", b"/v1/other"))
            assert (await other.read_response()).payload == b"fine"
        whole.set()
        assert len(upstream.connections) == 2 or upstream.connections[0].received.endswith(b"body")
        assert b"/v1/other" not in upstream.connections[0].received


async def test_connection_with_unread_request_body_is_not_reused() -> None:
    """The body is here whole, the upstream has not taken it: no other request is put behind it."""
    go, done = asyncio.Event(), asyncio.Event()

    async def never_reads(peer: Peer) -> None:
        await peer.read_head()
        await go.wait()
        await peer.send(build_answer(200, b"enough"))
        await done.wait()

    async with through(never_reads, serve(build_answer(200, b"next")), rcvbuf=4096) as (gateway, upstream):
        async with client_of(gateway) as client:
            await client.send(post_chunked(b""))
            await upstream.wait_connections(1)
            pool = listener_of(gateway).router.groups[0].members[0].pool
            while not any(connection.transport.get_write_buffer_size() for connection in pool.open):
                await client.send(build_chunk(bytes(16384)))
                await breathe()
            await client.send(b"0\r\n\r\n")
            await breathe()
            go.set()
            assert (await client.read_response()).payload == b"enough"
        async with client_of(gateway) as client:
            asked = LoopTime()
            await client.send(post(b"{}"))
            assert (await client.read_response()).payload == b"next"
            asked.within(1)
        done.set()
        assert len(upstream.connections) == 2


async def test_request_body_and_answer_stream_in_full_duplex() -> None:
    """An upstream that answers each chunk as it comes: full duplex, and both connections are usable afterwards."""

    async def echo(peer: Peer) -> None:
        for _ in range(2):
            await peer.read_head()
            await peer.send(build_head(200, [("Transfer-Encoding", "chunked")]))
            while size := int((await peer.read_until(b"\r\n"))[:-2], 16):
                data = await peer.read_exactly(size + 2)
                await peer.send(build_chunk(data[:-2].upper()))
            await peer.read_until(b"\r\n")
            await peer.send(b"0\r\n\r\n")

    async with through(echo) as (gateway, upstream), client_of(gateway) as client:
        await client.send(post_chunked(b""))
        started = await client.read_head()
        for word in (b"one", b"two", b"three" * 1000):
            await client.send(build_chunk(word))
            assert await client.read_exactly(len(build_chunk(word))) == build_chunk(word.upper())
        await client.send(b"0\r\n\r\n")
        assert await client.read_exactly(5) == b"0\r\n\r\n"
        assert b"onnection: close" in started  # the answer began before the request was whole
        assert len(upstream.connections) == 1


async def test_an_incomplete_body_never_looks_complete() -> None:
    """A client that leaves in its body: the upstream sees an unfinished request, whose connection ends."""
    for request in (
        UPLOAD + b"some",
        post_chunked(b"5\r\nhello\r\n"),
        post_chunked(b"5\r\nhel"),
        post_chunked(b"0\r\nX: y\r\n"),
    ):
        for how in ("reset", "close", "half"):
            async with through() as (gateway, upstream):
                client = await client_of(gateway)
                await client.send(request)
                await upstream.wait_connections(1)
                await breathe()
                left = LoopTime()
                if how == "half":
                    await client.half_close()
                elif how == "reset":
                    client.reset()
                else:
                    client.close()
                await upstream.wait_open(0)
                left.within(1)
                client.close()
                assert not upstream.requests
                assert not upstream.connections[0].received.endswith(b"0\r\n\r\n")


async def test_streamed_request_body_reaches_upstream_immediately() -> None:
    """Each part of an upload goes on when it comes."""
    seen: asyncio.Queue[bytes] = asyncio.Queue()

    async def script(peer: Peer) -> None:
        request_head = await peer.read_head()
        for size in (3, 4, 3):
            seen.put_nowait(await peer.read_exactly(size))
        await peer.send(build_answer(200, request_head[:4]))

    async with through(script) as (gateway, _), client_of(gateway) as client:
        await client.send(post(bytes(10))[:-10])
        for part in (b"one", b"four", b"end"):
            await client.send(part)
            assert await asyncio.wait_for(seen.get(), 120) == part
        assert (await client.read_response()).payload == b"POST"
