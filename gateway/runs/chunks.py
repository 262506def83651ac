"""The chunks of an answer that the gateway itself makes, besides its text, in the one form that readers expect."""

from gateway.contracts import Json


def delta(piece: Json) -> Json:
    """A piece of the answer."""
    return {"choices": [{"index": 0, "delta": piece}]}


def event(context: Json) -> Json:
    """Something that a client is told beside the answer."""
    return {**delta({}), "context": context}


def finish(reason: str) -> Json:
    return {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}
