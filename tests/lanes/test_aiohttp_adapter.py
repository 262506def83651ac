"""A page's handler gets exactly its own message, and the connection comes back to the lane afterwards."""

import asyncio
import hashlib

import pytest
from aiohttp import web
from gateways import until, until_still

from gateway.lanes.aiohttp_adapter import Facade
from gateway.lanes.client import ClientTimeouts
from gateway.lanes.router import AcceptLimits
from gateway.lanes.websocket import accept_websocket
from gateway.testing.raw_connection import Peer
from gateway.testing.scripts import build_answer, serve

from .assembled import Lane, assembled

GET = b"GET /own HTTP/1.1\r\nHost: gw\r\n\r\n"
LANE = b"GET /v1/x HTTP/1.1\r\nHost: gw\r\n\r\n"


def upload(body: bytes, *lines: bytes) -> bytes:
    return b"\r\n".join([b"POST /own HTTP/1.1", b"Host: gw", *lines, b"Content-Length: %d" % len(body), b"", body])


def pages(handler: object, **options: object) -> web.Application:
    app = web.Application(**options)  # type: ignore[arg-type]
    app.router.add_route("*", "/own", handler)  # type: ignore[arg-type]
    return app


async def echo(request: web.Request) -> web.Response:
    return web.Response(body=await request.read())


async def back_in_the_lane(client: Peer) -> None:
    """The connection takes a passthrough request now."""
    await client.send(LANE)
    assert (await client.read_response()).payload == b'{"ok":true}'


async def test_a_body_reaches_its_handler_whole() -> None:
    """At once, in pieces, chunked; what follows it is not the handler's."""
    body = bytes(range(256)) * 40
    chunked = b"POST /own HTTP/1.1\r\nHost: gw\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with assembled(pages=pages(echo)) as lane, lane.client() as client:
        await client.send(upload(body) + LANE + GET)
        assert (await client.read_response()).payload == body
        assert (await client.read_response()).payload == b'{"ok":true}'
        assert (await client.read_response()).payload == b""
        for at in range(0, len(upload(body)), 997):
            await client.send(upload(body)[at : at + 997])
            await asyncio.sleep(0)
        assert (await client.read_response()).payload == body
        for part in (chunked, b"3\r\na", b"bc\r\n4;x=y\r\ndefg\r", b"\n0\r\nT: 1\r\n", b"\r\n" + LANE):
            await client.send(part)
            await asyncio.sleep(0)
        assert (await client.read_response()).payload == b"abcdefg"
        assert (await client.read_response()).payload == b'{"ok":true}'
        assert len(lane.upstream.connections) == 1


async def test_body_over_the_page_limit_returns_413() -> None:
    """The answer is delivered while the body still comes, and the connection ends or goes on behind it."""

    async def limited(request: web.Request) -> web.Response:
        await request.read()
        raise AssertionError("it was larger")

    async with assembled(pages=pages(limited, client_max_size=1000)) as lane:
        for size in (2000, 3_000_000):
            async with lane.client() as client:
                sending = asyncio.create_task(client.send(upload(bytes(size))))
                assert (await client.read_response()).status == 413
                await asyncio.gather(sending, return_exceptions=True)


@pytest.mark.parametrize("corked", [False, True])
async def test_handler_may_stream_its_answer(*, corked: bool) -> None:
    """Chunk by chunk as it is written, or turn by turn of the loop; the connection comes back after its end."""
    go = asyncio.Event()

    async def streams(request: web.Request) -> web.StreamResponse:
        if corked:
            assert isinstance(request.transport, Facade)
            request.transport.hold_writes()
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for number in range(3):
            await response.write(b"data: %d\n\n" % number)
            await go.wait()
        await response.write_eof()
        return response

    async with assembled(pages=pages(streams)) as lane, lane.client() as client:
        await client.send(GET)
        await client.read_until(b"data: 0\n\n")
        go.set()
        await client.read_until(b"0\r\n\r\n")
        await back_in_the_lane(client)


