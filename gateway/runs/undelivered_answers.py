"""Answers of runs with effects that no client has whole, in memory that all workers of a gateway share.

A client that repeats its request, without a mark, gets to any worker. By this memory that worker knows whether the
store has a run for it, and no request has to search the store for one.

1. The supervisor makes one `SharedAnswers` before it forks. Each worker opens it at its own place and writes there. At
   other places it only clears entries that it has delivered.
2. An answer is under way while a client of its worker reads it. It is owed once that client is gone, or its worker is:
   the system takes the lock of a worker that dies, however it dies. Once it is delivered, its time is negative.
3. A request has one entry of a place, by its digest. What another request overwrites there, and what is owed for longer
   than `JOINABLE_S`, is known to the store only.
"""

import fcntl
import mmap
import os
import struct
import weakref
from collections.abc import Callable
from hashlib import blake2b
from typing import Final

#: How long a finished or left run can be joined.
JOINABLE_S: Final = 60.0
#: Entries of a place. Each is a digest, and since when the answer is owed (monotonic): `_UNDER_WAY`, or `_NONE`. That
#: of a delivered one is negative.
ENTRIES: Final = 4096
_ENTRY: Final = struct.Struct("=16sd")
_UNDER_WAY, _NONE = float("inf"), 0.0
_PLACE_BYTES: Final = ENTRIES * _ENTRY.size


class SharedAnswers:
    """The memory of all workers' answers. `places`: how many workers there are."""

    def __init__(self, *, places: int) -> None:
        self.places = places
        self.memory = mmap.mmap(-1, places * _PLACE_BYTES)
        self.lock = os.memfd_create("gateway-answers", os.MFD_CLOEXEC)
        weakref.finalize(self, os.close, self.lock)


class OwedAnswers:
    """The answers of the worker at a `place`. `clock` is that of all workers (monotonic).

    It takes over from the worker that had the place: what that had under way is owed from now on. Make it in the
    process of its worker, because the system has its lock by process.
    """

    def __init__(self, shared: SharedAnswers, *, place: int, clock: Callable[[], float]) -> None:
        self._memory, self._lock = shared.memory, shared.lock
        self._place = place
        self._others = [other for other in range(shared.places) if other != place]
        self._clock = clock
        fcntl.lockf(self._lock, fcntl.LOCK_EX, 1, place)
        before = self._memory[place * _PLACE_BYTES : (place + 1) * _PLACE_BYTES]
        if before.strip(b"\0"):  # at the gateway's start there is nothing
            for number, (digest, since_s) in enumerate(_ENTRY.iter_unpack(before)):
                if since_s == _UNDER_WAY:
                    self._write_entry(place, number, digest, clock())

    def begin(self, fingerprint: str) -> None:
        """Record that a run which may have an effect answers this request."""
        if self._others:
            digest, number = _locate_entry(fingerprint)
            self._write_entry(self._place, number, digest, _UNDER_WAY)

    def note_lost_client(self, fingerprint: str) -> None:
        """Record that the client left before it had the whole answer, or got an error."""
        digest, number = _locate_entry(fingerprint)
        if self._others and self._read_since_s(self._place, number, digest) == _UNDER_WAY:
            self._write_entry(self._place, number, digest, self._clock())

    def mark_delivered(self, fingerprint: str) -> None:
        """Record that a client has the whole answer, so that an equal request begins a new run."""
        if not self._others:
            return
        digest, number = _locate_entry(fingerprint)
        if self._read_since_s(self._place, number, digest) != _NONE:
            self._write_entry(self._place, number, digest, -self._clock())
        for other in self._others:
            if self._is_owed(self._read_since_s(other, number, digest)):
                self._write_entry(other, number, digest, _NONE)

    def has(self, fingerprint: str) -> bool:
        """Return whether a worker still has the answer to this request, or died while making it."""
        if not self._others:
            return False
        digest, number = _locate_entry(fingerprint)
        for place in (self._place, *self._others):
            since_s = self._read_since_s(place, number, digest)
            if self._is_owed(since_s) or (since_s == _UNDER_WAY and place != self._place and self._is_unlocked(place)):
                return True
        return False

    def is_clients(self, fingerprint: str) -> bool:
        """Return whether a living worker gives the answer to this request to a client, or has given it."""
        digest, number = _locate_entry(fingerprint)
        for place in (self._place, *self._others):
            since_s = self._read_since_s(place, number, digest)
            is_under_way = since_s == _UNDER_WAY and not (place != self._place and self._is_unlocked(place))
            if is_under_way or (since_s < _NONE and self._clock() - JOINABLE_S <= -since_s):
                return True
        return False

    def _is_owed(self, since_s: float) -> bool:
        return since_s > _NONE and self._clock() - JOINABLE_S <= since_s < _UNDER_WAY

    def _is_unlocked(self, place: int) -> bool:
        """Return whether no process has the lock of a place."""
        try:
            fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
        except OSError:
            return False
        fcntl.lockf(self._lock, fcntl.LOCK_UN, 1, place)
        return True

    def _read_since_s(self, place: int, number: int, digest: bytes) -> float:
        """Return the time of an entry; `_NONE`: it is another request's."""
        found, since_s = _ENTRY.unpack_from(self._memory, place * _PLACE_BYTES + number * _ENTRY.size)
        return float(since_s) if found == digest else _NONE

    def _write_entry(self, place: int, number: int, digest: bytes, since_s: float) -> None:
        _ENTRY.pack_into(self._memory, place * _PLACE_BYTES + number * _ENTRY.size, digest, since_s)


def _locate_entry(fingerprint: str) -> tuple[bytes, int]:
    """Return the digest and the entry of a request."""
    digest = blake2b(fingerprint.encode(), digest_size=16).digest()
    return digest, int.from_bytes(digest[:4]) % ENTRIES
