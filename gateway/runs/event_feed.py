"""The event feed: delivers new events of the store to the runs that wait in this worker.

Examples are an approval that another worker decided, or a run that was cancelled elsewhere. One query serves all of
them, and no query runs while nothing waits.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from gateway.aio.clock import wait_until_set
from gateway.contracts.storage.journal import Journal, RunEvent
from gateway.contracts.storage.store import StoreError

log = logging.getLogger("gateway")

#: The pauses between two reads of the store, and after it failed. A write of this process ends a pause at once.
LOOK_S, STORE_PAUSE_S = 0.2, 2.0
#: Events of one query.
BATCH = 500
Heard = Callable[[RunEvent], None]


class EventFeed:
    """The event feed of one store."""

    def __init__(self, store: Journal) -> None:
        self._store = store
        self._of_run: dict[str, dict[Heard, int]] = {}
        self._of_all: dict[Heard, int] = {}
        self._partings: list[Callable[[], None]] = []
        self._seen = -1
        self._nudged = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._opening = asyncio.Lock()
        self.leaving = False

    @asynccontextmanager
    async def subscribe(
        self, heard: Heard, *, run_id: str | None = None, parting: Callable[[], None] | None = None
    ) -> AsyncIterator[None]:
        """Pass each event that is written after this is entered to `heard`, of one run or of all.

        A callback gets each event once, however often it is registered. `parting` is called when the process is about
        to stop; `leaving` is then true. Raises StoreError.
        """
        if parting is not None:
            self._partings.append(parting)
        hearers = self._of_all if run_id is None else self._of_run.setdefault(run_id, {})
        hearers[heard] = hearers.get(heard, 0) + 1
        try:
            async with self._opening:
                if self._task is None or self._task.done():
                    self._seen = await self._store.get_last_event()
                    self._task = asyncio.get_running_loop().create_task(self._poll_events())
            yield
        finally:
            hearers[heard] -= 1
            if not hearers[heard]:
                del hearers[heard]
            if parting is not None:
                self._partings.remove(parting)
            if run_id is not None and not hearers:
                self._of_run.pop(run_id, None)

    def announce_stop(self) -> None:
        """Call every `parting`, because the process is about to stop. Runs then wait for people in the store."""
        self.leaving = True
        for parting in self._partings:
            parting()

    def nudge(self) -> None:
        """Make the feed read the store now, because this process has written to it."""
        self._nudged.set()

    async def close(self) -> None:
        """Stop the feed: no event is delivered any more. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _poll_events(self) -> None:
        """Read new events from the store and deliver them, as long as there is a subscriber."""
        while self._of_run or self._of_all:
            pause_s = LOOK_S
            try:
                events = await self._store.list_events(after=self._seen, limit=BATCH)
            except StoreError as error:
                log.error("the store failed: %s", error)
                events, pause_s = (), STORE_PAUSE_S
            for event in events:
                self._seen = event.seq
                self._deliver(event)
            if len(events) == BATCH:
                continue
            await wait_until_set(self._nudged, pause_s)
            self._nudged.clear()

    def _deliver(self, event: RunEvent) -> None:
        for heard in (*self._of_run.get(event.run_id, ()), *self._of_all):
            try:
                heard(event)
            except Exception:  # the others must get it
                log.exception("an event of run %s was not heard", event.run_id)
