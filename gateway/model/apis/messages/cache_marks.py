"""The marks of what the upstream should keep in its prompt cache: those of the client, or the gateway's own.

A mark ends a beginning of the request that later requests repeat. The order of a request is tools, system prompt,
turns. So the gateway marks the last tool, the last block of the system prompt, the last answer in front of the user's
new words (what later requests of the chat repeat in any case), and the last block (what the next round repeats).
"""

from collections.abc import Iterator
from typing import Final

from gateway.contracts.storage.store import Json

#: The API refuses more.
LIMIT: Final = 4
_MARK: Final = "cache_control"
_EPHEMERAL: Final[Json] = {"type": "ephemeral"}
#: Thoughts cannot be marked.
_UNMARKED: Final = frozenset(("thinking", "redacted_thinking"))


def set_marks(body: Json, *, caches: bool) -> None:
    """Set the marks of a request in place, if `caches` and its client has set none. Take out those beyond the limit."""
    marked = list(_list_marked(body))
    if marked:
        room = LIMIT - (body.get(_MARK) is not None)
        for block in marked[: max(len(marked) - room, 0)]:  # a later mark covers all in front of it
            del block[_MARK]
    elif caches and body.get(_MARK) is None:
        for block in _select_blocks(body):
            block[_MARK] = _EPHEMERAL


def _list_marked(body: Json) -> Iterator[Json]:
    """Yield the blocks with a mark, in the order of the request."""
    for block in _list_blocks(body):
        if block.get(_MARK) is not None:
            yield block
        content = block.get("content")
        for inner in content if isinstance(content, list) and block.get("type") == "tool_result" else ():
            if isinstance(inner, dict) and inner.get(_MARK) is not None:
                yield inner


def _list_blocks(body: Json) -> Iterator[Json]:
    yield from body.get("tools") or ()
    yield from body.get("system") or ()
    for turn in body["messages"]:
        yield from turn["content"]


def _select_blocks(body: Json) -> Iterator[Json]:
    """Yield the blocks that the gateway marks."""
    if tools := body.get("tools"):
        tools[-1] = {**tools[-1]}  # it may be the client's own object
        yield tools[-1]
    if system := body.get("system"):
        yield system[-1]
    turns = body["messages"]
    asked = _find_question(turns)
    for place in dict.fromkeys((asked - 1, len(turns) - 1)):
        if place >= 0 and (block := _find_last_block(turns[place])) is not None:
            yield block


def _find_question(turns: list[Json]) -> int:
    """Return the place of the user's last words: the last turn of the user with more than results; 0: there is none."""
    for place in range(len(turns) - 1, 0, -1):
        turn = turns[place]
        if turn["role"] == "user" and any(block["type"] != "tool_result" for block in turn["content"]):
            return place
    return 0


def _find_last_block(turn: Json) -> Json | None:
    """Return the last block of a turn that can have a mark."""
    for block in reversed(turn["content"]):
        if block["type"] not in _UNMARKED:
            found: Json = block
            return found
    return None
