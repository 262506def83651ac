"""What tests of the pipeline stand on: a clock that is moved by hand, and counts as they are scraped."""

from gateway.counters import ContextCounters
from gateway.testing.clock import ManualClock


class Clock:
    """`contracts.Clock` over a clock of the test's."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock

    def monotonic(self) -> float:
        return self._clock()

    def time(self) -> float:
        return 1_767_225_600.0 + self._clock()


def samples(counters: ContextCounters) -> dict[tuple[str, tuple[str, ...]], float]:
    """(sample name, label values without `le`) -> value; of buckets the last."""
    return {
        (sample.name, tuple(value for label, value in sample.labels.items() if label != "le")): sample.value
        for family in counters.families()
        for sample in family.samples
    }
