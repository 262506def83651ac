"""The calls of earlier answers in a request, as some model servers demand them: with short ids, with their thoughts.

A conversation may have begun at another server, a client may not keep what it does not know, and a call that a model
wrote as text has nothing of it.
"""

import hashlib
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from gateway.contracts.storage.store import Json

#: What Mistral's models and their templates take as an id.
_SHORT_ID: Final = re.compile(r"[0-9A-Za-z]{9}")
_SHORT_CHARS: Final = 9
#: What Google documents in place of the signature of a thought that its models have not had.
_NO_SIGNATURE: Final[Json] = {"google": {"thought_signature": "skip_thought_signature_validator"}}
#: Stands where a server takes calls only beside declared tools. Nothing of an answer that calls it would run.
_NO_TOOL: Final[Json] = {
    "type": "function",
    "function": {
        "name": "no_tool",
        "description": "There is no tool to call now: answer with text.",
        "parameters": {"type": "object", "properties": {}},
    },
}


def shorten_call_ids(body: Json) -> Json:
    """Return the body of a request in which ids of calls are nine letters and digits: itself if all are."""
    return _change_messages(body, _shorten_ids)


def add_signatures(body: Json) -> Json:
    """Return the body of a request in which the first call of each answer has a signature: itself if all have one."""
    return _change_messages(body, _add_signature)


def add_reasoning(body: Json) -> Json:
    """Return the body of a request in which each answer has `reasoning_content`: itself if all have it."""
    return _change_messages(body, _add_reasoning)


def declare_missing_tool(body: Json) -> Json:
    """Return the body of a request that declares a tool if it has calls: itself if it has one, or no calls."""
    if body.get("tools") or not any(one.get("role") == "tool" or _get_calls(one) for one in _iterate_messages(body)):
        return body
    return {**body, "tools": [_NO_TOOL]}


def keep_named_tool(body: Json) -> Json:
    """Return the body of a request whose choice names a function with that function alone, required."""
    choice = body.get("tool_choice")
    named = choice.get("function") if isinstance(choice, dict) else None
    if not isinstance(named, dict):
        return body
    tools = [one for one in body.get("tools") or () if _find_name(one) == named.get("name")]
    return {**body, "tools": tools or body.get("tools"), "tool_choice": "required"}


def _change_messages(body: Json, change: Callable[[Json], Json]) -> Json:
    messages = list(_iterate_messages(body))
    changed = [change(message) for message in messages]
    is_same = all(old is new for old, new in zip(messages, changed, strict=True))
    return body if is_same else {**body, "messages": changed}


def _iterate_messages(body: Json) -> Iterator[Json]:
    return iter(body.get("messages") or ())


def _get_calls(message: Json) -> list[Any]:
    calls = message.get("tool_calls")
    return calls if isinstance(calls, list) else []


def _find_name(tool: object) -> object:
    function = tool.get("function") if isinstance(tool, dict) else None
    return function.get("name") if isinstance(function, dict) else None


def _shorten_id(call_id: object) -> object:
    if not isinstance(call_id, str) or _SHORT_ID.fullmatch(call_id):
        return call_id
    return hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:_SHORT_CHARS]


def _shorten_ids(message: Json) -> Json:
    """Return a message with short call ids; the same object if nothing changes."""
    call_id = message.get("tool_call_id")
    if (short := _shorten_id(call_id)) != call_id:
        message = {**message, "tool_call_id": short}
    calls = _get_calls(message)
    if all(not isinstance(call, dict) or _shorten_id(call.get("id")) == call.get("id") for call in calls):
        return message
    shortened = [{**call, "id": _shorten_id(call.get("id"))} if isinstance(call, dict) else call for call in calls]
    return {**message, "tool_calls": shortened}


def _add_signature(message: Json) -> Json:
    """Return a message whose first call has a thought signature; the same object if it has one."""
    calls = _get_calls(message)
    if not calls or not isinstance(calls[0], dict) or "thought_signature" in str(calls[0].get("extra_content")):
        return message
    extra = calls[0].get("extra_content")  # of its client, and so of any kind
    first = {**calls[0], "extra_content": {**(extra if isinstance(extra, dict) else {}), **_NO_SIGNATURE}}
    return {**message, "tool_calls": [first, *calls[1:]]}


def _add_reasoning(message: Json) -> Json:
    if message.get("role") != "assistant" or message.get("reasoning_content") is not None:
        return message
    thought = message.get("reasoning")
    return {**message, "reasoning_content": thought if isinstance(thought, str) else ""}
