"""Budgets are sums of the usage in a store: of today, and of the month with today."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest

from gateway.contracts.allowance import PERIODS, Allowance, LimitScope, find_first_day
from gateway.contracts.storage.store import Store, StoreError
from gateway.contracts.storage.usage import COST_UNITS, StoredUsage
from gateway.limits import budget_reader
from gateway.limits.budget_reader import BudgetReader, counts_towards, list_days, split_days
from gateway.limits.budgets import Budgets, Counted
from gateway.limits.counter_registry import Meters
from gateway.limits.limit_rule import build_key_id
from gateway.limits.shared_memory import SharedCounters
from gateway.registry.stores import build_scratch_store
from gateway.testing.clock import ManualClock
from tests.limits.limiting import WallClock, in_dollars

NOON_S = datetime(2026, 11, 26, 12, tzinfo=UTC).timestamp()
ALL = Allowance(tokens_per_day=1, tokens_per_month=1, cost_per_day=1.0, cost_per_month=1.0)
CI = build_key_id("team", "ci")
METERS = Meters(SharedCounters(places=1), place=0, clock=time.monotonic)
NAMES: tuple[Counted, ...] = (("key", CI), ("tenant", "team"), ("upstream", "up"), ("model", "gpt-*"))


def used(day: str, tokens: int, *, key: str = "ci", model: str = "gpt-4.1", cost: float = 0.0) -> StoredUsage:
    units = round(cost * COST_UNITS)
    return StoredUsage(day, "team", key, model, "up", "context", "USD", requests=1, input=tokens, cost=units)


def sums(budgets: Budgets, scope: str, name: str) -> list[float]:
    """Return the part that is used of each budget that `ALL` has."""
    usage = budgets.get_usage(scope, name, ALL)  # type: ignore[arg-type]
    return [spent for _, figure, spent in usage if figure is not None]


async def _store(*rows: StoredUsage) -> Store:
    store = build_scratch_store()
    await store.open()
    await store.add_usage(rows, writer="w", number=1, now_s=NOON_S)
    return store


async def test_budget_reader_sums_usage_for_every_scope() -> None:
    store = await _store(
        used("2026-10-31", 1000),
        used("2026-11-01", 100, cost=2.0),
        used("2026-11-26", 10, cost=0.5),
        used("2026-11-26", 7, key="other", model="llama"),
    )
    budgets, clock = in_dollars(), ManualClock(NOON_S)
    await BudgetReader(store, budgets, METERS, names=lambda: [*NAMES, ("model", "*")], clock=clock).read()
    await store.close()
    assert sums(budgets, "key", CI) == [10, 110, 0.5, 2.5]
    assert sums(budgets, "tenant", "team") == [17, 117, 0.5, 2.5]
    assert sums(budgets, "upstream", "up") == [17, 117, 0.5, 2.5]
    assert sums(budgets, "model", "gpt-*") == [10, 110, 0.5, 2.5]
    assert sums(budgets, "model", "*") == [17, 117, 0.5, 2.5]
    assert sums(budgets, "key", build_key_id("elsewhere", "ci")) == [0, 0, 0.0, 0.0]


async def test_budget_sums_reset_on_a_new_day_and_month() -> None:
    store = await _store(used("2026-11-26", 10))
    budgets, clock = in_dollars(), ManualClock(NOON_S)
    reader = BudgetReader(store, budgets, METERS, names=lambda: NAMES, clock=clock)
    await reader.read()
    clock.advance(86400)
    await reader.read()
    assert sums(budgets, "key", CI)[:2] == [0, 10]
    clock.advance(5 * 86400)
    await reader.read()
    await store.close()
    assert sums(budgets, "key", CI)[:2] == [0, 0]


async def test_late_usage_for_an_earlier_day_counts_after_the_next_read() -> None:
    """Of another gateway whose store had failed at midnight, or for longer."""
    store = await _store(used("2026-11-26", 10))
    budgets, clock = in_dollars(), ManualClock(NOON_S)
    reader = BudgetReader(store, budgets, METERS, names=lambda: NAMES, clock=clock)
    await reader.read()
    months = (("2026-11-25", 15), ("2026-11-02", 20), ("2026-11-26", 25), ("2026-10-31", 25))
    for number, (day, month) in enumerate(months, 1):
        await store.add_usage([used(day, 5)], writer="v", number=number, now_s=NOON_S)
        await reader.read()
        assert sums(budgets, "key", CI)[1] == month
    await store.close()
    assert sums(budgets, "key", CI)[0] == 15


async def test_clock_set_back_selects_the_budget_day() -> None:
    """Also one of the month before; what was stored for days that have not come counts when they come."""
    rows = [used(day, tokens) for day, tokens in (("2026-11-30", 1), ("2026-12-01", 10), ("2026-12-02", 100))]
    store = await _store(*rows)
    budgets, clock = in_dollars(), WallClock(NOON_S)
    reader = BudgetReader(store, budgets, METERS, names=lambda: NAMES, clock=clock)
    for days, expected in ((6, [100, 110]), (5, [10, 10]), (4, [1, 1]), (3, [0, 0]), (6, [100, 110])):
        clock.set_s = days * 86400
        await reader.read()
        assert sums(budgets, "key", CI)[:2] == expected
    await store.close()


async def test_costs_in_another_currency_do_not_count() -> None:
    """Rows without a price count, whatever the currency was."""
    rows = [replace(used("2026-11-26", 1, cost=cost), currency=of) for of, cost in (("USD", 5), ("EUR", 2), ("", 1))]
    store, currency = await _store(*rows), "USD"
    budgets = Budgets(lambda: currency)
    reader = BudgetReader(store, budgets, METERS, names=lambda: NAMES, clock=ManualClock(NOON_S))
    await reader.read()
    assert sums(budgets, "key", CI) == [3, 3, 6.0, 6.0]
    currency = "EUR"
    assert budgets.find_obstacle("key", CI, ALL) is not None
    assert budgets.find_obstacle("key", CI, Allowance(tokens_per_day=1)) is None
    await reader.read()
    await store.close()
    assert sums(budgets, "key", CI) == [3, 3, 3.0, 3.0]
    assert budgets.find_obstacle("key", CI, ALL) is None


async def test_new_model_patterns_are_summed_at_the_next_read() -> None:
    store, models = await _store(used("2026-11-26", 10)), ["gpt-*"]
    budgets = in_dollars()
    reader = BudgetReader(
        store, budgets, METERS, names=lambda: [("model", one) for one in models], clock=ManualClock(NOON_S)
    )
    await reader.read()
    models.append("*")
    assert [budgets.find_obstacle("model", name, ALL) is None for name in models] == [True, False]
    await reader.read()
    await store.close()
    assert [budgets.find_obstacle("model", name, ALL) for name in models] == [None, None]
    assert sums(budgets, "model", "*")[0] == 10


async def test_sums_of_an_unlisted_key_are_read_on_demand() -> None:
    """Such as a key that ended while its run goes on."""
    store = await _store(used("2026-11-26", 10), used("2026-11-26", 7, key="other"))
    budgets, other = in_dollars(), build_key_id("team", "other")
    reader = BudgetReader(store, budgets, METERS, names=lambda: NAMES, clock=ManualClock(NOON_S))
    await reader.read()
    assert sums(budgets, "key", other)[0] == 0
    assert (
        budgets.find_obstacle("key", other, ALL)
        == "what is used of it is not read from the store yet: try again in a second"
    )
    await reader.read()
    await store.close()
    assert budgets.find_obstacle("key", other, ALL) is None and sums(budgets, "key", other)[0] == 7


async def test_first_read_includes_new_keys_and_current_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long ago the start was, and also of a key that was made since."""
    monkeypatch.setattr(budget_reader, "EVERY_S", 0.01)
    store = await _store(used("2026-11-26", 10))
    budgets, names, looks = in_dollars(), list[Counted](), asyncio.Semaphore(0)

    def named() -> list[Counted]:
        looks.release()
        return names

    reader = BudgetReader(store, budgets, METERS, names=named, clock=ManualClock(NOON_S))
    running = asyncio.create_task(reader.run())
    await looks.acquire()
    names += NAMES
    await reader.read()  # as when a key is made
    await store.add_usage([used("2026-11-26", 7)], writer="w", number=2, now_s=NOON_S)
    async with asyncio.timeout(10):
        for _ in range(3):
            await looks.acquire()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await store.close()
    assert sums(budgets, "key", CI)[0] == 17


