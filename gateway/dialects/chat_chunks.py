"""The chunks of an answer that the gateway itself makes, besides its text, in the one form that readers expect."""

from collections.abc import Sequence

from gateway.contracts.storage.store import Json


def build_delta(piece: Json) -> Json:
    """Return a chunk with one piece of the answer."""
    return {"choices": [{"index": 0, "delta": piece}]}


def build_event(context: Json) -> Json:
    """Return a chunk with an event that the client gets beside the answer."""
    return {**build_delta({}), "context": context}


def build_call_chunks(tool_calls: Sequence[Json], *, reason: str) -> list[Json]:
    """Return the client's own calls; with the reason `function_call` the one call in its form before `tools`."""
    if reason != "function_call":
        return [build_delta({"tool_calls": [call]}) for call in tool_calls]
    return [build_delta({"function_call": call["function"]}) for call in tool_calls[:1]]


def build_facts(context: Json) -> Json:
    """Return a chunk with facts about the whole answer, for its end."""
    return {"choices": [], "context": context}


def build_finish(reason: str) -> Json:
    return {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}
