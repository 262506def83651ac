"""Hidden turns: which messages of a conversation a client saw, and what it did not see of the turn before each answer.

A client sends back what it was shown. The calls and results of a turn are kept under the hash of everything that the
client saw up to and including the answer, so that they can be put back in front of it; a conversation that was edited
has other hashes, and nothing is put back.
"""

import hashlib
from collections.abc import Mapping, Sequence

import orjson

from gateway.contracts import Json

_HIDDEN_ROLES = frozenset(("system", "developer"))


def prefixes(messages: Sequence[Json], *, tenant: str, caller: str) -> dict[int, str]:
    """The hash (hex) of the conversation up to and including each assistant message, by its index."""
    digest = hashlib.sha256(orjson.dumps([tenant, caller]))
    found = {}
    for index, message in enumerate(messages):
        if message.get("role") in _HIDDEN_ROLES:
            continue
        digest.update(_seen(message))
        if message.get("role") == "assistant":
            found[index] = digest.hexdigest()
    return found


def put_back(messages: Sequence[Json], hidden: Mapping[int, Sequence[Json]]) -> list[Json]:
    """The conversation with the hidden messages in front of the answers that they led to."""
    whole: list[Json] = []
    for index, message in enumerate(messages):
        whole += hidden.get(index, ())
        whole.append(message)
    return whole


def _seen(message: Json) -> bytes:
    """What of a message a client sends back unchanged: role, text without outer white space, tool calls."""
    content = message.get("content")
    if isinstance(content, list):
        texts = [part.get("text") for part in _objects(content)]
        content = "".join(text for text in texts if isinstance(text, str))
    calls = [(call.get("id"), call.get("function")) for call in _objects(message.get("tool_calls"))]
    called = [[call_id, f.get("name"), f.get("arguments")] for call_id, f in calls if isinstance(f, dict)]
    text = content.strip() if isinstance(content, str) else ""
    return orjson.dumps([message.get("role"), text, called])


def _objects(value: object) -> list[Json]:
    """Those of a list; a client may have sent anything."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