class Failing:
    """A store that has failed."""

    async def announce_gateway(self, gateway: str, *, now_s: float, until_s: float) -> None:
        raise StoreError("the disk is gone")

    async def count_gateways(self, *, now_s: float) -> int:
        raise StoreError("the disk is gone")

    async def list_usage_changes(self, *, since: str, until: str) -> Mapping[str, int]:
        raise StoreError("the disk is gone")


async def test_the_last_sums_stay_in_use_while_the_store_fails(caplog: pytest.LogCaptureFixture) -> None:
    store = await _store(used("2026-11-26", 10))
    budgets, clock = in_dollars(), ManualClock(NOON_S)
    await BudgetReader(store, budgets, METERS, names=lambda: NAMES, clock=clock).read()
    await store.close()
    failing = BudgetReader(Failing(), budgets, METERS, names=lambda: NAMES, clock=clock)  # type: ignore[arg-type]
    for _ in range(3):
        await failing.read()
    assert sums(budgets, "key", CI)[0] == 10
    assert len(caplog.messages) == 1


async def test_gateways_sharing_a_store_count_each_other(caplog: pytest.LogCaptureFixture) -> None:
    """While they have limits. One that leaves is known to have left, and one that is killed is forgotten."""
    store, clocks = await _store(), [ManualClock(NOON_S) for _ in range(3)]
    budgets = [in_dollars() for _ in clocks]
    readers = [
        BudgetReader(
            store,
            one,
            Meters(SharedCounters(places=1), place=0, clock=clock),
            names=lambda: (),
            limited=lambda number=number: number < 2,  # type: ignore[misc]
            clock=clock,
        )
        for number, (one, clock) in enumerate(zip(budgets, clocks, strict=True))
    ]
    for reader in readers:
        await reader.read()
    await readers[0].read()
    assert [one.gateways for one in budgets] == [2, 2, 1]
    assert len(caplog.messages) == 2 and caplog.messages[0].startswith("2 gateways with limits are at work on this ")
    await readers[1].close()
    await readers[1].close()
    await readers[0].read()
    assert budgets[0].gateways == 1
    await readers[1].announce_gateway()
    clocks[1].advance(budget_reader.RENEW_S)
    await readers[1].announce_gateway()
    for _ in range(5):
        clocks[0].advance(budget_reader.RENEW_S)
        await readers[0].announce_gateway()
    assert budgets[0].gateways == 1
    await store.close()


