"""The media types that an MCP client reads: JSON, a stream of events, or both.

The protocol wants clients that read both, and the SDK answers no others. A client that names one type gets its answer
in that type: the answer of a stream as JSON, without the notifications before it, or JSON as a stream of one event.
"""

import re
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final, TypeAlias

import orjson

from gateway.aio.cooperative import run_aside
from gateway.contracts.storage.store import Json

Message: TypeAlias = MutableMapping[str, Any]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

_JSON: Final = "application/json"
_EVENTS: Final = "text/event-stream"
_TYPE: Final = b"content-type"
_OK: Final = 200
#: A type with this weight is not accepted (RFC 9110, 12.4.2).
_REFUSED: Final = re.compile(r"q\s*=\s*0(?:\.0{0,3})?")


@dataclass(frozen=True, slots=True)
class MediaTypes:
    """The types that the client of a request reads."""

    json: bool
    events: bool


@lru_cache(maxsize=256)
def read_accept(value: str | None) -> MediaTypes:
    """Return the types that an Accept header names; None: a request without one accepts both."""
    if value is None:
        return MediaTypes(json=True, events=True)
    named: dict[str, bool] = {}
    for part in value.lower().split(","):
        kind, *parameters = (piece.strip() for piece in part.split(";"))
        named[kind] = not any(map(_REFUSED.fullmatch, parameters))

    def accepts(kind: str) -> bool:
        ranges = (kind, f"{kind.partition('/')[0]}/*", "*/*")  # the most specific one decides
        return next((named[one] for one in ranges if one in named), False)

    return MediaTypes(json=accepts(_JSON), events=accepts(_EVENTS))


def adapt_answer(send: Send, reads: MediaTypes, *, closing: Json | None) -> Send:
    """Return what an application sends its answer with, for a client that reads these types.

    `closing` is the answer as JSON if the stream of the application has none.
    """
    if reads.json == reads.events:
        return send
    return _AsJson(send, closing) if reads.json else _AsEvents(send)


def get_event_data(event: bytes) -> bytes:
    """Return the data of an event."""
    return b"".join(line.removeprefix(b"data:") for line in event.splitlines() if line.startswith(b"data:")).strip()


async def is_answer(data: bytes) -> bool:
    """Return whether a message is an answer to a request."""
    message = await run_aside(partial(orjson.loads, data), content=data) if data else None
    return isinstance(message, dict) and ("result" in message or "error" in message)


class _AsJson:
    """The way of an answer to a client that reads JSON only. An event comes in one part."""

    def __init__(self, send: Send, closing: Json | None) -> None:
        self._send = send
        self._answer = b"" if closing is None else orjson.dumps(closing)
        self._start: Message | None = None  # of a stream

    async def __call__(self, message: Message) -> None:
        """Turn a stream of events into one JSON answer; other answers stay as they are."""
        if message["type"] == "http.response.start" and _is_of_type(message, _EVENTS):
            self._start = _replace_type(message, _JSON)
        elif self._start is None:
            await self._send(message)
        else:
            await self._gather_answer(message, self._start)

    async def _gather_answer(self, message: Message, start: Message) -> None:
        """Keep the event that answers the request, and send it as JSON at the end of the stream."""
        if await is_answer(data := get_event_data(message.get("body", b""))):
            self._answer = data
        if message.get("more_body", False):
            return
        if not self._answer:
            raise ConnectionResetError("the stream ended without an answer")
        await self._send(start)
        await self._send({**message, "body": self._answer})


class _AsEvents:
    """The way of an answer to a client that reads streams of events only. An error stays JSON."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._is_wrapping = False

    async def __call__(self, message: Message) -> None:
        """Turn a JSON answer into a stream of one event; other answers stay as they are."""
        if message["type"] == "http.response.start":
            self._is_wrapping = message["status"] == _OK and _is_of_type(message, _JSON)
            await self._send(_replace_type(message, _EVENTS) if self._is_wrapping else message)
        elif self._is_wrapping:
            await self._send({**message, "body": b"event: message\r\ndata: %b\r\n\r\n" % message["body"]})
        else:
            await self._send(message)


def _is_of_type(start: Message, kind: str) -> bool:
    return any(name == _TYPE and value.startswith(kind.encode()) for name, value in start["headers"])


def _replace_type(start: Message, kind: str) -> Message:
    headers = [(name, kind.encode() if name == _TYPE else value) for name, value in start["headers"]]
    return {**start, "headers": headers}
