"""Servers over streamable HTTP: what they get, and what becomes of each failure."""

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest
from aiohttp import web
from pytest_aiohttp import AiohttpServer

from gateway.contracts.store import Json
from gateway.mcp.calls import AnsweredError, LostError
from gateway.mcp.connection import open_connection
from gateway.mcp.transport.http import HttpTransport
from gateway.mcp.transport.requests import ID_CHARS
from gateway.mcp.types import Channel, Config, Endpoint, OAuth
from tests.mcp.mcp_host import Clock, Stand
from tests.mcp.webserver import serving

KINDS = pytest.mark.parametrize("options", [{}, {"json_response": True}, {"stateless_http": True}], ids=str)


@KINDS
async def test_a_server_of_the_newer_era(options: dict[str, bool]) -> None:
    """Its tools are listed and called; it gets the headers that are configured for it."""
    async with serving(**options) as site, site.stands(headers={"X-Api-Key": "secret"}) as stand:
        await stand.running()
        assert (stand.session.condition().protocol, stand.session.condition().transport) == ("2026-07-28", "http")
        assert list(stand.session.definitions.tools) == ["echo", "work", "grow"]
        assert await stand.said("echo", text="hello") == "hello"
        assert {head["x-api-key"] for head in site.heads} == {"secret"}
        assert {head["accept-encoding"] for head in site.heads} == {"identity"}


@pytest.mark.parametrize("options", [{}, {"json_response": True}], ids=str)
async def test_a_server_of_the_older_era(options: dict[str, bool]) -> None:
    """With a session of its own, which is ended."""
    async with serving(**options) as site:
        transport = HttpTransport(Endpoint(url=site.url), lost=lambda _: None, clock=Clock())
        async with open_connection(transport, probe_s=None) as link:
            answer = await link.call("echo", {"text": "hello"}, progressed=lambda _: None)
            assert answer["content"][0]["text"] == "hello" and link.protocol == "2025-11-25"
        sessions = {head.get("mcp-session-id") for head in site.heads}
        assert len(sessions) == 2 and None in sessions


@KINDS
async def test_a_hundred_calls_at_once(options: dict[str, bool]) -> None:
    """None is lost, and none has another one's answer."""
    async with serving(**options) as site, site.stands() as stand:
        await stand.running()
        texts = [str(number) for number in range(100)]
        assert await asyncio.gather(*(stand.said("echo", text=text) for text in texts)) == texts


async def test_progress_gives_a_tool_more_time() -> None:
    """Over HTTP as well; and a tool that tells nothing ends in time."""
    async with serving() as site, site.stands(timeout=0.5, max_timeout=3) as stand:
        await stand.running()
        assert await stand.said("work", steps=20) == "done"
        assert "did not answer within 3 s" in await stand.said("work", steps=1000)


async def test_changed_tools_are_listed_again() -> None:
    """By a subscription, as the newer era wants it."""
    async with serving() as site, site.stands() as stand:
        await stand.running()
        async with asyncio.timeout(120):
            while "grown" not in stand.session.definitions.tools:
                await stand.said("grow")  # the first one may come before the subscription does


async def test_a_server_that_goes_down_in_mid_call_and_comes_back() -> None:
    """The call fails before its time is over; the end is noticed without a call, and so is the new beginning."""
    async with serving() as site, site.stands() as stand:
        await stand.running()
        call = asyncio.create_task(stand.said("work", steps=1000))
        await stand.said("echo", text="after it")
        await site.down()
        assert "ended while it ran the tool 'work'" in await call
        await stand.changes.until(lambda: not stand.session.running)
        assert stand.session.condition().error == "it does not accept connections"
        await site.up()
        await stand.running()
        assert await stand.said("echo", text="hello") == "hello"


