"""One rule: its mean of tokens, and budgets that are used up."""

import pytest

from gateway.contracts.allowance import Allowance
from gateway.errors import GatewayError
from gateway.limits.budgets import Budgets, Counted, Spent
from gateway.limits.meters import Meters
from gateway.limits.rule import Over, Place, Rule
from gateway.limits.shared import TICK_S, SharedCounters
from gateway.testing.clock import ManualClock

from .limiting import BEGAN_S, in_dollars


def rule(budgets: Budgets | None = None, **limits: object) -> Rule:
    meter = Meters(SharedCounters(places=1), place=0, clock=ManualClock(BEGAN_S)).of("key", "ci")
    return Rule("key", "ci", Allowance(**limits), meter, budgets or in_dollars(), "ci")  # type: ignore[arg-type]


def taken(one: Rule, tokens: int | None) -> list[Place]:
    hold: list[Place] = []
    assert one.take(hold, BEGAN_S, tokens, enters=True) is None
    return hold


def test_the_mean_follows_what_requests_use() -> None:
    one = rule(tokens_per_minute=10_000)
    for _ in range(100):
        ((_, tick, reserved, _),) = taken(one, 1)
        assert reserved is not None
        one.settle([(tick, reserved, 50)])
    ((_, _, reserved, entered),) = taken(one, 1)
    assert (reserved, entered) == (50, True)


def test_requests_that_are_settled_together_count_as_if_one_by_one() -> None:
    """Also those of an earlier tick, and those that used nothing, which say nothing of the mean."""
    used = [40, 0, 7, 300, 0, 25]
    alone, together = rule(tokens_per_minute=10_000), rule(tokens_per_minute=10_000)
    tick = int(BEGAN_S / TICK_S)
    for number, tokens in enumerate(used):
        alone.settle([(tick - number % 2, 0, tokens)])
    together.settle([(tick - number % 2, 0, tokens) for number, tokens in enumerate(used)])
    for one in (alone, together):
        assert one.meter.used("tokens", BEGAN_S) == sum(used)
        assert taken(one, 1)[0][2] == one.meter.expected
    assert alone.meter.mean == together.meter.mean


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
    budgets = in_dollars()
    budgets.replace({}, names=[("key", "ci")], currency="USD")
    one = rule(budgets, requests_per_minute=5, **limits)
    ((_, _, reserved, _),) = taken(one, None)
    assert reserved is None
    spent_of: dict[Counted, Spent] = {("key", "ci"): spent, ("key", "other"): Spent(9, 9, 9.0, 9.0)}
    budgets.replace(spent_of, names=spent_of.keys(), currency="USD")
    assert one.take([], BEGAN_S, None, enters=True) == Over(one, limit, None)  # type: ignore[arg-type]
    assert (one.meter.used("requests", BEGAN_S), one.meter.present()) == (1, 1)


@pytest.mark.parametrize(("currency", "why"), [("USD", "is not read from the store yet"), ("", "has no prices")])
def test_a_budget_that_cannot_be_counted_lets_nothing_in(currency: str, why: str) -> None:
    """And takes nothing of the other limits. A soft one refuses nobody."""
    budgets = Budgets(lambda: currency)
    one = rule(budgets, requests_per_minute=5, cost_per_day=1.0)
    with pytest.raises(GatewayError, match=rf"^The key 'ci' has a budget, and .*{why}") as refused:
        one.take([], BEGAN_S, None, enters=True)
    assert (refused.value.code, refused.value.retry_after_s) == ("overloaded", 1.0)
    assert (one.meter.used("requests", BEGAN_S), one.meter.present()) == (0, 0)
    taken(rule(budgets, cost_per_day=1.0, soft=True), None)
