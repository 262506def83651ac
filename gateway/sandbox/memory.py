"""The memory that some processes hold, counted by the kernel's figures for each: an upper bound that no process lowers.

Resident memory alone is not a bound. Pages of shared memory stay when no process has mapped them any more, and bytes
that wait in a socket belong to no process. `gateway.sandbox.seccomp` refuses what could not be counted here (memfd,
SysV, anonymous shared mappings); what is left is a shared mapping of /dev/zero, which has no bound once part of it is
unmapped, and sockets. The kernel's own memory for mappings, filters of system calls and events (inotify) is charged. So
is what a process watches (epoll), as its user has only so many watches, and so are its locks on files.
"""

import os
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

#: The numbers of proc_pid_status(5); memory is in KiB.
_NUMBERS: Final = re.compile(
    rb"^(RssAnon|RssFile|RssShmem|HugetlbPages|VmSwap|VmPTE|VmSize|FDSize|Seccomp_filters):\s+(\d+)", re.MULTILINE
)
#: A process sends its memory into swap when it likes (madvise(2), MADV_PAGEOUT), and swap is the machine's.
_HELD: Final = (b"RssAnon", b"RssFile", b"RssShmem", b"HugetlbPages", b"VmSwap", b"VmPTE")
_WATCHING: Final = "anon_inode:[eventpoll]"
_NOTIFIED: Final = frozenset({"anon_inode:inotify", "anon_inode:[fanotify]"})
_SHARED_ZERO: Final = b"/dev/zero (deleted)"
#: More than any limit: the end of a command.
UNBOUNDED: Final = 1 << 62
#: What a pair of sockets may hold for each of its ends: twice net.core.wmem_max (socket(7), SO_SNDBUF).
_WMEM_MAX: Final = Path("/proc/sys/net/core/wmem_max")
_USUAL_WMEM_BYTES: Final = 212_992
#: Of watches (epoll(7)) a user has one for about 5 KB of the machine's memory, for all of its processes: this leaves
#: most to others, even where a command may have all of the memory, and as many as are counted in milliseconds.
_WATCH_BYTES: Final = 32 << 10
#: A lock on a part of a file takes some 200 bytes of the kernel's memory, of which a process makes a million a second:
#: this ends it in time, and while they are counted in milliseconds.
_LOCK_BYTES: Final = 8 << 10
#: The kernel's own memory: for a mapping; for a filter of system calls; for the 16,384 events that wait at an inotify.
_MAPPING_BYTES, _FILTER_BYTES, _NOTIFIED_BYTES = 512, 16 << 10, 8 << 20
#: The CPU time of a count that takes some 30 ms for the usual number of processes. One that could not be counted in it
#: (millions of mappings, or of watches) could hold what it likes until the next count.
_COUNTING_S: Final = 2.0
_PIECE_BYTES: Final = 1 << 16


def measure_held_bytes(pids: Sequence[int], *, filtered: bool, enough_bytes: int = UNBOUNDED) -> int:
    """Return the memory of these processes in bytes; UNBOUNDED if it cannot be counted, or not soon.

    `filtered`: their system calls are, so that an ordinary program has no anonymous shared memory. Where the processes
    have more than `enough_bytes`, the rest is not counted.
    """
    count = _Count(filtered=filtered, enough_bytes=enough_bytes)
    with suppress(_EnoughError):
        for pid in pids:
            is_counted = False  # its memory: all of its threads have the same
            for thread in _list_threads(pid):
                try:
                    status = read_numbers(_read_file(f"{thread}/status"))
                except OSError:  # it has ended meanwhile
                    continue
                is_first, is_counted = not is_counted and b"VmSize" in status, is_counted or b"VmSize" in status
                count.add(thread, status, is_first=is_first)
    return count.total_bytes


class _EnoughError(Exception):
    """The end of a count, before all is counted."""


