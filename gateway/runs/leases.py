"""The leases of this worker's runs, and the search for runs that no worker drives any more.

If the process of a run died, another worker takes the run after its lease. A run that waited in the store goes on once
its approvals are decided. The task of a lost run is cancelled. An end of a run that the store did not take is written
as soon as the store works.

Theory of operation. A run in the store names its owner and the time until which the lease lasts (`LEASE_S`). Only the
owner may write; the store checks that with each line. So correctness does not depend on this module. It decides how
soon an abandoned run goes on, and how soon a worker stops that has lost one.

`_held` maps each run that is driven here to the task that drives it. `_owed` contains ends of runs that the store
did not take. `run` does three things, `LOOK_S` apart, four times in the time of a lease:

1. *Renew* all held runs in one statement. A run that the store does not confirm has another owner: its task is
   cancelled with the reason LOST.
2. *Pay.* Release runs whose driving ended here because the store failed (`give_back`). Write owed ends. A conflict
   means that another owner took the run up, and that is as good.
3. *Take up.* Claim runs that may go on, `AT_ONCE` at a time, and resume each. If there are more, the worker pauses
   first, and stops for this time if its event loop is late or too many runs are under way. After the crash of a busy
   worker, requests of clients would otherwise wait behind thousands of runs.

If the store fails, the next attempt comes after two periods. That is still within the lease, so a short failure loses
no run. `close` gives all leases back at an orderly stop, so that other workers need not wait for them to end.

Time. Leases are compared in Unix time, because several machines share them. If the clock is set forward, or the machine
sleeps, all leases look over at once, also of live workers. `_waits_for_renewals` notices this: Unix time has gained
on the monotonic clock. For the time of one lease this worker then claims none for its age (`over_s` 0). The same goes
for a clock that was set back: the store takes a lease that ends far ahead for one that is over. It also goes for a
failure of the store, during which no live worker could renew a lease. Where the store answers late, because another
process locks it, it may have failed for others: then a lease must have been over for as long as the slowest of the last
answers took (`_get_expiry_cutoff_s`).

Dangers.
- The task in `_held` is compared, not only the run's id. A run may end here and be taken up here again while the store
  still answers. `drop` and `_renew` must not touch the newer task.
- `claim` refuses a run that is held here, or whose end is owed here: that end is still to be written.
- `_owed` is bounded. When it is full, the oldest end is dropped, and that run later needs a person's decision instead.
"""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

import orjson

from gateway.contracts.plugin import Clock
from gateway.contracts.storage.journal import Change, ConflictError, Journal, RunEvent, RunState, StoredRun
from gateway.contracts.storage.store import StoreError
from gateway.contracts.tracing.tracer import Tracer
from gateway.runs.lease import LEASE_S, LOST
from gateway.runs.run_span import list_waiting_approvals, send_failed_spans

log = logging.getLogger("gateway")

T = TypeVar("T")

#: How often leases are renewed and abandoned runs are looked for; so many are taken up at once.
LOOK_S, AT_ONCE = LEASE_S / 4, 20
#: Where there are more, they follow after this pause, unless the event loop is late by more than `BUSY_S`, or so many
#: runs are under way here: requests of clients take their turns between them.
PAUSE_S, BUSY_S, UNDER_WAY = 0.02, 0.02, 500
#: Unix time that gains or loses so much against the monotonic clock has leapt: it was set, or the machine slept.
LEAP_S = 1.0
#: Ends of runs that are queued here while the store takes none. The oldest later needs a person's decision instead.
OWED = 1000
#: A run that was taken up so often is not given back before its lease is over.
GIVEN_BACK = 20
#: States of runs that go on by themselves.
TAKEN_UP: tuple[RunState, ...] = ("running", "awaiting_approval")


