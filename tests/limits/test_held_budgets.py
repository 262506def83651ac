"""What requests under way hold of a budget, and what they used until that is read from the store."""

import pytest

from gateway.contracts.allowance import Allowance
from gateway.contracts.errors import GatewayError
from gateway.limits.budgets import Budgets, BudgetSums
from gateway.limits.counter_registry import Meters
from gateway.limits.limit_rule import build_key_id
from gateway.limits.limiter import Limiter
from gateway.limits.reservation import LATER, LIMITED, NEVER, Reservation, Settlement

from .limiting import NAMES, Counted, Workers, caller, spend, spend_today

CI = ("key", build_key_id("team", "ci"))
#: A budget of ten requests of ten tokens each.
LIMITS = {"tokens_per_day": 100}


def taken(workers: Workers, place: int = 0, *, tokens: int = 10, **limits: object) -> Reservation:
    limiter = workers.limiters[place]
    return limiter.reserve_places(limiter.list_caller_rules(caller(**(limits or LIMITS))), tokens, guess=tokens)


def fill(workers: Workers, place: int = 0, *, most: int = 99, **limits: object) -> list[Reservation]:
    """The places of all requests that get in, `most` at most."""
    holds: list[Reservation] = []
    refused: GatewayError | None = None
    while len(holds) < most and refused is None:
        try:
            holds.append(taken(workers, place, **limits))
        except GatewayError as error:
            refused = error
    if refused is not None:
        assert (refused.code, refused.retry_after_s, refused.settled) == ("rate_limit_exceeded", 1.0, False)
        assert "may use up its budget of " in refused.message
    return holds


def store(workers: Workers, place: int = 0) -> None:
    """Store what a worker has used, as its ledger does."""
    workers.meters[place].mark_used_until_now()()


def read(workers: Workers, tokens: int) -> None:
    """Read the sums of the store in each worker."""
    noting = [meters.mark_stored_until_now(workers.budgets) for meters in workers.meters]
    workers.budgets.replace_sums({CI: spend_today(tokens)}, names=NAMES, currency="USD")  # type: ignore[dict-item]
    for note in noting:
        note()


def test_concurrent_requests_hold_budget_in_all_workers() -> None:
    """What one that ended did not use has room for others."""
    workers = Workers(2)
    holds = fill(workers, 0, most=6) + fill(workers, 1)
    assert len(holds) == 10
    holds.pop().close(tokens=0)
    assert len(fill(workers, 1)) == 1


@pytest.mark.parametrize(
    "ending",
    [
        lambda hold: hold.close(LIMITED),
        Reservation.drop_tokens,
        Reservation.close,
        lambda hold: hold.close(tokens=NEVER),
    ],
)
def test_released_places_hold_no_budget(ending: object) -> None:
    """However they do."""
    workers = Workers()
    for _ in range(30):
        ending(taken(workers))  # type: ignore[operator]
    assert len(fill(workers)) == 10


def test_used_tokens_count_until_stored_usage_is_read() -> None:
    """Neither twice nor not at all, in any worker."""
    workers = Workers(2)
    for hold in fill(workers, most=4):
        hold.close(tokens=10)
    kept = fill(workers, 1)
    assert len(kept) == 6
    for hold in kept:
        hold.close(LIMITED)
    store(workers)
    kept = fill(workers, 1)
    assert len(kept) == 6
    for hold in kept:
        hold.close(LIMITED)
    read(workers, 40)
    assert len(fill(workers, 1)) == 6


def test_budget_read_replaces_usage_stored_before_it() -> None:
    """What is stored while it reads may be in the sums or not, and counts."""
    workers = Workers(2)
    for hold in fill(workers, most=4):
        hold.close(tokens=10)
    noting = [meters.mark_stored_until_now(workers.budgets) for meters in workers.meters]
    store(workers)
    workers.budgets.replace_sums({}, names=NAMES, currency="USD")
    for note in noting:
        note()
    assert len(fill(workers, 1)) == 6


def test_requests_that_end_together_are_settled_together() -> None:
    """As answers that are read a little later."""
    workers = Workers()
    holds = fill(workers, most=5)
    together = Settlement()
    for hold in holds:
        together.close(hold.close(tokens=LATER), 20)
    together.settle()
    with pytest.raises(GatewayError):
        taken(workers)


def test_killed_worker_holds_no_budget() -> None:
    """What it had used and not stored is lost with it."""
    workers = Workers(2)
    holds = fill(workers, most=8)
    holds.pop().close(tokens=10)
    assert len(fill(workers, 1)) == 2
    workers.limiter(0)
    assert len(fill(workers, 1)) == 8


def test_gateways_share_the_remaining_budget() -> None:
    """Of what is left; each of them may use the last of it at once."""
    workers = Workers()
    workers.budgets.gateways = 2
    holds = fill(workers)
    assert len(holds) == 5
    for hold in holds:
        hold.close(LIMITED)
    read(workers, 80)
    holds = fill(workers)
    assert len(holds) == 1
    holds[0].close(LIMITED)
    read(workers, 95)
    assert len(fill(workers)) == 1


