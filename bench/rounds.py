"""One round: every system is started afresh, then all take turns within each workload."""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench import kernel
from bench.bar import Row
from bench.systems import NotReadyError, Running, System
from bench.workloads import (
    ANSWERS_30KB,
    CONTEXT,
    CONTEXT_64,
    CONTEXT_EVENTS,
    CONTEXT_FIRST_TEXTS,
    CONTEXT_STREAMS,
    EVENTS_10K,
    FIRST_TEXTS,
    LOW_LOAD,
    RESPONSES,
    RESPONSES_64,
    RESPONSES_EVENTS,
    RESPONSES_STREAMS,
    SATURATED,
    STREAMS_64,
    STREAMS_OPEN,
    Client,
    LoadError,
    Workload,
)

# The measure, its workload, and what the CPU is divided by.
CPU_MEASURES = (
    ("request_us", SATURATED, "requests"),
    ("answer_30kb_us", ANSWERS_30KB, "requests"),
    ("stream_us", STREAMS_64, "requests"),
    ("event_us", EVENTS_10K, "events"),
)
CONTEXT_MEASURES = (
    ("context_us", CONTEXT, "requests"),
    ("response_us", RESPONSES, "requests"),
    ("context_stream_us", CONTEXT_STREAMS, "requests"),
    ("response_stream_us", RESPONSES_STREAMS, "requests"),
    ("context_64_us", CONTEXT_64, "requests"),
    ("response_64_us", RESPONSES_64, "requests"),
    ("context_event_us", CONTEXT_EVENTS, "events"),
    ("response_event_us", RESPONSES_EVENTS, "events"),
)
SETTLE_S = 1.0


class Round:
    """The running systems of one round.

    All but the one under measurement are frozen. Measurements of one workload follow each other at once, so that the
    systems find the machine in the same state.
    """

    def __init__(self, client: Client, *, seconds: float, hold_s: float) -> None:
        self._client = client
        self._seconds = seconds
        self._hold_s = hold_s
        self._running: list[Running] = []
        self._stack = ExitStack()
        self.rows: dict[str, Row] = {}
        self.failures: list[str] = []
        self.disturbed: list[float] = []

    def __enter__(self) -> "Round":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start(self, order: Sequence[System], *, core: int, folder: Path) -> None:
        """Start the systems one after the other. One that does not answer is left out and named in `failures`."""
        for system in order:
            running = Running(system, core=core, folder=folder)
            self._stack.callback(running.stop)
            row = self.rows[system.name] = {}
            try:
                row["ready_s"] = running.await_ready(SATURATED.build_request(system.port))
            except NotReadyError as failure:
                self.failures.append(f"{system.name}: {failure}")
                continue
            time.sleep(SETTLE_S)
            row["idle_mb"] = kernel.read_memory_mb(running.processes)
            running.freeze()
            self._running.append(running)

    def measure(self, *, open_streams: bool) -> None:
        for key, workload, per in CPU_MEASURES:
            for running in self._running:
                self._measure_cpu(running, key=key, workload=workload, per=per)
        direct_us = self._client.run(LOW_LOAD, system=None, seconds=self._seconds).p50_us
        for running in self._running:
            with self._turn(running, key="added_p50_us") as row:
                outcome = self._client.run(LOW_LOAD, system=running, seconds=self._seconds)
                row["added_p50_us"] = outcome.p50_us - direct_us
        for running in self._running if open_streams else ():
            with self._turn(running, key="streams_mb") as row:
                row["streams_mb"] = self._client.measure_memory_mb_while(
                    STREAMS_OPEN, system=running, seconds=self._hold_s
                )
        self._measure_context([running for running in self._running if running.system.context])

    def _measure_context(self, systems: Sequence[Running]) -> None:
        for key, workload, per in CONTEXT_MEASURES:
            for running in systems:
                self._measure_cpu(running, key=key, workload=workload, per=per)
        direct_us = self._client.run(FIRST_TEXTS, system=None, seconds=self._seconds).first_us if systems else 0.0
        for running in systems:
            with self._turn(running, key="first_us") as row:
                outcome = self._client.run(CONTEXT_FIRST_TEXTS, system=running, seconds=self._seconds)
                row["first_us"] = outcome.first_us - direct_us
                row["text_us"] = outcome.text_us

    def _measure_cpu(self, running: Running, *, key: str, workload: Workload, per: str) -> None:
        with self._turn(running, key=key) as row:
            self._client.run(workload, system=running, seconds=self._seconds / 4)
            outcome = self._client.run(workload, system=running, seconds=self._seconds)
            self.disturbed.append(outcome.disturbed_share)
            done = outcome.requests if per == "requests" else outcome.events
            if not done:
                raise LoadError("nothing was answered")
            row[key] = outcome.cpu_s * 1e6 / done

    @contextmanager
    def _turn(self, running: Running, *, key: str) -> Iterator[Row]:
        """Let only `running` run; its failure costs it this one figure."""
        running.thaw()
        try:
            yield self.rows[running.system.name]
        except LoadError as failure:
            self.failures.append(f"{running.system.name}, {key}: {failure}")
        finally:
            running.freeze()
