"""Requests and responses as JSON Schema, for `GET /openapi.json`."""

from typing import Final

from gateway.contracts.storage.store import Json
from gateway.dialects.dialect import DialectDescription

_TEXT: Final = {"type": "string"}
_NUMBER: Final = {"type": "number"}
_WHOLE: Final = {"type": "integer"}
_TRUTH: Final = {"type": "boolean"}
_OBJECT: Final = {"type": "object"}
_OBJECTS: Final = {"type": "array", "items": _OBJECT}


def _make_nullable(schema: Json, description: str | None = None) -> Json:
    described = {} if description is None else {"description": description}
    return {**schema, "type": [schema["type"], "null"], **described}


_REQUEST: Final[Json] = {
    "type": "object",
    "properties": {
        "model": _make_nullable(_TEXT, "Required, unless `context.model` names one."),
        "input": {
            "type": ["string", "array", "null"],
            "items": _OBJECT,
            "description": "A message of a user, or items. Required, unless there are earlier ones.",
        },
        "instructions": {"type": ["string", "array", "null"], "items": _OBJECT},
        "previous_response_id": _make_nullable(_TEXT),
        "conversation": {"type": ["string", "object", "null"], "description": "An id, or an object with an `id`."},
        "tools": _make_nullable(_OBJECTS, "`mcp` tools name services of the gateway, or `gateway`, in `server_label`."),
        "tool_choice": {"type": ["string", "object", "null"]},
        "parallel_tool_calls": _make_nullable(_TRUTH),
        "max_tool_calls": _make_nullable(_WHOLE, "Lowers the limit of the agent loop, never raises it."),
        "max_output_tokens": _make_nullable(_WHOLE),
        "temperature": _make_nullable(_NUMBER),
        "top_p": _make_nullable(_NUMBER),
        "text": _make_nullable(_OBJECT),
        "reasoning": _make_nullable(_OBJECT),
        "include": _make_nullable({"type": "array", "items": _TEXT}),
        "metadata": _make_nullable({"type": "object", "additionalProperties": _TEXT}),
        "context_management": _make_nullable(_OBJECTS, "Compaction above `compact_threshold` tokens."),
        "truncation": {"enum": ["auto", "disabled", None]},
        "store": _make_nullable(_TRUTH, "`false`: the response cannot be read again. Default: true."),
        "background": _make_nullable(_TRUTH),
        "stream": _make_nullable(_TRUTH),
        "stream_options": _make_nullable(_OBJECT),
        "user": _make_nullable(_TEXT),
        "safety_identifier": _make_nullable(_TEXT),
        "prompt_cache_key": _make_nullable(_TEXT),
        "service_tier": _make_nullable(_TEXT),
    },
}
_RESPONSE_FIELDS: Final[Json] = {
    "id": _TEXT,
    "object": {"const": "response"},
    "created_at": _WHOLE,
    "status": {"enum": ["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]},
    "completed_at": _make_nullable(_WHOLE),
    "error": _make_nullable(_OBJECT),
    "incomplete_details": _make_nullable(_OBJECT),
    "output": _OBJECTS,
    "usage": _make_nullable(_OBJECT),
    "metadata": {"type": "object", "additionalProperties": _TEXT},
    "model": _TEXT,
    "previous_response_id": _make_nullable(_TEXT),
    "conversation": _make_nullable(_OBJECT),
    "instructions": {"type": ["string", "array", "null"], "items": _OBJECT},
    "tools": _OBJECTS,
    "tool_choice": {"type": ["string", "object"]},
    "parallel_tool_calls": _TRUTH,
    "max_output_tokens": _make_nullable(_WHOLE),
    "max_tool_calls": _make_nullable(_WHOLE),
    "temperature": _NUMBER,
    "top_p": _NUMBER,
    "text": _OBJECT,
    "reasoning": _OBJECT,
    "truncation": {"enum": ["auto", "disabled"]},
    "store": _TRUTH,
    "background": _TRUTH,
}
DESCRIBED: Final = DialectDescription(
    operation="createResponse",
    request="ResponseRequest",
    answer="Response",
    stream="The response, or a stream of its events.",
    schemas={
        "ResponseRequest": _REQUEST,
        "Response": {"type": "object", "properties": _RESPONSE_FIELDS, "required": list(_RESPONSE_FIELDS)},
    },
)
