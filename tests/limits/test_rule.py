"""One rule: its mean of tokens, and budgets that are used up."""

import time

import pytest

from gateway.contracts.allowance import Allowance
from gateway.limits.budgets import Budgets, Spent
from gateway.limits.meters import Meters
from gateway.limits.rule import Over, Rule
from gateway.limits.shared import SharedCounters

from .limiting import BEGAN_S


def rule(budgets: Budgets | None = None, **limits: object) -> Rule:
    meter = Meters(SharedCounters(places=1), place=0, clock=time.monotonic).of("key", "ci")
    return Rule("key", "ci", Allowance(**limits), meter, budgets or Budgets(), "ci")  # type: ignore[arg-type]


def test_the_mean_follows_what_requests_use() -> None:
    one = rule(tokens_per_minute=10_000)
    for _ in range(100):
        reserved, _ = one.take(BEGAN_S, 1, enters=True, reserves=True)
        one.settle(reserved, 50, since_s=BEGAN_S, now_s=BEGAN_S)
    assert one.take(BEGAN_S, 1, enters=True, reserves=True) == (50, None)


@pytest.mark.parametrize(
    ("limits", "spent", "limit"),
    [
        ({"tokens_per_day": 100}, Spent(tokens_day=100), "tokens_per_day"),
        ({"tokens_per_month": 100}, Spent(tokens_month=101), "tokens_per_month"),
        ({"cost_per_day": 0.5}, Spent(cost_day=0.5), "cost_per_day"),
        ({"cost_per_month": 2.0}, Spent(cost_month=3.0), "cost_per_month"),
    ],
)
def test_a_budget_that_is_used_up_lets_nothing_in(limits: dict[str, object], spent: Spent, limit: str) -> None:
    budgets = Budgets()
    one = rule(budgets, requests_per_minute=5, **limits)
    assert one.take(BEGAN_S, None, enters=True, reserves=True) == (0, None)
    budgets.replace({("key", "ci"): spent, ("key", "other"): Spent(9, 9, 9.0, 9.0)})
    _, over = one.take(BEGAN_S, None, enters=True, reserves=True)
    assert over == Over(one, limit, None)  # type: ignore[arg-type]
    assert one.meter.requests.used(BEGAN_S) == 1