class _Count:
    """The memory that has been counted so far."""

    def __init__(self, *, filtered: bool, enough_bytes: int) -> None:
        self.total_bytes = 0
        self._filtered, self._enough_bytes = filtered, enough_bytes
        self._sockets: set[str] = set()
        self._socket_bytes = _read_socket_bytes()
        self._deadline = time.process_time() + _COUNTING_S

    def add(self, thread: str, status: Mapping[bytes, bytes], *, is_first: bool) -> None:
        """Add a thread, and the memory of its process if it `is_first` of it."""
        self._charge(int(status.get(b"Seccomp_filters", 0)) * _FILTER_BYTES)
        if is_first:
            self._charge(sum_shown_bytes(status))
        try:
            if is_first and self._filtered:
                self._add_mappings(f"{thread}/maps")
            for name in os.listdir(f"{thread}/fd"):  # noqa: PTH208
                with suppress(FileNotFoundError):
                    self._add_opened(os.readlink(f"{thread}/fd/{name}"), f"{thread}/fdinfo/{name}")  # noqa: PTH115
        except PermissionError:  # it hides (PR_SET_DUMPABLE, an unreadable program): count what it could hold
            self._charge(int(status.get(b"VmSize", 0)) << 10 if is_first else 0)
            self._charge(int(status.get(b"FDSize", 0)) * self._socket_bytes)
        except OSError:
            return

    def _add_mappings(self, place: str) -> None:
        """Add a fixed cost for each mapping; shared anonymous memory counts as unbounded."""
        with open(place, "rb", buffering=0) as maps:  # noqa: PTH123
            behind = b""
            while piece := maps.read(_PIECE_BYTES):
                if _SHARED_ZERO in behind + piece:
                    self._charge(UNBOUNDED)
                self._charge(piece.count(b"\n") * _MAPPING_BYTES)
                behind = piece[-len(_SHARED_ZERO) :]

    def _add_opened(self, link: str, facts: str) -> None:
        """Add what is open: a socket once, by its name (`socket:[inode]`), others at each descriptor."""
        cost = _NOTIFIED_BYTES if link in _NOTIFIED else 0
        if link.startswith("socket:") and link not in self._sockets:
            self._sockets.add(link)
            cost = self._socket_bytes
        elif link == _WATCHING:  # proc_pid_fdinfo(5)
            cost = _read_file(facts).count(b"tfd:") * _WATCH_BYTES
        elif link.startswith("/"):
            cost = _read_file(facts).count(b"\nlock:") * _LOCK_BYTES
        self._charge(cost)

    def _charge(self, cost_bytes: int) -> None:
        """Add bytes. Raises _EnoughError once the sum is enough, or counting takes too long."""
        late = time.process_time() > self._deadline
        self.total_bytes = min(self.total_bytes + cost_bytes, UNBOUNDED) if not late else UNBOUNDED
        if late or self.total_bytes > self._enough_bytes:
            raise _EnoughError


def read_numbers(status: bytes) -> dict[bytes, bytes]:
    """Return the numbers of a text of proc_pid_status(5) that are needed here, by their names."""
    return dict(_NUMBERS.findall(status))


def sum_shown_bytes(status: Mapping[bytes, bytes]) -> int:
    """Return the memory that the `numbers` of a process show: in its pages, and in swap."""
    return sum(int(status.get(name, 0)) << 10 for name in _HELD)


def measure_stored_bytes(scratch: str) -> int:
    """Return the memory that a file system in memory takes, with a KiB for each of its files and folders."""
    figures = os.statvfs(scratch)
    files = figures.f_files - figures.f_ffree
    return (figures.f_blocks - figures.f_bfree) * figures.f_frsize + (files << 10)


def _list_threads(pid: int) -> list[str]:
    """Return the folders of a process's threads.

    The first may have ended, and shows no memory then. Each may have its own descriptors.
    """
    try:
        return [f"/proc/{pid}/task/{name}" for name in os.listdir(f"/proc/{pid}/task")]  # noqa: PTH208
    except OSError:
        return []


def _read_file(place: str) -> bytes:
    with open(place, "rb", buffering=0) as file:  # noqa: PTH123 (a path object costs as much as the reading)
        return file.readall()


def _read_socket_bytes() -> int:
    try:
        return 2 * int(_WMEM_MAX.read_text())
    except (OSError, ValueError):  # not there in every network namespace
        return 2 * _USUAL_WMEM_BYTES
