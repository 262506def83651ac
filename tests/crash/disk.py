"""A disk that fails as it is told to, under a process of its own; and what is left of its files after a power cut."""

import errno
import functools
import mmap
import random
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

SYNC, WRITE, READ = 1, 2, 4
ERRORS: Final = (errno.EIO, errno.ENOSPC)
_SOURCE = Path(__file__).with_name("disk.c")
_FIELDS = ("fails", "skip", "times", "error", "slow_ms", "lies", "failed", "dies", "written", "hangs", "hung")
_RECORD = struct.Struct("iiqq")
_SECTOR_BYTES = 512
FOREVER = 1 << 30


@functools.cache
def _library() -> Path:
    """Compiled once; the folder goes with this process."""
    folder = Path(tempfile.mkdtemp(prefix="disk-"))
    library = folder / "disk.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(_SOURCE), "-ldl"], check=True)
    return library


class Disk:
    """Under the store `place` of a process that is started with `env`; the files for it are in `folder`."""

    def __init__(self, place: Path, folder: Path, *, records: bool = False) -> None:
        control = folder / "disk.control"
        control.write_bytes(bytes(4 * len(_FIELDS)))
        with control.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), 0)
        self.record = folder / "disk.record"
        self.env = {"LD_PRELOAD": str(_library()), "DISK_FILES": str(place), "DISK_CONTROL": str(control)}
        if records:
            self.env["DISK_RECORD"] = str(self.record)

    def fail(self, *, what: int = SYNC, error: int = errno.EIO, skip: int = 0, times: int = FOREVER) -> None:
        """After `skip` more calls of this kind, so many of them fail."""
        self._set(fails=0)
        self._set(skip=skip, times=times, error=error)
        self._set(fails=what)

    def slow(self, ms: int) -> None:
        self._set(slow_ms=ms)

    def lie(self) -> None:
        self._set(lies=1)

    def die(self, number: int) -> None:
        """The process is killed before the write with this number, counted from now on; 0: before none."""
        self._set(dies=number)

    def hang(self) -> None:
        """No read returns until `heal`."""
        self._set(hung=0)
        self._set(hangs=1)

    def heal(self) -> None:
        self._set(fails=0, slow_ms=0, lies=0, dies=0, hangs=0)

    @property
    def failed(self) -> int:
        """How many calls have failed so far."""
        return self._get("failed")

    @property
    def hung(self) -> int:
        """How many reads did not return at once since `hang`."""
        return self._get("hung")

    @property
    def written(self) -> int:
        """How many writes have begun so far."""
        return self._get("written")

    def _get(self, name: str) -> int:
        found: int = struct.unpack_from("i", self._shared, 4 * _FIELDS.index(name))[0]
        return found

    def _set(self, **values: int) -> None:
        for name, value in values.items():
            struct.pack_into("i", self._shared, 4 * _FIELDS.index(name), value)


# Power cuts.


@dataclass
class _File:
    """What is on the disk for sure, and what was written since the last fsync."""

    content: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes]] = field(default_factory=list)

    def put(self, offset: int, data: bytes) -> None:
        if offset > len(self.content):
            self.content.extend(bytes(offset - len(self.content)))
        self.content[offset : offset + len(data)] = data

    def sync(self) -> None:
        for offset, data in self.pending:
            self.put(offset, data)
        self.pending.clear()

    def lose(self, chance: random.Random) -> None:
        """An fsync failed, or there never will be one: each sector is there, or not."""
        share = chance.choice((0.0, 0.5, 0.9, 1.0))
        for offset, data in self.pending:
            start = 0
            while start < len(data):
                end = min(start + _SECTOR_BYTES - (offset + start) % _SECTOR_BYTES, len(data))
                if chance.random() < share:
                    self.put(offset + start, data[start:end])
                start = end
        self.pending.clear()


@dataclass(frozen=True, slots=True)
class Cut:
    """A moment: what was told by then, and the store as it is found afterwards."""

    told: tuple[bytes, ...]
    database: bytes
    log: bytes

    def write(self, place: Path) -> None:
        place.write_bytes(self.database)
        place.with_name(f"{place.name}-wal").write_bytes(self.log)


def power_cuts(record: Path, *, database: bytes, count: int, chance: random.Random) -> Iterator[Cut]:
    """At so many moments of a record that began with this database, and no log."""
    entries = list(_entries(record.read_bytes()))
    moments = sorted(chance.sample(range(len(entries) + 1), min(count, len(entries) + 1)))
    files, told, at = (_File(bytearray(database)), _File()), list[bytes](), 0
    for moment in moments:
        for kind, index, offset, data in entries[at:moment]:
            file = files[index]
            match kind:
                case "o":
                    told.append(data)
                case "w":
                    file.pending.append((offset, data))
                case "s":
                    file.sync()
                case "f":
                    file.lose(chance)
                case "t":
                    file.sync()
                    del file.content[int.from_bytes(data, "little") :]
        at = moment
        left = [_File(bytearray(file.content), list(file.pending)) for file in files]
        for file in left:
            file.lose(chance)
        yield Cut(tuple(told), bytes(left[0].content), bytes(left[1].content))


def told_in(record: Path) -> list[bytes]:
    """Everything that somebody was told."""
    return [data for kind, _, _, data in _entries(record.read_bytes()) if kind == "o"]


def _entries(record: bytes) -> Iterator[tuple[str, int, int, bytes]]:
    at = 0
    while at < len(record):
        kind, index, offset, size = _RECORD.unpack_from(record, at)
        at += _RECORD.size
        if chr(kind) in "wo":
            yield chr(kind), index, offset, record[at : at + size]
            at += size
        else:
            yield chr(kind), index, offset, size.to_bytes(8, "little")


def tell(record: Path, text: bytes) -> None:
    """Puts what somebody was told among the calls."""
    with record.open("ab", buffering=0) as file:
        file.write(_RECORD.pack(ord("o"), 0, 0, len(text)) + text)
