"""Counts in memory that all processes of a gateway share. A killed or stopped worker's counts remain.

1. The supervisor makes one `SharedCounts` for each worker before it forks. Only that worker writes to it. All read it.
2. A worker that replaces a dead one adds to the dead worker's counts, so that no sum runs backwards.
3. A directory of names stands in front of the values. A name is there before its values, and never moves.
"""

import json
import mmap
import struct
from collections.abc import Iterable
from operator import add

from gateway.contracts.figures import Counted, Counts, Key

#: Room for 20,000 names of a hundred characters, and for the values of as many histograms. The system gives memory for
#: what was written to, not for all of it.
NAMES_BYTES, VALUES_BYTES = 2 << 20, 4 << 20
_LENGTH = struct.Struct("=Q")
_VALUE_BYTES = 8


class SharedCounts:
    """The counts of one worker's place, whichever process has that place now."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, NAMES_BYTES + VALUES_BYTES)
        self._places: dict[Key, tuple[int, int]] = {}  # where its values begin, and how many there are
        self._names_end = self._first_name = _LENGTH.size
        self._values_end = NAMES_BYTES
        self._before: Counts = {}
        self.full = False

    def adopt_place(self) -> None:
        """Adopt the counts of the process whose place the calling worker takes. The worker calls this at its start."""
        self._before = self.read()

    def write(self, counted: Iterable[Counted]) -> None:
        """Write all that the calling worker has counted since its start."""
        for key, values in counted:
            mine = tuple(values)
            place = self._places.get(key) or self._add_name(key, len(mine))
            if place is None:
                self.full = True
                continue
            before = self._before.get(key)
            total = mine if before is None else tuple(map(add, before, mine))
            struct.pack_into(f"={place[1]}d", self._memory, place[0], *total)

    def read(self) -> Counts:
        """Return all that was counted here, by every worker that had this place."""
        self._read_new_names()
        memory, unpack = self._memory, struct.unpack_from
        return {key: unpack(f"={count}d", memory, start) for key, (start, count) in self._places.items()}

    def _read_new_names(self) -> None:
        """Read the names that other writers of this place have added since the last call."""
        (length,) = _LENGTH.unpack_from(self._memory, 0)
        end = self._first_name + length
        for line in self._memory[self._names_end : end].splitlines():
            name, labels, count = json.loads(line)
            self._reserve_values((name, tuple(labels)), count)
        self._names_end = end

    def _add_name(self, key: Key, count: int) -> tuple[int, int] | None:
        """Return a place for the values of a new name, or None if no room is left."""
        line = json.dumps([*key, count]).encode() + b"\n"
        end = self._names_end + len(line)
        if end > NAMES_BYTES or self._values_end + count * _VALUE_BYTES > NAMES_BYTES + VALUES_BYTES:
            return None
        self._memory[self._names_end : end] = line
        _LENGTH.pack_into(self._memory, 0, end - self._first_name)
        self._names_end = end
        return self._reserve_values(key, count)

    def _reserve_values(self, key: Key, count: int) -> tuple[int, int]:
        """Return a place for `count` values behind the last one, and remember it for the name."""
        place = self._places[key] = (self._values_end, count)
        self._values_end += count * _VALUE_BYTES
        return place
