"""The doubles for tests of the pipeline: a clock that is moved by hand, counts as they are scraped, an endless tool."""

import asyncio

from metrics_page import page_of
from prometheus_client.parser import text_string_to_metric_families

from gateway.contracts.tools import ToolCall, ToolResult
from gateway.telemetry.counters import CONTEXT_FACTS, ContextCounters
from gateway.testing.clock import ManualClock


class Clock:
    """`contracts.Clock` over a clock of the test's."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock

    def monotonic(self) -> float:
        return self._clock()

    def time(self) -> float:
        return 1_767_225_600.0 + self._clock()


class Endless:
    """A tool that works until its call is cancelled."""

    def __init__(self) -> None:
        self.began, self.ended = asyncio.Event(), asyncio.Event()

    async def __call__(self, _call: ToolCall) -> ToolResult:
        self.began.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.set()
        raise AssertionError


def samples(counters: ContextCounters) -> dict[tuple[str, tuple[str, ...]], float]:
    """(sample name, label values without `le`) -> value; of buckets the last."""
    return {
        (sample.name, tuple(sample.labels[label] for label in CONTEXT_FACTS[family.name].labels)): sample.value
        for family in text_string_to_metric_families(page_of(counters.collect_counts()).decode())
        for sample in family.samples
    }
