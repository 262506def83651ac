"""The fields of a request besides its items and tools: checked, and as chat completions have them.

Unknown fields are refused as OpenAI refuses them. A field that OpenAI has, and that changes what an answer is, is
refused if the gateway cannot honour it; one that only controls how OpenAI works (caches, prices, policies) is accepted.
"""

from collections.abc import Mapping
from typing import Final

from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.store import Json
from gateway.dialects.field_checks import (
    ANYTHING,
    ID,
    ID_CHARS,
    LIST,
    NAME,
    OBJECT,
    TEXT,
    TEXTS,
    TRUTH,
    Kind,
    build_enum_kind,
    build_short_text_kind,
    build_unknown_field_error,
    build_unsupported_error,
    build_whole_number_kind,
    check_object,
    check_object_fields,
    mark_required,
    refuse,
)
from gateway.dialects.field_checks import build_number_kind as ranged

#: The value of `include` that requests thoughts as `encrypted_content`.
INCLUDED: Final = "reasoning.encrypted_content"
INCLUDABLE: Final = (
    INCLUDED,
    "message.output_text.logprobs",
    "message.input_image.image_url",
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
)
_CHOICE: Final = Kind(lambda value: type(value) in (str, dict), "none, auto, required, or an object with a 'type'")
_PASSED_CHARS: Final = 128
_FIELDS: Final[Mapping[str, Kind]] = {
    "model": TEXT,
    "input": ANYTHING,
    "instructions": ANYTHING,
    "previous_response_id": build_short_text_kind(ID_CHARS),
    "conversation": Kind(lambda value: type(value) in (str, dict), "an id, or an object with an 'id'"),
    "include": TEXTS,
    "tools": LIST,
    "tool_choice": _CHOICE,
    "parallel_tool_calls": TRUTH,
    "max_tool_calls": build_whole_number_kind(1),
    "max_output_tokens": build_whole_number_kind(1),
    "temperature": ranged(0, 2),
    "top_p": ranged(0, 1),
    "presence_penalty": ranged(-2, 2),
    "frequency_penalty": ranged(-2, 2),
    "top_logprobs": build_whole_number_kind(0, 20),
    "text": OBJECT,
    "reasoning": OBJECT,
    "metadata": OBJECT,
    "stream": TRUTH,
    "stream_options": OBJECT,
    "background": TRUTH,
    "store": TRUTH,
    "truncation": build_enum_kind("auto", "disabled"),
    "user": TEXT,
    "safety_identifier": build_short_text_kind(_PASSED_CHARS),
    "prompt_cache_key": build_short_text_kind(_PASSED_CHARS),
    "service_tier": build_short_text_kind(_PASSED_CHARS),
    "prompt": OBJECT,
    "moderation": OBJECT,
    "context_management": LIST,
    "prompt_cache_retention": build_enum_kind("in_memory", "in-memory", "24h"),
    "prompt_cache_options": OBJECT,
    "background_options": OBJECT,
    "image": OBJECT,
    "access_programs": OBJECT,
    "client_metadata": OBJECT,
}
#: The fields that POST /responses/compact has.
_OF_COMPACTIONS: Final = (
    "model",
    "input",
    "instructions",
    "previous_response_id",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "service_tier",
    "image",
    "client_metadata",
)
#: Fields of chat completions, and where the Responses API has them.
_MOVED: Final[Mapping[str, str]] = {
    "messages": "input",
    "functions": "tools",
    "function_call": "tool_choice",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "response_format": "text.format",
    "verbosity": "text.verbosity",
    "reasoning_effort": "reasoning.effort",
}
_TEXT: Final = {"format": OBJECT, "verbosity": build_short_text_kind(ID_CHARS)}
_FORMAT: Final = {"type": mark_required(build_enum_kind("text", "json_object", "json_schema"))}
_SCHEMA: Final = {
    **_FORMAT,
    "name": mark_required(NAME),
    "schema": mark_required(OBJECT),
    "strict": TRUTH,
    "description": TEXT,
}
_REASONING: Final = {
    "effort": build_short_text_kind(ID_CHARS),
    "summary": build_short_text_kind(ID_CHARS),
    "generate_summary": build_short_text_kind(ID_CHARS),
    "context": build_short_text_kind(ID_CHARS),
    "mode": build_short_text_kind(ID_CHARS),
}
_STREAM_OPTIONS: Final = {"include_obfuscation": TRUTH}
_CONTEXT_MANAGEMENT: Final = {
    "type": mark_required(build_enum_kind("compaction")),
    "compact_threshold": build_whole_number_kind(1),
}
_CONVERSATION: Final = {"id": mark_required(ID)}
METADATA_PAIRS: Final = 16
_METADATA_VALUE: Final = Kind(
    lambda value: type(value) is str and len(value) <= METADATA_CHARS, "text of at most 512 characters"
)
METADATA_CHARS: Final = 512
#: Fields that chat completions have under the same name.
PASSED: Final = (
    "temperature",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "user",
    "safety_identifier",
    "prompt_cache_key",
    "service_tier",
)

#: Fields that chat completions lack, and models that speak Responses understand.
_OWN: Final = ("truncation", "prompt_cache_retention", "prompt_cache_options")


def check_fields(fields: Json) -> None:
    """Check the fields of a request for a response. Raises GatewayError."""
    _check_known(fields, _FIELDS)
    _check_offered(fields)
    if (config := fields.get("text")) is not None:
        check_object_fields("text", config, _TEXT, closed=True)
        _check_format(config.get("format"))
    if (reasoning := fields.get("reasoning")) is not None:
        check_object_fields("reasoning", reasoning, _REASONING, closed=True)
    if (options := fields.get("stream_options")) is not None:
        check_object_fields("stream_options", options, _STREAM_OPTIONS, closed=True)
    check_metadata(fields.get("metadata") or {})
    for i, entry in enumerate(fields.get("context_management") or ()):
        place = f"context_management[{i}]"
        check_object_fields(place, check_object(place, entry), _CONTEXT_MANAGEMENT, closed=True)
    _check_state(fields)


