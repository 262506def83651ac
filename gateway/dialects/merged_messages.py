"""Messages of one role that stand side by side, as one message: the templates of many models refuse two."""

from collections.abc import Sequence
from typing import Final

from gateway.contracts.storage.store import Json

_GAP: Final = "\n\n"
#: Roles for text of the operator or the client's program, and not of a person.
SYSTEM_ROLES: Final = frozenset(("system", "developer"))
_JOINED: Final = frozenset(("user", "assistant"))


def join_neighbours(messages: Sequence[Json]) -> list[Json]:
    """Return messages in which no two of the user, and no two answers, follow each other."""
    joined: list[Json] = []
    for message in messages:
        before = joined[-1] if joined else {}
        role = message.get("role")
        if role in _JOINED and before.get("role") == role and not before.get("tool_calls"):
            joined[-1] = join(before, message)
        else:
            joined.append(message)
    return joined


def append_own_messages(messages: Sequence[Json], own: Sequence[Json]) -> list[Json]:
    """Return messages with the gateway's own behind them, which begin no second message of the user in a row."""
    whole = list(messages)
    for message in own:
        if message.get("role") == "user" and whole and whole[-1].get("role") == "user":
            whole[-1] = join(whole[-1], message)
        else:
            whole.append(message)
    return whole


def merge_leading_system(messages: list[Json]) -> list[Json]:
    """Return messages whose system messages at the beginning are one."""
    end = 0
    while end < len(messages) and messages[end].get("role") in SYSTEM_ROLES:
        end += 1
    if end < 2:
        return messages
    lead = messages[0]
    for message in messages[1:end]:
        lead = join(lead, message)
    return [lead, *messages[end:]]


def join(first: Json, second: Json) -> Json:
    """Return two messages of one role as one: texts with an empty line in between, or the parts of both."""
    content: object = None
    before, behind = first.get("content"), second.get("content")
    if isinstance(before, str) and isinstance(behind, str):
        content = _GAP.join(filter(None, (before, behind)))
    else:
        parts = [*_get_parts(before), *_get_parts(behind)]
        content = parts or None
    return {**first, **second, "role": first.get("role"), "content": content}


def _get_parts(content: object) -> list[Json]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return list(content) if isinstance(content, list) else []
