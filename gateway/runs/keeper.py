"""Keeps the leases of this worker's runs, and takes up runs that nobody drives any more.

A run whose process died is somebody else's after its lease; one that waited in the store goes on once its approvals
are decided. Whoever lost a run is told, so that it stops.
"""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable

from gateway.contracts import Clock, StoreError
from gateway.journal import Journal, RunState, StoredRun
from gateway.runs.record import LEASE_S

log = logging.getLogger("gateway")

#: How often leases are renewed and abandoned runs are looked for; so many are taken up at once.
LOOK_S, AT_ONCE = LEASE_S / 4, 20
#: What goes on by itself.
TAKEN_UP: tuple[RunState, ...] = ("running", "awaiting_approval")


class Keeper:
    """One worker's hold on its runs. `resume` lets a run go on that is ours now."""

    def __init__(self, store: Journal, *, clock: Clock, resume: Callable[[StoredRun], Awaitable[None]]) -> None:
        self.owner = "worker_" + secrets.token_hex(8)
        self._store = store
        self._clock = clock
        self._resume = resume
        self._held: dict[str, asyncio.Task[None]] = {}

    def hold(self, run_id: str, task: "asyncio.Task[None]") -> None:
        """From now on the run's lease is renewed; `task` drives it, and is cancelled if somebody else has it."""
        self._held[run_id] = task

    def drop(self, run_id: str, task: "asyncio.Task[None] | None") -> None:
        """`task` drives the run no more; another one may, from where this one left it."""
        if self._held.get(run_id, self) is task:
            del self._held[run_id]

    async def claim(self, run_id: str, *states: RunState) -> StoredRun | None:
        """The run, ours from now on, if it is in one of these states and nobody drives it. Raises StoreError."""
        found = await self._claim(states, run_id=run_id)
        return found[0] if found else None

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            try:
                await self._renew()
                for run in await self._claim(TAKEN_UP, run_id=None):
                    await self._take_up(run)
            except StoreError as error:
                log.error("the store failed: %s", error)
            await asyncio.sleep(LOOK_S)

    async def _take_up(self, run: StoredRun) -> None:
        """One that cannot go on must not stop the others."""
        log.info("run %s goes on (%s)", run.id, run.state)
        try:
            await self._resume(run)
        except StoreError:
            raise
        except Exception:
            log.exception("run %s cannot go on", run.id)

    async def _claim(self, states: tuple[RunState, ...], *, run_id: str | None) -> list[StoredRun]:
        now_s = self._clock.time()
        runs = await self._store.claim(
            owner=self.owner, now_s=now_s, until_s=now_s + LEASE_S, states=states, run_id=run_id, limit=AT_ONCE
        )
        return list(runs)

    async def _renew(self) -> None:
        if not self._held:
            return
        held = dict(self._held)
        ours = await self._store.renew(owner=self.owner, until_s=self._clock.time() + LEASE_S)
        for run_id in held.keys() - set(ours):
            task = held[run_id]
            if self._held.get(run_id) is task:  # else it ended, or was taken up anew, while the store answered
                log.warning("run %s is not this worker's any more", run_id)
                self.drop(run_id, task)
                task.cancel()
