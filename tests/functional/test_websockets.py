"""WebSockets of our own pages: aiohttp's frames over our connections, both ways, until one side ends them."""

import asyncio

import aiohttp
import pytest
from aiohttp import WSCloseCode, WSMsgType, web

from gateway.contracts.errors import GatewayError
from gateway.lanes.websocket import accept_websocket
from gateway.testing.raw_connection import PATIENCE_S

from .talking import (
    ACCEPT,
    BINARY,
    CLOSE,
    PING,
    PONG,
    TEXT,
    close_frame,
    closed_with,
    frame,
    handshake,
    heard,
    joined,
    talking,
)
from .through import breathe, error_of, in_pieces
from .websocket_pages import LIVE, Deaf, Flood, Page, stands_still


class Failing(Page):
    """Says hello and fails."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    async def talk(self, talk: web.WebSocketResponse) -> None:
        await talk.send_str("hello")
        raise self.error


# A conversation.


async def test_websocket_messages_pass_both_ways_and_close_cleanly() -> None:
    """Text, binary, large and empty, pings both ways; the close handshake has the client's code; nothing is left."""
    codes: list[int | None] = []

    async def page(request: web.Request) -> web.StreamResponse:
        async with accept_websocket(request) as talk:
            await talk.ping(b"hello")
            async for message in talk:
                await (talk.send_str if message.type is WSMsgType.TEXT else talk.send_bytes)(message.data)
        codes.append(talk.close_code)
        return talk

    async with talking(page) as gateway, aiohttp.ClientSession() as session:
        for compress in (0, 15):
            async with session.ws_connect(gateway.url, compress=compress, heartbeat=0.05) as talk:
                for text in ("one", "", "zwölf", "x" * 200_000):
                    await talk.send_str(text)
                    assert await talk.receive_str(timeout=PATIENCE_S) == text
                for size in (0, 125, 126, 65535, 65536, 250_000):
                    await talk.send_bytes(bytes(size))
                    assert await talk.receive_bytes(timeout=PATIENCE_S) == bytes(size)
                await asyncio.sleep(0.12)  # two heartbeats: the first that nobody answers would end it
                assert not talk.closed
                await talk.close(code=WSCloseCode.OK, message=b"bye")
                assert talk.close_code == WSCloseCode.OK
        await gateway.until_empty()
        assert codes == [WSCloseCode.OK] * 2


async def test_concurrent_websockets_do_not_mix_messages() -> None:
    """Each has its own words, at once."""

    async def one(number: int) -> None:
        async with session.ws_connect(gateway.url) as talk:
            for turn in range(20):
                await talk.send_str(f"{number}-{turn}")
                assert await talk.receive_str(timeout=PATIENCE_S) == f"{number}-{turn}"

    async with talking() as gateway, aiohttp.ClientSession() as session:
        await asyncio.gather(*(one(number) for number in range(40)))
        await gateway.until_empty()


async def test_websocket_page_closes_with_its_own_code() -> None:
    """With its own code; what it sent before arrives, although the client still sends."""

    async def page(request: web.Request) -> web.StreamResponse:
        async with accept_websocket(request) as talk:
            await talk.receive()
            await talk.send_bytes(bytes(300_000))
            await talk.close(code=4001, message=b"enough")
        return talk

    async with talking(page) as gateway, gateway.client(rcvbuf=8192) as client:
        await joined(client)
        await client.send(frame(TEXT, b"go") + frame(BINARY, bytes(20_000)))
        assert await heard(client) == (BINARY, bytes(300_000))
        assert await heard(client) == (CLOSE, (4001).to_bytes(2, "big") + b"enough")
        await client.send(close_frame(4001) + frame(TEXT, b"too late"))
        assert await client.wait_end() == "eof"
        client.close()
        await gateway.until_empty()


# The handshake.


