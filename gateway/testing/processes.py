"""The process table of this machine (Linux /proc), as far as it tells who is left of a program that was started."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_GONE: Final = frozenset("ZXx")


@dataclass(frozen=True)
class Process:
    """One living process; a process number with another `started` is another process."""

    pid: int
    started: int
    parent: int
    session: int
    name: str


def living() -> dict[int, Process]:
    """All processes but the zombies, by process number."""
    found = (_read(entry) for entry in _PROC.iterdir() if entry.name.isdigit())
    return {process.pid: process for process in found if process is not None}


def living_process(pid: int) -> Process | None:
    """The process `pid`, unless it has ended."""
    return _read(_PROC / str(pid))


def family(leader: Process) -> set[Process]:
    """The descendants of `leader` and itself, and what is left of the session that it led."""
    table = living()
    if table.get(leader.pid, leader).started != leader.started:
        return set()  # the number was given to a stranger
    members = {process.pid for process in table.values() if leader.pid in (process.pid, process.session)}
    while more := {p.pid for p in table.values() if p.parent in members} - members:
        members |= more
    return {table[number] for number in members}


def still_living(processes: set[Process]) -> list[Process]:
    """Those of `processes` that have not ended, in the order of their numbers."""
    table = living()
    same = (p for p in processes if (now := table.get(p.pid)) is not None and now.started == p.started)
    return sorted(same, key=lambda process: process.pid)


def _read(entry: Path) -> Process | None:
    try:
        stat = entry.joinpath("stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name stands in parentheses and may hold spaces and parentheses itself; proc_pid_stat(5) counts from there.
    name, _, rest = stat.partition("(")[2].rpartition(")")
    fields = rest.split()
    if fields[0] in _GONE:
        return None
    return Process(int(entry.name), int(fields[19]), int(fields[1]), int(fields[3]), name)
