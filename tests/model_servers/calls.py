"""The ways in which servers write the tool calls of an answer: the deltas of one stream."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call of a model."""

    id: str
    name: str
    arguments: str

    @property
    def function(self) -> Json:
        """Return the function, as a whole."""
        return {"name": self.name, "arguments": self.arguments}

    @property
    def halves(self) -> tuple[str, str]:
        """Return the arguments in two pieces."""
        middle = len(self.arguments) // 2
        return self.arguments[:middle], self.arguments[middle:]


def in_pieces(calls: Sequence[Call], *, first_index: int = 0, between: Json | None = None) -> Iterator[Json]:
    """Yield calls as OpenAI does: first its name, then its arguments. `between`: what further pieces repeat."""
    for index, call in enumerate(calls, first_index):
        begin = {"index": index, "id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
        yield {"tool_calls": [begin]}
        for piece in call.halves:
            yield {"tool_calls": [{"index": index, **(between or {}), "function": {"arguments": piece}}]}


def named_first(calls: Sequence[Call]) -> Iterator[Json]:
    """Yield calls whose first piece has a name and no arguments."""
    for index, call in enumerate(calls):
        yield {"tool_calls": [{"id": call.id, "type": "function", "index": index, "function": {"name": call.name}}]}
        for piece in call.halves:
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def from_one(calls: Sequence[Call]) -> Iterator[Json]:
    """Yield calls whose first index is 1."""
    return in_pieces(calls, first_index=1)


def with_empty_ids(calls: Sequence[Call]) -> Iterator[Json]:
    """Yield calls whose further pieces have an empty id."""
    return in_pieces(calls, between={"id": "", "type": "function"})


def at_index_zero_in_pieces(calls: Sequence[Call]) -> Iterator[Json]:
    """Yield calls that all have the index 0, and repeat their id in each piece."""
    for call in calls:
        again = {"index": 0, "id": call.id, "type": "function"}
        yield {"tool_calls": [{**again, "function": {"name": call.name, "arguments": ""}}]}
        for piece in call.halves:
            yield {"tool_calls": [{**again, "function": {"name": None, "arguments": piece}}]}


def whole(calls: Sequence[Call]) -> Iterator[Json]:
    """Yield each call as a whole."""
    for index, call in enumerate(calls):
        yield {"tool_calls": [{"index": index, "id": call.id, "type": "function", "function": call.function}]}


def whole_at_index_zero(calls: Sequence[Call]) -> Iterator[Json]:
    """Yield each call as a whole, all with the index 0."""
    for call in calls:
        yield {"tool_calls": [{"id": call.id, "index": 0, "type": "function", "function": call.function}]}


def whole_without_index(calls: Sequence[Call]) -> Iterator[Json]:
    """Yield each call as a whole, without an index."""
    for call in calls:
        yield {"tool_calls": [{"id": call.id, "type": "function", "function": call.function}]}


def together_without_index(calls: Sequence[Call]) -> Iterator[Json]:
    """Yield all calls in one delta, with neither an index nor a type."""
    yield {"content": "", "tool_calls": [{"id": call.id, "function": call.function} for call in calls]}


def as_object(calls: Sequence[Call]) -> Iterator[Json]:
    """Yield one call, which is an object in place of a list, with an empty id; its name comes once."""
    (call,) = calls[:1]
    for name, piece in zip((call.name, None), call.halves, strict=True):
        function = {"name": name, "arguments": piece}
        yield {"tool_calls": {"index": 0, "id": "", "type": "function", "function": function}}


#: The field that Google's models send with the first call of an answer, and refuse a conversation without.
SIGNATURE: Final = {"google": {"thought_signature": "c2lnbmVkIGJ5IHRoZSBwcm92aWRlcg=="}}


def signed_without_index(calls: Sequence[Call]) -> Iterator[Json]:
    """Yield each call as a whole without an index; the first has the signature of a thought."""
    for at, call in enumerate(calls):
        signature = {} if at else {"extra_content": SIGNATURE}
        yield {"tool_calls": [{**signature, "function": call.function, "id": call.id, "type": "function"}]}


def with_objects(calls: Sequence[Call]) -> list[Json]:
    """Return the calls of an answer that is no stream: the arguments are objects."""
    return [
        {
            "id": "0",
            "type": "function",
            "function": {"description": None, "name": call.name, "arguments": json.loads(call.arguments)},
        }
        for call in calls
    ]
