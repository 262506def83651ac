"""Tokens and the end of an answer in the words of Messages."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from gateway.contracts.storage.store import Json
from gateway.dialects.run_chunk_reader import TurnState

#: Ends that chat completions call `stop`, by the names that a model of Messages has for them.
_OF_MESSAGES: Final = frozenset(("pause_turn", "refusal", "model_context_window_exceeded"))
_REASONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "stop": "end_turn",
        "length": "max_tokens",
        "tool_calls": "tool_use",
        "function_call": "tool_use",
        "content_filter": "refusal",
    }
)
_EXCEEDED: Final = "model_context_window_exceeded"
_STOP: Final = "stop_sequence"
_NOTHING: Final[Json] = {}


def build_usage(usage: Json | None) -> Json:
    """Return the tokens of a turn; input that a cache gave or took counts apart from other input."""
    told = usage or _NOTHING
    of_prompt, of_completion = told.get("prompt_tokens_details"), told.get("completion_tokens_details")
    read = _get_count(of_prompt, "cached_tokens") or _get_count(told, "cache_read_input_tokens")
    written = _get_count(told, "cache_creation_input_tokens") or _get_count(of_prompt, "cache_write_tokens")
    found: Json = {
        "input_tokens": max(0, _get_count(told, "prompt_tokens") - read - written),
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": read,
        "output_tokens": _get_count(told, "completion_tokens"),
    }
    if thinking := _get_count(of_completion, "reasoning_tokens"):
        found["output_tokens_details"] = {"thinking_tokens": thinking}
    return found


def find_stop(turn: TurnState, *, refuses: bool, stops: Sequence[str]) -> tuple[str, str | None]:
    """Return why a turn ended, and the stop sequence that ended it.

    `stops` are the sequences of the request. A text of a refusal ends a turn so. The words of an earlier call of the
    model do not count where the turn ended in another way.
    """
    finish, native = turn.finish or "stop", turn.about_choice.get("native_finish_reason")
    if finish == "length" and native == _EXCEEDED:
        return _EXCEEDED, None
    if finish != "stop":
        return _REASONS[finish], None
    if refuses:
        return "refusal", None
    if native in _OF_MESSAGES:
        return str(native), None
    for name in (_STOP, "stop_reason"):  # vLLM has the text that ended an answer in the second one
        matched = turn.about_choice.get(name)
        if isinstance(matched, str) and matched in stops:
            return _STOP, matched
    return "end_turn", None


def _get_count(fields: object, name: str) -> int:
    tokens = fields.get(name) if isinstance(fields, dict) else None
    return tokens if type(tokens) is int else 0
