"""The record of usage: a store groups by its first fields, and adds up its last ones."""

from dataclasses import fields
from typing import get_args

import pytest

from gateway.contracts.usage import COST_UNITS, DIMENSIONS, Dimension, StoredUsage, is_model_of


def test_a_record_begins_with_its_dimensions_and_all_that_follows_adds_up() -> None:
    """Behind the currency there are only numbers, and a new record has none."""
    facts = fields(StoredUsage)
    assert tuple(fact.name for fact in facts[:6]) == DIMENSIONS == get_args(Dimension)
    assert facts[6].name == "currency"
    assert all(fact.default == 0 for fact in facts[7:])


def test_a_cost_of_a_day_fits_a_store() -> None:
    """64 bits hold nine billion of a currency; a token for a hundred millionth of it counts."""
    assert 9_000_000_000 * COST_UNITS < 1 << 63
    assert COST_UNITS // 100_000_000 == 10


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
def test_a_model_is_that_of_a_glob_in_any_letter_case(model: str, pattern: str, fits: bool) -> None:
    """Other spellings that an upstream takes for the name are for the operator to write."""
    assert is_model_of(model, pattern) is fits
