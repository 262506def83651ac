"""The messages between a session and its server over HTTP, in both directions."""

import asyncio
import json

import pytest
from aiohttp import web
from pytest_aiohttp import AiohttpServer

from gateway.contracts.storage.store import Json
from gateway.mcp.transport.pending_requests import ID_CHARS
from tests.mcp.mcp_host import Changes
from tests.mcp.transport.web_stands import Elsewhere, stands_at


class Asking:
    """A server of the older era that asks on its standing stream, or on that of a call; it may never take an answer."""

    def __init__(self, *, on: str, pings: int, id_chars: int, takes: bool) -> None:
        self.answers = 0
        self.heard = Changes()
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
            self.heard()
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
async def test_server_that_leaves_responses_unread_is_disconnected(on: str, aiohttp_server: AiohttpServer) -> None:
    """On the standing stream as on that of a call: nothing of it fills the memory."""
    server = Asking(on=on, pings=1_000_000, id_chars=ID_CHARS, takes=False)
    async with stands_at(await _site(server, aiohttp_server)) as stand:
        await stand.running()
        call = asyncio.create_task(stand.said("echo"))
        await stand.changes.until(lambda: stand.session.get_condition().state == "error")
        why = "it sent requests of its own and left more than 1,000 answers to them waiting"
        assert stand.session.get_condition().error == why
        assert (said := await call) != "hi" or on == "GET", said  # the other stream may end before or after the call


async def test_server_that_does_not_accept_a_response_is_disconnected(aiohttp_server: AiohttpServer) -> None:
    """Nothing else could be sent to it meanwhile."""
    server = Asking(on="GET", pings=1, id_chars=1, takes=False)
    async with stands_at(await _site(server, aiohttp_server), accept_limit_s=0.5) as stand:
        await stand.changes.until(lambda: stand.session.get_condition().state == "error")
        assert stand.session.get_condition().error == "it did not accept a message within 0.5 s"


async def test_server_may_send_requests_while_accepting_the_responses(aiohttp_server: AiohttpServer) -> None:
    """Hundreds in a call, each with an answer; a request with too long an id ends the call."""
    server = Asking(on="POST", pings=500, id_chars=ID_CHARS, takes=True)
    async with stands_at(await _site(server, aiohttp_server)) as stand:
        await stand.running()
        for _ in range(3):
            assert await stand.said("echo") == "hi"
        await server.heard.until(lambda: server.answers == 1500)
    server = Asking(on="POST", pings=1, id_chars=ID_CHARS + 1, takes=True)
    async with stands_at(await _site(server, aiohttp_server)) as stand:
        await stand.running()
        assert "the id of its request is longer than 256 characters" in await stand.said("echo")
        assert server.answers == 0


class Retracting(Asking):
    """It cancels each of its requests but the first, whose answer it takes when all that it sent was read."""

    def __init__(self, *, mib: int) -> None:
        super().__init__(on="GET", pings=1, id_chars=1, takes=True)
        self._mib = mib
        self._lists = 0
        self.is_read = asyncio.Event()  # all that it sent: its client lists the tools again for the last of it

    async def answer(self, request: web.Request) -> web.StreamResponse:
        method = (await request.json()).get("method", "answer") if request.method == "POST" else ""
        if method == "answer":
            await self.is_read.wait()
        self._lists += method == "tools/list"
        if self._lists == 2:
            self.is_read.set()
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
        await response.write(b'data: {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}\n\n')
        await asyncio.Event().wait()
        return response


async def test_requests_that_a_server_cancels_do_not_count(aiohttp_server: AiohttpServer) -> None:
    """However large they are together. It gets no answers to them."""
    server = Retracting(mib=80)
    async with stands_at(await _site(server, aiohttp_server), accept_limit_s=3600) as stand:
        await stand.running()
        await asyncio.wait_for(server.is_read.wait(), 120)
        assert await stand.said("echo") == "hi"
        assert stand.session.get_condition().state == "running" and server.answers == 1


