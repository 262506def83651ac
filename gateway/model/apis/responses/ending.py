"""The end of a response, its error, and its tokens, in the words of chat completions."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from gateway.contracts.storage.store import Json
from gateway.usage.tokens import parse_tokens

_CUT: Final[Mapping[object, str]] = MappingProxyType(
    {"max_output_tokens": "length", "max_tokens": "length", "content_filter": "content_filter"}
)
#: The types of the codes with which a response fails.
_TYPES: Final[Mapping[object, str]] = MappingProxyType(
    {
        "rate_limit_exceeded": "rate_limit_error",
        "insufficient_quota": "insufficient_quota",
        "server_is_overloaded": "overloaded_error",
        "slow_down": "overloaded_error",
        "invalid_prompt": "invalid_request_error",
    }
)


def build_ending(response: Json, *, has_calls: bool) -> Json:
    """Return the choice that ends an answer."""
    details = response.get("incomplete_details")
    status = response.get("status")
    reason = details.get("reason") if status == "incomplete" and isinstance(details, dict) else status
    finish = _CUT.get(reason, "length") if status == "incomplete" else "tool_calls" if has_calls else "stop"
    return {"index": 0, "delta": {}, "finish_reason": finish, "native_finish_reason": reason}


def build_error(told: object) -> Json:
    """Return an error event, or the error of a failed response, in the form of an error of chats."""
    fields = told if isinstance(told, dict) else {}
    nested = fields.get("error")
    error = nested if isinstance(nested, dict) else {name: fields.get(name) for name in ("message", "code", "param")}
    kind = error.get("type") or _TYPES.get(error.get("code"))
    return {"error": {**error, "type": kind}}


def build_usage(usage: object) -> Json | None:
    """Return the tokens of an answer; None: it states none."""
    tokens = parse_tokens(usage)
    if tokens is None or not isinstance(usage, dict):
        return None
    built: Json = {
        "prompt_tokens": tokens.input,
        "completion_tokens": tokens.output,
        "total_tokens": tokens.input + tokens.output,
    }
    asked, made = usage.get("input_tokens_details"), usage.get("output_tokens_details")
    if isinstance(asked, dict):
        built["prompt_tokens_details"] = {"cached_tokens": tokens.cached}
        if type(written := asked.get("cache_write_tokens")) is int and written > 0:
            built["cache_creation_input_tokens"] = written
    if isinstance(made, dict) and isinstance(thought := made.get("reasoning_tokens"), int):
        built["completion_tokens_details"] = {"reasoning_tokens": thought}
    return built
