"""The beats of a process: whether it stood still, so that keys revoked meanwhile would still be known to it."""

from collections.abc import Callable
from typing import Final

#: A process that was late by so much has stood still: it was stopped, say, or had no memory.
STILL_S: Final = 2.0


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

    def record_beat(self) -> float:
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
