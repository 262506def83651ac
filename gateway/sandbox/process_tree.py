"""The living descendants of this process: found, counted, and ended.

The process that uses this has made itself the reaper of orphans (PR_SET_CHILD_SUBREAPER), so that none can leave the
family.
"""

import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_DEAD: Final = frozenset("ZXx")
_PAUSE_S: Final = 0.005
_LONGEST_PAUSE_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """One process; `depth` 1 is a child, `group` its process group, `tasks` the number of its threads."""

    pid: int
    parent: int
    group: int
    tasks: int
    depth: int = 0


def list_members(*, ended: bool = False) -> list[ProcessInfo]:
    """Return all descendants of this process that live; also processes that have `ended` and wait to be reaped."""
    children: dict[int, list[ProcessInfo]] = {}
    with os.scandir(_PROC) as entries:
        for entry in entries:
            if entry.name.isdigit() and (member := _read_process(entry.name, ended=ended)) is not None:
                children.setdefault(member.parent, []).append(member)
    found: list[ProcessInfo] = []
    generation, depth = children.get(os.getpid(), []), 1
    while generation:
        found += [ProcessInfo(m.pid, m.parent, m.group, m.tasks, depth) for m in generation]
        generation, depth = [child for m in generation for child in children.get(m.pid, [])], depth + 1
    return found


def reap() -> dict[int, int]:
    """Return the exit codes, as shells count, of the children that have ended since the last time."""
    ended: dict[int, int] = {}
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                break
            code = os.waitstatus_to_exitcode(status)
            ended[pid] = code if code >= 0 else 128 - code
    return ended


def end_descendants(*, grace_s: float, spared: int = 0) -> dict[int, int]:
    """End every descendant, SIGTERM first if there is grace, and return the exit codes of the children.

    `spared` generations get no SIGTERM: the frame of a sandbox, which would take down what it holds.
    """
    codes: dict[int, int] = {}
    deadline = time.monotonic() + grace_s
    if grace_s > 0:
        _send_signal(signal.SIGTERM, (m for m in list_members() if m.depth > spared))
        while time.monotonic() < deadline and list_members():
            codes |= reap()
            time.sleep(_PAUSE_S)
    pause_s = _PAUSE_S
    while left := list_members():
        # A group is signalled at once, so that a process which forks all the time cannot run away.
        groups = {m.group for m in left} - {os.getpgid(0), 0}
        for group in groups:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)
        _send_signal(signal.SIGKILL, left)
        codes |= reap()
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
    return codes | reap()


def count_user_tasks() -> int:
    """Return how many tasks count against RLIMIT_NPROC of this user, as far as they can be seen."""
    user, count = os.getuid(), 0
    with os.scandir(_PROC) as entries:
        for entry in entries:
            with suppress(OSError):
                if entry.name.isdigit() and entry.stat().st_uid == user:
                    count += sum(1 for _ in Path(entry.path, "task").iterdir())
    return count


def _send_signal(number: signal.Signals, to: Iterable[ProcessInfo]) -> None:
    for member in to:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(member.pid, number)


def _read_process(pid: str, *, ended: bool) -> ProcessInfo | None:
    """Return a process by its /proc/PID/stat; None: it is gone, or has ended and `ended` is False."""
    try:
        text = _PROC.joinpath(pid, "stat").read_bytes()
    except OSError:
        return None
    # The name stands in parentheses and may hold anything; proc_pid_stat(5) counts from its end.
    fields = text.rpartition(b")")[2].split()
    tasks = int(fields[17])
    # The state is that of the first thread. Where that has ended and others have not, it is a zombie, and counted.
    if fields[0].decode() in _DEAD and tasks <= 1 and not ended:
        return None
    return ProcessInfo(int(pid), int(fields[1]), int(fields[2]), max(tasks, 1))
