"""What servers send that has no one reading: it is refused with the reason, ends its call, and nothing hangs."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from gateway.jsontext.value_count import SERVICE_VALUES_LIMIT
from gateway.mcp.server_facts import Config, ServerEndpoint
from gateway.mcp.transport.http import HttpTransport
from gateway.mcp.transport.junk_limit import LINES
from gateway.mcp.transport.messages import (
    MAY_HAVE_RUN,
    TEXT_CHARS,
    EventMessages,
    FloodError,
    StreamPosition,
    UnreadError,
    read_message,
)
from gateway.mcp.transport.pending_requests import Requests
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
        endpoint = ServerEndpoint(url=str(site.make_url("/mcp")))
        facts = Config(name="box", url="http://x.invalid", timeout=60.0)
        async with Stand(facts, lambda lost: HttpTransport(endpoint, lost=lost, clock=Clock())) as stand:
            yield stand


@pytest.mark.parametrize("way", ["stdio", "application/json", "text/event-stream"])
async def test_ambiguous_json_message_ends_its_call(way: str) -> None:
    """With the service and what was wrong; the next call of the same connection is answered."""
    async with stands("as-it-is", timeout=60.0) if way == "stdio" else scripted(way) as stand:
        await stand.running()
        for answer, why in ANSWERS.items():
            said = await stand.said("echo", text=answer)
            assert said.startswith("the service 'box' answered the call of 'echo' with an error: "), said
            assert "no JSON with one reading" in said and why in said and said.endswith(MAY_HAVE_RUN), said
        for answer in GOOD:
            assert await stand.said("echo", text=answer) == "hi"


@pytest.mark.parametrize("way", ["application/json", "text/event-stream", "resumed"])
async def test_response_with_a_foreign_id_ends_the_call(way: str) -> None:
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
async def test_json_body_that_is_not_a_response_fails_the_call(body: str) -> None:
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


async def _pieces(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


async def _events(*pieces: bytes, limit_bytes: int = 1000, place: StreamPosition | None = None) -> list[object]:
    """Return what is read of a stream in these pieces: messages, and the reasons why others are not read."""
    events = EventMessages(
        _pieces(*pieces), limit_bytes=limit_bytes, requests=Requests(), place=place or StreamPosition()
    )
    return [str(event) if isinstance(event, UnreadError) else event async for event in events]


async def test_events_are_parsed_at_any_chunk_boundary() -> None:
    """With any ends of lines; comments, unknown fields and other types of events are left out."""
    stream = (
        b'\xef\xbb\xbf: hi\r\n\r\nid: 7\rdata: {"a":\ndata: 1}\n\revent: x\nodd: 1\ndata: no\r\n\n'
        b"event: message\ndata\nid: 8\nretry: 5\n\nevent:\ndata:[]\n\n"
    )
    expected = [{"a": 1}, []]
    for pieces in (
        [stream],
        [bytes([byte]) for byte in stream],
        *([stream[:n], stream[n:]] for n in range(len(stream))),
    ):
        place = StreamPosition()
        assert await _events(*pieces, place=place) == expected
        assert place == StreamPosition(last_id=b"8", retry_ms=5)


@pytest.mark.parametrize(
    "field", [b"id: 8\x00", b"retry: -5", b"retry: x", b"retry: " + b"9" * 400, b"retry: \xc2\xb2"]
)
async def test_invalid_event_id_and_retry_fields_are_ignored(field: bytes) -> None:
    """An empty id means that there is none."""
    place = StreamPosition()
    assert await _events(b"id: 7\nretry: 2\n\n" + field + b"\n\n", place=place) == []
    assert place == StreamPosition(last_id=b"7", retry_ms=2)
    await _events(b"id\n\n", place=place)
    assert place.last_id == b""


async def test_overlong_event_is_an_error() -> None:
    """And the stream is over."""
    assert await _events(b"data: ", b"x" * 1000, b"\n\ndata: 1\n\n") == ["it is longer than 1000 bytes"]


@pytest.mark.parametrize(
    "noise", [b"\n", b"\r\r", b"\r\n", b": x\n\n", b"data:\n\n", b"event: a\n\n", b"retry: 1\n\n", b"odd\n"]
)
async def test_flood_of_empty_event_stream_lines_ends_the_connection(noise: bytes) -> None:
    """With the reason; what is allowed of it does not disturb what follows."""
    flood, answer = noise * (LINES // 3), b'\n\ndata: {"a":1}\n\n'
    assert await _events(flood, answer) == [{"a": 1}]
    with pytest.raises(FloodError, match="it wrote more than 100,000 lines within a minute that are no messages"):
        await _events(flood, flood, flood, flood, answer)


async def test_events_without_messages_count_as_a_flood() -> None:
    """By their bytes, whatever their type."""
    with pytest.raises(FloodError, match="it wrote more than 256 MiB within a minute that are no messages"):
        await _events(*[b"event: x\ndata: " + b"x" * (8 << 20) + b"\n\n"] * 33, limit_bytes=9 << 20)


async def test_an_event_of_too_many_lines_is_an_error() -> None:
    """Others would wait while they are joined."""
    event, answer = await _events(b"data: 1\n:\n" + b":\n" * LINES + b"\n", b"data: 1\n\n", limit_bytes=1 << 20)
    assert event == "it has more than 100,000 lines" and answer == 1


@pytest.mark.parametrize("kind", ["title", "key", "error", "request"])
async def test_overlong_text_in_a_message_is_truncated(kind: str) -> None:
    """The value around it is still too large, so that it is left out where that is bounded."""
    long = "x" * (3 * TEXT_CHARS)
    message = {
        "title": {"id": 1, "result": {"tools": [{"name": "a", "title": long}, {"name": "b", "title": "short"}]}},
        "key": {"id": 1, "result": {"tools": [{"name": "a", "inputSchema": {long: [long]}}]}},
        "error": {"id": 1, "error": {"code": 1, "message": long}},
        "request": {"id": 1, "method": "elicitation/create", "params": {"message": long}},
    }[kind]
    read = json.dumps(await read_message(json.dumps(message).encode()))
    assert read == json.dumps(message).replace(long, "x" * (TEXT_CHARS + 1))


@pytest.mark.parametrize("place", ["content", "contents", "messages", "structuredContent"])
async def test_texts_of_a_tool_result_are_not_truncated(place: str) -> None:
    """Whatever else is in it."""
    message = {"id": 1, "result": {place: [{"text": "ü" * (2 * TEXT_CHARS)}], "tools": ["y" * (2 * TEXT_CHARS)]}}
    assert await read_message(json.dumps(message).encode()) == message
