"""Tokens and the end of an answer."""

import pytest

from gateway.contracts.storage.store import Json
from gateway.dialects.messages.usage import build_usage, find_stop
from gateway.dialects.run_chunk_reader import TurnState

NONE: Json = {
    "input_tokens": 0,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
    "output_tokens": 0,
}


@pytest.mark.parametrize(
    ("usage", "told"),
    [
        (None, {}),
        ({"prompt_tokens": "many", "prompt_tokens_details": 5}, {}),
        ({"prompt_tokens": 9, "completion_tokens": 4}, {"input_tokens": 9, "output_tokens": 4}),
        (
            {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 3}},
            {"input_tokens": 2, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 3},
        ),
        ({"prompt_tokens": 1, "cache_read_input_tokens": 4}, {"cache_read_input_tokens": 4}),
        (
            {"completion_tokens": 4, "completion_tokens_details": {"reasoning_tokens": 3}},
            {"output_tokens": 4, "output_tokens_details": {"thinking_tokens": 3}},
        ),
    ],
)
def test_tokens_of_a_cache_count_apart(usage: Json | None, told: Json) -> None:
    """Input is never below nothing."""
    assert build_usage(usage) == NONE | told


def test_refusal_in_words_is_one() -> None:
    """Where the turn ended by itself; a limit ends it as a limit."""
    assert find_stop(TurnState(finish="stop"), refuses=True, stops=()) == ("refusal", None)
    assert find_stop(TurnState(finish="length"), refuses=True, stops=()) == ("max_tokens", None)


def test_turn_without_a_reason_has_ended() -> None:
    """As one of chat completions."""
    assert find_stop(TurnState(), refuses=False, stops=()) == ("end_turn", None)
    assert find_stop(TurnState(finish="function_call"), refuses=False, stops=()) == ("tool_use", None)
