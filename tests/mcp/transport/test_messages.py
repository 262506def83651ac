"""What servers send that has no one reading: it is refused with the reason, ends its call, and nothing hangs."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import httpx2
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from gateway.json_values import SERVICE_VALUES_LIMIT
from gateway.mcp.transport.http import HttpTransport
from gateway.mcp.transport.messages import strictly
from gateway.mcp.transport.noise import LINES
from gateway.mcp.transport.requests import Requests
from gateway.mcp.types import Config, Endpoint
from tests.mcp.mcp_host import Clock, Stand, stands

_TEXT: Final = '{"type": "text", "text": "hi"}'
DEEP: Final = "[" * 130 + "]" * 130
LOOSE: Final = {
    '{"jsonrpc": "2.0", "id": ID, "result": {"content": [%s], "structuredContent": {"n": NaN}}}': "NaN is not JSON",
    '{"jsonrpc": "2.0", "id": ID, "result": {"content": [], "content": [%s]}}': "the key 'content' is there twice",
    '{"jsonrpc": "2.0", "id": ID, "result": {"content": []}, "result": {"content": [%s]}}': "the key 'result' is there",
    '{"jsonrpc": "2.0", "result": {"content": [%s]}, "id": ID, "id": ID}': "the key 'id' is there twice",
    '{"jsonrpc": "2.0", "id": ID, "_": 0, "result": {"content": [%s], "content": []}}': "the key 'content' is there",
    '{"jsonrpc": "2.0", "id": ID, "result": {"content": [%s], "n": 1e999}}': "a number is too large (at result.n)",
    '{"jsonrpc": "2.0", "id": ID, "result": {"content": [%s], "n": 18446744073709551616}}': "a number is too large",
    '{"jsonrpc": "2.0", "id": ID, "result": {"content": [%s], "n": "\\ud800"}}': "half of a character",
    '{"jsonrpc": "2.0", "id": ID, "result": {"content": [%s], "n": DEEP}}': "nested more than 128 levels deep",
}
ANSWERS: Final = {answer.replace("%s", _TEXT).replace("DEEP", DEEP): why for answer, why in LOOSE.items()}
GOOD: Final = (
    '{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"hi"}]}}',
    '{"id": ID, "result": {"content": [{"text": "\\u0068i", "type": "text"}], "n": 1.50}, "jsonrpc": "2.0"}',
)


@asynccontextmanager
async def scripted(kind: str) -> AsyncIterator[Stand]:
    """A server over HTTP which answers a call with the argument of the call, as an answer of this type.

    `resumed`: the stream of a call ends without an answer, which comes when its client asks for the rest.
    """
    rest: dict[str, str] = {}

    async def answer(request: web.Request) -> web.Response:
        if request.method == "GET" and (wanted := request.headers.get("Last-Event-ID")) in rest:
            return web.Response(text=f"data: {rest.pop(wanted)}\n\n", content_type="text/event-stream")
        if request.method != "POST":
            return web.Response(status=405)
        message = json.loads(await request.read())
        if "id" not in message:
            return web.Response(status=202)
        info = {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "x", "version": "1"},
        }
        results = {"initialize": info, "tools/list": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}}
        method, request_id = message["method"], message["id"]
        if method == "tools/call":
            written = message["params"]["arguments"]["text"].replace("ID", str(request_id))
        elif method in results:
            written = json.dumps({"jsonrpc": "2.0", "id": request_id, "result": results[method]})
        else:
            error = {"code": -32601, "message": "unknown"}
            written = json.dumps({"jsonrpc": "2.0", "id": request_id, "error": error})
        if kind == "text/event-stream":
            written = f": ping\r\nid: 1\nretry: 60000\rdata:{written}\r\n\r\n"
        if kind == "resumed" and method == "tools/call":
            rest[str(request_id)] = written
            return web.Response(text=f"id: {request_id}\nretry: 1\ndata:\n\n", content_type="text/event-stream")
        written_as = "application/json" if kind == "resumed" else kind
        return web.Response(body=written.encode(), headers={"Content-Type": written_as})

    app = web.Application()
    app.router.add_route("*", "/mcp", answer)
    async with TestServer(app) as site:
        endpoint = Endpoint(url=str(site.make_url("/mcp")))
        facts = Config(name="box", url="http://x.invalid", timeout=60.0)
        async with Stand(facts, lambda lost: HttpTransport(endpoint, lost=lost, clock=Clock())) as stand:
            yield stand


@pytest.mark.parametrize("way", ["stdio", "application/json", "text/event-stream"])
async def test_a_message_without_one_reading_ends_its_call(way: str) -> None:
    """With the service and what was wrong; the next call of the same connection is answered."""
    async with stands("as-it-is", timeout=60.0) if way == "stdio" else scripted(way) as stand:
        await stand.running()
        for answer, why in ANSWERS.items():
            said = await stand.said("echo", text=answer)
            assert said.startswith("the service 'box' answered the call of 'echo' with an error: "), said
            assert "no JSON with one reading" in said and why in said, said
        for answer in GOOD:
            assert await stand.said("echo", text=answer) == "hi"


@pytest.mark.parametrize("way", ["application/json", "text/event-stream", "resumed"])
async def test_an_answer_to_another_request_ends_the_call(way: str) -> None:
    """At once: it is not taken for the right one, and nothing waits for that."""
    async with scripted(way) as stand:
        await stand.running()
        for found in ("999", '"ID"', "ID.0", "null", "true", "[ID]"):
            answer = GOOD[0].replace("ID", found)
            said = await stand.said("echo", text=answer)
            assert said.startswith("the service 'box' answered the call of 'echo' with an error: "), said
            assert "and not that of the request" in said, said
        error = '{"jsonrpc": "2.0", "id": null, "error": {"code": -1, "message": "cannot read that"}}'
        assert "cannot read that" in await stand.said("echo", text=error)
        assert await stand.said("echo", text=GOOD[0]) == "hi"


@pytest.mark.parametrize("body", ['{"jsonrpc": "2.0", "method": "notifications/message"}', "[]", "7"])
async def test_a_body_that_is_no_answer_ends_the_call(body: str) -> None:
    """Nothing else comes behind it."""
    async with scripted("application/json") as stand:
        await stand.running()
        assert "it is no answer to a request" in await stand.said("echo", text=body)


async def test_an_event_of_too_many_values_ends_its_call() -> None:
    """With the reason."""
    async with scripted("text/event-stream") as stand:
        await stand.running()
        many = '{"jsonrpc": "2.0", "id": ID, "result": {"n": [%s0]}}' % ("0," * SERVICE_VALUES_LIMIT)
        assert f"it holds more than {SERVICE_VALUES_LIMIT} values" in await stand.said("echo", text=many)


class _Pieces(httpx2.AsyncByteStream):
    def __init__(self, *pieces: bytes) -> None:
        self._pieces = pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece

    async def aclose(self) -> None:
        pass


async def _events(*pieces: bytes, limit_bytes: int = 1000, lost: Callable[[str], object] = pytest.fail) -> list[str]:
    """The events that the SDK sees of a stream in these pieces: their ids and their data."""
    request = httpx2.Request("GET", "http://x.invalid")
    kind = {"content-type": "text/event-stream; charset=utf-16"}
    response = strictly(
        httpx2.Response(200, headers=kind, stream=_Pieces(*pieces)),
        request_id=None,
        limit_bytes=limit_bytes,
        requests=Requests(),
        lost=lost,
    )
    response.request = request
    return [f"{event.event} {event.id} {event.data}" async for event in httpx2.EventSource(response)]


async def test_events_are_written_anew_wherever_they_are_cut() -> None:
    """With any ends of lines; comments and unknown fields are left out."""
    stream = b'\xef\xbb\xbf: hi\r\n\r\nid: 7\rdata: {"a":\ndata: 1}\n\revent: x\nodd: 1\r\n\ndata\nid: 8\n\n[]'
    expected = ['message 7 {"a":1}', "x 7 ", "message 8 "]
    assert await _events(stream) == expected
    assert await _events(*[bytes([byte]) for byte in stream]) == expected
    for cut in range(len(stream)):
        assert await _events(stream[:cut], stream[cut:]) == expected


async def test_an_event_without_end_is_an_error() -> None:
    """And the stream is over."""
    (event,) = await _events(b"data: ", b"x" * 1000, b"\n\ndata: 1\n\n")
    assert "it is longer than 1000 bytes" in json.loads(event.removeprefix("message  "))["error"]["message"]


@pytest.mark.parametrize(
    "noise", [b"\n", b"\r\r", b"\r\n", b": x\n\n", b"data:\n\n", b"event: a\n\n", b"retry: 1\n\n", b"odd\n"]
)
async def test_a_flood_of_what_says_nothing_ends_the_connection(noise: bytes) -> None:
    """With the reason; what is allowed of it does not disturb what follows."""
    told: list[str] = []
    flood, answer = noise * (LINES // 3), b'\n\ndata: {"a":1}\n\n'
    assert (await _events(flood, answer, lost=told.append))[-1] == 'message  {"a":1}'
    assert told == []
    *_, last = await _events(flood, flood, flood, flood, answer, lost=told.append)
    why = "it wrote more than 100,000 lines within a minute that are no messages"
    assert why in json.loads(last.removeprefix("message  "))["error"]["message"]
    assert told == [why]


async def test_an_event_of_too_many_lines_is_an_error() -> None:
    """Others would wait while they are joined."""
    event, answer = await _events(b"data: 1\n:\n" + b":\n" * LINES + b"\n", b"data: 1\n\n", limit_bytes=1 << 20)
    assert "it has more than 100,000 lines" in json.loads(event.removeprefix("message  "))["error"]["message"]
    assert answer == "message  1"
