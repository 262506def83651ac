"""The fields of a request besides its messages and tools: checked, and as chat completions have them.

Unknown fields are refused, as Anthropic refuses them. A field for which chat completions have no name goes on as it
came, under `messages_api`, which only a model that speaks Messages gets.
"""

from collections.abc import Mapping
from typing import Final

from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.store import Json
from gateway.dialects.field_checks import (
    LIST,
    OBJECT,
    TEXT,
    TEXTS,
    TRUTH,
    Kind,
    build_enum_kind,
    build_number_kind,
    build_unknown_field_error,
    build_unsupported_error,
    build_whole_number_kind,
    check_object_fields,
    mark_required,
)
from gateway.dialects.messages.client_programs import find_end_user
from gateway.dialects.messages.errors import THREAD

_TEXT_OR_LIST: Final = Kind(lambda value: type(value) in (str, list), "text, or a list of text blocks")
_TEXT_OR_OBJECT: Final = Kind(lambda value: type(value) in (str, dict), "an id, or an object")
_LIST_OR_OBJECT: Final = Kind(lambda value: type(value) in (list, dict, str), "a list, an object or a text")
_NO_THREADS: Final = "the gateway keeps no threads: send the build_whole_number_kind conversation"
#: Fields that chat completions lack.
_OF_MESSAGES: Final[Mapping[str, Kind]] = {
    "thinking": OBJECT,
    "top_k": build_whole_number_kind(0),
    "container": _TEXT_OR_OBJECT,
    "context_management": OBJECT,
    "output_config": OBJECT,
    "service_tier": build_enum_kind("auto", "standard_only"),
    "cache_control": OBJECT,
    "metadata": OBJECT,
    "speed": build_enum_kind("standard", "fast"),
    "inference_geo": TEXT,
    "diagnostics": OBJECT,
    "fallbacks": _LIST_OR_OBJECT,
    "fallback_credit_token": _TEXT_OR_OBJECT,
    "billing_policy": OBJECT,
    "user_profile_id": TEXT,
    "workspace_id": TEXT,
}
_FIELDS: Final[Mapping[str, Kind]] = {
    "model": TEXT,
    "messages": mark_required(LIST),
    "max_tokens": mark_required(build_whole_number_kind(0)),
    "system": _TEXT_OR_LIST,
    "temperature": build_number_kind(0, 1),
    "top_p": build_number_kind(0, 1),
    "stop_sequences": TEXTS,
    "stream": TRUTH,
    "tools": LIST,
    "tool_choice": OBJECT,
    "mcp_servers": LIST,
    "output_format": OBJECT,
    **_OF_MESSAGES,
}
#: Fields of the API that context mode cannot honour.
_UNSUPPORTED: Final[Mapping[str, str]] = {
    THREAD: _NO_THREADS,
    "compaction": "let your program summarise the conversation, and send the summary",
    "prefill": "end 'messages' with the beginning of the answer, as a message of the assistant",
    "betas": "name them in the header 'anthropic-beta'",
}
#: Fields of chat completions, and where Messages have them.
_MOVED: Final[Mapping[str, str]] = {
    "stop": "stop_sequences",
    "max_completion_tokens": "max_tokens",
    "response_format": "output_config.format",
    "reasoning_effort": "output_config.effort",
    "user": "metadata.user_id",
    "parallel_tool_calls": "tool_choice.disable_parallel_tool_use",
}
#: Fields that have the same name and meaning in chat completions.
_SAME: Final = ("model", "max_tokens", "temperature", "top_p")
_METADATA: Final = {"user_id": TEXT}
_FORMAT: Final = {"type": mark_required(build_enum_kind("json_schema")), "schema": mark_required(OBJECT)}
#: The name of a format, which chat completions require and Messages lack.
_FORMAT_NAME: Final = "answer"


def check_fields(body: Json, *, needs_model: bool) -> None:
    """Check the fields of a request. Raises GatewayError."""
    _refuse_unknown_fields(body)
    check_object_fields("", body, _FIELDS)
    _check_parts(body, needs_model=needs_model)


def _refuse_unknown_fields(body: Json) -> None:
    for name in body:
        if name in _FIELDS:
            continue
        if name in _UNSUPPORTED:
            raise build_unsupported_error(name, _UNSUPPORTED[name])
        error = build_unknown_field_error(name[:64])
        if name in _MOVED:
            raise GatewayError(error.code, f"{error.message} In Messages it is '{_MOVED[name]}'.", param=name)
        raise error


def _check_parts(body: Json, *, needs_model: bool) -> None:
    """Check what is more than one value. Raises GatewayError."""
    if needs_model and not body.get("model"):
        text = "'model' is missing: name one of 'GET /context/v1/models', or set 'context.model' in gateway.yaml."
        raise GatewayError("missing_field", text, param="model")
    if not body["messages"]:
        raise GatewayError("invalid_field", "'messages' must be a list of at least one message.", param="messages")
    if (metadata := body.get("metadata")) is not None:
        check_object_fields("metadata", metadata, _METADATA, closed=True)
    for place, wanted in _list_answer_formats(body):
        check_object_fields(place, wanted, _FORMAT)


def _list_answer_formats(body: Json) -> list[tuple[str, Json]]:
    """Return the places and the values of the fields that name a format of the answer. Raises GatewayError."""
    config = body.get("output_config") or {}
    check_object_fields("output_config", config, {"format": OBJECT})
    named = (("output_config.format", config.get("format")), ("output_format", body.get("output_format")))
    return [(place, wanted) for place, wanted in named if wanted is not None]


def convert_for_models(body: Json) -> Json:
    """Return the checked fields, except for messages and tools, as chat completions have them."""
    found: Json = {name: body[name] for name in _SAME if body.get(name) is not None}
    if stops := body.get("stop_sequences"):
        found["stop"] = stops
    if user_id := (body.get("metadata") or {}).get("user_id"):
        found["user"] = find_end_user(user_id)
    if formats := _list_answer_formats(body):
        schema = {"name": _FORMAT_NAME, "schema": formats[0][1]["schema"], "strict": True}
        found["response_format"] = {"type": "json_schema", "json_schema": schema}
    if body.get("stream"):
        found["stream"] = True
    own = {name: body[name] for name in _OF_MESSAGES if body.get(name) is not None}
    if "format" in own.get("output_config", ()):
        own["output_config"] = {name: value for name, value in own["output_config"].items() if name != "format"}
    found["messages_api"] = own
    return found