async def test_a_server_that_is_not_there_at_its_start() -> None:
    """It is told what is wrong, not where the protocol's library stumbled; it is used once it is there."""
    async with serving() as site:
        await site.down()
        async with site.stands() as stand:
            await stand.changes.until(lambda: stand.session.condition().state == "error")
            assert stand.session.condition().error == "it does not accept connections"
            await site.up()
            await stand.running()
            assert await stand.said("echo", text="hello") == "hello"


async def test_a_session_that_the_server_forgot() -> None:
    """A server that was restarted knows no session of before: there is a new one."""
    lost: list[str] = []
    async with serving() as site:
        transport = HttpTransport(Endpoint(url=site.url), lost=lost.append, clock=Clock())
        async with open_connection(transport, probe_s=None) as link:
            await site.down()
            await site.up()
            with pytest.raises((AnsweredError, LostError)):
                await link.call("echo", {"text": "x"}, progressed=lambda _: None)
            async with asyncio.timeout(120):
                await link.gone
    assert lost and lost[0] in ("the server has ended the session", "it does not accept connections")


def stands_at(url: str, *, oauth: OAuth | None = None, timeout: float = 30.0, **settings: float) -> Stand:
    def make_channel(lost: Callable[[str], None]) -> Channel:
        return HttpTransport(Endpoint(url=url, oauth=oauth), lost=lost, clock=Clock(), **settings)

    return Stand(Config(name="web", url="http://x.invalid", start_timeout=12.0, timeout=timeout), make_channel)


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def refuses(_: web.Request) -> web.Response:
    return web.Response(status=403, text="no")


async def leads_elsewhere(_: web.Request) -> web.Response:
    return web.Response(status=307, headers={"Location": "http://127.0.0.2/mcp"})


async def is_a_page(_: web.Request) -> web.Response:
    return web.Response(text="<html>", content_type="text/html")


async def is_no_json(_: web.Request) -> web.Response:
    return web.Response(text="{", content_type="application/json")


@pytest.mark.parametrize(
    ("handler", "error"),
    [
        (refuses, "it answered with HTTP 403"),
        (leads_elsewhere, "Redirect to http://127.0.0.2/mcp not followed"),
        (is_a_page, "Unexpected content type: text/html"),
        (is_no_json, "Failed to parse JSON response"),
    ],
)
async def test_what_is_no_mcp_server(handler: Handler, error: str, aiohttp_server: AiohttpServer) -> None:
    """Its condition says what it is instead."""
    app = web.Application()
    app.router.add_route("*", "/mcp", handler)
    site = await aiohttp_server(app)
    async with stands_at(str(site.make_url("/mcp"))) as stand:
        await stand.changes.until(lambda: stand.session.condition().state == "error")
        assert error in (stand.session.condition().error or "")