async def test_prepare_hook_runs_after_keepalive_is_chosen() -> None:
    """The order that the way back relies on: aiohttp decides about keep-alive, then calls the hook, then writes.

    So ending the handler in the hook leaves the wire as it was: no `Connection: close` for a connection that goes on.
    """
    seen: list[tuple[bool, bool]] = []

    async def look(request: web.Request, response: web.StreamResponse) -> None:
        transport = request.transport
        assert transport is not None
        seen.append((bool(response.keep_alive), "Content-Length" in response.headers))

    app = pages(echo)
    app.on_response_prepare.append(look)  # before the lane's own hook
    async with assembled(pages=app) as lane, lane.client() as client:
        await client.send(GET)
        response = await client.read_response()
        assert not response.list_values(b"connection") and not response.list_values(b"server")
        await back_in_the_lane(client)
        await client.send(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        response = await client.read_response()
        assert await client.wait_end() == "eof"
    assert seen == [(True, True), (False, True)]


async def test_failing_handler_returns_500_without_details() -> None:
    """Without a word about why."""

    async def fails(request: web.Request) -> web.Response:
        raise RuntimeError("secret detail")

    async with assembled(pages=pages(fails)) as lane, lane.client() as client:
        await client.send(GET)
        response = await client.read_response()
        assert response.status == 500 and b"secret" not in response.raw


@pytest.mark.parametrize("fails", ["answers", "raises", "leaves"])
async def test_handler_failure_after_its_head_closes_the_connection(fails: str) -> None:
    """A second answer would be read as a part of the first, and the client would wait for the rest of it."""

    async def breaks(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "100"} if fails == "leaves" else {})
        await response.prepare(request)
        await response.write(b"a part")
        if fails == "answers":
            return web.Response(status=503, text="failed")
        if fails == "raises":
            raise ConnectionResetError
        return response

    async with assembled(pages=pages(breaks)) as lane, lane.client() as client:
        await client.send(GET + LANE)
        assert await client.wait_end() == "eof"
        assert client.received.endswith(b"a part" if fails == "leaves" else b"6\r\na part\r\n")
        assert client.received.count(b"HTTP/1.1") == 1 and not lane.upstream.connections


async def test_handler_force_close_ends_the_connection() -> None:
    """Its wish, told in its answer."""

    async def closes(request: web.Request) -> web.Response:
        response = web.Response(body=b"bye")
        response.force_close()
        return response

    async with assembled(pages=pages(closes)) as lane, lane.client() as client:
        await client.send(GET + LANE)
        response = await client.read_response()
        assert (response.payload, response.list_values(b"connection")) == (b"bye", [b"close"])
        assert await client.wait_end() == "eof"
        assert not lane.upstream.connections


async def test_a_slow_handler_holds_its_client_back() -> None:
    """Reading pauses while the handler does not take its body, and resumes with it; the lane's reading is unharmed."""
    go = asyncio.Event()

    async def slow(request: web.Request) -> web.Response:
        await go.wait()
        sha = hashlib.sha256()
        async for block in request.content.iter_any():
            sha.update(block)
        return web.Response(body=sha.digest())

    body = bytes(64_000_000)
    async with assembled(pages=pages(slow)) as lane, lane.client() as client:
        sending = asyncio.create_task(client.send(upload(body), timeout_s=None))
        await until_still(lambda: client.n_sent)
        assert client.n_sent < 48_000_000
        go.set()
        await sending
        assert (await client.read_response()).payload == hashlib.sha256(body).digest()
        for _ in range(3):
            await back_in_the_lane(client)


async def test_a_slow_client_holds_its_handler_back() -> None:
    """`write` waits, so nothing piles up; and then everything arrives."""
    written = 0

    async def floods(request: web.Request) -> web.StreamResponse:
        nonlocal written
        response = web.StreamResponse()
        response.content_length = 64_000_000
        await response.prepare(request)
        for _ in range(640):
            await response.write(bytes(100_000))
            written += 100_000
        return response

    async with assembled(pages=pages(floods)) as lane, lane.client(rcvbuf=8192) as client:
        await client.send(GET)
        await until_still(lambda: written)
        assert 0 < written < 48_000_000
        assert len((await client.read_response(timeout_s=120)).payload) == 64_000_000
        await back_in_the_lane(client)


async def test_next_handler_waits_for_a_paused_client() -> None:
    """A large answer of the lane is still on its way when the handler's turn comes: its own waits behind it."""
    big = build_answer(200, bytes(8_000_000))
    async with assembled(serve(big), pages=pages(echo)) as lane, lane.client(rcvbuf=8192) as client:
        await client.send(LANE + upload(b"page"))
        assert len((await client.read_response(timeout_s=120)).payload) == 8_000_000
        assert (await client.read_response()).payload == b"page"


@pytest.mark.parametrize("how", ["close", "reset", "half_close"])
async def test_a_handler_is_cancelled_when_its_client_leaves(how: str) -> None:
    """While it works and while it waits for the body."""
    cancelled = asyncio.Event()
    started = asyncio.Event()

    async def waits(request: web.Request) -> web.Response:
        started.set()
        try:
            await request.read()
            await asyncio.Event().wait()
        except BaseException:
            cancelled.set()
            raise
        raise AssertionError("never")

    for request in (GET, upload(bytes(100))[:-50]):
        cancelled.clear()
        started.clear()
        async with assembled(pages=pages(waits)) as lane:
            client = await lane.client()
            await client.send(request)
            await asyncio.wait_for(started.wait(), 120)
            result = getattr(client, how)()
            if result is not None:
                await result
            await asyncio.wait_for(cancelled.wait(), 120)
            client.close()
            await lane.until_idle()