class Leases:
    """The leases of one worker's runs. `resume` continues a run that this worker has claimed.

    `room` returns how many more runs may go on here; None: any number.
    """

    def __init__(
        self,
        store: Journal,
        *,
        clock: Clock,
        resume: Callable[[StoredRun], Awaitable[None]],
        room: Callable[[], int | None] = lambda: None,
    ) -> None:
        self.owner = "worker_" + secrets.token_hex(8)
        self._store = store
        self._clock = clock
        self._resume = resume
        self._room = room
        self._held: dict[str, asyncio.Task[None]] = {}
        self._owed: dict[str, Change] = {}
        self._undriven: set[str] = set()  # of runs that this worker owns in the store
        self._left: set[asyncio.Task[None]] = set()
        self._ahead_s = clock.time() - clock.monotonic()
        self._patient_until_s = float("-inf")
        self._asked_s: float | None = None  # monotonic: since when a look waits for the store
        self._slowest_s, self._slow_until_s = 0.0, float("-inf")  # of the last answers to looks, and how long it counts

    def hold(self, run_id: str, task: "asyncio.Task[None]") -> None:
        """Renew the run's lease from now on. `task` drives it, and is cancelled if another owner has the run."""
        self._held[run_id] = task

    def drop(self, run_id: str, task: "asyncio.Task[None] | None") -> None:
        """Stop renewing the lease of a run for `task`, unless another task drives the run by now."""
        if self._held.get(run_id, self) is task:
            del self._held[run_id]

    def lose(self, run_id: str) -> None:
        """Cancel the task that drives a cancelled run at once, without waiting for the next renewal."""
        if (task := self._held.pop(run_id, None)) is not None:
            task.cancel(LOST)

    async def claim(self, run_id: str, *states: RunState) -> StoredRun | None:
        """Claim and return a run in one of these states that no worker drives, or return None. Raises StoreError.

        The run of a caller that is cancelled meanwhile goes on without it: the store claims the run all the same.
        """
        if run_id in self._held or run_id in self._owed or run_id in self._undriven:
            return None
        claiming = asyncio.create_task(self._claim(states, run_id=run_id))
        try:
            found = await asyncio.shield(claiming)
        except asyncio.CancelledError:
            self._left.add(taking := asyncio.create_task(self._resume_unclaimed_run(claiming)))
            taking.add_done_callback(self._left.discard)
            raise
        return found[0] if found else None

    def queue_end(self, change: Change) -> None:
        """Queue this end of a run to be written later, unless another owner takes the run up first."""
        is_stored = not change.new or change.request is not None  # the request: else the end begins the run with it
        self._owed[change.run.id] = replace(change, run=replace(change.run, request=b"")) if is_stored else change
        if len(self._owed) > OWED:
            del self._owed[next(iter(self._owed))]

    def give_back(self, run: StoredRun) -> None:
        """Release a run of this worker that nothing drives any more, once the store works, and not with its lease.

        One that was taken up often waits for the end of its lease: it counts each time that it is taken up.
        """
        if run.fence <= GIVEN_BACK:
            self._undriven.add(run.id)

    async def run(self) -> None:
        """Renew leases, write queued ends and resume runs without a worker, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            next_s = loop.time() + LOOK_S
            try:
                await self._renew()
                await self._release_undriven()
                await self._write_owed_ends()
                await self._resume_runs_until(next_s)
            except StoreError as error:
                log.error("the store failed: %s", error)
                self._patient_until_s = self._clock.monotonic() + LEASE_S
                next_s = loop.time() + 2 * LOOK_S  # which is within the lease still
            await asyncio.sleep(next_s - loop.time())

    async def close(self) -> None:
        """Release the runs that this worker drives no more, so that no worker waits for its leases.

        Call it once the runs of this worker have ended.
        """
        if self._left:
            await asyncio.wait(self._left)
        try:
            await self._write_owed_ends()
            await self._store.release(owner=self.owner)
        except StoreError as error:
            log.error("the store failed: %s; runs of this process are taken up once their leases are over", error)

    async def _resume_runs_until(self, end_s: float) -> None:
        """Take up runs that no worker drives, in groups for as long as this worker has time for them."""
        while True:
            room = self._room()
            most = AT_ONCE if room is None else min(room, AT_ONCE)
            runs = await self._measure_query(self._claim(TAKEN_UP, run_id=None, limit=most)) if most else []
            for run in runs:
                await self._resume_run(run)
            if len(runs) < AT_ONCE or not await self._wait_until_idle(end_s):
                return

    async def _wait_until_idle(self, end_s: float) -> bool:
        """Wait until the event loop has caught up. Return False if it has not before `end_s`."""
        loop = asyncio.get_running_loop()
        while (due_s := loop.time() + PAUSE_S) < end_s:
            await asyncio.sleep(PAUSE_S)
            if loop.time() - due_s < BUSY_S and len(self._held) < UNDER_WAY:
                return True
        return False

    async def _resume_unclaimed_run(self, claiming: "asyncio.Task[list[StoredRun]]") -> None:
        """Resume the run that was claimed for a caller which is gone by now."""
        with suppress(StoreError):  # logged by the search for runs
            for run in await claiming:
                await self._resume_run(run)

    async def _resume_run(self, run: StoredRun) -> None:
        """Resume a claimed run; log a failure, so that other runs are still resumed."""
        log.info("run %s goes on (%s)", run.id, run.state)
        try:
            await self._resume(run)
        except Exception:
            log.exception("run %s cannot go on", run.id)

    async def _claim(
        self, states: tuple[RunState, ...], *, run_id: str | None, limit: int = AT_ONCE
    ) -> list[StoredRun]:
        """Claim runs in these states that no worker drives, `limit` at most. Raises StoreError."""
        now_s = self._clock.time()
        runs = await self._store.claim(
            owner=self.owner,
            now_s=now_s,
            until_s=now_s + LEASE_S,
            over_s=self._get_expiry_cutoff_s(now_s),
            states=states,
            run_id=run_id,
            limit=limit,
        )
        self._undriven.difference_update(run.id for run in runs)
        return list(runs)

    async def _release_undriven(self) -> None:
        """Release the leases that were given back, so that any worker can claim the runs. Raises StoreError."""
        if run_ids := self._undriven - self._held.keys():
            await self._store.release(owner=self.owner, run_ids=sorted(run_ids))
            self._undriven -= run_ids

    async def _measure_query(self, asking: Awaitable[T]) -> T:
        """Return the result of a store query, and record its duration."""
        self._asked_s = began_s = self._clock.monotonic()
        try:
            return await asking
        finally:
            now_s, self._asked_s = self._clock.monotonic(), None
            if now_s - began_s >= self._slowest_s or now_s > self._slow_until_s:
                self._slowest_s, self._slow_until_s = now_s - began_s, now_s + LEASE_S

    def _get_expiry_cutoff_s(self, now_s: float) -> float:
        """Return the time before which a lease must have ended to be over; 0: none is."""
        if self._waits_for_renewals(now_s):
            return 0.0
        monotonic_s = self._clock.monotonic()
        slow_s = self._slowest_s if monotonic_s <= self._slow_until_s else 0.0
        if self._asked_s is not None:
            slow_s = max(slow_s, monotonic_s - self._asked_s)
        return now_s - slow_s if slow_s < LEASE_S else 0.0

    def _waits_for_renewals(self, now_s: float) -> bool:
        """Return whether to wait for renewals because the clock has leapt, or the store has failed.

        Leases of live workers look old then, or far ahead: they get the time of one lease to renew theirs.
        """
        monotonic_s = self._clock.monotonic()
        before_s, self._ahead_s = self._ahead_s, now_s - monotonic_s
        if abs(self._ahead_s - before_s) > LEAP_S:
            self._patient_until_s = monotonic_s + LEASE_S
        return monotonic_s < self._patient_until_s

    async def _write_owed_ends(self) -> None:
        for run_id, change in list(self._owed.items()):
            with suppress(ConflictError):  # another worker has taken it up, or ended it
                await self._store.write(change)
            self._owed.pop(run_id, None)

    async def _renew(self) -> None:
        """Renew the leases of this worker, and cancel the tasks of runs that it has lost."""
        if not self._held:
            return
        held = dict(self._held)
        now_s = self._clock.time()
        renewing = self._store.renew(owner=self.owner, run_ids=list(held), now_s=now_s, until_s=now_s + LEASE_S)
        ours = await self._measure_query(renewing)
        for run_id in held.keys() - set(ours):
            task = held[run_id]
            if self._held.get(run_id) is task:  # else it ended, or was taken up anew, while the store answered
                log.warning("run %s is not this worker's any more", run_id)
                self.drop(run_id, task)
                task.cancel(LOST)


async def abandon(run: StoredRun, reason: str, *, store: Journal, clock: Clock, tracer: Tracer | None) -> None:
    """Store that a run of this worker has failed for this reason, and send its spans."""
    log.error("run %s cannot go on: %s", run.id, reason)
    now_s = clock.time()
    ended = replace(
        run, state="failed", error_code="internal_error", error=reason, updated_s=now_s, owner=None, lease_s=0.0
    )
    facts = orjson.dumps({"run_id": run.id, "state": "failed"})
    event = RunEvent(tenant=run.tenant, run_id=run.id, type="run.finished", data=facts, created_s=now_s)
    waiting = () if tracer is None else await list_waiting_approvals(run, store)
    with suppress(ConflictError):
        await store.write(Change(run=ended, events=(event,)))
        send_failed_spans(run, tracer, waiting=waiting, error="internal_error", now_s=now_s)