async def test_websocket_handshake_does_not_identify_the_server() -> None:
    """By the RFC's own example, with nothing that tells what serves it; also after other requests."""
    async with talking() as gateway, gateway.client() as client:
        await client.send(LIVE)
        assert (await client.read_response()).status == 200
        await client.send(handshake(b"Sec-WebSocket-Extensions: permessage-deflate"))
        response = await client.read_response()
        assert response.status == 101
        assert response.list_values(b"sec-websocket-accept") == [ACCEPT]
        assert [value.lower() for value in response.list_values(b"connection")] == [b"upgrade"]
        assert response.list_values(b"upgrade") == [b"websocket"]
        for name in (b"server", b"content-type", b"content-length", b"transfer-encoding", b"sec-websocket-extensions"):
            assert not response.list_values(name), name
        await client.send(frame(TEXT, b"hi"))
        assert await heard(client) == (TEXT, b"hi")


async def test_frames_sent_ahead_with_handshake_reach_the_page() -> None:
    """Frames right behind the handshake, in one piece with it, beyond what is held, and byte by byte."""
    many = b"".join(frame(BINARY, bytes([i]) * 1000) for i in range(200))
    async with talking() as gateway:
        async with gateway.client() as client:
            sending = asyncio.create_task(client.send(handshake() + many))
            assert (await client.read_head()).startswith(b"HTTP/1.1 101 ")
            for i in range(200):
                assert await heard(client) == (BINARY, bytes([i]) * 1000)
            await sending
        async with gateway.client() as client:
            await in_pieces(client, *(bytes([byte]) for byte in handshake() + frame(TEXT, b"slow")))
            assert (await client.read_head()).startswith(b"HTTP/1.1 101 ")
            assert await heard(client) == (TEXT, b"slow")


@pytest.mark.parametrize("line", [b"Host: evil.example", b"Origin: http://evil.example", b"Origin: null"])
async def test_cross_site_websocket_handshake_is_refused_before_101(line: bytes) -> None:
    """Our 403, as on every page; a browser that comes from elsewhere never gets to the page."""
    page = Page()
    async with talking(page.answer) as gateway, gateway.client() as client:
        request = handshake(line)
        if line.startswith(b"Host"):
            request = request.replace(b"Host: localhost\r\n", b"")
        await client.send(request + LIVE)
        response = await client.read_response()
        assert response.status == 403
        assert error_of(response)["code"] in ("origin_not_allowed", "host_not_allowed")
        assert (await client.read_response()).status == 200  # the connection is an ordinary one
        assert not page.begun.is_set()
        await client.send(handshake(b"Origin: http://localhost"))
        assert (await client.read_head()).startswith(b"HTTP/1.1 101 ")


NO_HANDSHAKE = {
    "plain": handshake().replace(b"Connection: Upgrade\r\nUpgrade: websocket\r\n", b""),
    "not connected": handshake().replace(b"Connection: Upgrade\r\n", b""),
    "other protocol": handshake().replace(b"websocket", b"h2c"),
    "two protocols": handshake(b"Upgrade: websocket"),
    "a list": handshake().replace(b"Upgrade: websocket", b"Upgrade: websocket, h2c"),
    "no key": handshake().replace(b"Sec-WebSocket-Key: ", b"X-Key: "),
    "short key": handshake(key=b"c2hvcnQ="),
    "odd key": handshake(key=b"!" * 24),
    "foreign key": handshake(key=b"\xff" * 24),
    "old version": handshake(version=b"12"),
    "post": handshake(method=b"POST"),
    "head": handshake(method=b"HEAD"),
    "body": handshake(b"Content-Length: 5", b"Content-Type: application/json") + b"hello",
    "chunked": handshake(b"Transfer-Encoding: chunked") + b"0\r\n\r\n",
    "subprotocol": handshake(b"Sec-WebSocket-Protocol: secret-key"),
}


