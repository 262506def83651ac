"""A room of the museum: one model server as it was seen, with the version and the sources."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from gateway.contracts.quirks import QuirkName

from .answers import Style, event
from .calls import Call, Json

#: The status and the body of a refusal.
Refusal: TypeAlias = tuple[int, object]


def accept(body: Json) -> Refusal | None:
    """Refuse nothing."""


def openai_error(message: str) -> str:
    """Return an error in mid-stream, as most servers write it."""
    return event({"error": {"message": message, "type": "server_error", "param": None, "code": None}})


@dataclass(frozen=True, slots=True)
class Room:
    """One server: what it refuses, and how its answers look."""

    name: str
    title: str
    version: str
    sources: tuple[str, ...]
    #: What it refuses, in words for the page.
    refuses: tuple[str, ...] = ()
    refusal: Callable[[Json], Refusal | None] = accept
    #: The quirks that the gateway has learnt of it, once each case was asked.
    learns: frozenset[QuirkName] = frozenset()
    style: Style = field(default_factory=Style)
    #: Further habits of its streams, in words for the page.
    habits: tuple[str, ...] = ()
    #: The calls of an answer that is no stream.
    whole_calls: Callable[[Sequence[Call]], list[Json]] | None = None
    #: How an error in mid-stream looks.
    broken: Callable[[str], str] = openai_error
    #: How it refuses a conversation that is longer than its model reads.
    too_long: Refusal | None = None
    #: What nobody can mend: by the name of a history, the words that the client gets.
    lost: Mapping[str, str] = field(default_factory=dict)
