"""What is too old goes, a little at a time, by one process."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from functional.through import breathe
from gateways import until, until_read

from gateway.contracts.storage.store import StoreError
from gateway.server import pruning as module
from gateway.server.pruning import DUTY, DUTY_S, KEPT_S, Pruner
from gateway.testing.clock import ManualClock
from tests.agent.doubles import Clock
from tests.plugins.stores.records import event, new, run
from tests.runs.failing import Failing

RUNS = 40


class Counting(Failing):
    """Notes the rows of each transaction."""

    def __init__(self, place: str) -> None:
        super().__init__(place)
        self.limits: list[int] = []

    async def prune(self, *, before_s: float, limit: int) -> int:
        self.limits.append(limit)
        if self.broken:
            raise StoreError("disk I/O error")
        return await super().prune(before_s=before_s, limit=limit)


@pytest.fixture
def manual() -> ManualClock:
    return ManualClock()


@pytest.fixture
def clock(manual: ManualClock) -> Clock:
    return Clock(manual)


@pytest.fixture
async def store(tmp_path: Path, clock: Clock) -> AsyncIterator[Counting]:
    """With runs that are too old, one that is not, and one that has not ended."""
    store = Counting(str(tmp_path / "gateway.db"))
    await store.open()
    old_s, now_s = clock.time() - KEPT_S - 1.0, clock.time()
    for number in range(RUNS):
        events = tuple(event(run_id=f"run_{number}") for _ in range(8))
        await store.write(new(run(f"run_{number}", state="completed", updated_s=old_s), events=events))
    await store.write(new(run("young", state="completed", updated_s=now_s)))
    await store.write(new(run("alive", updated_s=old_s)))
    yield store
    await store.close()


async def left(store: Counting) -> set[str]:
    return {found.id for found in (await store.list_runs(tenant="acme", limit=99)).runs}


async def test_pruning_deletes_old_rows_in_small_steps(store: Counting, clock: Clock) -> None:
    """None of them has more rows than it may have, so whoever writes waits for one at most."""
    assert await Pruner(store, owner="w1", clock=clock).prune_rows() == RUNS * 10
    assert await left(store) == {"young", "alive"}
    assert len(store.limits) > 2 and max(store.limits) <= module.MOST_ROWS


async def test_pruning_step_size_adapts_to_its_time_limit(
    store: Counting, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One at least, whatever it takes."""
    monkeypatch.setattr(module, "STEP_S", 1e-9)
    assert await Pruner(store, owner="w1", clock=clock).prune_rows() == RUNS * 10
    assert set(store.limits[1:]) == {1}


async def test_pruning_is_done_by_one_process_at_a_time(store: Counting, clock: Clock, manual: ManualClock) -> None:
    """The others do once it has not been heard of."""
    now_s = clock.time()
    assert await store.take_duty(DUTY, owner="other", now_s=now_s, until_s=now_s + DUTY_S)
    pruner = Pruner(store, owner="w1", clock=clock)
    assert await pruner.prune_rows() == 0 and len(await left(store)) == RUNS + 2
    manual.advance(DUTY_S + 1.0)
    assert await pruner.prune_rows() == RUNS * 10


async def test_pruning_starts_later_and_continues_after_a_failure(
    store: Counting, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is asked later, and again."""
    monkeypatch.setattr(module, "FIRST_S", 3600.0)
    task = asyncio.create_task(Pruner(store, owner="w1", clock=clock).run())
    for _ in range(10):  # the store answers in turn
        await left(store)
        await breathe()
    assert store.limits == [] and not task.done()
    task.cancel()
    await asyncio.wait({task})
    monkeypatch.setattr(module, "FIRST_S", 0.01)
    monkeypatch.setattr(module, "EVERY_S", 0.01)
    store.broken = True
    task = asyncio.create_task(Pruner(store, owner="w1", clock=clock).run())
    await until(lambda: len(store.limits) >= 2)
    store.broken = False
    await until_read(lambda: left(store), lambda kept: len(kept) <= 2)
    task.cancel()
    await asyncio.wait({task})
