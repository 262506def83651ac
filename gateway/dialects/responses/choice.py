"""`tool_choice`: it narrows the tools of a request, and says whether the model must call one of them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, NoReturn

from gateway.contracts.store import Json
from gateway.contracts.tools import model_name
from gateway.dialects.checks import (
    ID,
    LIST,
    NAME,
    check,
    missing,
    needed,
    object_at,
    one_of,
    refuse,
    unsupported,
)
from gateway.dialects.dialect import Offer
from gateway.dialects.responses.tools import Tools, read_tools
from gateway.errors import GatewayError

#: The label of the gateway's own tools, among those of its services.
GATEWAY: Final = "gateway"
_PLACE: Final = "tool_choice"
_DESCRIBED: Final = "none, auto, required, or an object with a 'type'"
_NAMED: Final = {"name": needed(NAME)}
_MCP: Final = {"server_label": needed(ID), "name": ID}
_ALLOWED: Final = {"mode": one_of("auto", "required"), "tools": needed(LIST)}


def tools_of(fields: Mapping[str, object]) -> Tools:
    """Return the tools of a request, by its `tools`, as its `tool_choice` leaves them. Raises GatewayError."""
    return chosen(read_tools(fields.get("tools")), fields.get("tool_choice"))


def chosen(tools: Tools, choice: object) -> Tools:
    """Return the tools that `tool_choice` leaves, with its value for models. Raises GatewayError."""
    if isinstance(choice, dict):
        return _specific(tools, choice)
    if choice is None or choice == "auto":
        return _offered(tools)
    if choice == "required":
        return _required(tools, place=_PLACE)
    if choice != "none":
        refuse(_PLACE, _DESCRIBED)
    return replace(_offered(tools, "none"), no_tools=True)


def _specific(tools: Tools, choice: Json) -> Tools:
    """Return the tools of a choice that names some."""
    kind = choice.get("type")
    if kind is None:
        missing(f"{_PLACE}.type", "the type of a tool, or allowed_tools")
    if kind == "allowed_tools":
        return _allowed(tools, choice)
    name, offer = _found(tools, _PLACE, choice)
    if offer is not None:
        only = replace(tools, functions=(), client={}, offers=(offer,))
        return replace(only, notes=(_must_call(only),))
    if name is None:
        _refuse_hosted(tools, str(kind))
    return replace(tools, choice={"type": "function", "function": {"name": name}})


def _allowed(tools: Tools, choice: Json) -> Tools:
    """Return the tools that the model may call. All others are gone, so that it cannot call one."""
    check(_PLACE, choice, _ALLOWED)
    names: set[str] = set()
    offers: dict[str, Offer] = {}
    for i, reference in enumerate(choice["tools"]):
        place = f"{_PLACE}.tools[{i}]"
        name, offer = _found(tools, place, object_at(place, reference))
        if name is not None:
            names.add(name)
        elif offer is not None:
            offers[offer.label] = _joined(offers.get(offer.label), offer)
    left = replace(
        tools,
        functions=tuple(tool for tool in tools.functions if tool["function"]["name"] in names),
        client={name: tool for name, tool in tools.client.items() if name in names},
        offers=None if tools.offers is None else tuple(offers.values()),
        no_tools=not offers,
    )
    return _required(left, place=f"{_PLACE}.mode") if choice.get("mode") == "required" else _offered(left)


def _found(tools: Tools, place: str, choice: Json) -> tuple[str | None, Offer | None]:
    """Return the name of the client's tool, or the offer, that a choice names. Neither: it is a hosted tool left out.

    Raises GatewayError for one that the request does not bring.
    """
    kind = choice.get("type")
    if type(kind) is not str:
        refuse(f"{place}.type", "the type of a tool")
    if kind == "mcp":
        check(place, choice, _MCP)
        return None, _narrowed(place, _offer(tools, place, choice["server_label"]), choice.get("name"))
    name = None
    if kind in ("function", "custom"):
        check(place, choice, _NAMED)
        name = choice["name"]
    for found, tool in tools.client.items():
        if tool.kind == kind and name in (None, tool.name):
            return found, None
    if kind not in tools.left_out.values():
        _refuse_unknown(place)
    return None, None


def _refuse_unknown(place: str) -> NoReturn:
    text = f"'{place}' names no tool of this request: name one that 'tools' has."
    raise GatewayError("invalid_field", text, param=place)


def _offer(tools: Tools, place: str, label: str) -> Offer:
    found = next((offer for offer in tools.offers or () if offer.label == label), None)
    if found is None:
        _refuse_unknown(f"{place}.server_label")
    return found


def _narrowed(place: str, offer: Offer, name: str | None) -> Offer:
    if name is None:
        return offer
    if offer.names is not None and name not in offer.names:
        _refuse_unknown(f"{place}.name")
    return replace(offer, names=(name,))


def _joined(earlier: Offer | None, offer: Offer) -> Offer:
    """Return the offer that two references to one server make."""
    if earlier is None:
        return offer
    if earlier.names is None or offer.names is None:
        return replace(offer, names=None)
    return replace(offer, names=tuple(dict.fromkeys((*earlier.names, *offer.names))))


def _offered(tools: Tools, choice: str = "auto") -> Tools:
    """Return tools that the model may call. OpenAI refuses a choice beside no tools."""
    return replace(tools, choice=choice if tools.functions else None)


def _required(tools: Tools, *, place: str) -> Tools:
    """Return tools of which the model must call one. Model servers can force it to call the client's only."""
    if not tools.functions and not tools.offers:
        if tools.left_out:
            _refuse_hosted(tools, next(iter(tools.left_out.values())))
        text = f"'{place}' is 'required', and the request has no tool that can be called: add one to 'tools'."
        raise GatewayError("invalid_field", text, param=place)
    if not tools.offers:
        return replace(tools, choice="required")
    return replace(_offered(tools), notes=(_must_call(tools),))


def _refuse_hosted(tools: Tools, kind: str) -> NoReturn:
    place = next(place for place, left_out in tools.left_out.items() if left_out == kind)
    next_step = f"the gateway has no tool '{kind}'. Leave it out, and choose another in 'tool_choice'"
    raise unsupported(place, next_step)


def _must_call(tools: Tools) -> str:
    """Return a note for the model: no field of a request to a model server forces a call of a tool of the gateway."""
    names = [f"`{name}`" for name in tools.client]
    for offer in tools.offers or ():
        if offer.names is None:
            names.append(
                "one of the gateway's own" if offer.label == GATEWAY else f"one of the service `{offer.label}`"
            )
        else:
            names += [f"`{tool_name(offer.label, name)}`" for name in offer.names]
    return f"Before you answer, you must call a tool: {', or '.join(names)}."


def tool_name(label: str, name: str) -> str:
    """Return the name that models know for a tool of the gateway, by the label and the name that clients know."""
    return name if label == GATEWAY else model_name(f"{label}.{name}")
