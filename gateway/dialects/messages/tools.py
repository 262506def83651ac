"""The tools of a request: the client's own, those of the gateway that it names, and what `tool_choice` leaves of them.

The client's tools are functions in chat completions. Fields for which chat completions have no name go on beside the
function.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.store import Json
from gateway.dialects.dialect import RequestedTools
from gateway.dialects.field_checks import (
    ID_CHARS,
    LIST,
    OBJECT,
    TEXT,
    TEXTS,
    TRUTH,
    Kind,
    build_enum_kind,
    build_short_text_kind,
    build_unsupported_error,
    check_object,
    check_object_fields,
    mark_required,
    refuse,
    refuse_missing,
)

#: Names of tools are at most so long at Anthropic.
_NAME_CHARS: Final = 128
_NAME_FORM: Final = re.compile(rf"[a-zA-Z0-9_-]{{1,{_NAME_CHARS}}}")
_NAME: Final = Kind(
    lambda value: type(value) is str and _NAME_FORM.fullmatch(value) is not None,
    f"1 to {_NAME_CHARS} letters, digits, '_' and '-'",
)
#: Fields of a tool that chat completions lack.
_OF_MESSAGES: Final[Mapping[str, Kind]] = {
    "cache_control": OBJECT,
    "allowed_callers": TEXTS,
    "defer_loading": TRUTH,
    "eager_input_streaming": TRUTH,
    "input_examples": LIST,
}
_CUSTOM: Final[Mapping[str, Kind]] = {
    "type": TEXT,
    "name": mark_required(_NAME),
    "description": TEXT,
    "input_schema": mark_required(OBJECT),
    "strict": TRUTH,
    **_OF_MESSAGES,
}
_TOOLSET: Final[Mapping[str, Kind]] = {
    "type": TEXT,
    "mcp_server_name": mark_required(build_short_text_kind(ID_CHARS)),
    "configs": OBJECT,
    "default_config": OBJECT,
    "cache_control": OBJECT,
}
_TOOL_CONFIG: Final = {"enabled": TRUTH, "defer_loading": TRUTH}
_SERVER: Final[Mapping[str, Kind]] = {
    "type": mark_required(build_enum_kind("url")),
    "name": mark_required(build_short_text_kind(ID_CHARS)),
    "url": mark_required(TEXT),
    "authorization_token": TEXT,
    "tool_configuration": OBJECT,
}
_SERVER_TOOLS: Final = {"enabled": TRUTH, "allowed_tools": TEXTS}
_CHOICE: Final[Mapping[str, Kind]] = {
    "type": mark_required(build_enum_kind("auto", "any", "tool", "none")),
    "name": TEXT,
    "disable_parallel_tool_use": TRUTH,
}
_MUST_CALL: Final = "Before you answer, you must call one of your tools."


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagesTools:
    """The tools of a request, as its `tool_choice` leaves them.

    `fields` are the fields about the client's tools for models. `offers` are the gateway's tools that it names, None if
    it names none.
    """

    fields: Json
    offers: tuple[RequestedTools, ...] | None = None
    no_tools: bool = False
    must_call: bool = False
    notes: tuple[str, ...] = ()


_NOTHING: Final = MessagesTools(fields={})


def resolve_tools(body: Json) -> MessagesTools:
    """Return the tools of a request whose fields are checked. Raises GatewayError."""
    tools, servers, choice = body.get("tools"), body.get("mcp_servers"), body.get("tool_choice")
    if not tools and not servers and choice is None:
        return _NOTHING
    functions: dict[str, Json] = {}
    toolsets: dict[str, tuple[str, Json]] = {}
    for i, tool in enumerate(tools or ()):
        _read_tool(f"tools[{i}]", check_object(f"tools[{i}]", tool), functions, toolsets)
    offers = _read_servers(servers or (), toolsets)
    return _apply_choice(functions, offers, choice)


def _read_tool(place: str, tool: Json, functions: dict[str, Json], toolsets: dict[str, tuple[str, Json]]) -> None:
    """Add one entry of `tools` to the client's functions or to the toolsets, by its type. Raises GatewayError."""
    kind = tool.get("type")
    if kind is None or kind == "custom":
        check_object_fields(place, tool, _CUSTOM, closed=True)
        if tool["name"] in functions:
            text = f"'{place}' has the name of an earlier tool: give it another."
            raise GatewayError("invalid_field", text, param=f"{place}.name")
        functions[tool["name"]] = _convert_tool(tool)
    elif kind == "mcp_toolset":
        check_object_fields(place, tool, _TOOLSET, closed=True)
        name = tool["mcp_server_name"]
        if name in toolsets:
            text = f"'{place}' names a server that an earlier toolset names: name each server once."
            raise GatewayError("invalid_field", text, param=f"{place}.mcp_server_name")
        toolsets[name] = place, tool
    elif type(kind) is str:
        text = (
            f"'{place}': context mode runs no server tool '{kind[:ID_CHARS]}'. Leave it out, describe a tool of your "
            "own with 'input_schema', or name a service of the gateway in 'mcp_servers'."
        )
        raise GatewayError("unsupported_parameter", text, param=f"{place}.type")
    else:
        refuse(f"{place}.type", "custom or mcp_toolset")


