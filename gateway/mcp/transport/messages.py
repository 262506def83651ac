"""The reading of what an MCP server sends: JSON with one reading, by the reader that clients' messages go through.

Two parsers may read two things in repeated keys, NaN or numbers that are too large. So such a message is refused. What
passes over HTTP is written anew for the SDK, which reads nothing else of the server. An answer with the id of another
request ends the call; the SDK would take it. A flood of what is no message ends the connection, and so do requests of
the server whose answers it does not take.
"""

import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Final, TypeGuard

import httpx2
import orjson
from mcp_types import PARSE_ERROR, RequestId

from gateway import strict_json
from gateway.contracts.store import Json
from gateway.json_values import SERVICE_VALUES_LIMIT
from gateway.mcp.transport.noise import LINES, Noise
from gateway.mcp.transport.requests import CANCELLED, ID_TOO_LONG, Requests, has_long_id
from gateway.turns import Turn, aside

#: What is said of a message that is refused, in front of the reason.
REFUSED: Final = "no JSON with one reading"
_EVENT_END: Final = re.compile(rb"\n\n|\n\r\n?|\r\n\n|\r\n\r\n?|\r\r\n?")
_LINE_END: Final = re.compile(rb"\r\n|\n|\r")
#: Lines at the beginning of an event that say nothing. A line of the others says something, or may.
_SAYS_NOTHING: Final = re.compile(rb"(?:(?!data|event|id|retry)[^\r\n]*+(?:\r\n|\r|\n))*+")
_JSON: Final = "application/json"
_EVENTS: Final = "text/event-stream"
_BOM: Final = b"\xef\xbb\xbf"
_ID_CHARS: Final = 40
_PASSED_ON: Final = (b"event", b"id", b"retry")
#: Milliseconds. The SDK takes any number, as -5, and the standard ignores what is none.
_RETRY: Final = re.compile(rb"[0-9]{1,7}")


async def read_message(content: bytes) -> object:
    """Return the JSON value of a message. Raises StrictJsonError."""
    return await aside(partial(strict_json.read, content, most_values=SERVICE_VALUES_LIMIT), content=content)


def strictly(
    response: httpx2.Response,
    *,
    request_id: RequestId | None,
    limit_bytes: int,
    requests: Requests,
    lost: Callable[[str], object],
    is_over: Callable[[], bool] = lambda: False,
) -> httpx2.Response:
    """Return an answer of which the SDK gets only messages with one reading. An event has at most so many bytes.

    It is the answer to the request of this id; None: to none, or to one that is not known. `lost` is called with the
    reason if what it writes is too much that is no message, or if `requests`, those of the server, are too many.
    `is_over` returns whether the request was cancelled: an event stream that breaks off then is not to be resumed.
    """
    kind = response.headers.get("content-type", "").lower()
    stream = response.stream
    assert isinstance(stream, httpx2.AsyncByteStream)
    if kind.startswith(_JSON):
        response.stream, read_as = _Whole(stream, request_id=request_id), _JSON
    elif kind.startswith(_EVENTS):
        read_as = _EVENTS
        response.stream = _Events(
            stream, request_id=request_id, limit_bytes=limit_bytes, requests=requests, lost=lost, is_over=is_over
        )
    else:
        return response
    if kind != read_as:  # it may name another charset, and what is written anew is UTF-8
        response.headers["content-type"] = read_as
    return response


class _Whole(httpx2.AsyncByteStream):
    """An answer that is one message. What is no answer to the request is a StreamError: the SDK ends one call by it."""

    def __init__(self, stream: httpx2.AsyncByteStream, *, request_id: RequestId | None) -> None:
        self._stream = stream
        self._request_id = request_id

    async def __aiter__(self) -> AsyncIterator[bytes]:
        content = b"".join([piece async for piece in self._stream])
        try:
            message = await read_message(content)
        except strict_json.StrictJsonError as error:
            raise httpx2.StreamError(f"it is {REFUSED}: {error}") from None
        if self._request_id is not None:
            if not is_answer(message):
                raise httpx2.StreamError("it is no answer to a request")
            if (why := _astray(message, self._request_id)) is not None:
                raise httpx2.StreamError(why)
            message["id"] = self._request_id  # an error may have none
        yield orjson.dumps(message)

    async def aclose(self) -> None:
        await self._stream.aclose()