@pytest.mark.parametrize("begins", [False, True])
@pytest.mark.parametrize("resumable", [False, True])
async def test_cancelled_call_closes_its_http_connection(
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
        assert stand.session.get_condition().state == "running"
    assert ("/mcp/", "notifications/cancelled") in server.seen
    assert "GET" not in [method for _, method in server.seen]  # its stream is not resumed


@pytest.mark.parametrize("retry", ["-5", "9" * 400, "x", "²"])
async def test_invalid_retry_time_of_a_stream_is_ignored(retry: str, aiohttp_server: AiohttpServer) -> None:
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
        assert await stand.said("echo") == "hi" and stand.session.get_condition().state == "running"


async def test_any_valid_json_arguments_are_sent(aiohttp_server: AiohttpServer) -> None:
    """A number of more than 64 bits, too. A call with half of a character is not sent."""
    seen: list[Json] = []

    class Recording(Elsewhere):
        async def answer(self, request: web.Request) -> web.StreamResponse:
            seen.append(json.loads(await request.text() or "{}"))
            return await super().answer(request)

    async with stands_at((await Recording().site(aiohttp_server)) + "/") as stand:
        await stand.running()
        assert await stand.said("echo", n=1 << 70, text="ü") == "hi"
        assert "the request cannot be written as JSON" in await stand.said("echo", text="\ud800")
    (called,) = [message["params"] for message in seen if message.get("method") == "tools/call"]
    assert called["arguments"] == {"n": 1 << 70, "text": "ü"}


async def test_http_202_for_a_request_ends_the_call(aiohttp_server: AiohttpServer) -> None:
    """So nothing waits for one."""

    class Accepting(Elsewhere):
        async def answer(self, request: web.Request) -> web.StreamResponse:
            is_call = request.method == "POST" and (await request.json()).get("method") == "tools/call"
            return web.Response(status=202) if is_call else await super().answer(request)

    async with stands_at((await Accepting().site(aiohttp_server)) + "/") as stand:
        await stand.running()
        assert "it answered a request with HTTP 202" in await stand.said("echo")
        assert stand.session.get_condition().state == "running"


async def test_connection_is_reused_after_an_event_stream_answer(aiohttp_server: AiohttpServer) -> None:
    """Once its stream has ended."""
    ports: list[int] = []

    class Streaming(Elsewhere):
        async def answer(self, request: web.Request) -> web.StreamResponse:
            message = await request.json() if request.method == "POST" else {}
            if message.get("method") != "tools/call":
                return await super().answer(request)
            assert request.transport is not None
            ports.append(request.transport.get_extra_info("peername")[1])
            answer = {"jsonrpc": "2.0", "id": message["id"], "result": {"content": [{"type": "text", "text": "hi"}]}}
            return web.Response(text=f"data: {json.dumps(answer)}\n\n", content_type="text/event-stream")

    async with stands_at((await Streaming().site(aiohttp_server)) + "/") as stand:
        await stand.running()
        assert [await stand.said("echo") for _ in range(5)] == ["hi"] * 5
    assert len(ports) == 5 and len(set(ports)) == 1


async def test_session_end_ends_the_pending_calls(aiohttp_server: AiohttpServer) -> None:
    """Nothing waits for the server that forgot it."""
    called = asyncio.Event()

    class Forgetting(Asking):
        async def answer(self, request: web.Request) -> web.StreamResponse:
            message = await request.json() if request.method == "POST" else {}
            if message.get("method") == "tools/call":
                if called.is_set():
                    return web.Response(status=404)
                called.set()
                await asyncio.Event().wait()
            return await super().answer(request)

    server = Forgetting(on="POST", pings=0, id_chars=1, takes=True)
    async with stands_at(await _site(server, aiohttp_server)) as stand:
        await stand.running()
        waiting = asyncio.create_task(stand.said("echo"))
        await called.wait()
        await stand.said("echo")
        assert "ended while it ran the tool 'echo'" in await waiting
        await stand.changes.until(lambda: stand.session.get_condition().state == "error")
        assert stand.session.get_condition().error == "the server has ended the session"


class Standing(Asking):
    """A server whose standing stream is cut off after each of these texts; b"" stands for an answer with HTTP 404."""

    def __init__(self, *texts: bytes) -> None:
        super().__init__(on="POST", pings=0, id_chars=1, takes=True)
        self.ids: list[str | None] = []
        self._texts = texts

    async def _stream(
        self, request: web.Request, *, pings: int, result: tuple[object, Json] | None
    ) -> web.StreamResponse:
        if result is None:
            self.ids.append(request.headers.get("Last-Event-ID"))
            self.heard()
        if result is not None or len(self.ids) > len(self._texts):
            return await super()._stream(request, pings=pings, result=result)
        if not (text := self._texts[len(self.ids) - 1]):
            return web.Response(status=404)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(text)
        assert request.transport is not None
        request.transport.abort()
        return response


async def test_broken_standing_stream_is_reopened_from_its_last_event(aiohttp_server: AiohttpServer) -> None:
    """However often, behind its last event, also if the server refuses it meanwhile."""
    server = Standing(*[b"retry: 1\nid: %d\n\n" % number for number in range(4)], b"", b"", b"retry: 1\nid: 9\n\n")
    async with stands_at(await _site(server, aiohttp_server)) as stand:
        await stand.running()
        await server.heard.until(lambda: len(server.ids) == 8)
        assert await stand.said("echo") == "hi"
    assert server.ids == [None, "0", "1", "2", "3", "3", "3", "9"]


async def test_tools_are_listed_again_after_a_stream_gap(aiohttp_server: AiohttpServer) -> None:
    """Without ids of events nobody knows what came in it."""
    listed, heard = list[object](), Changes()

    class Listed(Standing):
        async def answer(self, request: web.Request) -> web.StreamResponse:
            if request.method == "POST" and (await request.json()).get("method") == "tools/list":
                listed.append(request)
                heard()
            return await super().answer(request)

    async with stands_at(await _site(Listed(b": hi\n\n"), aiohttp_server)) as stand:
        await stand.running()
        await heard.until(lambda: len(listed) == 2)


async def test_a_server_without_a_standing_stream_keeps_its_session(aiohttp_server: AiohttpServer) -> None:
    """Some have no route for it, which is no word about the session."""
    server = Standing(b"", b"")
    async with stands_at(await _site(server, aiohttp_server)) as stand:
        await stand.running()
        await server.heard.until(lambda: len(server.ids) == 2)
        assert await stand.said("echo") == "hi" and stand.session.get_condition().state == "running"


@pytest.mark.parametrize("ends", [False, True])
async def test_response_on_the_standing_stream_completes_its_call(ends: bool, aiohttp_server: AiohttpServer) -> None:
    """As servers write it that close the stream of a call, to be asked for the rest. Those to others are dropped."""
    called = asyncio.get_running_loop().create_future()

    class Elsewhere(Asking):
        async def _stream(
            self, request: web.Request, *, pings: int, result: tuple[object, Json] | None
        ) -> web.StreamResponse:
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            if result is None:
                request_id, told = await called
                for found in ([request_id], str(request_id), request_id):
                    answer = {"jsonrpc": "2.0", "id": found, "result": told if found is request_id else {}}
                    await response.write(b"data: %b\n\n" % json.dumps(answer).encode())
            else:
                await response.write(b"id: 1\nretry: 60000\n\n")
                called.set_result(result)
            if not ends or result is None:
                await asyncio.Event().wait()
            return response

    server = Elsewhere(on="POST", pings=0, id_chars=1, takes=True)
    async with stands_at(await _site(server, aiohttp_server)) as stand:
        await stand.running()
        assert await stand.said("echo") == "hi" and stand.session.get_condition().state == "running"


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
@pytest.mark.parametrize("answer", [{"error": {"code": "x", "message": 1}}, {"error": 7}, {"result": 7}])
async def test_an_answer_without_a_result_ends_its_call(answer: Json, kind: str, aiohttp_server: AiohttpServer) -> None:
    """As one with an error that is none does."""

    class Odd(Elsewhere):
        async def answer(self, request: web.Request) -> web.StreamResponse:
            message = await request.json() if request.method == "POST" else {}
            if message.get("method") != "tools/call":
                return await super().answer(request)
            told = json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer})
            return web.Response(text=f"data: {told}\n\n" if kind != "application/json" else told, content_type=kind)

    async with stands_at((await Odd().site(aiohttp_server)) + "/") as stand:
        await stand.running()
        assert "a message of the server is not read" in await stand.said("echo")
        assert stand.session.get_condition().state == "running"


