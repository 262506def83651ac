"""WebSockets of our own pages: aiohttp's frames over our connections, both ways, until one side ends them."""

import asyncio
import signal
import sys
from pathlib import Path

import aiohttp
import pytest
from aiohttp import WSCloseCode, WSMsgType, web
from running import config, scrape, until, until_sample

from gateway.errors import GatewayError
from gateway.lanes.websocket import websocket
from gateway.testing.peer import PATIENCE_S, Peer, connect
from gateway.testing.run import GatewayProcess

from .talking import (
    ACCEPT,
    BINARY,
    CLOSE,
    HOST,
    PAGE,
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

LIVE = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
WEBSOCKETS = 'gateway_inflight_requests{mode="websocket"}'


class Page:
    """A page that accepts and then does `talk`; it tells how that ended."""

    def __init__(self, **options: float) -> None:
        self.options = options
        self.begun = asyncio.Event()
        self.ended = asyncio.Event()
        self.how: BaseException | None = None
        self.moved = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        try:
            async with websocket(request, **self.options) as talk:  # type: ignore[arg-type]
                self.begun.set()
                await self.talk(talk)
        except BaseException as error:
            self.how = error
            raise
        finally:
            self.ended.set()
        return talk

    async def talk(self, talk: web.WebSocketResponse) -> None:
        async for _ in talk:
            self.moved += 1


class Deaf(Page):
    """Reads nothing before it is told to."""

    def __init__(self, **options: float) -> None:
        super().__init__(**options)
        self.told = asyncio.Event()

    async def talk(self, talk: web.WebSocketResponse) -> None:
        await self.told.wait()
        await super().talk(talk)


class Flood(Page):
    """Sends without end."""

    async def talk(self, talk: web.WebSocketResponse) -> None:
        while True:
            await talk.send_bytes(bytes(50_000))
            self.moved += 50_000


class Failing(Page):
    """Says hello and fails."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    async def talk(self, talk: web.WebSocketResponse) -> None:
        await talk.send_str("hello")
        raise self.error


async def stands_still(page: Page) -> None:
    """Returns once nothing has moved for a while."""
    before = -1
    while before != page.moved:
        before = page.moved
        await asyncio.sleep(0.1)


# A conversation.


async def test_a_client_and_a_page_talk() -> None:
    """Text, binary, large and empty, pings both ways; the close handshake has the client's code; nothing is left."""
    codes: list[int | None] = []

    async def page(request: web.Request) -> web.StreamResponse:
        async with websocket(request) as talk:
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
                await asyncio.sleep(0.12)
                assert not talk.closed
                await talk.close(code=WSCloseCode.OK, message=b"bye")
                assert talk.close_code == WSCloseCode.OK
        await gateway.until_empty()
        assert codes == [WSCloseCode.OK] * 2


async def test_many_conversations_do_not_mix() -> None:
    """Each has its own words, at once."""

    async def one(number: int) -> None:
        async with session.ws_connect(gateway.url) as talk:
            for turn in range(20):
                await talk.send_str(f"{number}-{turn}")
                assert await talk.receive_str(timeout=PATIENCE_S) == f"{number}-{turn}"

    async with talking() as gateway, aiohttp.ClientSession() as session:
        await asyncio.gather(*(one(number) for number in range(40)))
        await gateway.until_empty()


async def test_the_page_may_close() -> None:
    """With its own code; what it sent before arrives, although the client still sends."""

    async def page(request: web.Request) -> web.StreamResponse:
        async with websocket(request) as talk:
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


async def test_the_handshake_is_answered_discreetly() -> None:
    """By the RFC's own example, with nothing that tells what serves it; also after other requests."""
    async with talking() as gateway, gateway.client() as client:
        await client.send(LIVE)
        assert (await client.read_response()).status == 200
        await client.send(handshake(b"Sec-WebSocket-Extensions: permessage-deflate"))
        response = await client.read_response()
        assert response.status == 101
        assert response.values(b"sec-websocket-accept") == [ACCEPT]
        assert [value.lower() for value in response.values(b"connection")] == [b"upgrade"]
        assert response.values(b"upgrade") == [b"websocket"]
        for name in (b"server", b"content-type", b"content-length", b"transfer-encoding", b"sec-websocket-extensions"):
            assert not response.values(name), name
        await client.send(frame(TEXT, b"hi"))
        assert await heard(client) == (TEXT, b"hi")


async def test_what_is_sent_ahead_is_the_pages() -> None:
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
async def test_other_sites_are_refused_before_the_101(line: bytes) -> None:
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
async def test_what_is_no_handshake_is_an_error(request_: bytes) -> None:
    """400 that says what is expected, repeating nothing; what follows is a request, and is answered."""
    page = Page()
    async with talking(page.answer) as gateway, gateway.client() as client:
        await client.send(request_ + LIVE)
        response = await client.read_response(method=request_.split(b" ")[0].decode())
        assert response.status == 400
        if request_[:4] != b"HEAD":
            assert error_of(response)["code"] == "invalid_header"
        assert not response.values(b"upgrade")
        if response.values(b"connection") != [b"close"]:
            assert (await client.read_response()).status == 200
        assert not page.begun.is_set() and "secret-key" not in gateway.logged()


async def test_a_page_may_refuse_before_the_101() -> None:
    """An ordinary error, for example of a key."""

    async def page(request: web.Request) -> web.StreamResponse:
        raise GatewayError("scope_missing", "This key has no scope 'approve'.")

    async with talking(page) as gateway, gateway.client() as client:
        await client.send(handshake() + LIVE)
        response = await client.read_response()
        assert (response.status, error_of(response)["code"]) == (403, "scope_missing")
        assert (await client.read_response()).status == 200


# Frames.


async def test_messages_in_fragments() -> None:
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
async def test_broken_frames_end_the_conversation(bad: bytes, code: int) -> None:
    """With the code that says why, although the client still sends; earlier messages were answered."""
    async with talking() as gateway, gateway.client() as client:
        await joined(client)
        await client.send(frame(TEXT, b"fine") + bad + bytes(100_000))
        assert await heard(client) == (TEXT, b"fine")
        assert await closed_with(client) == code
        assert await client.wait_end() == "eof"
        client.close()
        await gateway.until_empty()


async def test_a_message_up_to_the_limit_is_taken() -> None:
    """The limit is the page's."""
    async with talking(Page(message_limit_bytes=1000).answer) as gateway, gateway.client() as client:
        await joined(client)
        await client.send(frame(BINARY, bytes(999)) + frame(PING))
        assert await heard(client) == (PONG, b"")
        await client.send(frame(BINARY, bytes(1000)))
        assert await closed_with(client) == WSCloseCode.MESSAGE_TOO_BIG


async def test_unmasked_frames_do_no_harm() -> None:
    """aiohttp takes them as they are; a mask guards proxies between, of which these bytes see none of ours."""
    async with talking() as gateway, gateway.client() as client:
        await joined(client)
        await client.send(frame(TEXT, b"bare", mask=None) + frame(TEXT, b"masked"))
        assert await heard(client) == (TEXT, b"bare")
        assert await heard(client) == (TEXT, b"masked")


# Ends.


@pytest.mark.parametrize("how", ["close", "reset", "half_close"])
@pytest.mark.parametrize(
    "sent", [b"", frame(TEXT, bytes(1000))[:-500], b"\x81"], ids=["idle", "in a frame", "in a head"]
)
async def test_a_client_that_leaves_takes_the_page_with_it(how: str, sent: bytes) -> None:
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
async def test_a_client_that_leaves_is_noticed_while_the_page_is_busy(how: str) -> None:
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


async def test_a_client_that_leaves_is_noticed_while_it_does_not_read() -> None:
    """The page waits to send, and is let go."""
    page = Flood()
    async with talking(page.answer) as gateway, gateway.client(rcvbuf=4096) as client:
        await joined(client)
        await stands_still(page)
        client.reset()
        await asyncio.wait_for(page.ended.wait(), PATIENCE_S)
        await gateway.until_empty()


async def test_a_page_that_fails_closes_with_1011() -> None:
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


async def test_a_page_that_goes_without_closing_leaves_no_http_in_the_frames() -> None:
    """Not even one that brought its own WebSocketResponse, and raises behind the 101."""

    async def page(request: web.Request) -> web.StreamResponse:
        await web.WebSocketResponse().prepare(request)
        raise GatewayError("prompt_not_found", "No such prompt.")

    async with talking(page) as gateway, gateway.client() as client:
        await joined(client)
        assert await client.read_rest() == b""
        client.close()
        await gateway.until_empty()


# Pressure and time.


async def test_a_page_that_does_not_read_holds_its_client_back() -> None:
    """Little is kept; then everything arrives."""
    page = Deaf()
    message = frame(BINARY, bytes(100_000))
    async with talking(page.answer) as gateway, gateway.client() as client:
        await joined(client)

        async def send() -> None:
            for _ in range(400):
                await client.send(message, timeout_s=None)

        sending = asyncio.create_task(send())
        before = -1
        while before != client.n_sent:
            before = client.n_sent
            await asyncio.sleep(0.1)
        assert client.n_sent < 30_000_000
        page.told.set()
        await sending
        await until(lambda: page.moved == 400)
        await client.send(close_frame(1000))
        assert await closed_with(client) == WSCloseCode.OK


async def test_a_client_that_does_not_read_holds_its_page_back() -> None:
    """`send` waits; then everything arrives."""

    class Long(Page):
        async def talk(self, talk: web.WebSocketResponse) -> None:
            for number in range(640):
                await talk.send_bytes(bytes([number % 256]) * 50_000)
                self.moved += 50_000

    page = Long()
    async with talking(page.answer) as gateway, gateway.client(rcvbuf=8192) as client:
        await joined(client)
        await stands_still(page)
        assert page.moved < 20_000_000
        for number in range(640):
            assert await heard(client) == (BINARY, bytes([number % 256]) * 50_000)
        assert await closed_with(client) == WSCloseCode.OK


SHORT = {"limits": {"head_timeout": "0.2s", "body_idle": "0.2s", "write": "0.2s", "keepalive": "0.2s"}}


async def test_a_quiet_conversation_goes_on() -> None:
    """No deadline of requests touches one whose heartbeats are answered."""
    async with talking(Page(heartbeat_s=0.6).answer, config=SHORT) as gateway, gateway.client() as client:
        await joined(client)
        for _ in range(4):
            opcode, payload = await heard(client)
            assert opcode == PING
            await client.send(frame(PONG, payload))
        assert not gateway.metrics.deadlines


async def test_a_client_that_does_not_answer_heartbeats_is_gone() -> None:
    """As one that lost its network."""
    page = Page(heartbeat_s=0.2)
    async with talking(page.answer) as gateway, gateway.client() as client:
        await joined(client)
        assert await heard(client) == (PING, b"")
        assert await client.wait_end() == "eof"
        await asyncio.wait_for(page.ended.wait(), PATIENCE_S)
        client.close()
        await gateway.until_empty()


async def test_a_client_that_reads_nothing_is_ended() -> None:
    """After the time for writing, as in any other turn."""
    page = Flood()
    async with (
        talking(page.answer, config={"limits": {"write": "1s"}}) as gateway,
        gateway.client(rcvbuf=4096) as client,
    ):
        await joined(client)
        await asyncio.wait_for(page.ended.wait(), 120)
        assert dict(gateway.metrics.deadlines) == {"write": 1}
        await gateway.until_empty()


# Accounts and limits.


async def test_conversations_are_counted_while_they_last() -> None:
    """As a mode of their own; the handshake is one answered request of our own."""
    async with talking(config={"logging": {"access": True}}) as gateway:
        async with gateway.client() as client:
            await joined(client)
            await until_sample(gateway, WEBSOCKETS, 1)
            samples = await scrape(gateway)
            assert samples["gateway_client_connections"] == 2
            assert samples['gateway_inflight_requests{mode="own"}'] == 1  # the one that asks
            requests = 'gateway_http_requests_total{code="101",method="GET",mode="own",route="pages"}'
            assert samples[requests] == 1
        await until_sample(gateway, WEBSOCKETS, 0)
        assert '"path":"/context/talk","status":101' in gateway.logged().replace(" ", "")


async def test_conversations_take_no_place_of_a_request() -> None:
    """`limits.concurrent` bounds what is under way; who only listens is not."""
    async with talking(config={"limits": {"concurrent": 1}}) as gateway, gateway.client() as one:
        await joined(one)
        async with gateway.client() as two, gateway.client() as three:
            await joined(two)
            await three.send(LIVE.replace(b"/health/live", b"/v1/models"))
            assert (await three.read_response()).status == 502  # it was let through to an upstream that is not there


# The end of the gateway.

#: Draining that ends within this limit did not need it.
PATIENT = {"limits": {"drain": "10m"}}


async def leaving_of(client: Peer) -> None:
    """A client that answers a Close frame as it should."""
    assert await closed_with(client) == WSCloseCode.GOING_AWAY
    await client.send(close_frame(WSCloseCode.GOING_AWAY))
    assert await client.wait_end() == "eof"
    client.close()


@pytest.mark.parametrize("page_type", [Page, Deaf])
async def test_draining_says_goodbye(page_type: type[Page]) -> None:
    """1001 to everybody at once, whether the page listens or is busy; then draining is through, far from its limit."""
    page = page_type()
    async with talking(page.answer, config=PATIENT) as gateway, gateway.client() as one, gateway.client() as two:
        await joined(one)
        await joined(two)
        draining = asyncio.create_task(gateway.gateway.drain())
        await asyncio.gather(leaving_of(one), leaving_of(two))
        await asyncio.wait_for(draining, PATIENCE_S)
        await gateway.until_empty()
        assert page.ended.is_set()


async def test_a_conversation_that_begins_while_draining_ends_at_once() -> None:
    """On a connection that was busy when draining began."""
    async with talking(config=PATIENT) as gateway, gateway.client() as client:
        await client.send(LIVE)
        await client.read_response()
        draining = asyncio.create_task(gateway.gateway.drain())
        await asyncio.sleep(0)
        await joined(client)
        await leaving_of(client)
        await asyncio.wait_for(draining, PATIENCE_S)


async def test_a_client_that_ignores_the_goodbye_is_not_waited_for() -> None:
    """It neither answers nor leaves; draining does not take its limit."""
    async with talking(config=PATIENT) as gateway, gateway.client() as client:
        await joined(client)
        draining = asyncio.create_task(gateway.gateway.drain())
        assert await closed_with(client) == WSCloseCode.GOING_AWAY
        await asyncio.wait_for(draining, PATIENCE_S)
        await gateway.until_empty()


async def test_draining_ends_at_its_limit_whatever_a_client_does() -> None:
    """One that reads nothing cannot even be told."""
    page = Flood()
    async with (
        talking(page.answer, config={"limits": {"drain": "0.3s"}}) as gateway,
        gateway.client(rcvbuf=4096) as client,
    ):
        await joined(client)
        await stands_still(page)
        await asyncio.wait_for(gateway.gateway.drain(), PATIENCE_S)
        await asyncio.wait_for(page.ended.wait(), PATIENCE_S)
        await gateway.until_empty()
        assert await client.wait_end() == "reset"
        assert "Error handling request" not in gateway.logged()


def process() -> GatewayProcess:
    program = (sys.executable, str(Path(__file__).with_name("talking.py")))
    root = str(Path(__file__).parents[2])
    return GatewayProcess(config(None, **PATIENT), command=program, env={"PYTHONPATH": f"{root}:{root}/tests"})


async def test_sigterm_says_goodbye() -> None:
    """1001, and the process ends by itself."""
    async with process() as gateway, aiohttp.ClientSession() as session:
        async with session.ws_connect(f"ws://{HOST}:{gateway.port}{PAGE}") as talk:
            await talk.send_str("hi")
            assert await talk.receive_str(timeout=PATIENCE_S) == "hi"
            gateway.signal(signal.SIGTERM)
            message = await talk.receive(timeout=PATIENCE_S)
            assert (message.type, message.data) == (WSMsgType.CLOSE, WSCloseCode.GOING_AWAY)
        assert await gateway.wait(PATIENCE_S) == 0
        assert "Traceback" not in gateway.stderr_text()


async def test_a_second_sigterm_does_not_wait() -> None:
    """For a client that does not read what would come before the goodbye."""
    async with process() as gateway, connect(gateway.host, gateway.port, rcvbuf=4096) as client:
        await joined(client)
        sending = asyncio.create_task(client.send(frame(BINARY, bytes(200_000)) * 200, timeout_s=None))
        await asyncio.sleep(0.5)
        gateway.signal(signal.SIGTERM)
        await asyncio.sleep(0.2)
        assert gateway.returncode is None
        gateway.signal(signal.SIGTERM)
        assert await gateway.wait(PATIENCE_S) == 0
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        assert "Traceback" not in gateway.stderr_text()
