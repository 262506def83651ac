"""The reading of what an MCP server sends: JSON with one reading, by the reader that clients' messages go through.

Two parsers may read two things in repeated keys, NaN or numbers that are too large. So such a message is refused. An
answer with the id of another request ends the call. A flood of input that is not a message ends the connection, and so
do requests of the server whose answers it does not take.
"""

import json
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeGuard

from mcp_types import RequestId

from gateway.aio.cooperative import TimeSlice, run_aside
from gateway.contracts.storage.store import Json
from gateway.jsontext import strict_json
from gateway.jsontext.value_count import SERVICE_VALUES_LIMIT
from gateway.mcp.transport.junk_limit import LINES, Noise
from gateway.mcp.transport.pending_requests import CANCELLED, ID_TOO_LONG, Requests, has_long_id

#: The note on a refused message, in front of the reason.
REFUSED: Final = "no JSON with one reading"
#: The note on a request whose answer came, and is not read.
MAY_HAVE_RUN: Final = "the request may have been carried out all the same: do not repeat it on your own"
#: Of a definition, an error or a request of a server. A definition with a longer text is left out.
TEXT_CHARS: Final = 1 << 20
#: A result with one of these is of a call, or of what a resource or a prompt contains.
_CONTENT: Final = frozenset(("content", "structuredContent", "contents", "messages", "inputRequests"))
_EVENT_END: Final = re.compile(rb"\n\n|\n\r\n?|\r\n\n|\r\n\r\n?|\r\r\n?")
_LINE_END: Final = re.compile(rb"\r\n|\n|\r")
#: Lines at the beginning of an event that have no content. All other lines may have some.
_SAYS_NOTHING: Final = re.compile(rb"(?:(?!data|event|id|retry)[^\r\n]*+(?:\r\n|\r|\n))*+")
_BOM: Final = b"\xef\xbb\xbf"
_ID_CHARS: Final = 40
#: The type of the events that are messages; an event that names none has it, too.
_MESSAGE: Final = b"message"
#: Milliseconds. The standard ignores a value that is not a number.
_RETRY: Final = re.compile(rb"[0-9]{1,7}")


class UnreadError(Exception):
    """The error that a message of the server is not read; the text is the reason."""


class FloodError(UnreadError):
    """The error of a server that writes too much junk or sends too many requests: its connection is to be ended."""


@dataclass(slots=True)
class StreamPosition:
    """A place in a stream of events: the id of the last event, and the time in ms until the rest is requested."""

    last_id: bytes = b""
    retry_ms: int = 1000


async def read_message(content: bytes) -> object:
    """Return the JSON value of a message, without what is behind `TEXT_CHARS` of a text. Raises StrictJsonError.

    Texts of a result of a tool or a resource are whole.
    """
    return await run_aside(partial(_parse_and_shorten, content), content=content)


def _parse_and_shorten(content: bytes) -> object:
    message = strict_json.read(content, most_values=SERVICE_VALUES_LIMIT)
    if len(content) > TEXT_CHARS and not _has_content(message):
        _shorten_texts(message)
    return message


def _has_content(message: object) -> bool:
    result = message.get("result") if isinstance(message, dict) else None
    return isinstance(result, dict) and not _CONTENT.isdisjoint(result)


def _shorten_texts(message: object) -> None:
    """Cut each text of a message to one character more than allowed, so that it still counts as too long."""
    waiting = [message]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            for key in [key for key in value if len(key) > TEXT_CHARS]:
                value[key[: TEXT_CHARS + 1]] = value.pop(key)
        elif not isinstance(value, list):
            continue
        for place, inner in list(value.items() if isinstance(value, dict) else enumerate(value)):
            if isinstance(inner, str) and len(inner) > TEXT_CHARS:
                value[place] = inner[: TEXT_CHARS + 1]
            elif isinstance(inner, dict | list):
                waiting.append(inner)


async def read_answer(content: bytes, request_id: RequestId) -> Json:
    """Return the answer to a request that is a whole body. Raises UnreadError."""
    try:
        message = await read_message(content)
    except strict_json.StrictJsonError as error:
        raise UnreadError(f"it is {REFUSED}: {error}") from None
    if not is_answer(message):
        raise UnreadError("it is no answer to a request")
    check_id(message, request_id)
    return message


