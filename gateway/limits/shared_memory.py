"""Counters in memory that all workers of a gateway share: sums over the last minute, and what is under way now.

1. The supervisor makes one `SharedCounters` before it forks. Each worker opens it at its own place.
2. A counter has a row for each place. Only the worker at that place writes to the row; all read it. So nothing is
   locked, a killed worker leaves nothing half-written, and no count is lost.
3. A worker adds first and looks afterwards. Two that add the last one at the same moment both see too many: a limit is
   never exceeded, and the worst that can happen is that one request more is refused.
4. What a dead worker had used of the minute stays used. What it had under way is over: its successor clears that.
5. A worker holds the counters that it uses. One that no worker holds, and that has counted nothing for a minute, may be
   given to another name. Holds are taken and counters given away under one lock, for which only new names wait, so
   nobody writes to a counter that has another name by now.

A window is a ring of ticks of a quarter of a second. A count is in the window for 60 to 60.25 s.
"""

import fcntl
import mmap
import os
import secrets
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import Final

from gateway.contracts.allowance import LIMITS
from gateway.limits.share_memory import ShareMemory

#: The length of a tick and of a window.
TICK_S: Final = 0.25
WINDOW_S: Final = 60.0
#: Ticks of a window. One more than a minute has: a count is never in it for less than a minute.
TICKS: Final = int(WINDOW_S / TICK_S) + 1
#: The most counters, and the most memory that their rows may take. The system gives memory for what was written to.
COUNTERS: Final = 8192
ROWS_BYTES: Final = 256 << 20
_DIGEST_BYTES: Final = 16
#: Words of a row: the last tick that was written, what is under way, requests over each limit; for budgets the tokens
#: that requests under way hold, all that were used, how many of these are stored, since which tick, and how many were
#: before; and of each tick the requests and the tokens. A tick has its tokens `TICKS` words behind its requests.
LAST, NOW, OVER = 0, 1, 2
HELD: Final = OVER + len(LIMITS)
USED, STORED, STORED_AT, BEFORE, REQUESTS = range(HELD + 1, HELD + 6)
TOKENS: Final = REQUESTS + TICKS
_WORDS: Final = TOKENS + TICKS
_ROW_BYTES: Final = 4 * (_WORDS + (-_WORDS) % 16)


class SharedCounters:
    """The memory of all counters. `places`: how many workers there are. `gateway` is an id that all of them share.

    `shares` are those of limits that this gateway has in common with others; None: it counts for itself.
    """

    def __init__(self, *, places: int, has_shares: bool = False) -> None:
        self.places = places
        self.gateway = secrets.token_hex(8)
        self.size = min(COUNTERS, ROWS_BYTES // (places * _ROW_BYTES))
        self._names_bytes = self.size * _DIGEST_BYTES
        self._holds_at = self._names_bytes + self.size * places * _ROW_BYTES
        self._memory = mmap.mmap(-1, self._holds_at + self.size * places)
        self._hand = 0  # where the search for a counter to give away goes on
        self.shares = ShareMemory(places=places, size=self.size) if has_shares else None
        self._lock = os.memfd_create("gateway-limits", os.MFD_CLOEXEC)
        weakref.finalize(self, os.close, self._lock)

    def get_rows(self, number: int, place: int) -> tuple[memoryview, tuple[memoryview, ...]]:
        """Return the row of a counter to which `place` writes, and those of the others."""
        others = (other for other in range(self.places) if other != place)
        return self.get_row(number, place), tuple(self.get_row(number, other) for other in others)

    def get_row(self, number: int, place: int) -> memoryview:
        """Return the words of one row: 32 bits each, signed."""
        start = self._names_bytes + (number * self.places + place) * _ROW_BYTES
        return memoryview(self._memory)[start : start + 4 * _WORDS].cast("i")

    def hold_counter(self, name: str, *, place: int, now_s: float, makes: bool = True) -> int | None:
        """Return the number of the counter of this name, the same in all workers, which `place` holds from now on.

        None: it has none, and there is no room for one, or it should not be made.
        """
        digest = digest_name(name)
        with self._lock_names():
            names = self._memory[: self._names_bytes]
            number = _find_number(names, digest)
            if number is None:
                if not makes:
                    return None
                number = _find_number(names, bytes(_DIGEST_BYTES))
                if number is None and (number := self._find_unused(int(now_s / TICK_S))) is None:
                    return None
                self._clear(number, digest)
            self._memory[self._holds_at + place * self.size + number] = 1
            return number

    def release(self, number: int, *, place: int) -> None:
        """Hold a counter no more: `place` writes to it only after it has held it again."""
        self._memory[self._holds_at + place * self.size + number] = 0

    def list_held(self) -> list[int]:
        """Return the numbers of the counters that some worker holds."""
        held = bytes(self.size)
        for start in range(self._holds_at, self._holds_at + self.places * self.size, self.size):
            both = int.from_bytes(held, "little") | int.from_bytes(self._memory[start : start + self.size], "little")
            held = both.to_bytes(self.size, "little")
        return [number for number, is_held in enumerate(held) if is_held]

    def get_digest(self, number: int) -> bytes:
        """Return what tells a counter from others: that of its name (`digest_name`)."""
        return self._memory[number * _DIGEST_BYTES : (number + 1) * _DIGEST_BYTES]

    def adopt_place(self, place: int) -> None:
        """Clear what a dead worker had under way at this place, and its holds. Its successor calls this at first."""
        names = self._memory[: self._names_bytes]
        if names.strip(b"\0"):  # at the gateway's start there are none
            for number, half in enumerate(memoryview(names).cast("Q").tolist()[::2]):  # the halves of all digests
                if half:
                    row = self.get_row(number, place)
                    row[NOW] = row[HELD] = 0
                    row[STORED] = row[BEFORE] = row[USED]  # what was not stored is lost
        start = self._holds_at + place * self.size
        self._memory[start : start + self.size] = bytes(self.size)

    def _find_unused(self, tick: int) -> int | None:
        """Return a counter that nobody holds, and that has left the window."""
        size = self.size
        holds = [
            self._memory[at : at + size] for at in range(self._holds_at, self._holds_at + self.places * size, size)
        ]
        for step in range(size):
            number = (self._hand + step) % size
            if not any(held[number] for held in holds) and all(
                tick - self.get_row(number, place)[LAST] >= TICKS for place in range(self.places)
            ):
                self._hand = (number + 1) % size
                return number
        return None

    def _clear(self, number: int, digest: bytes) -> None:
        """Give a counter to a name."""
        start, length = self._names_bytes + number * self.places * _ROW_BYTES, self.places * _ROW_BYTES
        self._memory[start : start + length] = bytes(length)
        if self.shares is not None:
            self.shares.clear(number)
        self._memory[number * _DIGEST_BYTES : (number + 1) * _DIGEST_BYTES] = digest

    @contextmanager
    def _lock_names(self) -> Iterator[None]:
        """Hold the names alone. The kernel ends the lock with its process."""
        fcntl.lockf(self._lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._lock, fcntl.LOCK_UN)


def digest_name(name: str) -> bytes:
    """Return the digest of the name of a counter."""
    return blake2b(name.encode(), digest_size=_DIGEST_BYTES).digest()


def _find_number(names: bytes, digest: bytes) -> int | None:
    at = -1
    while (at := names.find(digest, at + 1)) >= 0:
        if at % _DIGEST_BYTES == 0:
            return at // _DIGEST_BYTES
    return None
