"""A request for a response, read and checked: its fields, items, tools, and what it goes on with."""

from dataclasses import dataclass, field, replace
from typing import Final

from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.store import Json
from gateway.dialects.field_checks import (
    ID,
    TEXT,
    check_object_fields,
    mark_required,
    refuse,
    refuse_missing,
)
from gateway.dialects.json_object import parse_json_object
from gateway.dialects.offered_tools import GATEWAY
from gateway.dialects.responses.choice import resolve_tools
from gateway.dialects.responses.fields import check_compaction, check_fields, find_conversation_id
from gateway.dialects.responses.items import TRIGGER, check_item, is_without_output
from gateway.dialects.responses.tools import ToolSelection

_INPUT = "text, or a list of items"
_TRIGGER: Final = {"type": mark_required(TEXT), "id": ID}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseRequest:
    """A request for a response, checked.

    `fields` are its fields as they came, without `input`. `input` are its items, each with a type; a text is the
    message of a user. `references` are the places and ids of its `item_reference` items. `without_output` are the ids
    of ended gateway calls whose output its client left out. `claimed` are the ids of calls that the client attributes
    to the gateway's tools. `tools` is what `tool_choice` leaves of its tools. `compacts`: the answer is a compaction.
    """

    fields: Json
    input: tuple[Json, ...]
    instructions: tuple[Json, ...] = ()
    previous_response_id: str | None = None
    conversation_id: str | None = None
    references: tuple[tuple[str, str], ...] = ()
    without_output: tuple[str, ...] = ()
    claimed: tuple[str, ...] = ()
    streams: bool = False
    stores: bool = True
    background: bool = False
    compacts: bool = False
    include: tuple[str, ...] = ()
    tools: ToolSelection = field(default_factory=ToolSelection)


def parse_request(content: bytes, *, needs_model: bool) -> ResponseRequest:
    """Return the request. `needs_model`: the configuration names no model that goes in the place of a missing one.

    Raises GatewayError (invalid_json, missing_field, invalid_field, unknown_parameter, unsupported_parameter).
    """
    return parse_request_body(parse_json_object(content), needs_model=needs_model)


def parse_request_body(body: Json, *, needs_model: bool) -> ResponseRequest:
    """Return the request whose JSON object this is. Raises GatewayError as `request_of` does."""
    check_fields(body)
    _check_model(body, needs_model=needs_model)
    if not _ends_with_trigger(body.get("input")):
        return _build_request(body, tools=resolve_tools(body))
    if body.get("background"):
        text = "A compaction has no background: leave 'background' out, or the 'compaction_trigger'."
        raise GatewayError("invalid_field", text, param="background")
    place = f"input[{len(body['input']) - 1}]"
    check_object_fields(place, body["input"][-1], _TRIGGER, closed=True)
    wanted = _build_request({**body, "input": body["input"][:-1]}, tools=ToolSelection())
    return replace(wanted, compacts=True)


def _ends_with_trigger(items: object) -> bool:
    """Return whether the last item of an input, which may be anything, wishes its compaction."""
    last = items[-1] if type(items) is list and items else None
    return type(last) is dict and last.get("type") == TRIGGER


def parse_compaction(content: bytes) -> ResponseRequest:
    """Return a request for POST /responses/compact, whose model is required. Raises GatewayError as `request_of`."""
    body = parse_json_object(content)
    check_compaction(body)
    if not body.get("model"):
        refuse_missing("model", "the name of a model, such as one of GET /context/v1/models")
    return _build_request(body, tools=ToolSelection())


def _build_request(body: Json, *, tools: ToolSelection) -> ResponseRequest:
    """Return the checked parts of a body as one object. Raises GatewayError."""
    fields = {name: value for name, value in body.items() if name != "input"}
    items = _check_items("input", body.get("input"), role="user")
    previous, conversation = body.get("previous_response_id"), find_conversation_id(body)
    if not items and previous is None and conversation is None:
        refuse_missing("input", _INPUT)
    references = [(f"input[{i}]", item["id"]) for i, item in enumerate(items) if item["type"] == "item_reference"]
    return ResponseRequest(
        fields=fields,
        input=items,
        instructions=_convert_instructions(body.get("instructions")),
        previous_response_id=previous,
        conversation_id=conversation,
        references=tuple(references),
        without_output=tuple(item["id"] for item in items if is_without_output(item) and item.get("id")),
        claimed=tuple(item["id"] for item in items if _is_claimed(item) and item.get("id")),
        streams=body.get("stream") is True,
        stores=body.get("store") is not False,
        background=body.get("background") is True,
        include=tuple(body.get("include") or ()),
        tools=tools,
    )


def _is_claimed(item: Json) -> bool:
    return item["type"] == "mcp_call" and str(item["server_label"]) == GATEWAY


def _check_model(body: Json, *, needs_model: bool) -> None:
    if needs_model and not body.get("model"):
        text = "'model' is missing: name one of 'GET /context/v1/models', or set 'context.model' in gateway.yaml."
        raise GatewayError("missing_field", text, param="model")


def _check_items(place: str, value: object, *, role: str) -> tuple[Json, ...]:
    """Return the checked items of an input; a text becomes a message. Raises GatewayError."""
    if value is None or value == "":
        return ()
    if isinstance(value, str):
        return ({"type": "message", "role": role, "content": value},)
    if type(value) is not list:
        refuse(place, _INPUT)
    return tuple([check_item(f"{place}[{i}]", item) for i, item in enumerate(value)])


def _convert_instructions(value: object) -> tuple[Json, ...]:
    """Return instructions as messages; OpenAI's answers have them as text or as items."""
    items = _check_items("instructions", value, role="system")
    for i, item in enumerate(items):
        if item["type"] != "message":
            refuse(f"instructions[{i}].type", "message")
    return items