async def test_session_forgotten_by_the_server_is_restarted_at_once(aiohttp_server: AiohttpServer) -> None:
    """However often: a server that does so is well. The call that met the end has not run, so it is made again."""

    class Forgetting(Asking):
        forgets = False

        async def answer(self, request: web.Request) -> web.StreamResponse:
            is_call = request.method == "POST" and (await request.json()).get("method") == "tools/call"
            if is_call and self.forgets:
                self.forgets = False
                return web.Response(status=404)
            return await super().answer(request)

    server = Forgetting(on="POST", pings=0, id_chars=1, takes=True)
    async with stands_at(await _site(server, aiohttp_server)) as stand:
        async with asyncio.timeout(30):  # with waits that double, ten sessions would take minutes
            for _ in range(12):
                await stand.running()
                server.forgets = True
                assert await stand.said("echo") == "hi" and not server.forgets


async def test_error_response_with_a_foreign_id_ends_the_call(aiohttp_server: AiohttpServer) -> None:
    """Servers that have not read the id write another one."""

    class Refusing(Elsewhere):
        async def answer(self, request: web.Request) -> web.StreamResponse:
            if request.method == "POST" and (await request.json()).get("method") == "tools/call":
                error = {"code": -32600, "message": "out of order"}
                return web.json_response({"jsonrpc": "2.0", "id": "server-error", "error": error}, status=400)
            return await super().answer(request)

    async with stands_at((await Refusing().site(aiohttp_server)) + "/") as stand:
        await stand.running()
        assert "with an error: out of order" in await stand.said("echo")


