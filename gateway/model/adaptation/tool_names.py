"""Names of tools that every model server takes: letters, digits, `_` and `-`, a letter first, at most 64."""

import hashlib
import re
from typing import Final

from gateway.contracts.exchange import Chunk, Emit, Pause
from gateway.contracts.storage.store import Json

_PLAIN: Final = re.compile(r"[A-Za-z_][0-9A-Za-z_-]{0,63}")
_OTHER: Final = re.compile(r"[^0-9A-Za-z_-]")
_KEPT_CHARS: Final = 55


def build_plain_name(name: str) -> str:
    """Return a name that every server takes: it stays, or ends in eight hex digits of its hash."""
    if _PLAIN.fullmatch(name):
        return name
    digits = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{_OTHER.sub('_', name)[:_KEPT_CHARS]}_{digits}" if name[:1].isalpha() else f"t_{digits}"


def use_plain_names(body: Json) -> Json:
    """Return the body with tool names that every server takes, in all places; itself if all are."""
    names = {name: short for name in _list_tool_names(body) if (short := build_plain_name(name)) != name}
    if not names:
        return body
    changed = {**body, "tools": [_rename_function(tool, names) for tool in body.get("tools") or ()]}
    if isinstance(choice := body.get("tool_choice"), dict):
        changed["tool_choice"] = _rename_function(choice, names)
    changed["messages"] = [
        {**message, "tool_calls": [_rename_function(call, names) for call in message["tool_calls"]]}
        if isinstance(message.get("tool_calls"), list)
        else {**message, "name": names.get(str(message["name"]), message["name"])}
        if message.get("role") == "tool" and message.get("name") is not None
        else message
        for message in body.get("messages") or ()
    ]
    return changed


def restore_tool_names(emit: Emit, body: Json) -> Emit:
    """Return an emitter that gives the tools of a model's calls their own names again."""
    names = {build_plain_name(name): name for name in _list_tool_names(body)}

    def restore(chunk: Chunk) -> Pause | None:
        if isinstance(chunk, str) or not chunk.get("choices"):
            return emit(chunk)
        choices = []
        for choice in chunk["choices"]:
            delta = choice.get("delta")
            if isinstance(delta, dict) and delta.get("tool_calls"):
                calls = [_rename_function(call, names) for call in delta["tool_calls"]]
                choice = {**choice, "delta": {**delta, "tool_calls": calls}}
            choices.append(choice)
        return emit({**chunk, "choices": choices})

    return restore


def restore_plain_names(emit: Emit, body: Json) -> Emit:
    """Return an emitter for a model whose tools have plain names in any case: the same if they are their own."""
    names = (one.get("name") for one in get_functions(body))
    is_plain = all(isinstance(name, str) and build_plain_name(name) == name for name in names)
    return emit if is_plain else restore_tool_names(emit, body)


def get_functions(body: Json) -> list[Json]:
    """Return the functions among the tools of a request."""
    tools = body.get("tools") or ()
    return [tool["function"] for tool in tools if isinstance(tool, dict) and isinstance(tool.get("function"), dict)]


def _list_tool_names(body: Json) -> list[str]:
    return [one["name"] for one in get_functions(body) if isinstance(one.get("name"), str)]


def _rename_function(tool: Json, names: dict[str, str]) -> Json:
    function = tool.get("function") if isinstance(tool, dict) else None
    if not isinstance(function, dict) or function.get("name") not in names:
        return tool
    return {**tool, "function": {**function, "name": names[function["name"]]}}
