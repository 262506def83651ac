"""One rule: its mean of tokens, and budgets that are used up."""

import pytest

from gateway.contracts.allowance import Allowance
from gateway.contracts.errors import GatewayError
from gateway.limits.budgets import Budgets, BudgetSums, Counted
from gateway.limits.counter_registry import Meters
from gateway.limits.limit_rule import LimitRule, Over
from gateway.limits.reservation import LIMITED, Reservation, RulePlaces
from gateway.limits.shared_memory import TICK_S, SharedCounters
from gateway.testing.clock import ManualClock

from .limiting import BEGAN_S, in_dollars, spend, spend_today


def rule(budgets: Budgets | None = None, **limits: object) -> LimitRule:
    meter = Meters(SharedCounters(places=1), place=0, clock=ManualClock(BEGAN_S)).get_meter("key", "ci")
    return LimitRule("key", "ci", Allowance(**limits), meter, budgets or in_dollars(), "ci")  # type: ignore[arg-type]


def over(one: LimitRule) -> Over | None:
    """The limit that the next request reaches, which then is taken back."""
    sums = one.meter.count_requests(1, 0, BEGAN_S, one.bounds)
    try:
        return None if sums is None else one.find_exceeded(sums, BEGAN_S, reserved=0, requests=1)
    finally:
        Reservation([RulePlaces(one.meter, one.meter.tick)]).close(LIMITED)


def test_mean_tokens_follow_the_usage_of_requests() -> None:
    """It is that of the first sixteen. Each further one is a sixteenth of it, however many are learnt at once."""
    one = rule(tokens_per_minute=10_000).meter
    one.learn_tokens(160, 1)
    assert (one.mean, one.expected) == (160, 160)
    one.learn_tokens(0.5, 1)
    assert (one.mean, one.expected) == (80.25, 81)
    for _ in range(14):
        one.learn_tokens(80.25, 1)
    one.learn_tokens(160.25, 1)
    assert one.mean == pytest.approx(85.25)
    together = rule(tokens_per_minute=10_000).meter
    together.learn_tokens(80.25, 16)
    together.learn_tokens(160.25, 1)
    for _ in range(40):
        one.learn_tokens(50, 1)
    together.learn_tokens(50, 40)
    assert together.mean == pytest.approx(one.mean)
    assert together.expected == one.expected


def test_expected_tokens_are_capped_at_a_quarter_of_the_limit() -> None:
    """Of the figure in use: a reload may change it."""
    wide = rule(tokens_per_minute=10_000)
    wide.meter.learn_tokens(100_000, 1)
    assert wide.meter.expected == 2500
    LimitRule("key", "ci", Allowance(tokens_per_minute=1001), wide.meter, wide.budgets, "ci")
    assert wide.meter.expected == 251
    wide.meter.learn_tokens(1 << 30, 100)
    assert wide.meter.expected == 251


def test_settled_tokens_count_in_the_tick_of_their_reservation() -> None:
    one = rule(tokens_per_minute=10_000).meter
    one.count_requests(1, 100, BEGAN_S - TICK_S)
    then = one.tick
    one.count_requests(1, 100, BEGAN_S)
    one.settle_tokens(then, -60)
    one.settle_tokens(one.tick, 5)
    assert one.get_used("tokens", BEGAN_S) == 145
    assert one.get_used("tokens", BEGAN_S + 60.0) == 105


@pytest.mark.parametrize(
    ("limits", "spent", "limit"),
    [
        ({"tokens_per_day": 100}, spend(tokens_per_day=100), "tokens_per_day"),
        ({"tokens_per_month": 100}, spend(tokens_per_month=101), "tokens_per_month"),
        ({"cost_per_day": 0.5}, spend(cost_per_day=0.5), "cost_per_day"),
        ({"cost_per_month": 2.0}, spend(cost_per_month=3.0), "cost_per_month"),
    ],
)
def test_exhausted_budget_refuses_requests(limits: dict[str, object], spent: BudgetSums, limit: str) -> None:
    budgets = in_dollars()
    budgets.replace_sums({}, names=[("key", "ci")], currency="USD")
    one = rule(budgets, requests_per_minute=5, **limits)
    assert over(one) is None
    spent_of: dict[Counted, BudgetSums] = {("key", "ci"): spent, ("key", "other"): spend_today(9, 9.0)}
    budgets.replace_sums(spent_of, names=spent_of.keys(), currency="USD")
    assert over(one) == Over(one, limit, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(("currency", "why"), [("USD", "is not read from the store yet"), ("", "has no prices")])
def test_uncountable_budget_refuses_requests_unless_soft(currency: str, why: str) -> None:
    """A soft one refuses nobody."""
    budgets = Budgets(lambda: currency)
    one = rule(budgets, requests_per_minute=5, cost_per_day=1.0)
    with pytest.raises(GatewayError, match=rf"^The key 'ci' has a budget, and .*{why}") as refused:
        over(one)
    assert (refused.value.code, refused.value.retry_after_s) == ("overloaded", 1.0)
    assert over(rule(budgets, cost_per_day=1.0, soft=True)) is None
