"""A simulation of discrete events: processes that wait for each other at stations, by a clock of its own.

A process is a generator. What it yields is a wait: a callable that gets the function which resumes the process. The
same seed gives the same course.
"""

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field

Resume = Callable[[], None]
Wait = Callable[[Resume], None]
Process = Generator[Wait, None, None]


class Simulation:
    """The clock, the processes, and the chance of one course."""

    def __init__(self, seed: int) -> None:
        self.now_s = 0.0
        self.chance = random.Random(seed)
        self._order = itertools.count()
        self._due: list[tuple[float, int, Resume]] = []

    def schedule(self, pause_s: float, resume: Resume) -> None:
        """Call a function after a time."""
        heapq.heappush(self._due, (self.now_s + pause_s, next(self._order), resume))

    def start(self, process: Process) -> None:
        """Let a process run until its first wait."""

        def resume() -> None:
            wait = next(process, None)
            if wait is not None:
                wait(resume)

        resume()

    def pause(self, pause_s: float) -> Wait:
        return lambda resume: self.schedule(pause_s, resume)

    def run(self, until_s: float) -> None:
        """Let time pass."""
        while self._due and self._due[0][0] <= until_s:
            self.now_s, _, resume = heapq.heappop(self._due)
            resume()
        self.now_s = until_s


@dataclass(slots=True)
class StationCounts:
    """The counts of a station since `began_s`: who came and left, how long all were there, and the waiting times."""

    began_s: float = 0.0
    came: int = 0
    left: int = 0
    busy_s: float = 0.0
    present_s: float = 0.0
    waited_s: list[float] = field(default_factory=list)
    waited_sum_s: float = 0.0


class Station:
    """Some servers with one queue, first come, first served: the cores of a machine, connections, or a lock."""

    def __init__(self, simulation: Simulation, name: str, servers: int = 1) -> None:
        self.name = name
        self.servers = servers
        self.counts = StationCounts()
        self._simulation = simulation
        self._taken = 0
        self._queue: deque[tuple[float, Resume]] = deque()
        self._changed_s = 0.0

    @property
    def queue_length(self) -> int:
        return len(self._queue)

    def clear_counts(self) -> None:
        """Count from now on: the course has warmed up."""
        self.counts = StationCounts(began_s=self._simulation.now_s)
        self._changed_s = self._simulation.now_s

    def acquire(self) -> Wait:
        """Return the wait for a server, which is the process's own until it is released."""

        def begin(resume: Resume) -> None:
            self._count()
            self.counts.came += 1
            if self._taken < self.servers:
                self._taken += 1
                self._note_wait(0.0)
                self._simulation.schedule(0.0, resume)
            else:
                self._queue.append((self._simulation.now_s, resume))

        return begin

    def release(self) -> None:
        self._count()
        self.counts.left += 1
        if self._queue:
            came_s, resume = self._queue.popleft()
            self._note_wait(self._simulation.now_s - came_s)
            self._simulation.schedule(0.0, resume)
        else:
            self._taken -= 1

    def serve(self, service_s: float) -> Wait:
        """Return the wait for a server and its service."""

        def begin(resume: Resume) -> None:
            def finish() -> None:
                self.release()
                resume()

            self.acquire()(lambda: self._simulation.schedule(service_s, finish))

        return begin

    def measure_utilisation(self) -> float:
        """Return the busy part of all servers."""
        self._count()
        passed_s = self._simulation.now_s - self.counts.began_s
        return self.counts.busy_s / passed_s / self.servers if passed_s else 0.0

    def measure_presence(self) -> float:
        """Return the mean number of those who wait or are served."""
        self._count()
        passed_s = self._simulation.now_s - self.counts.began_s
        return self.counts.present_s / passed_s if passed_s else 0.0

    def measure_mean_wait_s(self) -> float:
        return self.counts.waited_sum_s / max(len(self.counts.waited_s), 1)

    def find_wait_s(self, part: float) -> float:
        """Return the time that this part of all waited at most; of the latest ones, where there are many."""
        waited_s = sorted(self.counts.waited_s)
        return waited_s[min(int(part * len(waited_s)), len(waited_s) - 1)] if waited_s else 0.0

    def _note_wait(self, waited_s: float) -> None:
        self.counts.waited_s.append(waited_s)
        self.counts.waited_sum_s += waited_s

    def _count(self) -> None:
        passed_s = self._simulation.now_s - self._changed_s
        self._changed_s = self._simulation.now_s
        self.counts.busy_s += passed_s * self._taken
        self.counts.present_s += passed_s * (self._taken + len(self._queue))


class BatchStation(Station):
    """A disk that makes durable at once all that waits: who comes during a flush waits for the next one."""

    def __init__(self, simulation: Simulation, name: str, *, flush_s: float) -> None:
        super().__init__(simulation, name)
        self.flushes = 0
        self._flush_s = flush_s
        self._waiting: list[tuple[float, Resume]] = []

    def clear_counts(self) -> None:
        super().clear_counts()
        self.flushes = 0

    def flush(self) -> Wait:
        """Return the wait until what was written before is durable."""

        def begin(resume: Resume) -> None:
            self.counts.came += 1
            self._waiting.append((self._simulation.now_s, resume))
            if not self._taken:
                self._begin_flush()

        return begin

    def _begin_flush(self) -> None:
        self._count()
        batch, self._waiting, self._taken = self._waiting, [], 1
        for came_s, _ in batch:
            self._note_wait(self._simulation.now_s - came_s)

        def finish() -> None:
            self._count()
            self._taken = 0
            self.counts.left += len(batch)
            self.flushes += 1
            if self._waiting:
                self._begin_flush()
            for _, resume in batch:
                resume()

        self._simulation.schedule(self._flush_s, finish)
