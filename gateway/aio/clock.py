"""The clock that everything but tests uses, the waits for an event or a time, and whether a process stood still."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

#: A process that was late by so much has stood still: it was stopped, say, or had no memory.
STILL_S: Final = 2.0


class SystemClock:
    """The clock that everything but tests uses. Requests ask it, so these are the functions themselves."""

    monotonic = staticmethod(time.monotonic)
    time = staticmethod(time.time)


async def wait_until_done(task: "asyncio.Future[Any]") -> None:
    """Wait until a task is over, through any number of cancellations of the caller. Its error is not raised."""
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait({task})


async def until_set(event: asyncio.Event, limit_s: float) -> bool:
    """Wait until an event is set, for so long at most. Return whether it was set in time.

    `asyncio.wait_for` of Python 3.11 swallows cancellations, and costs a task.
    """
    try:
        async with asyncio.timeout(limit_s):
            await event.wait()
    except TimeoutError:
        return False
    return True


class Beats:
    """The beats of a process, by which it knows that it stood still, and that what it has read may be old."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last_s: float | None = None  # None: nothing beats
        self._woken_s: float | None = None  # None: it did not stand still, or has read everything again

    @property
    def is_doubtful(self) -> bool:
        """Return whether the process stood still, and has not read again since."""
        return self._woken_s is not None or self._is_late(self._clock())

    def beat(self) -> float:
        """Record that the process goes on, and return the time: call this often."""
        now_s = self._clock()
        if self._is_late(now_s):
            self._woken_s = now_s
        self._last_s = now_s
        return now_s

    def read(self, began_s: float) -> None:
        """Record that everything was read, by a read that began then."""
        if self._woken_s is not None and began_s >= self._woken_s:
            self._woken_s = None

    def _is_late(self, now_s: float) -> bool:
        return self._last_s is not None and now_s - self._last_s > STILL_S
