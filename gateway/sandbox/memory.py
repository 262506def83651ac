"""The memory that some processes hold, counted by what the kernel tells of each: an upper bound that no process lowers.

Resident memory alone is no bound. Pages of shared memory stay when no process has mapped them any more, and bytes that
wait in a socket belong to no process. `gateway.sandbox.seccomp` refuses what could not be counted here (memfd, SysV,
anonymous shared mappings); what is left is a shared mapping of /dev/zero, which nobody can bound once part of it is
unmapped, and sockets. What a process watches (epoll) is charged, too, as its user has only so many watches.
"""

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

#: The numbers of proc_pid_status(5); memory is in KiB.
_NUMBERS: Final = re.compile(rb"^(RssAnon|RssFile|RssShmem|HugetlbPages|VmSwap|VmSize|FDSize):\s+(\d+)", re.MULTILINE)
#: A process sends its memory into swap when it likes (madvise(2), MADV_PAGEOUT), and swap is the machine's.
_HELD: Final = (b"RssAnon", b"RssFile", b"RssShmem", b"HugetlbPages", b"VmSwap")
_WATCHING: Final = "anon_inode:[eventpoll]"
_SHARED_ZERO: Final = b"/dev/zero (deleted)"
#: More than any limit: the end of a command.
UNBOUNDED: Final = 1 << 62
#: What a pair of sockets may hold for each of its ends: twice net.core.wmem_max (socket(7), SO_SNDBUF).
_WMEM_MAX: Final = Path("/proc/sys/net/core/wmem_max")
_USUAL_WMEM_BYTES: Final = 212_992
#: Of watches (epoll(7)) a user has one for about 5 KB of the machine's memory, for all of its processes: this leaves
#: most to others, even where a command may have all of the memory, and as many as are counted in milliseconds.
_WATCH_BYTES: Final = 32 << 10


def held_bytes(pids: Sequence[int], *, filtered: bool) -> int:
    """Return the memory of these processes in bytes; UNBOUNDED if one of them shares memory that cannot be counted.

    `filtered`: their system calls are, so that an ordinary program has no anonymous shared memory.
    """
    total, sockets, unseen, watches = 0, set[str](), 0, 0
    for pid in pids:
        is_counted = False  # its memory: all of its threads have the same
        for thread in _threads(pid):
            try:
                status = numbers(_read(f"{thread}/status"))
            except OSError:  # it has ended meanwhile
                continue
            is_first, is_counted = not is_counted and b"VmSize" in status, is_counted or b"VmSize" in status
            if is_first:
                total += shown_bytes(status)
            try:
                if is_first and filtered and _SHARED_ZERO in _read(f"{thread}/maps"):
                    return UNBOUNDED
                opened, watching = _opened(f"{thread}/fd")
                sockets |= opened
                watches += sum(_watches(f"{thread}/fdinfo/{name}") for name in watching)
            except PermissionError:  # it hides (PR_SET_DUMPABLE, an unreadable program): count what it could hold
                total += int(status.get(b"VmSize", 0)) << 10 if is_first else 0
                unseen += int(status.get(b"FDSize", 0))
            except OSError:
                continue
    return total + (len(sockets) + unseen) * _socket_bytes() + watches * _WATCH_BYTES


def numbers(status: bytes) -> dict[bytes, bytes]:
    """Return the numbers of a text of proc_pid_status(5) that are needed here, by their names."""
    return dict(_NUMBERS.findall(status))


def shown_bytes(status: Mapping[bytes, bytes]) -> int:
    """Return the memory that the `numbers` of a process show: in its pages, and in swap."""
    return sum(int(status.get(name, 0)) << 10 for name in _HELD)


def stored_bytes(scratch: str) -> int:
    """Return the memory that a file system in memory takes, with a KiB for each of its files and folders."""
    figures = os.statvfs(scratch)
    files = figures.f_files - figures.f_ffree
    return (figures.f_blocks - figures.f_bfree) * figures.f_frsize + (files << 10)


def _threads(pid: int) -> list[str]:
    """Return the folders of a process's threads.

    The first may have ended, and shows no memory then. Each may have descriptors of its own.
    """
    try:
        return [f"/proc/{pid}/task/{name}" for name in os.listdir(f"/proc/{pid}/task")]  # noqa: PTH208
    except OSError:
        return []


def _read(place: str) -> bytes:
    with open(place, "rb", buffering=0) as file:  # noqa: PTH123 (a path object costs as much as the reading)
        return file.readall()


def _opened(folder: str) -> tuple[set[str], list[str]]:
    """Return the sockets that a process has open, by their names in /proc (`socket:[inode]`).

    And the numbers of the descriptors by which it watches others.
    """
    found, watching = set(), []
    for name in os.listdir(folder):  # noqa: PTH208
        with suppress(FileNotFoundError):
            link = os.readlink(f"{folder}/{name}")  # noqa: PTH115
            if link.startswith("socket:"):
                found.add(link)
            elif link == _WATCHING:
                watching.append(name)
    return found, watching


def _watches(place: str) -> int:
    """Return how many watches one descriptor holds (proc_pid_fdinfo(5), `tfd`): each thread that has it counts them."""
    with suppress(FileNotFoundError):
        return _read(place).count(b"tfd:")
    return 0


def _socket_bytes() -> int:
    try:
        return 2 * int(_WMEM_MAX.read_text())
    except (OSError, ValueError):  # not there in every network namespace
        return 2 * _USUAL_WMEM_BYTES
