"""The end of an answer and its tokens in the words of chats."""

import pytest

from gateway.contracts.storage.store import Json
from gateway.model.apis.messages.ending import build_ending, build_usage
from gateway.usage.tokens import parse_tokens


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("pause_turn", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("tool_use", "tool_calls"),
        ("refusal", "content_filter"),
        ("of_the_future", "stop"),
    ],
)
def test_stop_reason_has_its_finish_reason_and_stays_beside_it(reason: str, finish: str) -> None:
    ending = build_ending({"stop_reason": reason, "stop_sequence": "END", "stop_details": None})
    about = {"finish_reason": finish, "native_finish_reason": reason, "stop_sequence": "END"}
    assert ending == {"index": 0, "delta": {}, **about}


def test_cached_tokens_are_a_part_of_the_prompts() -> None:
    kept = {"ephemeral_5m_input_tokens": 20, "ephemeral_1h_input_tokens": 10}
    told: Json = {
        "input_tokens": 5,
        "cache_read_input_tokens": 100,
        "cache_creation_input_tokens": 30,
        "cache_creation": kept,
        "output_tokens": 9,
        "output_tokens_details": {"thinking_tokens": 4},
    }
    usage = build_usage(told)
    assert usage == {
        "prompt_tokens": 135,
        "completion_tokens": 9,
        "total_tokens": 144,
        "prompt_tokens_details": {"cached_tokens": 100},
        "cache_creation_input_tokens": 30,
        "cache_creation": kept,
        "completion_tokens_details": {"reasoning_tokens": 4},
    }
    found = parse_tokens(usage)
    assert found is not None
    assert (found.input, found.cached, found.written, found.written_1h, found.output, found.reasoning) == (
        135,
        100,
        30,
        10,
        9,
        4,
    )


def test_usage_without_a_cache_has_no_words_of_it() -> None:
    usage = build_usage({"input_tokens": 5, "output_tokens": 9})
    assert usage == {"prompt_tokens": 5, "completion_tokens": 9, "total_tokens": 14}
    assert build_usage({}) is None
