"""Plans that are remembered: as many as fit into bounded memory."""

import tracemalloc

import pytest
from lanes.assembled import endpoint, read, router

from gateway.lanes.passthrough.plan import Plan
from gateway.lanes.passthrough.plan_cache import PLAN_BYTES, PLANS_BYTES, PlanCache
from gateway.usage.tokens import Recorded

HEAD = b"POST /v1/x HTTP/1.1\r\nHost: gw\r\nContent-Length: 12\r\nX: %d\r\nY: %b"


def kept(plans: PlanCache, number: int, plan: Plan, *, filler: int = 500) -> bytes:
    key = HEAD % (number, b"y" * filler)
    plans.store(key, plan)
    return key


def a_plan() -> Plan:
    raw = HEAD % (1, b"")
    found = router(endpoint()).route(read(raw + b"\r\n\r\n"), raw)
    assert found is not None
    return found[0]


def test_plan_cache_evicts_oldest_first() -> None:
    """The latest thousands are found, whatever came before them."""
    plans, plan = PlanCache(), a_plan()
    keys = [kept(plans, number, plan) for number in range(20_000)]
    found = [key in plans.by_head for key in keys]
    assert found == sorted(found) and 6500 <= sum(found) <= PLANS_BYTES / (2 * 500 + PLAN_BYTES)


def test_plan_cached_twice_is_counted_once() -> None:
    """Two connections may plan the same head at the same time."""
    plans, plan = PlanCache(), a_plan()
    for _ in range(20_000):
        kept(plans, 1, plan)
    assert kept(plans, 2, plan) in plans.by_head and len(plans.by_head) == 2


@pytest.mark.parametrize("recorded", [None, lambda *_: None], ids=["plain", "usage"])
@pytest.mark.parametrize("filler", [0, 500, 3900])
def test_plan_cache_memory_is_bounded(monkeypatch: pytest.MonkeyPatch, filler: int, recorded: Recorded | None) -> None:
    """However many heads come, with plans of their own, of whatever size."""
    monkeypatch.setattr("gateway.lanes.passthrough.plan_cache.PLANS_BYTES", 1 << 20)
    way_in = router(endpoint(), recorded=recorded)
    tracemalloc.start()
    try:
        for number in range((1 << 20) // (filler + 500)):
            raw = HEAD % (number, b"y" * filler)
            way_in.route(read(raw + b"\r\n\r\n"), raw)
        now_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    print(f"\nheads of {len(raw)} bytes: {now_bytes / (1 << 20):.2f} of 1 MiB")
    assert now_bytes <= 1.1 * (1 << 20)
