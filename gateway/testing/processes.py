"""The process table of this machine (Linux /proc), to find the processes that remain of a started program."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

#: More than the line of one process.
_STAT_BYTES: Final = 1 << 12
_GONE: Final = frozenset("ZXx")


@dataclass(frozen=True)
class Process:
    """One living process; a process number with another `started` is another process."""

    pid: int
    started: int
    parent: int
    session: int
    name: str


def list_processes() -> dict[int, Process]:
    """Return all processes but the zombies, by process number."""
    with os.scandir("/proc") as entries:
        found = [_read_process(int(entry.name)) for entry in entries if entry.name.isdigit()]
    return {process.pid: process for process in found if process is not None}


def find_living_process(pid: int) -> Process | None:
    """Return the process `pid`, or None if it has ended."""
    return _read_process(pid)


def list_family(leader: Process) -> set[Process]:
    """Return `leader`, its descendants, and the processes left of the session that it led."""
    table = list_processes()
    if table.get(leader.pid, leader).started != leader.started:
        return set()  # another process has the number now
    members = {process.pid for process in table.values() if leader.pid in (process.pid, process.session)}
    while more := {p.pid for p in table.values() if p.parent in members} - members:
        members |= more
    return {table[number] for number in members}


def list_living(processes: Iterable[Process]) -> list[Process]:
    """Return the ones of `processes` that have not ended, in the order of their numbers."""
    same = (p for p in processes if (now := _read_process(p.pid)) is not None and now.started == p.started)
    return sorted(same, key=lambda process: process.pid)


def _read_process(pid: int) -> Process | None:
    try:
        file = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
    except (FileNotFoundError, ProcessLookupError):
        return None
    try:
        stat = os.read(file, _STAT_BYTES).decode(errors="replace")
    except ProcessLookupError:
        return None
    finally:
        os.close(file)
    # The name stands in parentheses and may hold spaces and parentheses itself; proc_pid_stat(5) counts from there.
    name, _, rest = stat.partition("(")[2].rpartition(")")
    fields = rest.split()
    if fields[0] in _GONE:
        return None
    return Process(pid, int(fields[19]), int(fields[1]), int(fields[3]), name)
