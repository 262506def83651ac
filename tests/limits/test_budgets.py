"""Budgets, as their sums were read last."""

from gateway.contracts.allowance import Allowance

from .limiting import in_dollars, spend


def test_newest_budget_sums_replace_earlier_ones() -> None:
    budgets, allowance = in_dollars(), Allowance(tokens_per_day=10, cost_per_month=1.0)
    assert budgets.find_exceeded("tenant", "team", allowance) is None
    budgets.replace_sums(
        {("tenant", "team"): spend(tokens_per_day=9, cost_per_month=1.0)}, names=[("tenant", "team")], currency="USD"
    )
    assert budgets.find_exceeded("tenant", "team", allowance) == "cost_per_month"
    budgets.replace_sums({}, names=[("tenant", "team")], currency="USD")
    assert budgets.find_exceeded("tenant", "team", allowance) is None
