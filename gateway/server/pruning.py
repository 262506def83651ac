"""Deletes old rows of the store: a few at a time, by one process, so that other writers do not wait."""

import asyncio
import logging

from gateway.contracts.plugin import Clock
from gateway.contracts.storage.store import Store, StoreError

log = logging.getLogger("gateway")

#: Ended runs, hidden turns, responses, and conversations from their last change on are kept for thirty days.
KEPT_S = 30 * 24 * 3600.0
#: What is old is looked for so long after the start, and so often from then on.
FIRST_S, EVERY_S = 60.0, 3600.0
#: One process deletes; another one may once it has not been heard of for so long.
DUTY, DUTY_S = "prune", 60.0
#: Rows of the first transaction; later ones have as many as take about `STEP_S`, and the store is left alone for
#: `REST` times as long as one took.
ROWS, MOST_ROWS, STEP_S, REST = 50, 1000, 0.01, 4


class Pruner:
    """The pruning of one worker. `owner` names the worker."""

    def __init__(self, store: Store, *, owner: str, clock: Clock) -> None:
        self._store = store
        self._owner = owner
        self._clock = clock

    async def run(self) -> None:
        """Prune every `EVERY_S` until the task is cancelled."""
        await asyncio.sleep(FIRST_S)
        while True:
            try:
                gone = await self.prune_rows()
            except StoreError as error:
                log.error("the store failed: %s", error)
            else:
                if gone:
                    log.info("%d rows of the store were older than %d days and are deleted", gone, KEPT_S // 86400)
            await asyncio.sleep(EVERY_S)

    async def prune_rows(self) -> int:
        """Delete old rows until none are left or another process has the duty. Return how many were deleted."""
        loop = asyncio.get_running_loop()
        gone, rows, renewed_s = 0, ROWS, float("-inf")
        while True:
            began_s = loop.time()
            if began_s - renewed_s > DUTY_S / 2:
                if not await self._has_duty():
                    return gone
                began_s = renewed_s = loop.time()
            deleted = await self._store.prune(before_s=self._clock.time() - KEPT_S, limit=rows)
            if not deleted:
                return gone
            gone += deleted
            took_s = loop.time() - began_s
            rows = min(max(int(rows * STEP_S / max(took_s, STEP_S / 2)), 1), MOST_ROWS)
            await asyncio.sleep(REST * took_s)

    async def _has_duty(self) -> bool:
        now_s = self._clock.time()
        return await self._store.take_duty(DUTY, owner=self._owner, now_s=now_s, until_s=now_s + DUTY_S)
