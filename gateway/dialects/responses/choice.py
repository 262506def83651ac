"""`tool_choice`: it narrows the tools of a request, and decides whether the model must call one of them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, NoReturn

from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.store import Json
from gateway.dialects.dialect import RequestedTools
from gateway.dialects.field_checks import (
    ID,
    LIST,
    NAME,
    build_enum_kind,
    build_unsupported_error,
    check_object,
    check_object_fields,
    mark_required,
    refuse,
    refuse_missing,
)
from gateway.dialects.offered_tools import GATEWAY, build_tool_name
from gateway.dialects.responses.tools import ToolSelection, read_tools

_PLACE: Final = "tool_choice"
_DESCRIBED: Final = "none, auto, required, or an object with a 'type'"
_NAMED: Final = {"name": mark_required(NAME)}
_MCP: Final = {"server_label": mark_required(ID), "name": ID}
_ALLOWED: Final = {"mode": build_enum_kind("auto", "required"), "tools": mark_required(LIST)}


def resolve_tools(fields: Mapping[str, object]) -> ToolSelection:
    """Return the tools of a request, by its `tools`, as its `tool_choice` leaves them. Raises GatewayError."""
    tools, choice = fields.get("tools"), fields.get("tool_choice")
    return ToolSelection() if tools is choice is None else apply_tool_choice(read_tools(tools), choice)


def apply_tool_choice(tools: ToolSelection, choice: object) -> ToolSelection:
    """Return the tools that `tool_choice` leaves, with its value for models. Raises GatewayError."""
    if isinstance(choice, dict):
        return _select_named_tools(tools, choice)
    if choice is None or choice == "auto":
        return _with_choice(tools)
    if choice == "required":
        return _with_required_choice(tools, place=_PLACE)
    if choice != "none":
        refuse(_PLACE, _DESCRIBED)
    return replace(_with_choice(tools, "none"), no_tools=True)


def _select_named_tools(tools: ToolSelection, choice: Json) -> ToolSelection:
    """Return the tools of a choice that names some."""
    kind = choice.get("type")
    if kind is None:
        refuse_missing(f"{_PLACE}.type", "the type of a tool, or allowed_tools")
    if kind == "allowed_tools":
        return _keep_allowed(tools, choice)
    found = _ToolIndex(tools).find(_PLACE, choice)
    if isinstance(found, RequestedTools):
        only = replace(tools, functions=(), client={}, offers=(found,))
        return replace(only, notes=(_build_must_call_note(only),), must_call=True)
    if found is None:
        _refuse_hosted(tools, str(kind))
    return replace(tools, choice={"type": "function", "function": {"name": found}})


def _keep_allowed(tools: ToolSelection, choice: Json) -> ToolSelection:
    """Return only the tools that `allowed_tools` names. Raises GatewayError for an unknown one."""
    check_object_fields(_PLACE, choice, _ALLOWED)
    named, own = _ToolIndex(tools), set[str]()
    offers: dict[
        str, tuple[RequestedTools, dict[str, None] | None]
    ] = {}  # each with the names that are allowed; None: all
    for i, reference in enumerate(choice["tools"]):
        place = f"{_PLACE}.tools[{i}]"
        found = named.find(place, check_object(place, reference))
        if isinstance(found, RequestedTools):
            _, names = offers.setdefault(found.label, (found, {}))
            if found.names is None or names is None:
                offers[found.label] = found, None
            else:
                names.update(dict.fromkeys(found.names))
        elif found is not None:
            own.add(found)
    left = replace(
        tools,
        functions=tuple(tool for tool in tools.functions if tool["function"]["name"] in own),
        client={name: tool for name, tool in tools.client.items() if name in own},
        offers=None
        if tools.offers is None
        else tuple(replace(offer, names=None if names is None else tuple(names)) for offer, names in offers.values()),
        no_tools=not offers,
    )
    return (
        _with_required_choice(left, place=f"{_PLACE}.mode") if choice.get("mode") == "required" else _with_choice(left)
    )


class _ToolIndex:
    """The tools of a request by the names that a choice has for them."""

    def __init__(self, tools: ToolSelection) -> None:
        self._own = {(tool.kind, tool.name): name for name, tool in reversed([*tools.client.items()])}
        self._offers = {offer.label: offer for offer in tools.offers or ()}
        self._names = {offer.label: frozenset(offer.names or ()) for offer in tools.offers or ()}
        self._left_out = frozenset(tools.left_out.values())

    def find(self, place: str, choice: Json) -> str | RequestedTools | None:
        """Return the client's tool, by the name that models know, or the offer. None: it is a hosted tool left out.

        Raises GatewayError for one that the request does not bring.
        """
        kind = choice.get("type")
        if type(kind) is not str:
            refuse(f"{place}.type", "the type of a tool")
        if kind == "mcp":
            check_object_fields(place, choice, _MCP)
            return self._find_offer(place, choice["server_label"], choice.get("name"))
        if kind in ("function", "custom"):
            check_object_fields(place, choice, _NAMED)
            found = self._own.get((kind, choice["name"]))
        else:
            found = self._own.get((kind, kind))
        if found is None and kind not in self._left_out:
            _refuse_unknown(place)
        return found

    def _find_offer(self, place: str, label: str, name: str | None) -> RequestedTools:
        """Return an offer, narrowed to one tool if the choice names one."""
        offer = self._offers.get(label)
        if offer is None:
            _refuse_unknown(f"{place}.server_label")
        if name is None:
            return offer
        if offer.names is not None and name not in self._names[label]:
            _refuse_unknown(f"{place}.name")
        return replace(offer, names=(name,))


def _refuse_unknown(place: str) -> NoReturn:
    text = f"'{place}' names no tool of this request: name one that 'tools' has."
    raise GatewayError("invalid_field", text, param=place)


def _with_choice(tools: ToolSelection, choice: str = "auto") -> ToolSelection:
    """Return tools that the model may call. OpenAI refuses a choice beside no tools."""
    return replace(tools, choice=choice if tools.functions else None)


def _with_required_choice(tools: ToolSelection, *, place: str) -> ToolSelection:
    """Return tools of which the model must call one. Model servers can force it to call the client's only."""
    if not tools.functions and not tools.offers:
        if tools.left_out:
            _refuse_hosted(tools, next(iter(tools.left_out.values())))
        text = f"'{place}' is 'required', and the request has no tool that can be called: add one to 'tools'."
        raise GatewayError("invalid_field", text, param=place)
    if not tools.offers:
        return replace(tools, choice="required")
    return replace(_with_choice(tools), notes=(_build_must_call_note(tools),), must_call=True)


def _refuse_hosted(tools: ToolSelection, kind: str) -> NoReturn:
    place = next(place for place, left_out in tools.left_out.items() if left_out == kind)
    next_step = f"the gateway has no tool '{kind}'. Leave it out, and choose another in 'tool_choice'"
    raise build_unsupported_error(place, next_step)


def _build_must_call_note(tools: ToolSelection) -> str:
    """Return a note for the model: no field of a request to a model server forces a call of a tool of the gateway."""
    names = [f"`{name}`" for name in tools.client]
    for offer in tools.offers or ():
        if offer.names is None:
            names.append(
                "one of the gateway's own" if offer.label == GATEWAY else f"one of the service `{offer.label}`"
            )
        else:
            names += [f"`{build_tool_name(offer.label, name)}`" for name in offer.names]
    return f"Before you answer, you must call a tool: {', or '.join(names)}."
