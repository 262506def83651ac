"""Leases: a run has one driver, and one whose driver is gone gets another."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from gateways import until, until_read, until_still

from gateway.contracts.storage.journal import Change, ConflictError, RunState, StoredRun
from gateway.contracts.storage.store import StoreError
from gateway.runs import leases as module
from gateway.runs.lease import LEASE_S
from gateway.runs.leases import AT_ONCE, GIVEN_BACK, OWED, Leases
from gateway.testing.clock import ManualClock
from tests.agent.doubles import Clock
from tests.plugins.stores.records import new, parked, run, write

from .failing import Failing

ALL: tuple[RunState, ...] = ("running", "awaiting_approval")


class Worker:
    """A process with a keeper, on a store that others have, too. `took` are the runs that it let go on."""

    def __init__(self, place: str, clock: ManualClock) -> None:
        self.store = Failing(place)
        self.took: list[StoredRun] = []
        self.fails: Callable[[StoredRun], Exception | None] = lambda _: None
        self.leases = Leases(self.store, clock=Clock(clock), resume=self._resume)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self.leases.run())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        await self.store.close()

    async def _resume(self, taken: StoredRun) -> None:
        if (error := self.fails(taken)) is not None:
            raise error
        self.took.append(taken)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def workers(tmp_path: Path, clock: ManualClock) -> AsyncIterator[tuple[Worker, Worker]]:
    """Two processes on one file."""
    made = [Worker(str(tmp_path / "gateway.db"), clock) for _ in range(2)]
    for one in made:
        await one.store.open()
    yield made[0], made[1]
    for one in made:
        await one.close()


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.005)


async def looked(*workers: Worker) -> None:
    """Returns when each of these has looked for runs several times more."""
    for worker in workers:
        asked = worker.store.asked
        await until(lambda worker=worker, asked=asked: worker.store.asked >= asked + 8)  # type: ignore[misc]


async def lease_of(worker: Worker) -> float:
    """The end of the lease of `run_1`; 0: the run is not there."""
    found = await worker.store.run("run_1", tenant="acme")
    return 0.0 if found is None else found.lease_s


async def until_later(clock: ManualClock, reached: Callable[[], bool]) -> None:
    """Returns when `reached()` is true, while time passes: what a look took of it counts for a while."""

    def later() -> bool:
        clock.advance(0.1)
        return reached()

    await until(later)


def now_s(clock: ManualClock) -> float:
    return Clock(clock).time()


async def endless() -> None:
    await asyncio.Event().wait()


async def test_concurrent_claims_give_a_run_to_one_worker(workers: tuple[Worker, Worker]) -> None:
    """However many want it at once, from whichever process."""
    one, two = workers
    for i in range(10):
        await one.store.write(new(run(f"run_{i}", owner=None)))
    wanted = [worker.leases.claim(f"run_{i}", *ALL) for i in range(10) for worker in (one, two, one, two)]
    got = [found for found in await asyncio.gather(*wanted) if found is not None]
    assert sorted(found.id for found in got) == [f"run_{i}" for i in range(10)]
    assert {found.fence for found in got} == {1}


async def test_claimed_run_starts_although_its_claimer_was_cancelled(workers: tuple[Worker, Worker]) -> None:
    """The store claims it all the same, and nobody else could take it before its lease is over."""
    one, _ = workers
    await one.store.write(new(run(owner=None)))
    claiming = asyncio.create_task(one.leases.claim("run_1", *ALL))
    await asyncio.sleep(0)
    claiming.cancel()
    with pytest.raises(asyncio.CancelledError):
        await claiming
    await one.leases.close()
    assert [taken.id for taken in one.took] == ["run_1"]


async def test_run_of_a_dead_process_is_claimed_after_its_lease(
    workers: tuple[Worker, Worker], clock: ManualClock
) -> None:
    """Not before its lease is over, and by one; what its old owner writes afterwards is refused."""
    one, two = workers
    await one.store.write(new(run(owner=None)))
    mine = await one.leases.claim("run_1", *ALL)
    assert mine is not None and mine.owner == one.leases.owner
    two.start()
    clock.advance(LEASE_S)
    await looked(two)
    assert two.took == [] and await two.leases.claim("run_1", *ALL) is None
    await until_later(clock, lambda: bool(two.took))
    (taken,) = two.took
    assert (taken.owner, taken.fence) == (two.leases.owner, mine.fence + 1)
    with pytest.raises(ConflictError):
        await one.store.write(Change(run=mine))
    await two.store.write(Change(run=taken))


async def test_returned_run_is_claimed_before_its_lease_ends(workers: tuple[Worker, Worker]) -> None:
    """Any worker takes it up with its next look, however long its lease lasts; one that came often is kept."""
    one, two = workers
    await one.store.write(new(run(owner=None)))
    mine = await one.leases.claim("run_1", *ALL)
    assert mine is not None
    one.leases.give_back(replace(mine, fence=GIVEN_BACK + 1))
    two.start()
    await looked(two)
    assert two.took == []
    one.leases.give_back(mine)
    assert await one.leases.claim("run_1", *ALL) is None
    one.start()
    await until(lambda: bool(one.took or two.took))
    (taken,) = (*one.took, *two.took)
    assert (taken.id, taken.fence) == ("run_1", mine.fence + 1)


async def test_held_run_keeps_its_lease(workers: tuple[Worker, Worker], clock: ManualClock) -> None:
    """For as long as it takes."""
    one, two = workers
    await one.store.write(new(run(owner=None)))
    assert await one.leases.claim("run_1", *ALL) is not None
    task = asyncio.create_task(endless())
    one.leases.hold("run_1", task)
    for worker in workers:
        worker.start()
    for _ in range(8):
        clock.advance(LEASE_S * 0.9)
        await until_read(lambda: lease_of(one), lambda lease_s: lease_s >= now_s(clock) + LEASE_S)
    assert one.took == two.took == [] and not task.done()
    task.cancel()


async def test_worker_stops_runs_it_has_lost(workers: tuple[Worker, Worker], clock: ManualClock) -> None:
    """It was taken up elsewhere, or a person ended it; other runs go on."""
    one, two = workers
    tasks = {}
    for run_id in ("run_1", "run_2", "run_3"):
        await one.store.write(new(run(run_id, owner=None)))
        assert await one.leases.claim(run_id, *ALL) is not None
        tasks[run_id] = asyncio.create_task(endless())
        one.leases.hold(run_id, tasks[run_id])
    clock.advance(LEASE_S + 1)  # so long it did nothing
    assert await two.leases.claim("run_1", *ALL) is not None
    assert await two.store.cancel("run_2", tenant="acme", now_s=now_s(clock), events=(), audit=())
    one.start()
    await until(lambda: tasks["run_1"].done() and tasks["run_2"].done())
    assert tasks["run_1"].cancelled() and tasks["run_2"].cancelled() and not tasks["run_3"].done()
    tasks["run_3"].cancel()


async def test_dropped_run_does_not_cancel_its_task(workers: tuple[Worker, Worker]) -> None:
    """Its task may have other things to do."""
    one, _ = workers
    task = asyncio.create_task(endless())
    one.leases.hold("run_1", task)
    one.leases.drop("run_1", task)
    one.leases.drop("run_1", task)
    one.leases.drop("run_2", None)
    one.start()
    await looked(one)
    assert not task.done()
    task.cancel()


async def test_drop_by_the_previous_driver_keeps_the_new_lease(
    workers: tuple[Worker, Worker], clock: ManualClock
) -> None:
    """One that waited may be taken up before its first request has read all of its answer."""
    one, two = workers
    await one.store.write(new(run(owner=None)))
    assert await one.leases.claim("run_1", *ALL) is not None
    first, second = asyncio.create_task(endless()), asyncio.create_task(endless())
    one.leases.hold("run_1", first)
    one.leases.hold("run_1", second)
    one.leases.drop("run_1", first)
    one.start()
    clock.advance(LEASE_S * 0.9)
    await until_read(lambda: lease_of(two), lambda lease_s: lease_s >= now_s(clock) + LEASE_S)
    assert not second.done()
    for task in (first, second):
        task.cancel()


async def test_run_awaiting_approvals_resumes_after_the_last_decision(workers: tuple[Worker, Worker]) -> None:
    """One that waits for a person goes on by itself, once; one that waits for its client does not."""
    one, two = workers
    await one.store.write(parked())
    await one.store.write(new(run("run_2", state="awaiting_client")))
    await one.store.write(new(run("run_3", state="unknown")))
    await one.store.write(new(run("run_4", state="interrupted")))
    for worker in workers:
        worker.start()
    await looked(one, two)
    assert one.took == two.took == []
    assert (await two.store.decide_approval(write()))[0] == "decided"
    await until(lambda: bool(one.took or two.took))
    await looked(one, two)
    assert [taken.id for taken in (*one.took, *two.took)] == ["run_1"]


async def test_runs_of_a_dead_process_are_shared_by_the_workers(workers: tuple[Worker, Worker]) -> None:
    """Each is taken up once, some at a time."""
    one, two = workers
    n = 3 * AT_ONCE
    for i in range(n):
        await one.store.write(new(run(f"run_{i}", owner="worker_dead")))
    for worker in workers:
        worker.start()
    await until(lambda: len(one.took) + len(two.took) >= n)
    await looked(one, two)
    assert sorted(taken.id for taken in (*one.took, *two.took)) == sorted(f"run_{i}" for i in range(n))


async def test_many_runs_are_claimed_in_one_pass(
    workers: tuple[Worker, Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as the event loop keeps up, within one look; requests of clients have their turns between them."""
    one, _ = workers
    n = 5 * AT_ONCE
    for i in range(n):
        await one.store.write(new(run(f"run_{i}", owner=None)))
    monkeypatch.setattr(module, "LOOK_S", 3600.0)
    monkeypatch.setattr(module, "BUSY_S", 3600.0)
    one.start()
    await until(lambda: len(one.took) == n)