class _Events(httpx2.AsyncByteStream):
    """An event stream. In place of an event without one reading comes an error: it ends the call that the stream is of.

    That event may have been the answer, so waiting for another one could take forever.
    """

    def __init__(
        self,
        stream: httpx2.AsyncByteStream,
        *,
        request_id: RequestId | None,
        limit_bytes: int,
        requests: Requests,
        lost: Callable[[str], object],
        is_over: Callable[[], bool],
    ) -> None:
        self._stream = stream
        self._request_id = request_id
        self._limit_bytes = limit_bytes
        self._requests = requests
        self._lost = lost
        self._is_over = is_over
        self._noise = Noise()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for event in self._each():
                yield event
        except httpx2.StreamError:
            if not self._is_over():
                raise
            yield _error("its request was cancelled")

    async def _each(self) -> AsyncIterator[bytes]:
        held, searched, begun, turn = bytearray(), 0, False, Turn()
        async for piece in self._stream:
            held += piece
            self._noise.add(size_bytes=len(piece))
            if not begun and len(held) >= len(_BOM):
                begun = True
                if held.startswith(_BOM):
                    del held[: len(_BOM)]
            for block in _taken(held, searched, self._noise):
                if (event := await self._again(block)) is not None:
                    yield event
                await turn.pause()
                if self._excess is not None:
                    break
            if (excess := self._excess) is not None:
                self._lost(excess)
                yield _error(excess)
                return
            searched = max(len(held) - 3, 0)
            if len(held) > self._limit_bytes:
                yield _error(f"it is longer than {self._limit_bytes} bytes")
                return

    async def aclose(self) -> None:
        await self._stream.aclose()

    @property
    def _excess(self) -> str | None:
        return self._noise.excess or self._requests.excess

    async def _again(self, block: bytes) -> bytes | None:
        """Return an event written anew, or an error in its place; None: it says nothing."""
        if block.count(b"\n") + block.count(b"\r") > LINES:
            return _error(f"it has more than {LINES:,} lines")
        data: list[bytes] = []
        fields, turn = b"", Turn()
        for line in _LINE_END.split(block):
            name, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if name == b"data":
                data.append(value)
            elif name in _PASSED_ON and (name != b"retry" or _RETRY.fullmatch(value)):
                fields += b"%b: %b\n" % (name, value)
            await turn.pause()
        content = b"\n".join(data)
        if content:
            try:
                message = await read_message(content)
            except strict_json.StrictJsonError as error:
                return _error(f"it is {REFUSED}: {error}")
            if self._request_id is not None and is_answer(message) and (why := _astray(message, self._request_id)):
                return _error(why)
            if is_request(message):
                if has_long_id(message["id"]):
                    return _error(ID_TOO_LONG)
                self._requests.add(message["id"], len(block))
            elif isinstance(message, dict) and message.get("method") == CANCELLED:
                self._requests.cancel(message.get("params"))
            content = orjson.dumps(message)
            self._noise.add(size_bytes=-len(block))
        else:
            self._noise.add(lines=1)
        if not data and not fields:
            return None
        return b"%bdata: %b\n\n" % (fields, content) if data else fields + b"\n"


def is_answer(message: object) -> TypeGuard[Json]:
    """Return whether a message is one to a request, of whichever id."""
    return isinstance(message, dict) and ("result" in message or "error" in message)


def is_request(message: object) -> TypeGuard[Json]:
    """Return whether a message is a request, to which an answer belongs."""
    return isinstance(message, dict) and "method" in message and "id" in message


def _astray(answer: Json, request_id: RequestId) -> str | None:
    """Return why an answer is none to this request; None: it is one. An error may have no id."""
    found = answer.get("id")
    if found is None and "error" in answer:
        return None
    if type(found) is type(request_id) and found == request_id:
        return None
    return f"it has the id {json.dumps(found)[:_ID_CHARS]}, and not that of the request ({json.dumps(request_id)})"


def _taken(held: bytearray, searched: int, noise: Noise) -> Iterator[bytes]:
    """Take the events that are whole from the bytes; up to `searched` none ends."""
    start = 0
    while _LINE_END.search(held, max(start, searched)) is not None:
        found = _SAYS_NOTHING.match(held, start)
        assert found is not None
        noise.add(lines=held.count(b"\n", start, found.end()) + held.count(b"\r", start, found.end()))
        start = found.end()
        end = _EVENT_END.search(held, max(start, searched))
        if end is None:
            break
        yield bytes(held[start : end.start()])
        start = end.end()
    del held[:start]


def _error(reason: str) -> bytes:
    """Return an event with an error. The SDK inserts the id of the request."""
    error = {"code": PARSE_ERROR, "message": f"a message of the server is not read: {reason}"}
    return b"data: %b\n\n" % orjson.dumps({"jsonrpc": "2.0", "id": None, "error": error})
