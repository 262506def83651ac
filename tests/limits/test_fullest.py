"""How full limits are: the fullest of each kind, without a use of them."""

from gateway.contracts.allowance import Allowance
from gateway.limits.counter_registry import UNUSED_S, Meters
from gateway.limits.fullest import Limited, measure_fullest
from gateway.limits.limit_rule import build_key_id
from gateway.limits.shared_memory import SharedCounters
from gateway.testing.clock import ManualClock
from tests.limits.limiting import BEGAN_S, in_dollars, spend

SMALL, LARGE = Allowance(requests_per_minute=4, concurrent=2), Allowance(requests_per_minute=100, tokens_per_minute=50)


async def test_fullest_limit_of_each_kind_is_reported() -> None:
    """Over all workers, and with what is under way."""
    clock, memory = ManualClock(BEGAN_S), SharedCounters(places=2)
    here, there = (Meters(memory, place=place, clock=clock) for place in (0, 1))
    for meters, requests, tokens in ((here, 1, 10), (there, 2, 15)):
        meters.get_meter("key", build_key_id("t", "small")).count_requests(requests, 0, clock())
        meters.get_meter("key", build_key_id("t", "large")).count_requests(1, tokens, clock())
    limited: list[Limited] = [
        ("key", build_key_id("t", "small"), SMALL),
        ("key", build_key_id("t", "large"), LARGE),
        ("tenant", "t", SMALL),
    ]
    assert measure_fullest(limited, meters=here, budgets=in_dollars(), now_s=clock()) == {
        ("key", "requests_per_minute"): 0.75,
        ("key", "concurrent"): 1.5,
        ("key", "tokens_per_minute"): 0.5,
        ("tenant", "requests_per_minute"): 0,
        ("tenant", "concurrent"): 0,
    }
    clock.advance(61)
    parts = measure_fullest(limited, meters=here, budgets=in_dollars(), now_s=clock())
    assert parts["key", "requests_per_minute"] == parts["key", "tokens_per_minute"] == 0
    assert parts["key", "concurrent"] == 1.5


async def test_reading_limit_usage_does_not_keep_counters_alive() -> None:
    """A limit that nobody uses makes room for others, however often it is scraped."""
    clock = ManualClock(BEGAN_S)
    meters = Meters(SharedCounters(places=1), place=0, clock=clock)
    meter = meters.get_meter("tenant", "t")
    meter.count_requests(1, 0, clock())
    meter.end_requests()
    limited: list[Limited] = [("tenant", "t", SMALL)]
    for _ in range(10):
        clock.advance(UNUSED_S / 8)
        measure_fullest(limited, meters=meters, budgets=in_dollars(), now_s=clock())
        meters.release_unused()
    assert meters.find_used_meter("tenant", "t") is None
    assert measure_fullest(limited, meters=meters, budgets=in_dollars(), now_s=clock())["tenant", "concurrent"] == 0


async def test_fullest_limits_include_budgets_read_from_the_store() -> None:
    """Also of what this worker never used; a budget of nothing is full."""
    budgets = in_dollars()
    spent = spend(tokens_per_day=30, tokens_per_month=90, cost_per_day=0.5, cost_per_month=2.0)
    budgets.replace_sums({("tenant", "t"): spent}, names=[("tenant", "t")], currency="USD")
    clock = ManualClock(BEGAN_S)
    limited: list[Limited] = [
        ("tenant", "t", Allowance(tokens_per_day=100, cost_per_month=1.0)),
        ("tenant", "u", Allowance(cost_per_day=0.0)),
    ]
    meters = Meters(SharedCounters(places=1), place=0, clock=clock)
    assert measure_fullest(limited, meters=meters, budgets=budgets, now_s=clock()) == {
        ("tenant", "tokens_per_day"): 0.3,
        ("tenant", "cost_per_month"): 2.0,
        ("tenant", "cost_per_day"): 1.0,
    }