async def test_stalled_body_returns_408() -> None:
    """In the time of a body, as in the lane."""

    async def reads(request: web.Request) -> web.Response:
        return web.Response(body=await request.read())

    async with assembled(pages=pages(reads), timeouts=ClientTimeouts(body_idle_s=60)) as lane, lane.client() as client:
        await client.send(upload(b"abc")[:-1])
        while not lane.listener.inflight:
            await asyncio.sleep(0)
        lane.later(59)
        lane.later(61)
        assert (await client.read_rest()).startswith(b"HTTP/1.1 408 ")


async def test_malformed_body_returns_400_and_aborts_its_handler() -> None:
    """One answer, ours, and the end; the handler never sees the bad part."""
    got = bytearray()

    async def reads(request: web.Request) -> web.Response:
        async for block in request.content.iter_any():
            got.extend(block)
        raise AssertionError("never whole")

    async with assembled(pages=pages(reads)) as lane, lane.client() as client:
        await client.send(b"POST /own HTTP/1.1\r\nHost: gw\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        await until(lambda: got == b"abc")
        await client.send(b"zz\r\n" + LANE)
        raw = await client.read_rest()
        assert raw.startswith(b"HTTP/1.1 400 ") and raw.count(b"HTTP/1.1") == 1
        assert bytes(got) == b"abc"
        assert not lane.upstream.connections


UPGRADE = GET.replace(
    b"\r\n\r\n",
    b"\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
)


async def test_websocket_upgrade_takes_over_the_connection() -> None:
    """When it is written, not before: until then the page may decline, and what follows is the next request."""

    async def page(request: web.Request) -> web.StreamResponse:
        if "decline" in request.query:
            return web.Response(body=b"no")
        async with accept_websocket(request) as talk:
            async for message in talk:
                await talk.send_bytes(message.data)
        return talk

    async with assembled(pages=pages(page)) as lane, lane.client() as client:
        await client.send(UPGRADE.replace(b"/own", b"/own?decline") + LANE + UPGRADE + b"\x82\x83\0\0\0\0abc")
        assert (await client.read_response()).payload == b"no"
        assert (await client.read_response()).payload == b'{"ok":true}'
        assert (await client.read_head()).startswith(b"HTTP/1.1 101 ")
        assert await client.read_exactly(5) == b"\x82\x03abc"
        assert [(r["mode"], r["status"]) for r in lane.log] == [("own", 200), ("passthrough", 200), ("own", 101)]
        assert lane.listener.inflight == len(lane.listener.websockets) == 1


@pytest.mark.parametrize("leaves", [True, False], ids=["the client leaves", "the page ends"])
async def test_open_event_stream_does_not_count_against_the_concurrency_limit(*, leaves: bool) -> None:
    """While an event stream of our own is open, `limits.concurrent` counts it out; afterwards as before."""
    over = asyncio.Event()

    async def news(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b": open\n\n")
        await over.wait()
        return response

    async with assembled(pages=pages(news), limits=AcceptLimits(concurrent=1)) as lane:
        async with lane.client() as client, lane.client() as other:
            await client.send(GET)
            await client.read_until(b": open\n\n")
            assert (lane.listener.inflight, lane.listener.full) == (1, False)
            await other.send(LANE)
            assert (await other.read_response()).status == 200
            if not leaves:
                over.set()
                await until(lambda: lane.listener.inflight == 0)
        await until(lambda: lane.listener.inflight == 0)
        assert lane.listener.listening == 0


async def test_websocket_upgrade_ignores_expect_100_continue() -> None:
    """It is not answered: nobody reads a body here."""

    async def page(request: web.Request) -> web.StreamResponse:
        async with accept_websocket(request) as talk:
            await talk.send_bytes(b"abc")
        return talk

    async with assembled(pages=pages(page)) as lane, lane.client() as client:
        await client.send(UPGRADE.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n"))
        assert (await client.read_head()).startswith(b"HTTP/1.1 101 ")
        assert await client.read_exactly(5) == b"\x82\x03abc"


async def test_own_page_requests_are_logged_with_mode_own() -> None:
    """In the metrics and the access log, as `own`."""
    async with assembled(pages=pages(echo)) as lane, lane.client() as client:
        await client.send(GET.replace(b"/own", b"/own?secret=1"))
        await client.read_response()
        await back_in_the_lane(client)
        assert [(r["mode"], r["path"], r["status"]) for r in lane.log] == [
            ("own", b"/own", 200),
            ("passthrough", b"/v1/x", 200),
        ]


async def test_many_pages_at_once_do_not_mix() -> None:
    """Each connection has its own handler."""

    async def one(lane: Lane, number: int) -> None:
        async with lane.client() as client:
            for turn in range(20):
                body = b"%d-%d" % (number, turn)
                await client.send(upload(body))
                assert (await client.read_response()).payload == body

    async with assembled(pages=pages(echo)) as lane:
        await asyncio.gather(*(one(lane, number) for number in range(30)))
        await lane.until_idle()
