"""The tools of a chat request as those of Responses, and the choice among them."""

from collections.abc import Iterator
from typing import Final

from gateway.contracts.storage.store import Json
from gateway.model.adaptation.tool_names import build_plain_name

_NO_PARAMETERS: Final[Json] = {"type": "object", "properties": {}}
#: Tools of the provider that a client may name: what they bring taints a run. One that leads to a server of others, or
#: whose calls the client would have to run in a form of its own, does not pass.
_OF_PROVIDER: Final = ("web_search", "file_search", "code_interpreter")
_CHOICES: Final = frozenset(("auto", "none", "required"))


def build_tools(body: Json) -> Json:
    """Return the fields about tools of a request."""
    tools = [tool for one in _list_tools(body) if (tool := _convert_tool(one)) is not None]
    if not tools:
        return {}
    built: Json = {"tools": tools}
    choice = body.get("tool_choice")
    if (choice := _build_choice(body.get("function_call") if choice is None else choice)) is not None:
        built["tool_choice"] = choice
    if isinstance(parallel := body.get("parallel_tool_calls"), bool):
        built["parallel_tool_calls"] = parallel
    return built


def list_lost_tools(body: Json) -> Iterator[str]:
    """Yield the types of the tools that the model does not get."""
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
    """Return a function as a tool, or a tool of the provider as it is; None for any other."""
    function = tool.get("function")
    if not isinstance(function, dict):
        return {**tool} if str(tool.get("type")).startswith(_OF_PROVIDER) else None
    schema = function.get("parameters")
    converted: Json = {"type": "function", "name": build_plain_name(str(function.get("name")))}
    if isinstance(described := function.get("description"), str) and described:
        converted["description"] = described
    converted["parameters"] = schema if isinstance(schema, dict) and schema else _NO_PARAMETERS
    # The API is strict by itself where it can be, and a chat is not.
    return {**converted, "strict": function.get("strict") is True}


def _build_choice(choice: object) -> str | Json | None:
    """Return the choice of a tool; None: the model's own, as it is without one."""
    if not isinstance(choice, dict):
        choice = "required" if choice == "any" else choice
        return choice if isinstance(choice, str) and choice in _CHOICES else None
    if isinstance(allowed := choice.get("allowed_tools"), dict):
        tools = allowed.get("tools")
        named = [_build_named(tool) for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []
        mode = "required" if allowed.get("mode") == "required" else "auto"
        return {"type": "allowed_tools", "mode": mode, "tools": named}
    return _build_named(choice)


def _build_named(choice: Json) -> Json:
    """Return a choice of one tool in the form of the API."""
    function = choice.get("function")
    name = function.get("name") if isinstance(function, dict) else choice.get("name")
    return {"type": "function", "name": build_plain_name(name)} if isinstance(name, str) else choice
