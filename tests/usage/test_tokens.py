"""Tokens by the names of every API, and numbers that are none."""

import pytest

from gateway.usage.tokens import MOST, TokenCounts, parse_tokens

SHAPES = {
    "openai chat": (
        {
            "prompt_tokens": 2006,
            "completion_tokens": 300,
            "total_tokens": 2306,
            "prompt_tokens_details": {"cached_tokens": 1920, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 128, "accepted_prediction_tokens": 0},
        },
        TokenCounts(2006, 1920, 0, 300, 128),
    ),
    "openai audio": (
        {
            "prompt_tokens": 100,
            "completion_tokens": 50,
            "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 60},
            "completion_tokens_details": {"audio_tokens": 99},
        },
        TokenCounts(100, 0, 0, 50, 0, 60, 50),
    ),
    "openai transcription of audio": (
        {"type": "tokens", "input_tokens": 14, "output_tokens": 45, "input_token_details": {"audio_tokens": 14}},
        TokenCounts(14, 0, 0, 45, 0, 14),
    ),
    "anthropic with a cache of an hour": (
        {
            "input_tokens": 21,
            "cache_creation_input_tokens": 100,
            "output_tokens": 3,
            "cache_creation": {"ephemeral_5m_input_tokens": 30, "ephemeral_1h_input_tokens": 70},
        },
        TokenCounts(121, 0, 100, 3, written_1h=70),
    ),
    "openai response": (
        {
            "input_tokens": 328,
            "input_tokens_details": {"cached_tokens": 64},
            "output_tokens": 52,
            "output_tokens_details": {"reasoning_tokens": 7},
            "total_tokens": 380,
        },
        TokenCounts(328, 64, 0, 52, 7),
    ),
    "openai embeddings": ({"prompt_tokens": 8, "total_tokens": 8}, TokenCounts(8)),
    "openai transcription": (
        {"type": "tokens", "input_tokens": 14, "output_tokens": 45, "input_token_details": {"text_tokens": 10}},
        TokenCounts(14, 0, 0, 45),
    ),
    "anthropic": ({"input_tokens": 10, "output_tokens": 25}, TokenCounts(10, 0, 0, 25)),
    "anthropic with its cache": (
        {
            "input_tokens": 21,
            "cache_creation_input_tokens": 100,
            "cache_read_input_tokens": 2000,
            "output_tokens": 393,
            "cache_creation": {"ephemeral_5m_input_tokens": 100},
            "service_tier": "standard",
        },
        TokenCounts(2121, 2000, 100, 393),
    ),
    "vllm": (
        {"prompt_tokens": 34, "total_tokens": 94, "completion_tokens": 60, "prompt_tokens_details": None},
        TokenCounts(34, 0, 0, 60),
    ),
    "ollama": ({"prompt_tokens": 26, "completion_tokens": 298, "total_tokens": 324}, TokenCounts(26, 0, 0, 298)),
    "deepseek": (
        {"prompt_tokens": 100, "completion_tokens": 9, "prompt_cache_hit_tokens": 64, "prompt_cache_miss_tokens": 36},
        TokenCounts(100, 64, 0, 9),
    ),
    "a reranker": ({"total_tokens": 815}, TokenCounts(815)),
    "whole numbers with a fraction": ({"prompt_tokens": 12.0, "completion_tokens": 3.0}, TokenCounts(12, 0, 0, 3)),
    "more cached than asked": (
        {"prompt_tokens": 5, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 9}},
        TokenCounts(5, 5, 0, 1),
    ),
    "one half only": ({"completion_tokens": 4}, TokenCounts(0, 0, 0, 4)),
}


@pytest.mark.parametrize(("told", "tokens"), SHAPES.values(), ids=SHAPES)
def test_token_usage_is_parsed_from_every_api_format(told: object, tokens: TokenCounts) -> None:
    """Cached and written tokens are a part of the input, reasoning a part of the output."""
    assert parse_tokens(told) == tokens


@pytest.mark.parametrize(
    "told",
    [
        None,
        7,
        [],
        {},
        {"prompt_tokens": "12"},
        {"prompt_tokens": -1},
        {"prompt_tokens": 1.5},
        {"prompt_tokens": float("inf")},
        {"prompt_tokens": True},
        {"prompt_tokens": MOST},
        {"input_tokens": None, "output_tokens": None},
        *({"prompt_tokens": wrong, "completion_tokens": 7, "total_tokens": 7} for wrong in (1e300, -1, 1 << 53, 0.5)),
        *({"prompt_tokens": 7, "completion_tokens": wrong} for wrong in (1e300, -1, 1 << 53, "7")),
        *({"input_tokens": 7, "output_tokens": wrong, "total_tokens": 9} for wrong in (1e300, -1, False)),
        {"input_tokens": 7, "output_tokens": 7, "cache_read_input_tokens": -7},
        {"prompt_tokens": -1, "completion_tokens": -1, "total_tokens": 9},
        {"type": "duration", "seconds": 9},
    ],
)
def test_usage_without_valid_token_counts_parses_to_none(told: object) -> None:
    """Nothing is made of it: the request is estimated."""
    assert parse_tokens(told) is None


def test_non_numeric_token_detail_counts_as_zero() -> None:
    """The rest counts."""
    told = {"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": "4"}}
    assert parse_tokens({**told, "completion_tokens_details": [9]}) == TokenCounts(5, 0, 0, 2)


def test_written_cache_tokens_of_a_chat_are_a_part_of_its_prompt() -> None:
    """As routers in front of Messages write them."""
    kept = {"ephemeral_1h_input_tokens": 4}
    told = {"prompt_tokens": 9, "completion_tokens": 2, "cache_creation_input_tokens": 7, "cache_creation": kept}
    assert parse_tokens(told) == TokenCounts(9, 0, 7, 2, written_1h=4)
    assert parse_tokens({**told, "cache_creation_input_tokens": 70}) == TokenCounts(9, 0, 9, 2, written_1h=4)
    assert parse_tokens({**told, "cache_creation_input_tokens": "7"}) == TokenCounts(9, 0, 0, 2)
