"""Budgets are sums of the usage in a store: of today, and of the month with today."""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime

import pytest

from gateway.contracts.allowance import Allowance
from gateway.contracts.store import Store, StoreError
from gateway.contracts.usage import COST_UNITS, Dimension, StoredUsage
from gateway.limits.budgets import Budgets
from gateway.limits.reading import EARLIER_S, BudgetReader
from gateway.limits.rule import key_id
from gateway.registry.stores import scratch_store
from gateway.testing.clock import ManualClock

NOON_S = datetime(2026, 11, 26, 12, tzinfo=UTC).timestamp()
ALL = Allowance(tokens_per_day=1, tokens_per_month=1, cost_per_day=1.0, cost_per_month=1.0)
CI = key_id("team", "ci")


def used(day: str, tokens: int, *, key: str = "ci", model: str = "gpt-4.1", cost: float = 0.0) -> StoredUsage:
    units = round(cost * COST_UNITS)
    return StoredUsage(day, "team", key, model, "up", "context", "USD", requests=1, input=tokens, cost=units)


def sums(budgets: Budgets, scope: str, name: str) -> list[float]:
    return [spent for _, _, spent in budgets.used(scope, name, ALL)]  # type: ignore[arg-type]


async def _store(*rows: StoredUsage) -> Store:
    store = scratch_store()
    await store.open()
    await store.add_usage(rows, writer="w", now_s=NOON_S)
    return store


async def test_the_sums_of_every_scope() -> None:
    store = await _store(
        used("2026-10-31", 1000),
        used("2026-11-01", 100, cost=2.0),
        used("2026-11-26", 10, cost=0.5),
        used("2026-11-26", 7, key="other", model="llama"),
    )
    budgets, clock = Budgets(), ManualClock(NOON_S)
    await BudgetReader(store, budgets, models=lambda: ["gpt-*", "*"], clock=clock).read()
    await store.close()
    assert sums(budgets, "key", CI) == [10, 110, 0.5, 2.5]
    assert sums(budgets, "tenant", "team") == [17, 117, 0.5, 2.5]
    assert sums(budgets, "upstream", "up") == [17, 117, 0.5, 2.5]
    assert sums(budgets, "model", "gpt-*") == [10, 110, 0.5, 2.5]
    assert sums(budgets, "model", "*") == [17, 117, 0.5, 2.5]
    assert sums(budgets, "key", key_id("elsewhere", "ci")) == [0, 0, 0.0, 0.0]


async def test_a_new_day_and_a_new_month_begin_anew() -> None:
    store = await _store(used("2026-11-26", 10))
    budgets, clock = Budgets(), ManualClock(NOON_S)
    reader = BudgetReader(store, budgets, models=list, clock=clock)
    await reader.read()
    clock.advance(86400)
    await reader.read()
    assert sums(budgets, "key", CI)[:2] == [0, 10]
    clock.advance(5 * 86400)
    await reader.read()
    await store.close()
    assert sums(budgets, "key", CI)[:2] == [0, 0]


async def test_what_comes_late_for_an_earlier_day_counts_within_an_hour() -> None:
    """Another gateway whose store had failed at midnight."""
    store = await _store(used("2026-11-26", 10))
    budgets, clock = Budgets(), ManualClock(NOON_S)
    reader = BudgetReader(store, budgets, models=list, clock=clock)
    await reader.read()
    await store.add_usage([used("2026-11-25", 5)], writer="v", now_s=NOON_S)
    clock.advance(EARLIER_S)
    await reader.read()
    await store.close()
    assert sums(budgets, "key", CI)[:2] == [10, 15]


class Failing:
    """A store that has failed."""

    async def usage(
        self, *, since: str, until: str, by: Collection[Dimension], tenant: str | None
    ) -> Sequence[StoredUsage]:
        raise StoreError("the disk is gone")


async def test_the_last_sums_stay_in_use_while_the_store_fails(caplog: pytest.LogCaptureFixture) -> None:
    store = await _store(used("2026-11-26", 10))
    budgets, clock = Budgets(), ManualClock(NOON_S)
    await BudgetReader(store, budgets, models=list, clock=clock).read()
    await store.close()
    failing = BudgetReader(Failing(), budgets, models=list, clock=clock)  # type: ignore[arg-type]
    for _ in range(3):
        await failing.read()
    assert sums(budgets, "key", CI)[0] == 10
    assert len(caplog.messages) == 1