def _convert_tool(tool: Json) -> Json:
    """Return a checked tool of the client's as chat completions have it, with what they lack beside it."""
    function: Json = {"name": tool["name"]}
    if tool.get("description") is not None:
        function["description"] = tool["description"]
    function["parameters"] = tool["input_schema"]
    if tool.get("strict") is not None:
        function["strict"] = tool["strict"]
    beside = {name: tool[name] for name in _OF_MESSAGES if tool.get(name) is not None}
    return {"type": "function", "function": function, **beside}


def _read_servers(servers: object, toolsets: Mapping[str, tuple[str, Json]]) -> tuple[RequestedTools, ...] | None:
    """Return the gateway's tools that a request names by their servers. Raises GatewayError."""
    offers: dict[str, RequestedTools] = {}
    assert isinstance(servers, list | tuple)
    for i, value in enumerate(servers):
        place = f"mcp_servers[{i}]"
        server = check_object(place, value)
        check_object_fields(place, server, _SERVER, closed=True)
        if server.get("authorization_token"):
            next_step = "the operator of this gateway configures the credentials of its services"
            raise build_unsupported_error(f"{place}.authorization_token", next_step)
        name = server["name"]
        if name in offers:
            text = f"'{place}' has the name of an earlier server: name each server once."
            raise GatewayError("invalid_field", text, param=f"{place}.name")
        offers[name] = _build_offer(place, server, toolsets.get(name))
    for name, (place, _) in toolsets.items():
        if name not in offers:
            text = f"'{place}.mcp_server_name' names no server of this request: add it to 'mcp_servers'."
            raise GatewayError("invalid_field", text, param=f"{place}.mcp_server_name")
    return tuple(offers.values()) or None


def _build_offer(place: str, server: Json, toolset: tuple[str, Json] | None) -> RequestedTools:
    """Return the tools of one server, as its own field and its toolset narrow them. Raises GatewayError."""
    config = server.get("tool_configuration") or {}
    check_object_fields(f"{place}.tool_configuration", config, _SERVER_TOOLS, closed=True)
    names: tuple[str, ...] | None = None if config.get("allowed_tools") is None else tuple(config["allowed_tools"])
    if config.get("enabled") is False:
        names = ()
    excluded: tuple[str, ...] = ()
    if toolset is not None:
        enabled, excluded = _read_toolset(*toolset)
        if enabled is not None:
            names = enabled if names is None else tuple(name for name in names if name in enabled)
    if names is not None:
        names, excluded = tuple(name for name in names if name not in excluded), ()
    return RequestedTools(
        label=server["name"],
        place=place,
        names=names,
        excluded=excluded,
        url=server["url"],
        label_field="name",
        url_field="url",
    )


def _read_toolset(place: str, toolset: Json) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """Return the names of the tools that a toolset enables, None for all, and of those that it disables."""
    default = toolset.get("default_config") or {}
    check_object_fields(f"{place}.default_config", default, _TOOL_CONFIG, closed=True)
    switched: dict[str, bool] = {}
    for name, config in (toolset.get("configs") or {}).items():
        there = f"{place}.configs.{name[:ID_CHARS]}"
        check_object_fields(there, check_object(there, config), _TOOL_CONFIG, closed=True)
        if config.get("enabled") is not None:
            switched[name] = config["enabled"]
    if default.get("enabled") is False:
        return tuple(name for name, enabled in switched.items() if enabled), ()
    return None, tuple(name for name, enabled in switched.items() if not enabled)


def _apply_choice(
    functions: Mapping[str, Json], offers: tuple[RequestedTools, ...] | None, choice: Json | None
) -> MessagesTools:
    """Return the tools that `tool_choice` leaves, with its value for models. Raises GatewayError."""
    fields: Json = {"tools": [*functions.values()]} if functions else {}
    if choice is None:
        return MessagesTools(fields=fields, offers=offers)
    check_object_fields("tool_choice", choice, _CHOICE, closed=True)
    kind = choice["type"]
    if functions and choice.get("disable_parallel_tool_use"):
        fields["parallel_tool_calls"] = False
    if kind == "none":
        if functions:
            fields["tool_choice"] = "none"
        return MessagesTools(fields=fields, offers=offers, no_tools=True)
    if kind == "tool":
        if (name := choice.get("name")) is None:
            refuse_missing("tool_choice.name", "the name of a tool of this request")
        if name not in functions:
            text = "'tool_choice.name' names no tool of this request: name one that 'tools' has."
            raise GatewayError("invalid_field", text, param="tool_choice.name")
        fields["tool_choice"] = {"type": "function", "function": {"name": name}}
    elif kind == "any":
        if offers is not None:
            return MessagesTools(fields=fields, offers=offers, must_call=True, notes=(_MUST_CALL,))
        if not functions:
            text = "'tool_choice' is 'any', and the request has no tool that can be called: add one to 'tools'."
            raise GatewayError("invalid_field", text, param="tool_choice")
        fields["tool_choice"] = "required"
    return MessagesTools(fields=fields, offers=offers)