@pytest.mark.parametrize("request_", NO_HANDSHAKE.values(), ids=NO_HANDSHAKE)
async def test_invalid_websocket_handshake_is_answered_with_400(request_: bytes) -> None:
    """400 that says what is expected, repeating nothing; what follows is a request, and is answered."""
    page = Page()
    async with talking(page.answer) as gateway, gateway.client() as client:
        await client.send(request_ + LIVE)
        response = await client.read_response(method=request_.split(b" ")[0].decode())
        assert response.status == 400
        if request_[:4] != b"HEAD":
            assert error_of(response)["code"] == "invalid_header"
        assert not response.list_values(b"upgrade")
        if response.list_values(b"connection") != [b"close"]:
            assert (await client.read_response()).status == 200
        assert not page.begun.is_set() and "secret-key" not in gateway.logged()


async def test_websocket_page_can_refuse_before_101() -> None:
    """An ordinary error, for example of a key."""

    async def page(request: web.Request) -> web.StreamResponse:
        raise GatewayError("scope_missing", "This key has no scope 'approve'.")

    async with talking(page) as gateway, gateway.client() as client:
        await client.send(handshake() + LIVE)
        response = await client.read_response()
        assert (response.status, error_of(response)["code"]) == (403, "scope_missing")
        assert (await client.read_response()).status == 200


# Frames.


async def test_fragmented_websocket_messages_are_reassembled() -> None:
    """With control frames in between, cut anywhere."""
    message = (
        frame(TEXT, b"one ", fin=False)
        + frame(PING, b"p1")
        + frame(0, b"two ", fin=False)
        + frame(PONG, b"unasked")
        + frame(0, b"three")
    )
    async with talking() as gateway, gateway.client() as client:
        await joined(client)
        for cut in range(0, len(message), 3):
            await in_pieces(client, message[:cut] or message[:1], message[cut or 1 :])
            assert await heard(client) == (PONG, b"p1")
            assert await heard(client) == (TEXT, b"one two three")


BROKEN = {
    "reserved bit": (b"\xc1\x80mask", WSCloseCode.PROTOCOL_ERROR),
    "unknown opcode": (b"\x83\x80mask", WSCloseCode.PROTOCOL_ERROR),
    "fragmented ping": (frame(PING, b"x", fin=False), WSCloseCode.PROTOCOL_ERROR),
    "long ping": (frame(PING, bytes(126)), WSCloseCode.PROTOCOL_ERROR),
    "continuation of nothing": (frame(0, b"x"), WSCloseCode.PROTOCOL_ERROR),
    "text that is none": (frame(TEXT, b"\xff\xfe"), WSCloseCode.INVALID_TEXT),
    "too big": (frame(TEXT, bytes(1 << 20)), WSCloseCode.MESSAGE_TOO_BIG),
    "too big a claim": (b"\x82\xff" + b"\x7f" + b"\xff" * 7 + b"mask", WSCloseCode.MESSAGE_TOO_BIG),
    "too big in pieces": (
        frame(TEXT, bytes(200_000), fin=False) + frame(0, bytes(200_000)),
        WSCloseCode.MESSAGE_TOO_BIG,
    ),
    "an http request": (LIVE, WSCloseCode.PROTOCOL_ERROR),
}


@pytest.mark.parametrize(("bad", "code"), BROKEN.values(), ids=BROKEN)
async def test_broken_websocket_frames_close_the_connection_with_code(bad: bytes, code: int) -> None:
    """With the code that says why, although the client still sends; earlier messages were answered."""
    async with talking() as gateway, gateway.client() as client:
        await joined(client)
        await client.send(frame(TEXT, b"fine") + bad + bytes(100_000))
        assert await heard(client) == (TEXT, b"fine")
        assert await closed_with(client) == code
        assert await client.wait_end() == "eof"
        client.close()
        await gateway.until_empty()


