"""Requests and messages as JSON Schema, for `GET /openapi.json`."""

from typing import Final

from gateway.contracts.storage.store import Json
from gateway.dialects.dialect import DialectDescription

_TEXT: Final = {"type": "string"}
_NUMBER: Final = {"type": "number"}
_WHOLE: Final = {"type": "integer"}
_TRUTH: Final = {"type": "boolean"}
_OBJECT: Final = {"type": "object"}
_OBJECTS: Final = {"type": "array", "items": _OBJECT}
_TEXTS: Final = {"type": "array", "items": _TEXT}
_TEXT_OR_BLOCKS: Final = {"type": ["string", "array"], "items": _OBJECT}


def _describe(schema: Json, description: str) -> Json:
    return {**schema, "description": description}


_MESSAGE: Final[Json] = {
    "type": "object",
    "properties": {"role": {"enum": ["user", "assistant", "system"]}, "content": _TEXT_OR_BLOCKS},
    "required": ["role"],
}
_REQUEST: Final[Json] = {
    "type": "object",
    "properties": {
        "model": _describe(_TEXT, "Required, unless `context.model` names one."),
        "messages": {"type": "array", "items": _MESSAGE},
        "max_tokens": _describe(_WHOLE, "Required, but to count tokens."),
        "system": _TEXT_OR_BLOCKS,
        "tools": _describe(_OBJECTS, "Your own tools, and `mcp_toolset` entries."),
        "tool_choice": _OBJECT,
        "mcp_servers": _describe(_OBJECTS, "Services of the gateway, or `gateway`, by their `name`."),
        "stop_sequences": _TEXTS,
        "stream": _TRUTH,
        "temperature": _NUMBER,
        "top_p": _NUMBER,
        "top_k": _WHOLE,
        "metadata": _describe(_OBJECT, "`user_id` is the end user."),
        "thinking": _OBJECT,
        "output_config": _OBJECT,
        "context_management": _OBJECT,
        "cache_control": _OBJECT,
        "service_tier": _TEXT,
        "container": {"type": ["string", "object"]},
    },
    "required": ["messages"],
}
_ANSWER_FIELDS: Final[Json] = {
    "id": _TEXT,
    "type": {"const": "message"},
    "role": {"const": "assistant"},
    "model": _TEXT,
    "content": _OBJECTS,
    "stop_reason": _TEXT,
    "stop_sequence": {"type": ["string", "null"]},
    "usage": _OBJECT,
}
DESCRIBED: Final = DialectDescription(
    operation="createMessage",
    request="MessagesRequest",
    answer="Message",
    stream="The message, or a stream of its events.",
    schemas={
        "MessagesRequest": _REQUEST,
        "Message": {"type": "object", "properties": _ANSWER_FIELDS, "required": list(_ANSWER_FIELDS)},
    },
)