async def test_busy_worker_takes_a_limited_number_of_runs_per_scan(
    workers: tuple[Worker, Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would only wait for each other."""
    one, _ = workers
    for i in range(2 * AT_ONCE):
        await one.store.write(new(run(f"run_{i}", owner=None)))
    monkeypatch.setattr(module, "LOOK_S", 3600.0)
    monkeypatch.setattr(module, "UNDER_WAY", 1)
    await one.store.write(new(run("mine", owner=one.leases.owner)))
    task = asyncio.create_task(endless())
    one.leases.hold("mine", task)
    one.start()
    await until(lambda: len(one.took) == AT_ONCE)
    assert await until_still(lambda: len(one.took)) == AT_ONCE
    task.cancel()


async def test_worker_claims_no_more_runs_than_its_free_capacity(workers: tuple[Worker, Worker]) -> None:
    """The others follow once there is some: a restart starts no crowd."""
    one, _ = workers
    most = 3
    one.leases = Leases(one.store, clock=one.leases._clock, resume=one._resume, room=lambda: most - len(one.took))
    for i in range(2 * AT_ONCE):
        await one.store.write(new(run(f"run_{i}", owner=None)))
    one.start()
    await until(lambda: len(one.took) == 3)
    assert await until_still(lambda: len(one.took)) == 3
    most = 30
    await until(lambda: len(one.took) == 30)
    assert await until_still(lambda: len(one.took)) == 30
    assert len({taken.id for taken in one.took}) == 30


async def test_lease_keeper_survives_a_store_failure(workers: tuple[Worker, Worker]) -> None:
    """It is asked again."""
    one, _ = workers
    task = asyncio.create_task(endless())
    one.leases.hold("run_0", task)
    await one.store.write(new(run(owner=None)))
    one.store.broken = True
    one.start()
    await looked(one)
    assert one.took == [] and not task.done(), "nobody knows whose it is"
    one.store.broken = False
    await until(lambda: bool(one.took))
    assert task.cancelled() or task.cancelling()


async def test_slow_store_does_not_take_a_run_from_its_driver(
    workers: tuple[Worker, Worker], clock: ManualClock
) -> None:
    """It may have failed for that worker: a lease must have been over for as long as an answer took."""
    one, two = workers
    await one.store.write(new(run(owner=None)))
    assert await one.leases.claim("run_1", *ALL) is not None
    clock.advance(2.0)
    two.store.held = asyncio.Event()
    two.start()
    await until(lambda: two.store.asked == 1)
    clock.advance(LEASE_S - 1.9)
    assert await two.leases.claim("run_1", *ALL) is None, "a decision comes while the store is locked"
    two.store.held.set()
    await looked(two)
    assert two.took == [], "the worker that drives it has not looked yet"
    await until_later(clock, lambda: bool(two.took))


async def test_recovered_store_does_not_take_a_run_from_its_driver(
    workers: tuple[Worker, Worker], clock: ManualClock
) -> None:
    """Nobody could renew a lease meanwhile: each gets the time of one to do so."""
    one, two = workers
    await one.store.write(new(run(owner=None)))
    assert await one.leases.claim("run_1", *ALL) is not None
    two.store.broken = True
    two.leases.hold("run_0", task := asyncio.create_task(endless()))
    two.start()
    await looked(two)
    clock.advance(LEASE_S + 0.1)
    await looked(two)
    two.store.broken = False
    await until(lambda: task.done())
    await looked(two)
    assert two.took == [], "the worker that drives it has not looked yet"
    await until_later(clock, lambda: bool(two.took))


@pytest.mark.parametrize("error", [KeyError("credential"), ValueError("not JSON"), StoreError("disk I/O error")])
async def test_run_that_cannot_be_resumed_does_not_block_others(
    workers: tuple[Worker, Worker], error: Exception
) -> None:
    """It was stored by another version, for example."""
    one, _ = workers
    one.fails = lambda taken: error if taken.id == "run_1" else None
    for run_id in ("run_1", "run_2"):
        await one.store.write(new(run(run_id, owner=None)))
    one.start()
    await until(lambda: bool(one.took))
    assert [taken.id for taken in one.took] == ["run_2"]


async def test_owed_run_end_is_written_once_the_store_recovers(workers: tuple[Worker, Worker]) -> None:
    """As soon as the store takes it, and before anybody takes the run up; its request is stored already."""
    one, _ = workers
    await one.store.write(new(run(owner=one.leases.owner)))
    one.store.broken = True
    one.leases.queue_end(Change(run=run(state="completed", answer=b"{}")))
    assert await one.leases.claim("run_1", *ALL) is None, "it has its end"
    one.start()
    await looked(one)
    assert await one.store.run("run_1", tenant="acme") == run(owner=one.leases.owner)
    one.store.broken = False
    found = await until_read(
        lambda: one.store.run("run_1", tenant="acme"), lambda run: run is not None and run.state == "completed"
    )
    assert found is not None and (found.answer, found.request, one.took) == (b"{}", run().request, [])


@pytest.mark.parametrize("shortened", [None, b'{"short": true}'])
async def test_owed_end_of_an_unstored_run_includes_its_request(
    workers: tuple[Worker, Worker], shortened: bytes | None
) -> None:
    """Pages read it there; of a long one there is what is kept behind an end."""
    one, _ = workers
    ended = run(state="failed", owner=None, request=b'{"body": {}}')
    one.leases.queue_end(Change(run=ended, new=True, repeats=True, request=shortened))
    one.start()
    found = await until_read(lambda: one.store.run("run_1", tenant="acme"), lambda run: run is not None)
    assert found is not None and (found.state, found.request) == ("failed", shortened or b'{"body": {}}')


async def test_owed_end_of_a_run_claimed_by_another_worker_is_dropped(workers: tuple[Worker, Worker]) -> None:
    """Somebody has taken the run up: it is theirs."""
    one, two = workers
    await one.store.write(new(run(owner=None)))
    one.leases.queue_end(Change(run=run(state="completed")))
    assert await two.leases.claim("run_1", *ALL) is not None
    await one.store.write(new(run("run_2", owner=None)))
    one.start()
    await until(lambda: bool(one.took))
    found = await one.store.run("run_1", tenant="acme")
    assert found is not None and (found.state, found.owner) == ("running", two.leases.owner)


async def test_number_of_owed_run_ends_is_bounded(workers: tuple[Worker, Worker]) -> None:
    """The oldest is forgotten, and its run can be taken up."""
    one, _ = workers
    await one.store.write(new(run("run_0", owner=None)))
    for i in range(OWED + 1):
        one.leases.queue_end(Change(run=run(f"run_{i}", state="completed")))
    assert await one.leases.claim("run_0", *ALL) is not None


class Leaping(Clock):
    """One whose Unix time may be set."""

    ahead_s = 0.0

    def time(self) -> float:
        return super().time() + self.ahead_s


@pytest.mark.parametrize("ahead_s", [3600.0, -3600.0])
async def test_clock_jump_does_not_expire_a_held_lease(
    workers: tuple[Worker, Worker], clock: ManualClock, ahead_s: float
) -> None:
    """Who drives one has time to renew its lease; what nobody has a lease on is taken up at once."""
    one, two = workers
    leaping = Leaping(clock)
    leases = Leases(two.store, clock=leaping, resume=two.leases._resume)
    await one.store.write(new(run(owner=None)))
    await one.store.write(new(run("run_2", owner=None)))
    assert await one.leases.claim("run_1", *ALL) is not None
    leaping.ahead_s = ahead_s
    assert await leases.claim("run_1", *ALL) is None
    assert await leases.claim("run_2", *ALL) is not None
    clock.advance(LEASE_S + 0.1)  # so long nobody has renewed it
    assert await leases.claim("run_1", *ALL) is not None


async def test_lease_in_the_far_future_is_shortened(workers: tuple[Worker, Worker], clock: ManualClock) -> None:
    """So that the run is not stuck for an hour when its process dies."""
    one, _ = workers
    await one.store.write(new(run(owner=one.leases.owner, lease_s=now_s(clock) + 3600)))
    task = asyncio.create_task(endless())
    one.leases.hold("run_1", task)
    one.start()
    await until_read(lambda: lease_of(one), lambda lease_s: 0 < lease_s <= now_s(clock) + LEASE_S)
    task.cancel()


async def test_a_worker_that_ends_leaves_no_lease_behind(workers: tuple[Worker, Worker], clock: ManualClock) -> None:
    """Another worker takes its runs up at once, and no others; the ends that it owed are written before."""
    one, two = workers
    for number in range(3):
        await one.store.write(new(run(f"run_{number}")))
    assert await one.leases.claim("run_0", *ALL) and await two.leases.claim("run_1", *ALL)
    owed = await one.leases.claim("run_2", *ALL)
    assert owed is not None
    one.leases.queue_end(Change(run=replace(owed, state="completed", owner=None, lease_s=0.0)))
    await one.leases.close()
    assert await two.leases.claim("run_0", *ALL) is not None
    assert await one.leases.claim("run_1", *ALL) is None
    ended = await two.store.run("run_2", tenant="acme")
    assert ended is not None and ended.state == "completed"


async def test_store_failure_during_worker_close_is_logged(
    workers: tuple[Worker, Worker], caplog: pytest.LogCaptureFixture
) -> None:
    one, _ = workers
    await one.store.close()
    await one.leases.close()
    assert "taken up once their leases are over" in caplog.text


async def test_own_running_run_is_not_claimed_again(workers: tuple[Worker, Worker], clock: ManualClock) -> None:
    """Though its lease could not be renewed in time."""
    one, two = workers
    await one.store.write(new(run(owner=None)))
    assert await one.leases.claim("run_1", *ALL) is not None
    task = asyncio.create_task(endless())
    one.leases.hold("run_1", task)
    clock.advance(LEASE_S + 1)
    assert await one.leases.claim("run_1", *ALL) is None
    assert await two.leases.claim("run_1", *ALL) is not None
    task.cancel()
