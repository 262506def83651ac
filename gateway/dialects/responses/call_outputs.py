"""Calls of the client's tools and their outputs: each output is of an earlier call, and each call has an output."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.store import Json
from gateway.dialects.responses.items import OUTPUT_OF, OUTPUTS, find_call_id


class PlaceWriter(Protocol):
    """A writer of places of items, such as `input[2].call_id`."""

    def __call__(self, index: int, field: str = "") -> str:
        """Return the place of a field of the item, or of the item itself."""
        ...


@dataclass(frozen=True, slots=True)
class Pairs:
    """The outputs by the index of their call, and the indexes of outputs that name a tool and no call."""

    outputs: Mapping[int, Json]
    alone: frozenset[int]


#: Kinds of items whose ids may come again.
_AGAIN: Final = ("local_shell_call_output", "mcp_approval_request")


def pair_items(items: Sequence[Json], *, place: PlaceWriter, may_lack_outputs: bool = False) -> Pairs:
    """Return the pairs of a conversation. Raises GatewayError (invalid_field), as OpenAI does, for what has no pair.

    `may_lack_outputs`: outputs of calls may follow later. Ids of items occur once, but for questions: a call that needs
    approval again has the same one. Ids of calls may come again once the earlier call has its output: some model
    servers count calls anew in each answer.
    """
    open_calls: dict[str, int] = {}
    outputs: dict[int, Json] = {}
    alone: list[int] = []
    seen: set[str] = set()
    for index, item in enumerate(items):
        kind = item["type"]
        if item_id := item.get("id"):
            if item_id in seen and kind not in _AGAIN:
                raise _build_duplicate_error(place(index, "id"), item_id)
            seen.add(item_id)
        if kind in OUTPUT_OF:
            if (earlier := open_calls.get(call_id := item["call_id"])) is not None:
                raise _build_missing_output_error(place(earlier, "call_id"), call_id)
            if item.get("status") != "incomplete":
                open_calls[call_id] = index
        elif kind in OUTPUTS:
            output_of = find_call_id(item)
            if output_of is None:
                alone.append(index)
                continue
            called = open_calls.pop(output_of, None)
            if called is None or OUTPUT_OF[items[called]["type"]] != kind:
                raise _build_missing_call_error(place(index, "call_id"), output_of)
            outputs[called] = item
    for call_id, index in () if may_lack_outputs else open_calls.items():
        raise _build_missing_output_error(place(index, "call_id"), call_id)
    return Pairs(outputs, frozenset(alone))


def _build_duplicate_error(place: str, item_id: str) -> GatewayError:
    text = f"Duplicate item found with id {item_id}. Remove duplicate items from your input and try again."
    return GatewayError("invalid_field", text, param=place)


def _build_missing_call_error(place: str, call_id: str) -> GatewayError:
    text = f"No tool call found for function call output with call_id {call_id}: send the call before its output."
    return GatewayError("invalid_field", text, param=place)


def _build_missing_output_error(place: str, call_id: str) -> GatewayError:
    text = f"No tool output found for function call {call_id}: send an output for each call."
    return GatewayError("invalid_field", text, param=place)