def check_compaction(fields: Json) -> None:
    """Check the fields of a request for a compaction. Raises GatewayError."""
    _check_known(fields, {name: _FIELDS[name] for name in _OF_COMPACTIONS})


def _check_known(fields: Json, known: Mapping[str, Kind]) -> None:
    """Check each field that there is: none is required here."""
    for name, value in fields.items():
        kind = known.get(name)
        if kind is None:
            if (now := _MOVED.get(name)) is not None:
                text = f"Unsupported parameter: '{name}'. The Responses API has it as '{now}'."
                raise GatewayError("unsupported_parameter", text, param=name)
            raise build_unknown_field_error(name[:ID_CHARS])
        if value is not None and not kind.accepts(value):
            refuse(name, kind.described)


def _check_offered(fields: Json) -> None:
    """Refuse fields that would change the answer, and cannot be honoured."""
    if fields.get("prompt") is not None:
        raise build_unsupported_error(
            "prompt", "send its text as 'instructions', or name one of the gateway's: X-Context-Prompt"
        )
    if fields.get("moderation") is not None:
        raise build_unsupported_error("moderation", "leave it out, or use passthrough")
    if fields.get("top_logprobs"):
        raise build_unsupported_error("top_logprobs", "leave it out, or use passthrough")
    if (fields.get("prompt_cache_options") or {}).get("prewarm"):
        raise build_unsupported_error("prompt_cache_options.prewarm", "leave it out")
    for i, name in enumerate(fields.get("include") or ()):
        if name not in INCLUDABLE:
            refuse(f"include[{i}]", f"one of {', '.join(INCLUDABLE)}")
        if name == "message.output_text.logprobs":
            raise build_unsupported_error(
                f"include[{i}]", "leave 'message.output_text.logprobs' out, or use passthrough"
            )


def _check_format(shape: Json | None) -> None:
    if shape is not None:
        check_object_fields("text.format", shape, _FORMAT)
        check_object_fields("text.format", shape, _SCHEMA if shape["type"] == "json_schema" else _FORMAT, closed=True)


def check_metadata(metadata: Json) -> None:
    """Check metadata. Raises GatewayError."""
    if len(metadata) > METADATA_PAIRS:
        refuse("metadata", f"an object with at most {METADATA_PAIRS} pairs")
    for name, value in metadata.items():
        if len(name) > ID_CHARS:
            refuse("metadata", f"an object with names of at most {ID_CHARS} characters")
        if not _METADATA_VALUE.accepts(value):
            refuse(f"metadata.{name}", _METADATA_VALUE.described)


def _check_state(fields: Json) -> None:
    """Raise GatewayError unless conversation, previous response, background and store fit together."""
    conversation = fields.get("conversation")
    if isinstance(conversation, str):
        check_object_fields("", fields, {"conversation": ID})
    elif conversation is not None:
        check_object_fields("conversation", conversation, _CONVERSATION)
    if conversation is not None and fields.get("previous_response_id") is not None:
        text = "Send 'previous_response_id' or 'conversation', not both: each says what came before."
        raise GatewayError("invalid_field", text, param="conversation")
    if fields.get("background") and fields.get("store") is False:
        text = "'background' needs 'store': the client fetches such a response by its id. Leave 'store' out."
        raise GatewayError("invalid_field", text, param="background")


def find_compact_threshold(fields: Json) -> int | None:
    """Return the lowest number of tokens above which checked fields wish a compaction; None: they wish none."""
    entries = fields.get("context_management") or ()
    return min((limit for entry in entries if (limit := entry.get("compact_threshold")) is not None), default=None)


def find_conversation_id(fields: Json) -> str | None:
    """Return the id of the conversation that checked fields name."""
    conversation = fields.get("conversation")
    return conversation.get("id") if isinstance(conversation, dict) else conversation


def convert_for_models(fields: Json) -> Json:
    """Return checked fields as chat completions have them: only fields that the client sent.

    `max_output_tokens` becomes `max_tokens`, which Ollama, vLLM, llama.cpp and OpenAI's older models understand. Ollama
    ignores `max_completion_tokens`, so that its answer would have no limit. What chat completions lack is in
    `responses_api`, which only models that speak Responses get.
    """
    passed = {name: fields[name] for name in ("model", *PASSED) if fields.get(name) is not None}
    config, reasoning = fields.get("text") or {}, fields.get("reasoning") or {}
    renamed = {
        "max_tokens": fields.get("max_output_tokens"),
        "reasoning_effort": reasoning.get("effort"),
        "verbosity": config.get("verbosity"),
        "response_format": _convert_format(config.get("format")),
        "responses_api": _select_own(fields, reasoning) or None,
    }
    return passed | {name: value for name, value in renamed.items() if value is not None}


def _select_own(fields: Json, reasoning: Json) -> Json:
    """Return the fields that chat completions lack."""
    own = {name: fields[name] for name in _OWN if fields.get(name) is not None}
    further = {name: value for name, value in reasoning.items() if name != "effort" and value is not None}
    return own | ({"reasoning": further} if further else {})


def _convert_format(shape: Json | None) -> Json | None:
    """Return `text.format` in the form of chat completions; None for plain text."""
    if shape is None or shape["type"] == "text":
        return None
    if shape["type"] == "json_object":
        return {"type": "json_object"}
    names = ("name", "description", "schema", "strict")
    return {"type": "json_schema", "json_schema": {name: shape[name] for name in names if shape.get(name) is not None}}