async def test_websocket_message_over_the_limit_is_refused() -> None:
    """The limit is the page's."""
    async with talking(Page(message_limit_bytes=1000).answer) as gateway, gateway.client() as client:
        await joined(client)
        await client.send(frame(BINARY, bytes(999)) + frame(PING))
        assert await heard(client) == (PONG, b"")
        await client.send(frame(BINARY, bytes(1000)))
        assert await closed_with(client) == WSCloseCode.MESSAGE_TOO_BIG


@pytest.mark.parametrize("bare", [frame(TEXT, b"bare", mask=None), frame(PING, mask=None)], ids=["text", "ping"])
async def test_a_client_that_does_not_mask_is_refused(bare: bytes) -> None:
    """RFC 6455 section 5.1; what it sent before is answered."""
    async with talking() as gateway, gateway.client() as client:
        await joined(client)
        await client.send(frame(TEXT, b"masked") + bare + frame(TEXT, b"more"))
        assert await heard(client) == (TEXT, b"masked")
        assert await closed_with(client) == WSCloseCode.PROTOCOL_ERROR


# Ends.


@pytest.mark.parametrize("how", ["close", "reset", "half_close"])
@pytest.mark.parametrize(
    "sent", [b"", frame(TEXT, bytes(1000))[:-500], b"\x81"], ids=["idle", "in a frame", "in a head"]
)
async def test_websocket_client_disconnect_cancels_the_page(how: str, sent: bytes) -> None:
    """At once, whatever it was sending."""
    page = Page()
    async with talking(page.answer) as gateway, gateway.client() as client:
        await joined(client)
        await in_pieces(client, sent)
        result = getattr(client, how)()
        if result is not None:
            await result
        await asyncio.wait_for(page.ended.wait(), PATIENCE_S)
        assert isinstance(page.how, asyncio.CancelledError)
        await gateway.until_empty()


@pytest.mark.parametrize("how", ["close", "reset", "half_close"])
async def test_websocket_disconnect_is_noticed_while_the_page_is_busy(how: str) -> None:
    """Also while reading is paused because the page does not read."""
    page = Deaf()
    async with talking(page.answer) as gateway, gateway.client() as client:
        await joined(client)
        while not gateway.listener.paused:  # a FIN behind a full receive window would not even get here
            await client.send(frame(BINARY, bytes(20_000)))
            await breathe(20)
        result = getattr(client, how)()
        if result is not None:
            await result
        await asyncio.wait_for(page.ended.wait(), PATIENCE_S)
        await gateway.until_empty()


async def test_websocket_disconnect_is_noticed_while_client_does_not_read() -> None:
    """The page waits to send, and is let go."""
    page = Flood()
    async with talking(page.answer) as gateway, gateway.client(rcvbuf=4096) as client:
        await joined(client)
        await stands_still(page)
        client.reset()
        await asyncio.wait_for(page.ended.wait(), PATIENCE_S)
        await gateway.until_empty()


async def test_failing_websocket_page_closes_with_1011() -> None:
    """Its error is logged, not told; and no second answer is written into the frames."""
    for error in (RuntimeError("secret detail"), GatewayError("prompt_not_found", "No such prompt.")):
        async with talking(Failing(error).answer) as gateway, gateway.client() as client:
            await joined(client)
            assert await heard(client) == (TEXT, b"hello")
            assert await heard(client) == (CLOSE, (1011).to_bytes(2, "big"))
            await client.send(close_frame(1011))
            assert await client.wait_end() == "eof"
            client.close()
            await gateway.until_empty()


async def test_page_error_after_101_writes_no_http_into_frames() -> None:
    """Not even one that brought its own WebSocketResponse, and raises behind the 101."""

    async def page(request: web.Request) -> web.StreamResponse:
        await web.WebSocketResponse().prepare(request)
        raise GatewayError("prompt_not_found", "No such prompt.")

    async with talking(page) as gateway, gateway.client() as client:
        await joined(client)
        assert await client.read_rest() == b""
        client.close()
        await gateway.until_empty()
