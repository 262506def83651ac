"""Limits as figures: which of them is a budget, and which lie within others."""

import pytest

from gateway.contracts.allowance import Allowance

OWN = Allowance(requests_per_minute=10, cost_per_day=1.0)


def test_has_budget_is_true_only_for_daily_and_monthly_limits() -> None:
    assert not Allowance(requests_per_minute=1, tokens_per_minute=1, concurrent=1).has_budget
    assert Allowance(tokens_per_day=1).has_budget and Allowance(cost_per_month=1.0).has_budget


@pytest.mark.parametrize(
    ("given", "figure"),
    [
        (None, "requests_per_minute"),
        (Allowance(requests_per_minute=11, cost_per_day=1.0), "requests_per_minute"),
        (Allowance(requests_per_minute=10), "cost_per_day"),
        (Allowance(requests_per_minute=10, cost_per_day=1.0, soft=True), "requests_per_minute"),
        (Allowance(requests_per_minute=10, cost_per_day=0.5, concurrent=3), None),
    ],
)
def test_find_excess_returns_the_first_exceeded_limit(given: Allowance | None, figure: str | None) -> None:
    assert OWN.find_excess(given) == figure
