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


def _maybe(schema: Json, description: str | None = None) -> Json:
    described = {} if description is None else {"description": description}
    return {**schema, "type": [schema["type"], "null"], **described}


_REQUEST: Final[Json] = {
    "type": "object",
    "properties": {
        "model": _maybe(_TEXT, "Required, unless `context.model` names one."),
        "input": {
            "type": ["string", "array", "null"],
            "items": _OBJECT,
            "description": "A message of a user, or items. Required, unless there are earlier ones.",
        },
        "instructions": {"type": ["string", "array", "null"], "items": _OBJECT},
        "previous_response_id": _maybe(_TEXT),
        "conversation": {"type": ["string", "object", "null"], "description": "An id, or an object with an `id`."},
        "tools": _maybe(_OBJECTS, "`mcp` tools name services of the gateway, or `gateway`, in `server_label`."),
        "tool_choice": {"type": ["string", "object", "null"]},
        "parallel_tool_calls": _maybe(_TRUTH),
        "max_tool_calls": _maybe(_WHOLE, "Lowers the limit of the agent loop, never raises it."),
        "max_output_tokens": _maybe(_WHOLE),
        "temperature": _maybe(_NUMBER),
        "top_p": _maybe(_NUMBER),
        "text": _maybe(_OBJECT),
        "reasoning": _maybe(_OBJECT),
        "include": _maybe({"type": "array", "items": _TEXT}),
        "metadata": _maybe({"type": "object", "additionalProperties": _TEXT}),
        "truncation": {"enum": ["auto", "disabled", None]},
        "store": _maybe(_TRUTH, "`false`: the response cannot be read again. Default: true."),
        "background": _maybe(_TRUTH),
        "stream": _maybe(_TRUTH),
        "stream_options": _maybe(_OBJECT),
        "user": _maybe(_TEXT),
        "safety_identifier": _maybe(_TEXT),
        "prompt_cache_key": _maybe(_TEXT),
        "service_tier": _maybe(_TEXT),
    },
}
_RESPONSE_FIELDS: Final[Json] = {
    "id": _TEXT,
    "object": {"const": "response"},
    "created_at": _WHOLE,
    "status": {"enum": ["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]},
    "completed_at": _maybe(_WHOLE),
    "error": _maybe(_OBJECT),
    "incomplete_details": _maybe(_OBJECT),
    "output": _OBJECTS,
    "usage": _maybe(_OBJECT),
    "metadata": {"type": "object", "additionalProperties": _TEXT},
    "model": _TEXT,
    "previous_response_id": _maybe(_TEXT),
    "conversation": _maybe(_OBJECT),
    "instructions": {"type": ["string", "array", "null"], "items": _OBJECT},
    "tools": _OBJECTS,
    "tool_choice": {"type": ["string", "object"]},
    "parallel_tool_calls": _TRUTH,
    "max_output_tokens": _maybe(_WHOLE),
    "max_tool_calls": _maybe(_WHOLE),
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
