"""The wait of a run for a store that fails, once one of its calls has requested an approval.

1. A person's decision is executed, or waits. A store that fails ends no run that has requested an approval.
2. No call runs meanwhile: each call still needs its line `started` first.
3. A run waits here for `WAIT_S`. Then it stays in the store as it is, and any worker that can write takes it up.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from gateway.agent.budget import TimeBudget
from gateway.contracts.plugin import Clock, Counters
from gateway.contracts.storage.store import StoreError, UntoldError, UnwrittenError
from gateway.runs.recorder import RunRecorder

log = logging.getLogger("gateway")

#: The first pause between two looks at the store, and the longest; each is twice the one before it.
FIRST_S, LONGEST_S = 0.1, 2.0
WAIT_S = 30.0
#: States of a step that needed an approval, or that a person must know about.
_OWED = frozenset(("requested", "started", "unknown"))


def build_left_run_error(run_id: str) -> UntoldError:
    """Return the answer to a request whose run is left in the store."""
    text = f"The gateway's store failed. The run {run_id} waits for it and goes on by itself: look at it with its id."
    return UntoldError("store_full", text)


class Patience:
    """The waits of one run. Their time does not count as the run's."""

    def __init__(self, recorder: RunRecorder, budget: TimeBudget, *, clock: Clock, counters: Counters) -> None:
        self._record = recorder
        self._budget = budget
        self._clock = clock
        self._counters = counters
        self._since_s: float | None = None  # monotonic
        self._pause_s = FIRST_S

    def is_recoverable(self, failure: BaseException) -> bool:
        """Return whether the store failed and the run must not end for that."""
        is_owed = self._record.is_stored and any(step.state in _OWED for step in self._record.steps)
        return is_owed and isinstance(failure, StoreError | UnwrittenError)

    def reset_wait(self) -> None:
        """Reset the wait, because the store works: the next failure counts as a first one."""
        if self._since_s is not None:
            self._count_wait("resumed")

    async def retry_until_done(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work`, again and again while the store fails.

        Raises the errors of `work`, and the failure of the store once that has lasted for `WAIT_S`.
        """
        while True:
            try:
                await work()
            except (StoreError, UnwrittenError) as failure:
                await self.wait(failure)
            else:
                self.reset_wait()
                return

    async def wait(self, failure: Exception) -> None:
        """Wait until the run may try again. Raises `failure` if it must not wait or has waited long enough."""
        if not self.is_recoverable(failure):
            raise failure
        now_s = self._clock.monotonic()
        if self._since_s is None:
            self._since_s = now_s
            log.error("run %s waits for the store: %s", self._record.exchange.id, failure)
            self._counters.count("store_waits", outcome="begun")
        elif now_s - self._since_s >= WAIT_S:
            log.error("run %s is left until the store works: %s", self._record.exchange.id, failure)
            self._count_wait("left")
            raise failure
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, LONGEST_S)
        with self._budget.pause():
            await asyncio.sleep(pause_s)

    def _count_wait(self, outcome: str) -> None:
        self._since_s, self._pause_s = None, FIRST_S
        self._counters.count("store_waits", outcome=outcome)