async def test_tokens_of_an_issuer(aiohttp_server: AiohttpServer) -> None:
    """They are sent to the server, and asked for anew when it does not take them any more."""
    issued: list[str] = []
    seen: list[str | None] = []
    app = web.Application()

    async def metadata(request: web.Request) -> web.Response:
        origin = f"http://{request.host}"
        return web.json_response({"issuer": origin, "token_endpoint": f"{origin}/token"})

    async def token(_: web.Request) -> web.Response:
        issued.append(f"token-{len(issued) + 1}")
        return web.json_response({"access_token": issued[-1], "token_type": "Bearer", "expires_in": 3600})

    async def mcp(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Authorization"))
        return web.Response(status=401 if seen[-1] != "Bearer token-2" else 403)

    app.router.add_get("/.well-known/oauth-authorization-server", metadata)
    app.router.add_post("/token", token)
    app.router.add_post("/mcp", mcp)
    site = await aiohttp_server(app)
    oauth = OAuth(issuer=str(site.make_url("")).rstrip("/"), client_id="gateway", client_secret="s")
    async with stands_at(str(site.make_url("/mcp")), oauth=oauth) as stand:
        await stand.changes.until(lambda: stand.session.condition().state == "error")
        assert stand.session.condition().error == "it answered with HTTP 403"
    assert seen[:2] == ["Bearer token-1", "Bearer token-2"] and issued == ["token-1", "token-2"]


async def test_an_issuer_that_gives_no_token(aiohttp_server: AiohttpServer) -> None:
    """Nothing is sent to the server then."""
    asked: list[str] = []
    app = web.Application()

    async def mcp(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(status=500)

    app.router.add_post("/mcp", mcp)
    site = await aiohttp_server(app)
    oauth = OAuth(issuer=str(site.make_url("")).rstrip("/"), client_id="gateway", client_secret="canary")
    async with stands_at(str(site.make_url("/mcp")), oauth=oauth) as stand:
        await stand.changes.until(lambda: stand.session.condition().state == "error")
        error = stand.session.condition().error or ""
    assert error.startswith("no token for it: the issuer has no metadata") and "canary" not in error and not asked


class Asking:
    """A server of the older era that asks on its standing stream, or on that of a call; it may never take an answer."""

    def __init__(self, *, on: str, pings: int, id_chars: int, takes: bool) -> None:
        self.answers = 0
        self._on, self._pings, self._takes = on, pings, takes
        self._ping = {"jsonrpc": "2.0", "id": "p" * id_chars, "method": "ping"}

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.method == "GET":
            return await self._stream(request, pings=self._pings if self._on == "GET" else 0, result=None)
        if request.method != "POST":
            return web.Response(status=405)
        message = await request.json()
        method, request_id = message.get("method"), message.get("id")
        if method is None:
            self.answers += 1
            if not self._takes:
                await asyncio.Event().wait()
        if method is None or request_id is None:
            return web.Response(status=202)
        info = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "x", "version": "1"}}
        results = {"initialize": info, "tools/list": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}}
        if method == "tools/call":
            result = {"content": [{"type": "text", "text": "hi"}]}
            return await self._stream(
                request, pings=self._pings if self._on == "POST" else 0, result=(request_id, result)
            )
        told = {"result": results[method]} if method in results else {"error": {"code": -32601, "message": "no"}}
        return web.json_response({"jsonrpc": "2.0", "id": request_id, **told}, headers={"Mcp-Session-Id": "s"})

    async def _stream(
        self, request: web.Request, *, pings: int, result: tuple[object, Json] | None
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for _ in range(pings):
            await response.write(b"data: %b\n\n" % json.dumps(self._ping).encode())
        if result is None:
            await asyncio.Event().wait()
        else:
            answer = {"jsonrpc": "2.0", "id": result[0], "result": result[1]}
            await response.write(b"data: %b\n\n" % json.dumps(answer).encode())
        return response


async def _site(server: Asking, aiohttp_server: AiohttpServer) -> str:
    app = web.Application()
    app.router.add_route("*", "/mcp", server.answer)
    return str((await aiohttp_server(app)).make_url("/mcp"))


@pytest.mark.parametrize("on", ["GET", "POST"])
async def test_a_server_that_asks_and_takes_no_answers_is_ended(on: str, aiohttp_server: AiohttpServer) -> None:
    """On the standing stream as on that of a call: nothing of it fills the memory."""
    server = Asking(on=on, pings=1_000_000, id_chars=ID_CHARS, takes=False)
    async with stands_at(await _site(server, aiohttp_server)) as stand:
        await stand.running()
        call = asyncio.create_task(stand.said("echo"))
        await stand.changes.until(lambda: stand.session.condition().state == "error")
        why = "it sent requests of its own and left more than 1,000 answers to them waiting"
        assert stand.session.condition().error == why
        assert (said := await call) != "hi" or on == "GET", said  # the other stream may end before or after the call


async def test_an_answer_that_a_server_does_not_accept_ends_the_connection(aiohttp_server: AiohttpServer) -> None:
    """Nothing else could be sent to it meanwhile."""
    server = Asking(on="GET", pings=1, id_chars=1, takes=False)
    async with stands_at(await _site(server, aiohttp_server), accept_limit_s=0.5) as stand:
        await stand.changes.until(lambda: stand.session.condition().state == "error")
        assert stand.session.condition().error == "it did not accept a message within 0.5 s"


async def test_a_server_may_ask_as_long_as_it_takes_the_answers(aiohttp_server: AiohttpServer) -> None:
    """Hundreds in a call, each with an answer; a request with too long an id ends the call."""
    server = Asking(on="POST", pings=500, id_chars=ID_CHARS, takes=True)
    async with stands_at(await _site(server, aiohttp_server)) as stand:
        await stand.running()
        for _ in range(3):
            assert await stand.said("echo") == "hi"
        async with asyncio.timeout(120):
            while server.answers < 1500:
                await stand.said("echo")
    server = Asking(on="POST", pings=1, id_chars=ID_CHARS + 1, takes=True)
    async with stands_at(await _site(server, aiohttp_server)) as stand:
        await stand.running()
        assert "the id of its request is longer than 256 characters" in await stand.said("echo")
        assert server.answers == 0


class Retracting(Asking):
    """It cancels each of its requests but the first, whose answer it takes when it has sent all."""

    def __init__(self, *, mib: int) -> None:
        super().__init__(on="GET", pings=1, id_chars=1, takes=True)
        self._mib = mib
        self.has_sent = asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.method == "POST" and "method" not in await request.json():
            await self.has_sent.wait()
        return await super().answer(request)

    async def _stream(
        self, request: web.Request, *, pings: int, result: tuple[object, Json] | None
    ) -> web.StreamResponse:
        if result is not None:
            return await super()._stream(request, pings=pings, result=result)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"data: %b\n\n" % json.dumps(self._ping).encode())
        for number in range(self._mib):
            ping = {"jsonrpc": "2.0", "id": number, "method": "ping", "params": {"_": "x" * (1 << 20)}}
            over = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}}
            for message in (ping, over):
                await response.write(b"data: %b\n\n" % json.dumps(message).encode())
        self.has_sent.set()
        await asyncio.Event().wait()
        return response