async def test_interrupted_tool_listing_is_retried_without_ending_calls(aiohttp_server: AiohttpServer) -> None:
    """The tools are listed again."""
    called, goes_on, listed = asyncio.Event(), asyncio.Event(), Changes()
    lists: list[object] = []

    class Breaking(Asking):
        async def answer(self, request: web.Request) -> web.StreamResponse:
            message = await request.json() if request.method == "POST" else {}
            if message.get("method") == "tools/call":
                called.set()
                await goes_on.wait()
            if message.get("method") == "tools/list":
                lists.append(message)
                listed()
                if len(lists) == 2:
                    assert request.transport is not None
                    request.transport.abort()
            return await super().answer(request)

        async def _stream(
            self, request: web.Request, *, pings: int, result: tuple[object, Json] | None
        ) -> web.StreamResponse:
            if result is not None:
                return await super()._stream(request, pings=pings, result=result)
            await called.wait()
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            await response.write(b'data: {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}\n\n')
            await asyncio.Event().wait()
            return response

    server = Breaking(on="POST", pings=0, id_chars=1, takes=True)
    async with stands_at(await _site(server, aiohttp_server)) as stand:
        await stand.running()
        call = asyncio.create_task(stand.said("echo"))
        await listed.until(lambda: len(lists) == 3)
        goes_on.set()
        assert await call == "hi" and stand.session.get_condition().state == "running"


async def test_the_standing_stream_is_open_before_the_first_call(aiohttp_server: AiohttpServer) -> None:
    """Else what the server sends meanwhile is lost, and servers that poll take it for the rest of a call."""
    seen: list[str] = []

    class Ordered(Asking):
        async def answer(self, request: web.Request) -> web.StreamResponse:
            message = await request.json() if request.method == "POST" else {}
            seen.append(message.get("method", request.method))
            return await super().answer(request)

    server = Ordered(on="POST", pings=0, id_chars=1, takes=True)
    async with stands_at(await _site(server, aiohttp_server)) as stand:
        await stand.running()
    handshake = seen.index("notifications/initialized")
    assert seen[handshake : handshake + 3] == ["notifications/initialized", "GET", "tools/list"]
