"""The tools of a chat request as those of Messages, and the choice among them."""

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from gateway.contracts.storage.store import Json
from gateway.model.adaptation.earlier_calls import declare_missing_tool
from gateway.model.adaptation.tool_names import build_plain_name

_NO_PARAMETERS: Final[Json] = {"type": "object", "properties": {}}
#: Fields beside a function that its tool has, too.
_BESIDE: Final = ("cache_control", "defer_loading", "eager_input_streaming", "input_examples", "allowed_callers")
#: The type of a tool that Anthropic defines ends with its date.
_DATED: Final = re.compile(r"_20[0-9]{6}\Z")
_CHOICES: Final[Mapping[object, str]] = MappingProxyType(
    {"auto": "auto", "none": "none", "required": "any", "any": "any"}
)


def build_tools(body: Json) -> Json:
    """Return the fields `tools` and `tool_choice` of a request. A chat's earlier calls need a declared tool."""
    declared = declare_missing_tool(body)
    tools = [tool for one in _list_tools(declared) if (tool := _convert_tool(one)) is not None]
    if not tools:
        return {}
    choice: Json | None = {"type": "none"} if declared is not body else _build_choice(_get_choice(body))
    allowed = _get_allowed_names(body.get("tool_choice"))
    if allowed is not None:
        tools = [tool for tool in tools if tool.get("name") in allowed] or tools
    if body.get("parallel_tool_calls") is False and (choice is None or choice["type"] != "none"):
        choice = {**(choice or {"type": "auto"}), "disable_parallel_tool_use": True}
    return {"tools": tools, **({} if choice is None else {"tool_choice": choice})}


def list_lost_tools(body: Json) -> Iterator[str]:
    """Yield the types of the tools that the API does not know."""
    for tool in _list_tools(body):
        if _convert_tool(tool) is None:
            yield str(tool.get("type"))


def _list_tools(body: Json) -> list[Json]:
    """Return the tools, also of the API before `tools`."""
    tools, functions = body.get("tools"), body.get("functions")
    found = tools if isinstance(tools, list) else []
    if not found and isinstance(functions, list):
        found = [{"type": "function", "function": one} for one in functions]
    return [one for one in found if isinstance(one, dict)]


def _convert_tool(tool: Json) -> Json | None:
    """Return a function as a tool, or a tool that Anthropic defines as it is; None for any other."""
    function = tool.get("function")
    if not isinstance(function, dict):
        return {**tool} if _DATED.search(str(tool.get("type"))) else None
    schema = function.get("parameters")
    converted: Json = {"name": build_plain_name(str(function.get("name")))}
    if isinstance(described := function.get("description"), str) and described:
        converted["description"] = described
    converted["input_schema"] = schema if isinstance(schema, dict) and schema else _NO_PARAMETERS
    if function.get("strict") is True:
        converted["strict"] = True
    return {**converted, **{name: tool[name] for name in _BESIDE if tool.get(name) is not None}}


def _get_choice(body: Json) -> object:
    choice = body.get("tool_choice")
    return body.get("function_call") if choice is None else choice


def _build_choice(choice: object) -> Json | None:
    """Return the choice of a tool; None: the model's own, as it is without one."""
    if not isinstance(choice, dict):
        kind = _CHOICES.get(choice) if isinstance(choice, str) else None
        return None if kind is None else {"type": kind}
    if isinstance(allowed := choice.get("allowed_tools"), dict):
        return {"type": "any" if allowed.get("mode") == "required" else "auto"}
    function = choice.get("function")
    name = function.get("name") if isinstance(function, dict) else choice.get("name")
    return {"type": "tool", "name": build_plain_name(name)} if isinstance(name, str) else None


def _get_allowed_names(choice: object) -> set[str] | None:
    """Return the names of the tools to which a choice narrows a request; None: it does not."""
    allowed = choice.get("allowed_tools") if isinstance(choice, dict) else None
    tools = allowed.get("tools") if isinstance(allowed, dict) else None
    if not isinstance(tools, list):
        return None
    functions = (tool.get("function") for tool in tools if isinstance(tool, dict))
    return {build_plain_name(str(one.get("name"))) for one in functions if isinstance(one, dict)}
