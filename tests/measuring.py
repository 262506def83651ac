"""Counts what our own code costs, in a way that does not depend on what else the machine does."""

import asyncio
import time


class Effort:
    """The CPU time that this thread took since it was made: the time of other processes is not in it."""

    def __init__(self) -> None:
        self._began_s = time.thread_time()

    @property
    def cpu_s(self) -> float:
        return time.thread_time() - self._began_s


class LoopTime:
    """The time that the running event loop had since it was made, in ticks of a timer, each counted once.

    A loop that stands still because the machine does counts one tick, however late it is. So a gateway on the same
    loop that waits for a timer of its own needs as many ticks on a busy machine as on a quiet one.
    """

    TICK_S = 0.01

    def __init__(self) -> None:
        self._ticks = 0
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(self.TICK_S, self._tick)

    def within(self, promise_s: float) -> None:
        """Ends the counting; fails where the loop had more time than promised."""
        self._timer.cancel()
        had_s = self._ticks * self.TICK_S
        assert had_s <= promise_s, f"promised within {promise_s} s, the event loop had {had_s:.2f} s"

    def _tick(self) -> None:
        self._ticks += 1
        self._timer = self._loop.call_later(self.TICK_S, self._tick)
