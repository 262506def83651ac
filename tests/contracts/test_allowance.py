"""Limits as figures: which of them is a budget, and which lie within others."""

from datetime import date, timedelta

import pytest

from gateway.contracts.allowance import BUDGETS, PERIODS, Allowance, find_first_day, get_period

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


def test_every_budget_has_a_period() -> None:
    """And each period has a budget of tokens and one of money."""
    assert {limit.partition("_per_")[2] for limit in BUDGETS} == {*PERIODS}
    assert {*BUDGETS} == {f"{what}_per_{period}" for what in ("tokens", "cost") for period in PERIODS}


@pytest.mark.parametrize(("limit", "label"), [("tokens_per_day", "2026-11-26"), ("cost_per_month", "2026-11")])
def test_period_is_labelled_by_its_first_day(limit: str, label: str) -> None:
    assert get_period(limit).get_label(date(2026, 11, 26)) == label  # type: ignore[arg-type]


@pytest.mark.parametrize("period", PERIODS)
def test_label_changes_with_the_first_day_of_a_period(period: str) -> None:
    """And on no other day."""
    one = PERIODS[period]
    for number in range(400):
        today = date(2026, 1, 1) + timedelta(number)
        before = today - timedelta(1)
        assert one.find_first(today) <= today
        assert (one.find_first(today) == today) == (one.get_label(today) != one.get_label(before))


def test_usage_of_the_whole_month_counts_today() -> None:
    assert find_first_day(date(2026, 11, 26)) <= date(2026, 11, 1)
