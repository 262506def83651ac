"""Counters in memory that all workers of a gateway share: sums over the last minute, and what is under way now.

1. The supervisor makes one `SharedCounters` before it forks. Each worker opens it at its own place.
2. A counter has a row for each place. Only the worker at that place writes to the row; all read it. So nothing is
   locked, a killed worker leaves nothing half-written, and no count is lost.
3. A worker adds first and looks afterwards. Two that add the last one at the same moment both see too many: a limit is
   never exceeded, and the worst that can happen is that one request more is refused.
4. What a dead worker had used of the minute stays used. What it had under way is over: its successor clears that.

A window is a ring of ticks of a quarter of a second. A count is in the window for 60 to 60.25 s.
"""

import fcntl
import mmap
import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import Final

from gateway.contracts.allowance import LIMITS

#: The length of a tick and of a window.
TICK_S: Final = 0.25
WINDOW_S: Final = 60.0
#: Ticks of a window. One more than a minute has: a count is never in it for less than a minute.
TICKS: Final = int(WINDOW_S / TICK_S) + 1
#: The most counters, and the most memory that their rows may take. The system gives memory for what was written to.
COUNTERS: Final = 16_384
ROWS_BYTES: Final = 256 << 20
_DIGEST_BYTES: Final = 16
#: Words of a row: the last tick that was written, what is under way, requests over each limit, and the ticks.
LAST, NOW, OVER = 0, 1, 2
FIRST: Final = OVER + len(LIMITS)
_WORDS: Final = FIRST + TICKS
_ROW_BYTES: Final = 4 * (_WORDS + (-_WORDS) % 16)


class SharedCounters:
    """The memory of all counters. `places`: how many workers there are."""

    def __init__(self, *, places: int) -> None:
        self.places = places
        self.size = min(COUNTERS, ROWS_BYTES // (places * _ROW_BYTES))
        self._names_bytes = self.size * _DIGEST_BYTES
        self._memory = mmap.mmap(-1, self._names_bytes + self.size * places * _ROW_BYTES)
        self._lock = os.memfd_create("gateway-limits", os.MFD_CLOEXEC)
        weakref.finalize(self, os.close, self._lock)

    def row(self, number: int, place: int) -> memoryview:
        """Return the words of one row: 32 bits each, signed."""
        start = self._names_bytes + (number * self.places + place) * _ROW_BYTES
        return memoryview(self._memory)[start : start + 4 * _WORDS].cast("i")

    def number_of(self, name: str) -> int | None:
        """Return the number of the counter of this name, the same in all workers; None: there is no room for it."""
        digest = blake2b(name.encode(), digest_size=_DIGEST_BYTES).digest()
        start = int.from_bytes(digest[:8], "big") % self.size
        with self._locked():
            for step in range(self.size):
                number = (start + step) % self.size
                at = number * _DIGEST_BYTES
                known = self._memory[at : at + _DIGEST_BYTES]
                if known == digest:
                    return number
                if not any(known):
                    self._memory[at : at + _DIGEST_BYTES] = digest
                    return number
        return None

    def adopt(self, place: int) -> None:
        """Clear what a dead worker had under way at this place. Its successor calls this at its start."""
        names = memoryview(self._memory)[: self._names_bytes].cast("Q").tolist()  # the halves of all digests
        for number, half in enumerate(names[::2]):
            if half:
                self.row(number, place)[NOW] = 0

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the names alone. The kernel ends the lock with its process."""
        fcntl.lockf(self._lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._lock, fcntl.LOCK_UN)
