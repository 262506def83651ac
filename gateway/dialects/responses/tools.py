"""The tools of a request: the client's own as functions for models, the gateway's as offers, hosted ones left out."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.store import Json
from gateway.dialects.dialect import RequestedTools
from gateway.dialects.field_checks import (
    ID,
    LIST,
    NAME,
    OBJECT,
    TEXT,
    TEXTS,
    TRUTH,
    Kind,
    build_enum_kind,
    build_unsupported_error,
    check_object,
    check_object_fields,
    mark_required,
    refuse,
    refuse_missing,
)
from gateway.dialects.responses.calls import CLIENT_RUN, INPUT, ClientTool

#: How the types of tools begin that other servers run. Each has several, such as `web_search_preview_2025_03_11`.
_HOSTED: Final = (
    "web_search",
    "file_search",
    "computer",
    "code_interpreter",
    "image_generation",
    "programmatic_tool_calling",
    "tool_search",
)
_DESCRIBED: Final = {"description": TEXT}
_FUNCTION: Final = {"name": mark_required(NAME), "parameters": OBJECT, "strict": TRUTH, **_DESCRIBED}
_CUSTOM: Final = {"name": mark_required(NAME), "format": OBJECT, **_DESCRIBED}
_FORMAT: Final = {"type": mark_required(build_enum_kind("text", "grammar"))}
_GRAMMAR: Final = {"definition": mark_required(TEXT), "syntax": mark_required(build_enum_kind("lark", "regex"))}
_NAMESPACE: Final = {"name": mark_required(NAME), "tools": mark_required(LIST), **_DESCRIBED}
_SHELL: Final = {"environment": OBJECT}
_MCP: Final = {
    "server_label": mark_required(ID),
    "server_url": TEXT,
    "server_description": TEXT,
    "allowed_tools": Kind(lambda value: type(value) in (list, dict), "a list of names, or an object with 'tool_names'"),
    "require_approval": Kind(lambda value: type(value) in (str, dict), "'always', 'never' or an object"),
}
_FILTER: Final = {"tool_names": TEXTS, "read_only": TRUTH}
_APPROVAL: Final = {"always": OBJECT, "never": OBJECT}
#: Fields that lead to a server which no operator registered, or bring a credential for it.
_FOREIGN: Final[Mapping[str, str]] = {
    "connector_id": "name a service of the gateway in 'server_label'",
    "tunnel_id": "name a service of the gateway in 'server_label'",
    "authorization": "the operator registers credentials with the service",
    "headers": "the operator registers headers with the service",
}
_TYPE: Final = "one of function, custom, namespace, mcp, shell, local_shell, apply_patch, or a hosted tool"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSelection:
    """The tools of a request, as far as its `tool_choice` leaves them.

    `functions` are the client's tools for models, `client` the same by the names that models know, in the same order.
    `offers` are the gateway's tools that it names, None if it names none. `left_out` are the types of hosted tools, by
    their places. `choice` is `tool_choice` for models. `must_call`: it wants a call that no field can force.
    """

    functions: tuple[Json, ...] = ()
    client: Mapping[str, ClientTool] = field(default_factory=dict)
    offers: tuple[RequestedTools, ...] | None = None
    left_out: Mapping[str, str] = field(default_factory=dict)
    choice: str | Json | None = None
    no_tools: bool = False
    notes: tuple[str, ...] = ()
    must_call: bool = False


def read_tools(value: object) -> ToolSelection:
    """Return the tools that a request brings. Raises GatewayError."""
    if value is None:
        return ToolSelection()
    if type(value) is not list:
        refuse("tools", "a list of objects")
    reader = _Reader()
    for i, tool in enumerate(value):
        reader.read(f"tools[{i}]", check_object(f"tools[{i}]", tool))
    return ToolSelection(
        functions=tuple(reader.functions),
        client=reader.client,
        offers=tuple(reader.offers.values()) or None,
        left_out=reader.left_out,
    )


class _Reader:
    """The tools of one request, as far as they have been read."""

    def __init__(self) -> None:
        self.functions: list[Json] = []
        self.client: dict[str, ClientTool] = {}
        self.offers: dict[str, RequestedTools] = {}
        self.left_out: dict[str, str] = {}

    def read(self, place: str, tool: Json) -> None:
        """Read one entry of `tools` by its type; note hosted ones as left out. Raises GatewayError."""
        kind = tool.get("type")
        if kind is None:
            refuse_missing(f"{place}.type", _TYPE)
        if type(kind) is not str:
            refuse(f"{place}.type", _TYPE)
        match kind:
            case "function" | "custom":
                self._read_client_tool(place, tool, namespace=None)
            case "namespace":
                self._read_namespace(place, tool)
            case "mcp":
                self._read_offer(place, tool)
            case "local_shell" | "shell" | "apply_patch":
                self._read_schemaless_tool(place, tool)
            case _ if kind.startswith(_HOSTED) or ":" in kind:  # kinds with a colon belong to other servers
                self.left_out[place] = kind
            case _:
                refuse(f"{place}.type", _TYPE)

    def _read_client_tool(self, place: str, tool: Json, *, namespace: str | None) -> None:
        """Read a function or custom tool of the client. Raises GatewayError."""
        kind = tool["type"]
        if kind == "function":
            check_object_fields(place, tool, _FUNCTION)
            description, parameters = tool.get("description"), tool.get("parameters")
        else:
            check_object_fields(place, tool, _CUSTOM)
            description, parameters = _build_custom_description(place, tool), INPUT
        own = ClientTool(kind=kind, name=tool["name"], namespace=namespace)
        self._add_function(place, own, description, parameters, strict=tool.get("strict"))

    def _add_function(
        self,
        place: str,
        own: ClientTool,
        description: str | None,
        parameters: Json | None,
        *,
        strict: bool | None = None,
    ) -> None:
        """Add a client's tool as a function for models. Raises GatewayError for a name used before."""
        name = own.model_name
        if name in self.client:
            raise GatewayError(
                "invalid_field", f"'{place}' has the name of an earlier tool: give it another.", param=f"{place}.name"
            )
        function: Json = {"name": name, "parameters": parameters or {"type": "object", "properties": {}}}
        if description is not None:
            function["description"] = description
        if strict is not None:
            function["strict"] = strict
        self.client[name] = own
        self.functions.append({"type": "function", "function": function})

    def _read_namespace(self, place: str, tool: Json) -> None:
        """Read the functions and custom tools of a namespace. Raises GatewayError."""
        check_object_fields(place, tool, _NAMESPACE)
        for i, inner in enumerate(tool["tools"]):
            there = f"{place}.tools[{i}]"
            if check_object(there, inner).get("type") not in ("function", "custom"):
                refuse(f"{there}.type", "function or custom")
            self._read_client_tool(there, inner, namespace=tool["name"])

    def _read_schemaless_tool(self, place: str, tool: Json) -> None:
        """Read a tool without a schema. One that runs in a container of OpenAI's is a hosted one."""
        kind = tool["type"]
        check_object_fields(place, tool, _SHELL)
        if (tool.get("environment") or {}).get("type", "local") != "local":
            self.left_out[place] = kind
            return
        description, parameters = CLIENT_RUN[kind]
        self._add_function(place, ClientTool(kind=kind, name=kind), description, parameters)

    def _read_offer(self, place: str, tool: Json) -> None:
        """Read an `mcp` entry: the gateway's tools that it allows. Raises GatewayError."""
        check_object_fields(place, tool, _MCP)
        for name, next_step in _FOREIGN.items():
            if tool.get(name):
                raise build_unsupported_error(f"{place}.{name}", next_step)
        label = tool["server_label"]
        if label in self.offers:
            text = f"'{place}' has the label of an earlier tool: name each server once."
            raise GatewayError("invalid_field", text, param=f"{place}.server_label")
        names = _parse_allowed_names(f"{place}.allowed_tools", tool.get("allowed_tools"))
        asks = _parse_require_approval(f"{place}.require_approval", tool.get("require_approval"))
        self.offers[label] = RequestedTools(
            label=label, place=place, names=names, asks=asks, url=tool.get("server_url")
        )


