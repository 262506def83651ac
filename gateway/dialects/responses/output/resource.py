"""The Response object: what a client requested, with OpenAI's defaults, and the results so far.

Each lifecycle event holds all of it. What does not change, such as tools and instructions, is therefore written once.
"""

from collections.abc import Mapping
from typing import Final

import orjson

from gateway.contracts.errors import CODES, GatewayError
from gateway.contracts.storage.responses import ResponseState
from gateway.contracts.storage.store import Json
from gateway.dialects.responses.fields import METADATA_CHARS, METADATA_PAIRS
from gateway.dialects.responses.response_metadata import ResponseFacts

#: Fields that a response repeats as they were sent, and their values where a request leaves them out or sends null.
_REPEATED: Final[Mapping[str, object]] = {
    "previous_response_id": None,
    "instructions": None,
    "tool_choice": "auto",
    "truncation": "disabled",
    "parallel_tool_calls": True,
    "top_p": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "top_logprobs": 0,
    "temperature": 1.0,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "store": True,
    "safety_identifier": None,
    "prompt_cache_key": None,
    "user": None,
}
#: Fields of a function, and of a format with a schema, that responses contain in any case.
_OF_FUNCTION: Final[Json] = {"description": None, "parameters": None, "strict": None}
_OF_SCHEMA: Final[Json] = {"description": None, "strict": False}
#: Fields of a tool that hold credentials.
_SECRET: Final = frozenset(("authorization", "headers"))
_NOTHING: Final[Json] = {}


class Resource:
    """The response as it stands."""

    def __init__(self, facts: ResponseFacts, *, response_id: str, created_s: float, background: bool) -> None:
        self.status: ResponseState = "queued" if background else "in_progress"
        self.output: list[Json] = []
        self.usage: Json | None = None
        self.error: Json | None = None
        self.incomplete: str | None = None
        self.completed_at: int | None = None
        self._named = {"id": response_id, "object": "response", "created_at": int(created_s)}
        self._repeated = {**_echo_fields(facts.fields), "background": background}
        self._json: tuple[bytes, bytes] | None = None
        if facts.left_out:
            self.add_metadata("left_out_tools", ", ".join(dict.fromkeys(facts.left_out)))

    def add_metadata(self, key: str, text: str) -> None:
        """Add a pair to the metadata if there is room, and the client has none with this key."""
        metadata = self._repeated["metadata"]
        if key not in metadata and len(metadata) < METADATA_PAIRS:
            self._repeated["metadata"] = {**metadata, key: text[:METADATA_CHARS]}
            self._json = None

    def build_view(self) -> Json:
        """Return the object."""
        return {**self._named, **self._build_current_fields(), **self._repeated}

    def dump(self) -> bytes:
        """Return the object as JSON."""
        if self._json is None:
            self._json = orjson.dumps(self._named)[:-1] + b",", b"," + orjson.dumps(self._repeated)[1:]
        named, repeated = self._json
        return named + orjson.dumps(self._build_current_fields())[1:-1] + repeated

    def _build_current_fields(self) -> Json:
        """Return the fields of the response that change while it runs."""
        return {
            "status": self.status,
            "completed_at": self.completed_at,
            "error": self.error,
            "incomplete_details": None if self.incomplete is None else {"reason": self.incomplete},
            "output": self.output,
            "usage": self.usage,
        }


def build_usage(usage: Json | None) -> Json:
    """Return the tokens of a turn in the names of responses; zeros where nothing was counted, as clients expect."""
    told = usage or _NOTHING
    read, written = _get_token_count(told, "prompt_tokens"), _get_token_count(told, "completion_tokens")
    of_prompt = told.get("prompt_tokens_details") or _NOTHING
    of_completion = told.get("completion_tokens_details") or _NOTHING
    return {
        "input_tokens": read,
        "input_tokens_details": {
            "cached_tokens": _get_token_count(of_prompt, "cached_tokens"),
            "cache_write_tokens": _get_token_count(of_prompt, "cache_write_tokens"),
        },
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": _get_token_count(of_completion, "reasoning_tokens")},
        "total_tokens": _get_token_count(told, "total_tokens") or read + written,
    }


def build_error(error: GatewayError, message: str) -> Json:
    """Return the error of a failed response, with the gateway's own code as its type.

    Its code is the upstream's own, else the nearest of OpenAI's.
    """
    facts = CODES[error.code]
    nearest = {429: "rate_limit_exceeded", 400: "invalid_prompt"}.get(facts.status, "server_error")
    code = error.upstream_code or nearest
    return {"code": code, "message": message, "type": error.code, "param": error.param}


def _echo_fields(fields: Json) -> Json:
    """Return the fields that state how the response is made."""
    sent = {name: value for name, value in fields.items() if value is not None and name in _REPEATED}
    reasoning = fields.get("reasoning") or {}
    conversation = fields.get("conversation")
    return {
        **_REPEATED,
        **sent,
        "model": fields.get("model") or "",
        "metadata": fields.get("metadata") or {},
        "conversation": {"id": conversation} if isinstance(conversation, str) else conversation,
        "reasoning": {"effort": None, "summary": None, **reasoning},
        "service_tier": "default" if (tier := fields.get("service_tier")) in (None, "auto") else tier,
        "text": _echo_text(fields.get("text") or {}),
        "tools": [_echo_tool(tool) for tool in fields.get("tools") or ()],
    }


def _echo_text(text: Json) -> Json:
    shape = text.get("format") or {"type": "text"}
    if shape.get("type") == "json_schema":
        shape = _fill_defaults(_OF_SCHEMA, shape)
    return {**{name: value for name, value in text.items() if value is not None}, "format": shape}


def _echo_tool(tool: Json) -> Json:
    if tool.get("type") == "function":
        return {**_OF_FUNCTION, **tool}
    return {name: value for name, value in tool.items() if name not in _SECRET}


def _fill_defaults(defaults: Json, fields: Json) -> Json:
    return {**defaults, **{name: value for name, value in fields.items() if value is not None}}


def _get_token_count(fields: object, name: str) -> int:
    tokens = fields.get(name) if isinstance(fields, dict) else None
    return tokens if type(tokens) is int else 0
