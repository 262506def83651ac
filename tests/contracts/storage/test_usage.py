"""The record of usage: a store groups by its first fields, and adds up its last ones."""

from dataclasses import fields
from typing import get_args

from gateway.contracts.storage.usage import COST_UNITS, DIMENSIONS, Dimension, StoredUsage


def test_usage_record_has_dimensions_followed_by_sums() -> None:
    """Behind the currency there are only numbers, and a new record has none."""
    facts = fields(StoredUsage)
    assert tuple(fact.name for fact in facts[:6]) == DIMENSIONS == get_args(Dimension)
    assert facts[6].name == "currency"
    assert all(fact.default == 0 for fact in facts[7:])


def test_daily_cost_fits_a_64_bit_integer() -> None:
    """64 bits hold nine billion of a currency; a token for a hundred millionth of it counts."""
    assert 9_000_000_000 * COST_UNITS < 1 << 63
    assert COST_UNITS // 100_000_000 == 10
