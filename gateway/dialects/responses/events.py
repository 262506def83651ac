"""Events of one response as server-sent events, numbered from 0.

`sequence_number` is the last field of each, so a piece of text costs what stands before it, its JSON, and an end that
is the same for every stream.
"""

from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import islice
from typing import Final

import orjson

from gateway.contracts.storage.store import Json
from gateway.http.sse import format_event

DONE: Final = format_event(b"[DONE]")
#: For a silent time: a comment, which has no number.
KEEPALIVE: Final = b": keep-alive\n\n"
#: Ends of events are made for so many numbers at once, and kept for the next streams up to number 16,384.
_BLOCK: Final = 512


class ResponseEvents:
    """The events of one response. Events up to number `after` are counted, and not written."""

    __slots__ = ("_after", "_frames", "number")

    def __init__(self, *, after: int = -1) -> None:
        self.number = 0  # of the next one
        self._after = after
        self._frames: list[bytes] = []

    @property
    def are_read(self) -> bool:
        """Return whether the client needs the next event."""
        return self.number > self._after

    def add(self, kind: str, fields: Json) -> None:
        """Add an event of a type."""
        if self.are_read:
            self._frames.append(
                _encode_event_head(kind) + orjson.dumps({"type": kind, **fields})[:-1] + _encode_event_end(self.number)
            )
        self.number += 1

    def add_response(self, kind: str, response: bytes) -> None:
        """Add an event of the lifecycle, with the JSON of the response."""
        if self.are_read:
            head = b'%b{"type":"%b","response":' % (_encode_event_head(kind), kind.encode())
            self._frames.append(head + response + _encode_event_end(self.number))
        self.number += 1

    def add_delta(self, head: bytes, delta: str) -> None:
        """Add a piece of a text, behind what `encode_delta_head` returned."""
        if self.are_read:
            self._frames.append(head + orjson.dumps(delta) + _encode_event_end(self.number))
        self.number += 1

    def iterate_ends(self) -> Iterator[bytes]:
        """Yield the ends of the next events, for pieces of a text; one at least."""
        return islice(_encode_event_ends(self.number // _BLOCK), self.number % _BLOCK, None)

    def take_frames(self) -> bytes:
        """Return the frames since the last time."""
        frames = b"".join(self._frames)
        self._frames.clear()
        return frames


class NoEvents(ResponseEvents):
    """The events of a response that is not streamed: none."""

    __slots__ = ()

    def add(self, kind: str, fields: Json) -> None:
        del kind, fields

    def add_response(self, kind: str, response: bytes) -> None:
        del kind, response

    def add_delta(self, head: bytes, delta: str) -> None:
        del head, delta


def encode_delta_head(kind: str, fields: Json) -> bytes:
    """Return the part of a delta event that stands before its text."""
    return _encode_event_head(kind) + orjson.dumps({"type": kind, **fields})[:-1] + b',"delta":'


def extract_payloads(frames: bytes) -> list[bytes]:
    """Return the JSON of each event of some frames, for a WebSocket. Its JSON has no line ends."""
    return [frame.partition(b"\ndata: ")[2] for frame in frames.split(b"\n\n") if frame.startswith(b"event: ")]


@cache
def _encode_event_head(kind: str) -> bytes:
    return b"event: %b\ndata: " % kind.encode()


def _encode_event_end(number: int) -> bytes:
    return b',"sequence_number":%d}\n\n' % number


@lru_cache(maxsize=32)
def _encode_event_ends(block: int) -> tuple[bytes, ...]:
    return tuple(map(_encode_event_end, range(block * _BLOCK, (block + 1) * _BLOCK)))
