"""The operations of the Responses API, each described once, beneath `/context/v1`."""

from collections.abc import Sequence
from typing import Final

from gateway.api.openapi.operation import (
    JSON,
    OF_BODIES,
    OF_CHATS,
    OF_QUERIES,
    STEERING,
    STREAM,
    Method,
    Operation,
    OperationAnswer,
    Parameter,
    Scope,
    build_json_answers,
)
from gateway.api.openapi.shapes import TEXT, TRUTH, WHOLE, build_reference
from gateway.dialects.loader import load_dialect
from gateway.dialects.registry import COLLECTIONS, build_paths

TAG: Final = "Responses"
#: Streams of responses have no progress events.
_STEERING: Final = tuple(one for one in STEERING if one.name != "X-Context-Events")
_DIALECT: Final = load_dialect("responses")
_SCOPES: Final[tuple[Scope, ...]] = ("context",)
#: Codes of requests that go on from what is stored.
OF_RESPONSES: Final = (
    "unknown_parameter",
    "previous_response_not_found",
    "conversation_not_found",
    "item_not_found",
    "run_not_found",
)
_OF_BODIES: Final = (*(code for code in OF_BODIES if code != "unknown_field"), "unknown_parameter")
_LIMIT: Final = Parameter(
    "limit", {"type": "integer", "minimum": 1, "maximum": 100, "default": 20}, "Entries of a page, at most."
)
_PAGES: Final = (
    Parameter("after", TEXT, "`last_id` of the page before."),
    _LIMIT,
    Parameter("order", {"enum": ["asc", "desc"], "default": "desc"}, "`asc`: the oldest first."),
)
_INCLUDE: Final = Parameter("include[]", {"type": "array", "items": TEXT}, "Changes nothing: all of it is shown.")
_STREAMED: Final = (
    Parameter("stream", TRUTH, "`true`: the events of a background response, to its end."),
    Parameter("starting_after", WHOLE, "Only events with a higher `sequence_number`."),
    _INCLUDE,
    Parameter("include_obfuscation", TRUTH, "Changes nothing: no event is padded."),
)


def shorten_path(path: str) -> str:
    """Return the path beneath `/context/v1` for one that works alike, such as `/responses/{id}`; else the path."""
    for name in COLLECTIONS:
        first, *others = build_paths(name)
        for other in others:
            if path == other or path.startswith(f"{other}/"):
                return first + path.removeprefix(other)
    return path


def _build_operation(
    method: Method, path: str, name: str, summary: str, answer: str, *, errors: tuple[str, ...],
    parameters: Sequence[Parameter] = (), body: str | None = None, required: bool = True,
) -> Operation:  # fmt: skip
    codes = (*(_OF_BODIES if body else OF_QUERIES), *(("unknown_field",) if parameters else ()), *errors)
    return Operation(
        method=method, path=f"/context/v1/{path}", name=name, summary=summary, tag=TAG, scopes=_SCOPES,
        parameters=parameters, body=body, body_required=required,
        answers=build_json_answers("The answer.", build_reference(answer)),
        errors=codes,
    )  # fmt: skip


def _build_response_operations() -> list[Operation]:
    missing, told = ("response_not_found",), _DIALECT.description
    streamed = OperationAnswer("The response, or its events.", {JSON: build_reference(told.answer), STREAM: None})
    return [
        Operation(
            method="POST", path="/context/v1/responses", name=told.operation, tag=TAG, scopes=_SCOPES,
            summary="Create a response through a chain", parameters=_STEERING, body=told.request,
            answers={200: OperationAnswer(told.stream, {JSON: build_reference(told.answer), STREAM: None})},
            errors=(*OF_CHATS, *OF_RESPONSES),
        ),
        Operation(
            method="GET", path="/context/v1/responses", name="openResponseSocket", tag=TAG, scopes=_SCOPES,
            summary="Open a WebSocket that takes `response.create` messages, one after the other",
            parameters=_STEERING[:-1], answers={101: OperationAnswer("The WebSocket begins.", {})},
            errors=(*OF_CHATS, *OF_RESPONSES, "websocket_connection_limit_reached"),
        ),
        Operation(
            method="POST", path="/context/v1/responses/compact", name="compactResponse", tag=TAG, scopes=_SCOPES,
            summary="Compact a conversation to a sealed summary", parameters=_STEERING[:1], body="CompactionRequest",
            answers=build_json_answers("The items that take its place.", build_reference("Compaction")),
            errors=(*OF_CHATS, *OF_RESPONSES),
        ),
        Operation(
            method="POST", path="/context/v1/responses/input_tokens", name="countInputTokens", tag=TAG, scopes=_SCOPES,
            summary="Refused: the gateway counts no tokens of an input", answers={}, errors=("unknown_route",),
        ),
        Operation(
            method="GET", path="/context/v1/responses/{id}", name="getResponse", tag=TAG, scopes=_SCOPES,
            summary="Get a response as it stands", parameters=_STREAMED, answers={200: streamed},
            errors=(*OF_QUERIES, *missing),
        ),
        _build_operation("DELETE", "responses/{id}", "deleteResponse",
             "Delete a response; one that runs is cancelled first",
             "ResponseDeleted", errors=missing),
        _build_operation("POST", "responses/{id}/cancel", "cancelResponse", "Cancel a background response", "Response",
             errors=(*missing, "run_ended")),
        _build_operation("GET", "responses/{id}/input_items", "listInputItems",
             "List the input items of a response itself",
             "Items", parameters=(*_PAGES, _INCLUDE), errors=missing),
    ]  # fmt: skip


def _build_conversation_operations() -> list[Operation]:
    missing = ("conversation_not_found",)
    one, items, item = "conversations/{id}", "conversations/{id}/items", "conversations/{id}/items/{item}"
    return [
        _build_operation("POST", "conversations", "createConversation", "Create a conversation", "Conversation",
             body="ConversationRequest", required=False, errors=("item_not_found",)),
        _build_operation("GET", one, "getConversation", "Get a conversation without its items", "Conversation",
             errors=missing),
        _build_operation("POST", one, "updateConversation", "Replace the metadata of a conversation", "Conversation",
             body="ConversationChange", errors=missing),
        _build_operation("DELETE", one, "deleteConversation", "Delete a conversation with its items",
             "ConversationDeleted",
             errors=missing),
        _build_operation("GET", items, "listItems", "List the items of a conversation", "Items",
             parameters=(*_PAGES, _INCLUDE), errors=missing),
        _build_operation("POST", items, "addItems", "Add items behind those of a conversation", "Items",
             parameters=(_INCLUDE,), body="ItemsRequest", errors=(*missing, "item_not_found")),
        _build_operation("GET", item, "getItem", "Get an item of a conversation", "Item", parameters=(_INCLUDE,),
             errors=(*missing, "item_not_found")),
        _build_operation("DELETE", item, "deleteItem", "Delete an item of a conversation", "Conversation",
             errors=(*missing, "item_not_found")),
    ]  # fmt: skip


RESPONSE_OPERATIONS: Final[Sequence[Operation]] = (*_build_response_operations(), *_build_conversation_operations())
