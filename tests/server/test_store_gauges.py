"""The backlog in the store, as its operator sees it."""

import pytest
from agent.doubles import Clock
from metrics_page import check_by_promtool, samples

from gateway.contracts.storage.store import StoreBacklog, StoreError
from gateway.plugins.stores.sqlite import SqliteStore
from gateway.server.store_gauges import LOOK_S, STUCK_S, Backlog
from gateway.telemetry.exposition import Exposition
from gateway.telemetry.metrics import Metrics
from gateway.testing.clock import ManualClock
from tests.plugins.stores.records import new, parked, run


async def page(backlog: Backlog) -> dict[str, float]:
    metrics = Metrics()
    metrics.sources.append(backlog.collect_families)
    text = await Exposition(metrics).build_page()
    check_by_promtool(text)
    found = samples(text).items()
    return {
        " ".join((name, *dict(labels).values())): value
        for (name, labels), value in found
        if "_store" in name or "_approvals" in name or "_runs" in name
    }


async def test_store_gauges_report_pending_approvals_and_runs() -> None:
    """Approvals with the age of the oldest, runs by state, and those that nobody drives."""
    manual = ManualClock()
    clock = Clock(manual)
    now_s = clock.time()
    store = SqliteStore(":memory:")
    await store.open()
    await store.write(parked(created_s=now_s - 90.0, expires_s=now_s + 10.0))
    for number, lease_s in enumerate((now_s + 5, now_s - STUCK_S + 1, now_s - STUCK_S - 1), 2):
        await store.write(new(run(f"run_{number}", owner="w", lease_s=lease_s)))
    backlog = Backlog(clock)
    await backlog.read_state(store)
    found = await page(backlog)
    assert found.pop("gateway_store_bytes") > 4096
    assert found == {
        "gateway_store_up": 1,
        "gateway_approvals_pending": 1,
        "gateway_approvals_oldest_seconds": 90,
        "gateway_runs running": 3,
        "gateway_runs awaiting_approval": 1,
        "gateway_runs awaiting_client": 0,
        "gateway_runs unknown": 0,
        "gateway_runs_stuck": 1,
    }
    manual.advance(5)
    assert (await page(backlog))["gateway_approvals_oldest_seconds"] == 95
    await store.close()
    with pytest.raises(StoreError):
        await backlog.read_state(store)
    assert (await page(backlog))["gateway_store_up"] == 0


async def test_store_gauges_are_read_at_a_limited_rate() -> None:
    """However often it is asked to."""
    manual = ManualClock()
    store, backlog = Counting(":memory:"), Backlog(Clock(manual))
    await store.open()
    for _ in range(10):
        await backlog.read_state(store)
    assert store.looks == 1
    manual.advance(LOOK_S)
    await backlog.read_state(store)
    assert store.looks == 2
    await store.close()


class Counting(SqliteStore):
    looks = 0

    async def count_backlog(self, *, stuck_before_s: float) -> StoreBacklog:
        self.looks += 1
        return await super().count_backlog(stuck_before_s=stuck_before_s)