async def test_requests_that_a_server_cancels_do_not_count(aiohttp_server: AiohttpServer) -> None:
    """However large they are together. It gets no answers to them."""
    server = Retracting(mib=80)
    async with stands_at(await _site(server, aiohttp_server), accept_limit_s=3600) as stand:
        await stand.running()
        await asyncio.wait_for(server.has_sent.wait(), 120)
        assert await stand.said("echo") == "hi"
        assert stand.session.condition().state == "running" and server.answers == 1


class Elsewhere:
    """A server of the older era whose address leads to another path; calls lead further still if `calls` is set."""

    def __init__(self, *, calls: bool = False, to: str = "/mcp/") -> None:
        self.seen: list[tuple[str, str]] = []
        self._calls, self._to = calls, to

    async def answer(self, request: web.Request) -> web.StreamResponse:
        message = await request.json() if request.method == "POST" else {"method": request.method}
        method = message.get("method", "answer")
        self.seen.append((request.path, method))
        if request.path == "/mcp" or (self._calls and method == "tools/call"):
            return web.Response(status=307, headers={"Location": self._to})
        if "id" not in message:
            return web.Response(status=202 if request.method == "POST" else 405)
        info = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "x", "version": "1"}}
        results = {
            "initialize": info,
            "tools/list": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": "hi"}]},
        }
        told = {"result": results[method]} if method in results else {"error": {"code": -32601, "message": "no"}}
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], **told})

    async def site(self, aiohttp_server: AiohttpServer) -> str:
        app = web.Application()
        app.router.add_route("*", "/mcp{rest:/?}", self.answer)
        return str((await aiohttp_server(app)).make_url("/mcp"))