def _build_custom_description(place: str, tool: Json) -> str | None:
    """Return the description of a custom tool, with its grammar if it has one."""
    description: str | None = tool.get("description")
    shape = tool.get("format")
    if shape is None:
        return description
    check_object_fields(f"{place}.format", shape, _FORMAT)
    if shape["type"] == "text":
        return description
    check_object_fields(f"{place}.format", shape, _GRAMMAR)
    rule = f"'input' must follow this {shape['syntax']} grammar:\n{shape['definition']}"
    return rule if not description else f"{description}\n\n{rule}"


def _parse_allowed_names(place: str, allowed: object) -> tuple[str, ...] | None:
    """Return the names that a list or a filter leaves; None for all."""
    if isinstance(allowed, list):
        if not TEXTS.accepts(allowed):
            refuse(place, TEXTS.described)
        return tuple(allowed)
    if not isinstance(allowed, dict):
        return None
    check_object_fields(place, allowed, _FILTER)
    if allowed.get("read_only"):
        raise build_unsupported_error(f"{place}.read_only", "name the tools in 'tool_names'")
    names = allowed.get("tool_names")
    return None if names is None else tuple(names)


def _parse_require_approval(place: str, required: object) -> tuple[str, ...] | None:
    """Return the names of tools whose calls a person approves in any case; () for all, None for none."""
    if required is None or required == "never":
        return None
    if required == "always":
        return ()
    if not isinstance(required, dict):
        refuse(place, "'always', 'never' or an object")
    check_object_fields(place, required, _APPROVAL)
    for name in _APPROVAL:
        check_object_fields(f"{place}.{name}", required.get(name) or {}, _FILTER)
    always = required.get("always")
    if always is None:
        return None
    names = always.get("tool_names")
    # Which tools only read is not known here, so all need approval; a list without names requires it for none.
    if names is None or always.get("read_only") is not None:
        return ()
    return tuple(names) or None