@pytest.mark.parametrize(("spent", "count"), [(spend(), 5), (spend_today(10, 1.0), 9)])
def test_cost_is_held_by_the_mean_of_the_month(spent: BudgetSums, count: int) -> None:
    """Without usage by a guess."""
    workers = Workers()
    workers.budgets = Budgets(lambda: "USD", guess=lambda scope, name: 0.2 if (scope, name) == CI else 0.0)
    workers.budgets.replace_sums({CI: spent}, names=NAMES, currency="USD")  # type: ignore[dict-item]
    workers.limiters = [workers.limiter(0)]
    assert len(fill(workers, cost_per_day=10.0)) == count


def test_request_that_uses_no_tokens_holds_no_budget() -> None:
    """It gets in while the budget is not used up."""
    workers = Workers()
    fill(workers)
    limiter = workers.limiters[0]
    assert limiter.reserve_places(limiter.list_caller_rules(caller(**LIMITS))).places
    read(workers, 100)
    with pytest.raises(GatewayError) as refused:
        limiter.reserve_places(limiter.list_caller_rules(caller(**LIMITS)))
    assert (refused.value.code, refused.value.settled) == ("insufficient_quota", True)


def test_a_soft_budget_refuses_nothing() -> None:
    workers = Workers()
    assert len(fill(workers, most=30, tokens_per_day=100, soft=True)) == 30
    assert workers.counters.counts["limit_exceeded", "key", "tokens_per_day"] == 20


def test_growing_body_holds_more_budget() -> None:
    """And a budget that a reload brings holds nothing of requests that began before."""
    workers, plain = Workers(), {"tokens_per_minute": 1000}
    limiter = workers.limiters[0]
    before = taken(workers, **plain)
    rules = limiter.list_caller_rules(caller(**plain, **LIMITS))
    hold = limiter.reserve_places(rules, 10, guess=10)
    limiter.reserve_more(hold, rules, 60, shown=rules)
    assert len(fill(workers, **plain, **LIMITS)) == 4
    before.close(tokens=10)
    hold.close(LIMITED)
    assert len(fill(workers, **plain, **LIMITS)) == 6


def test_growing_body_beyond_the_remaining_budget_is_refused() -> None:
    """One that is alone goes on: a budget lets its last request in, however long that is."""
    workers = Workers(2)
    limiter = workers.limiters[0]
    rules = limiter.list_caller_rules(caller(**LIMITS))
    first, second = limiter.reserve_places(rules, 10, guess=10), taken(workers, 1)
    limiter.reserve_more(first, rules, 200, shown=rules)
    (other,) = workers.limiters[1].list_caller_rules(caller(**LIMITS))
    with pytest.raises(GatewayError) as refused:
        workers.limiters[1].reserve_more(second, [other], 20, shown=[other])
    assert (refused.value.code, refused.value.retry_after_s) == ("rate_limit_exceeded", 1.0)
    second.close(LIMITED)
    limiter.reserve_more(first, rules, 300, shown=rules)


@pytest.mark.parametrize(
    ("limits", "most"),
    [({"cost_per_day": 10.0}, 13), ({"cost_per_month": 10.0, "tokens_per_day": 20}, 5), ({"cost_per_day": 9e18}, 1000)],
)
def test_announced_tokens_hold_at_most_a_quarter_of_a_budget(limits: dict[str, object], most: int) -> None:
    """Until requests have told what they use; so the first one keeps nobody out."""
    workers = Workers()
    workers.budgets = Budgets(lambda: "USD", guess=lambda _scope, _name: 0.2)
    workers.budgets.replace_sums({}, names=NAMES, currency="USD")
    limiter = workers.limiter(0)
    (places,) = limiter.reserve_places(limiter.list_caller_rules(caller(**limits)), 1, guess=1000).places
    assert places.reserved == most


def test_requests_with_a_budget_are_never_reserved_ahead() -> None:
    """None is taken ahead, however many come."""
    workers = Workers()
    for _ in range(300):
        taken(workers, tokens_per_day=10**9).close(tokens=10)
    limiter = workers.limiters[0]
    (rule,) = limiter.list_caller_rules(caller(tokens_per_day=10**9))
    assert not rule.meter.ahead and rule.meter.get_pending_tokens(None, 0.0) == 3000


def test_meters_of_two_configurations_share_held_budget() -> None:
    workers = Workers()
    fill(workers, most=8)
    other = Limiter(workers.meters[0], clock=workers.clock, budgets=workers.budgets, counters=Counted())
    assert isinstance(workers.meters[0], Meters) and Allowance(**LIMITS).has_budget  # type: ignore[arg-type]
    rules = other.list_caller_rules(caller(**LIMITS))
    for _ in range(2):
        other.reserve_places(rules, 10, guess=10)
    with pytest.raises(GatewayError):
        other.reserve_places(rules, 10, guess=10)
