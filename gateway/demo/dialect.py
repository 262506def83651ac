"""The adapter of one API for the demo model: functions that read a request and write an answer."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import orjson

from gateway.demo.conversation import Conversation, Json
from gateway.demo.script import DemoAnswer


@dataclass(frozen=True, slots=True)
class DemoDialect:
    """`render` is the body of a plain answer; `frames` are the whole stream, one SSE event each."""

    read: Callable[[Json], Conversation]
    render: Callable[[DemoAnswer], Json]
    frames: Callable[[DemoAnswer, Conversation], Iterator[bytes]]


def format_event(payload: Json, *, event: str | None = None) -> bytes:
    """Return one event of a stream."""
    name = b"" if event is None else b"event: " + event.encode() + b"\n"
    return name + b"data: " + orjson.dumps(payload) + b"\n\n"


def call_id(prefix: str, *, digest: str, index: int) -> str:
    """Return the id of the answer's call number `index`."""
    return f"{prefix}_{digest[:20]}{index:04d}"