class EventMessages:
    """The messages of one stream of events, which comes in pieces; no event has more than `limit_bytes`.

    `requests` counts the server's requests. `place` is kept up to date.
    """

    def __init__(
        self, pieces: AsyncIterator[bytes], *, limit_bytes: int, requests: Requests, place: StreamPosition
    ) -> None:
        self._pieces = pieces
        self._limit_bytes = limit_bytes
        self._requests = requests
        self._place = place
        self._noise = Noise()

    async def __aiter__(self) -> AsyncIterator[object]:
        """Yield each message, as JSON, and an UnreadError in place of one that is not read.

        That may have been the answer, so waiting for another one could take forever. Raises FloodError, and what the
        pieces raise.
        """
        held, searched, begun, turn = bytearray(), 0, False, TimeSlice()
        async for piece in self._pieces:
            held += piece
            self._noise.add(size_bytes=len(piece))
            if not begun and len(held) >= len(_BOM):
                begun = True
                if held.startswith(_BOM):
                    del held[: len(_BOM)]
            for block in _take_events(held, searched, self._noise):
                content = await self._get_event_data(block)
                if isinstance(content, UnreadError):
                    yield content
                elif content:
                    yield await self._parse_message(content, len(block))
                else:
                    self._noise.add(lines=1)
                await turn.pause()
                self._check_noise()
            self._check_noise()
            searched = max(len(held) - 3, 0)
            if len(held) > self._limit_bytes:
                yield UnreadError(f"it is longer than {self._limit_bytes} bytes")
                return

    def _check_noise(self) -> None:
        if (excess := self._noise.excess or self._requests.excess) is not None:
            raise FloodError(excess)

    async def _get_event_data(self, block: bytes) -> bytes | UnreadError:
        """Return the data of an event; b"": it has none, or its type is not `message`."""
        if block.count(b"\n") + block.count(b"\r") > LINES:
            return UnreadError(f"it has more than {LINES:,} lines")
        data: list[bytes] = []
        kind, turn = _MESSAGE, TimeSlice()
        for line in _LINE_END.split(block):
            name, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if name == b"data":
                data.append(value)
            elif name == b"event":
                kind = value
            elif name == b"id" and b"\0" not in value:
                self._place.last_id = value
            elif name == b"retry" and _RETRY.fullmatch(value):
                self._place.retry_ms = int(value)
            await turn.pause()
        return b"\n".join(data) if kind in (_MESSAGE, b"") else b""

    async def _parse_message(self, content: bytes, size_bytes: int) -> object:
        """Return the message of an event of so many bytes, or an UnreadError in its place."""
        try:
            message = await read_message(content)
        except strict_json.StrictJsonError as error:
            return UnreadError(f"it is {REFUSED}: {error}")
        if is_request(message):
            if has_long_id(message["id"]):
                return UnreadError(ID_TOO_LONG)
            self._requests.add(message["id"], size_bytes)
        elif isinstance(message, dict) and message.get("method") == CANCELLED:
            self._requests.cancel(message.get("params"))
        self._noise.add(size_bytes=-size_bytes)
        return message


def is_answer(message: object) -> TypeGuard[Json]:
    """Return whether a message is one to a request, of whichever id."""
    return isinstance(message, dict) and ("result" in message or "error" in message)


def is_request(message: object) -> TypeGuard[Json]:
    """Return whether a message is a request, to which an answer belongs."""
    return isinstance(message, dict) and "method" in message and "id" in message


def check_id(answer: Json, request_id: RequestId) -> None:
    """Raise UnreadError for an answer with the id of another request; an error may have none."""
    found = answer.get("id")
    if found is None and "error" in answer:
        return
    if type(found) is not type(request_id) or found != request_id:
        written = json.dumps(found)[:_ID_CHARS]
        raise UnreadError(f"it has the id {written}, and not that of the request ({json.dumps(request_id)})")


def _take_events(held: bytearray, searched: int, noise: Noise) -> Iterator[bytes]:
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
