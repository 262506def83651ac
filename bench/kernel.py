"""The kernel's figures for processes and the machine: CPU time, memory, and time that other programs took."""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def process_family(root: int) -> list[int]:
    """Return the processes of the session that `root` leads, and all their descendants."""
    parents: dict[int, int] = {}
    family = {root}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                # After the parenthesised name: state, parent, process group, session.
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)] = int(fields[1])
                if int(fields[3]) == root:
                    family.add(int(entry.name))
    while children := {child for child, parent in parents.items() if parent in family} - family:
        family |= children
    return sorted(family)


def read_cpu_s(processes: list[int]) -> float:
    """Return the CPU time of all threads, from the scheduler's nanoseconds: the ticks of `stat` are too coarse."""
    spent_ns = 0
    for process in processes:
        for schedstat in PROC.glob(f"{process}/task/*/schedstat"):
            with suppress(OSError):
                spent_ns += int(schedstat.read_text().split()[0])
    return spent_ns / 1e9


def read_memory_mb(processes: list[int]) -> float:
    """Return the proportional set size: pages shared by several workers count once."""
    size_kib = 0
    for process in processes:
        with suppress(OSError):
            for line in (PROC / str(process) / "smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    size_kib += int(line.split()[1])
    return size_kib / 1024


@dataclass(frozen=True, slots=True)
class MachineTime:
    """Seconds since boot, summed over the cores: `busy` with any process, `stolen` by other guests of the host."""

    busy_s: float
    stolen_s: float

    @classmethod
    def read(cls) -> "MachineTime":
        with (PROC / "stat").open() as stat:
            user, nice, system, _idle, _iowait, irq, softirq, stolen = map(int, stat.readline().split()[1:9])
        return cls((user + nice + system + irq + softirq) / TICKS_PER_S, stolen / TICKS_PER_S)
