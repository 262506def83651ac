"""The names of models: what a glob names, and what is too long to be a name."""

import pytest

from gateway.contracts.model_names import (
    EVERY,
    MODEL_CHARS,
    OTHER,
    build_shared_name,
    is_listed_model,
    is_model_match,
    is_usage_match,
)


@pytest.mark.parametrize(
    ("model", "pattern", "fits"),
    [
        ("llama3", "llama3*", True),
        ("LLaMA3:8b", "llama3*", True),
        ("gpt-4.1", "GPT-4.[12]", True),
        (" llama3 ", "llama3", True),
        ("", "*", True),
        ("\uff4c\uff4cama3", "llama3*", True),
        ("llama3", "\uff2cLAMA3", True),
        ("\u00a0llama3\u3000", "llama3", True),
        ("library/llama3", "llama3*", False),
        ("llama3:latest", "llama3", False),
    ],
)
def test_model_globs_match_case_insensitively(model: str, pattern: str, fits: bool) -> None:
    """Other spellings that an upstream takes for the name are for the operator to write."""
    assert is_model_match(model, pattern) is fits


@pytest.mark.parametrize("model", ["m" * (MODEL_CHARS + 1), "m" * MODEL_CHARS + " ", "m" + "\u0301" * 1_000_000])
def test_overlong_model_name_matches_only_the_all_glob(model: str) -> None:
    """However many globs there are, none of them is looked for in it."""
    assert not is_model_match(model, "m*")
    assert not is_listed_model(model, ["m*", "*m*", "?*"])
    assert is_model_match(model, " * ")
    assert is_listed_model(model, ["gpt-*", "*"])


def test_model_name_of_maximum_length_matches_globs() -> None:
    assert is_model_match("M" * MODEL_CHARS, "m*")
    assert is_listed_model("m" * MODEL_CHARS, ["gpt-*", "m*"])


def test_shared_usage_name_matches_each_of_its_globs() -> None:
    """However they are written: a class of letters does not match itself."""
    shared = build_shared_name(["gpt-4.[12]*", "*"])
    assert (
        is_usage_match(shared, "gpt-4.[12]*") and is_usage_match(shared, "*") and not is_usage_match(shared, "gpt-4.1*")
    )
    assert is_usage_match("gpt-4.1", "gpt-4.[12]*") and not is_usage_match("gpt-4.1", "llama*")


def test_unlisted_model_usage_matches_only_the_all_models_glob() -> None:
    """Though the name that it is given may look like that of a model."""
    assert is_usage_match(OTHER, "*") and is_usage_match(OTHER, " ** ") and not is_usage_match(OTHER, "o*")
    assert is_usage_match(EVERY, "gpt-*")
