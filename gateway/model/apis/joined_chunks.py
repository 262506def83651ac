"""The chunks of an answer that is not streamed, as one."""

from collections.abc import Sequence

from gateway.contracts.exchange import Chunk
from gateway.contracts.storage.store import Json


def join_chunks(chunks: Sequence[Chunk]) -> Json:
    """Return the chunks of an answer as one. The last one has its end."""
    joined: Json = {}
    delta: Json = {}
    for chunk in chunks:
        if isinstance(chunk, str):
            delta["content"] = delta.get("content", "") + chunk
            continue
        joined |= chunk
        for name, value in chunk["choices"][0]["delta"].items():
            known = delta.get(name)
            if name == "tool_calls":
                delta[name] = _join_calls(known or [], value[0])
            else:
                delta[name] = known + value if known is not None and isinstance(value, str | list) else value
    return {**joined, "choices": [{**joined["choices"][0], "delta": delta}]}


def _join_calls(calls: list[Json], piece: Json) -> list[Json]:
    """Return the calls with a further one, or with the arguments of the last one."""
    if not calls or calls[-1]["index"] != piece["index"]:
        return [*calls, piece]
    last = calls[-1]
    arguments = last["function"]["arguments"] + piece["function"]["arguments"]
    return [*calls[:-1], {**last, "function": {**last["function"], "arguments": arguments}}]