async def test_a_redirect_within_the_origin_is_followed_once(aiohttp_server: AiohttpServer) -> None:
    """As of a slash at the end; what comes later goes there at once, calls included."""
    server = Elsewhere()
    async with stands_at(await server.site(aiohttp_server)) as stand:
        await stand.running()
        assert [await stand.said("echo") for _ in range(2)] == ["hi", "hi"]
    assert [path for path, _ in server.seen].count("/mcp") == 1
    assert [method for path, method in server.seen if path == "/mcp/"].count("tools/call") == 2


async def test_a_call_that_is_redirected_is_not_sent_again(aiohttp_server: AiohttpServer) -> None:
    """It may have run. It ends alone: the connection goes on."""
    server = Elsewhere(calls=True)
    async with stands_at(await server.site(aiohttp_server)) as stand:
        await stand.running()
        for sent in (1, 2):
            assert "it redirects the call, which is not sent again" in await stand.said("echo")
            assert [method for _, method in server.seen].count("tools/call") == sent
        assert stand.session.condition().state == "running"


async def test_redirects_without_end_are_not_followed(aiohttp_server: AiohttpServer) -> None:
    """Nor is one that leads to itself."""
    server = Elsewhere(to="/mcp")
    async with stands_at(await server.site(aiohttp_server)) as stand:
        await stand.changes.until(lambda: stand.session.condition().state == "error")
        assert "it redirects again and again" in (stand.session.condition().error or "")


@pytest.mark.parametrize("begins", [False, True])
@pytest.mark.parametrize("resumable", [False, True])
async def test_a_call_that_is_cancelled_leaves_no_connection(
    begins: bool, resumable: bool, aiohttp_server: AiohttpServer
) -> None:
    """In the older era a message cancels it; its server may never answer, or never end its stream."""
    server, ended = Elsewhere(), asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        message = await request.json() if request.method == "POST" else {}
        if message.get("method") != "tools/call":
            return await server.answer(request)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        try:
            if begins:
                await response.prepare(request)
                await response.write(b"id: 1\ndata:\n\n" if resumable else b": \n\n")
            await asyncio.Event().wait()
        finally:
            ended.set()
        return response

    app = web.Application()
    app.router.add_route("*", "/mcp/", answer)
    site = await aiohttp_server(app)
    async with stands_at(str(site.make_url("/mcp/")), timeout=0.3) as stand:
        await stand.running()
        assert "did not answer within" in await stand.said("echo")
        await asyncio.wait_for(ended.wait(), 5)
        assert stand.session.condition().state == "running"
    assert ("/mcp/", "notifications/cancelled") in server.seen
    assert "GET" not in [method for _, method in server.seen]  # its stream is not resumed


@pytest.mark.parametrize("retry", ["-5", "9" * 400, "x", "²"])
async def test_an_odd_time_until_a_stream_is_resumed_is_ignored(retry: str, aiohttp_server: AiohttpServer) -> None:
    """As the standard has it: the stream is resumed after the usual time, and has the answer."""
    server, called = Elsewhere(), list[object]()

    async def answer(request: web.Request) -> web.StreamResponse:
        message = await request.json() if request.method == "POST" else {}
        if message.get("method") == "tools/call":
            called.append(message["id"])
            return web.Response(text=f"retry: {retry}\nid: 1\ndata:\n\n", content_type="text/event-stream")
        if request.method == "GET" and request.headers.get("Last-Event-ID") == "1":
            result = {"content": [{"type": "text", "text": "hi"}]}
            told = json.dumps({"jsonrpc": "2.0", "id": called[0], "result": result})
            return web.Response(text=f"data: {told}\n\n", content_type="text/event-stream")
        return await server.answer(request)

    app = web.Application()
    app.router.add_route("*", "/mcp/", answer)
    site = await aiohttp_server(app)
    async with stands_at(str(site.make_url("/mcp/"))) as stand:
        await stand.running()
        assert await stand.said("echo") == "hi" and stand.session.condition().state == "running"