@pytest.mark.parametrize(
    ("scope", "name", "counts"),
    [
        ("key", CI, True),
        ("key", build_key_id("team", "qa"), False),
        ("tenant", "team", True),
        ("model", "gpt-*", True),
        ("model", "llama*", False),
        ("upstream", "up", True),
        ("upstream", "other", False),
    ],
)
def test_usage_counts_towards_matching_scopes(scope: LimitScope, name: str, *, counts: bool) -> None:
    """By the names that it has in the ledger."""
    assert counts_towards(scope, name, tenant="team", key="ci", model="gpt-4.1", upstream="up") is counts


@pytest.mark.parametrize("today", [date(2026, 11, 26), date(2026, 11, 2), date(2026, 11, 1)])
def test_each_period_begins_with_a_part_of_the_days(today: date) -> None:
    """The parts have each day once. Today is one by itself, and so is yesterday, where a budget counts it."""
    first, parts = find_first_day(today), split_days(today)
    assert sorted(day for days in parts for day in list_days(days)) == [*list_days((first.isoformat(), f"{today}"))]
    begun = {since for since, _ in parts}
    assert begun >= {one.find_first(today).isoformat() for one in PERIODS.values()}
    assert parts[0] == (f"{today}", f"{today}")
    yesterday = f"{today - timedelta(1)}"
    assert first == today or (yesterday, yesterday) in parts
