"""What several servers refuse, each in its own words: templates, fields and calls that they do not take."""

import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final, TypeAlias

from .calls import Json
from .room import Refusal

Refuse: TypeAlias = Callable[[Json], Refusal | None]
_SHORT_ID: Final = re.compile(r"[a-zA-Z0-9]{9}")


def any_of(*refusals: Refuse) -> Refuse:
    """Return what refuses if one of these does, in their order."""
    return lambda body: next((found for refuse in refusals if (found := refuse(body)) is not None), None)


def where(is_refused: Callable[[Json], bool], status: int, error: object) -> Refuse:
    """Return what refuses a request of this kind in always the same words."""
    return lambda body: (status, error) if is_refused(body) else None


def alternates(body: Json) -> bool:
    """Return whether the roles take turns as Mistral's template wants them; rounds of tools do not count."""
    turns = [one["role"] for one in body["messages"] if one["role"] != "tool" and not one.get("tool_calls")]
    turns = turns[1:] if turns[:1] == ["system"] else turns
    return set(turns) <= {"user", "assistant"} and turns[:1] == ["user"] and all(a != b for a, b in pairwise(turns))


def has_later_system(body: Json) -> bool:
    """Return whether a system message stands behind the first message."""
    return any(one["role"] in ("system", "developer") for one in body["messages"][1:])


def has_role(body: Json, role: str) -> bool:
    """Return whether a message has a role."""
    return any(one["role"] == role for one in body["messages"])


def fields_of_answers(body: Json, name: str) -> Iterator[int]:
    """Yield the numbers of the messages that have a field."""
    return (at for at, one in enumerate(body["messages"]) if name in one)


def long_ids(body: Json) -> Iterator[str]:
    """Yield the ids of calls that are not nine letters and digits."""
    ids = [call["id"] for one in body["messages"] for call in one.get("tool_calls") or ()]
    ids += [one["tool_call_id"] for one in body["messages"] if one["role"] == "tool"]
    return (one for one in ids if not _SHORT_ID.fullmatch(one))


def has_strict(body: Json) -> bool:
    """Return whether a function of the client is declared with `strict`."""
    return any("strict" in tool["function"] for tool in body.get("tools") or ())


def has_images(body: Json) -> bool:
    """Return whether a message has an image."""
    return any(
        isinstance(part, dict) and part.get("type") == "image_url"
        for one in body["messages"]
        for part in (one["content"] if isinstance(one.get("content"), list) else ())
    )


def current_turn(body: Json) -> list[Json]:
    """Return the messages behind the last one of the user."""
    turn: list[Json] = []
    for message in body["messages"]:
        turn = [] if message["role"] == "user" else [*turn, message]
    return turn
