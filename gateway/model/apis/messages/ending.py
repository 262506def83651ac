"""The end of an answer of Messages, and its tokens, in the words of chat completions."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from gateway.contracts.storage.store import Json
from gateway.usage.tokens import parse_tokens

_FINISH: Final[Mapping[object, str]] = MappingProxyType(
    {
        "max_tokens": "length",
        "model_context_window_exceeded": "length",
        "tool_use": "tool_calls",
        "refusal": "content_filter",
    }
)
#: What else an end may say.
_ABOUT: Final = ("stop_sequence", "stop_details")


def build_ending(ending: Json) -> Json:
    """Return the choice that ends an answer. `ending` has its `stop_reason`, and `stop_sequence`."""
    reason = ending.get("stop_reason")
    about = {name: ending[name] for name in _ABOUT if ending.get(name) is not None}
    return {
        "index": 0,
        "delta": {},
        "finish_reason": _FINISH.get(reason, "stop"),
        "native_finish_reason": reason,
        **about,
    }


def build_usage(usage: Json) -> Json | None:
    """Return the tokens of an answer; None: it states none. Cached tokens are a part of the prompt's."""
    tokens = parse_tokens(usage)
    if tokens is None:
        return None
    built: Json = {
        "prompt_tokens": tokens.input,
        "completion_tokens": tokens.output,
        "total_tokens": tokens.input + tokens.output,
    }
    if usage.get("cache_read_input_tokens") is not None:
        built["prompt_tokens_details"] = {"cached_tokens": tokens.cached}
    if usage.get("cache_creation_input_tokens") is not None:
        built["cache_creation_input_tokens"] = tokens.written
    if isinstance(kept := usage.get("cache_creation"), dict):
        built["cache_creation"] = kept
    details = usage.get("output_tokens_details")
    if isinstance(details, dict) and isinstance(thought := details.get("thinking_tokens"), int):
        built["completion_tokens_details"] = {"reasoning_tokens": thought}
    return built
