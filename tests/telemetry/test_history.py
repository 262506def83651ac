"""The figures of the last hours: sums over all workers, one point a minute, the last one as of now."""

from pathlib import Path

from gateway.contracts.figures import Point
from gateway.telemetry.counters import ContextCounters
from gateway.telemetry.exposition import Exposition
from gateway.telemetry.history import POINTS, STEP_S, History
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.shared_counts import SharedCounts


class Wall:
    """A clock that a test sets."""

    now_s = 1000.0

    def time(self) -> float:
        return self.now_s


class Watched:
    """The history of one worker, what it counts, and its clock."""

    def __init__(self) -> None:
        self.metrics, self.counters, self.clock, self.waiting = Metrics(), ContextCounters(), Wall(), 0
        self.metrics.further.append(self.counters.collect_counts)
        self.history = History(Exposition(self.metrics).read_counts, lambda: self.waiting, clock=self.clock)

    def answered(self, code: int, *, overhead_s: float) -> None:
        tally = self.metrics.route("/v1/", "passthrough")
        tally.count_codes("POST")[code] += 1
        tally.overhead.observe(overhead_s)

    def later(self, seconds: float = STEP_S) -> None:
        self.clock.now_s += seconds
        self.history.add_point_if_due()


def test_history_of_a_fresh_gateway_has_a_point_immediately() -> None:
    """The time since its start; without requests there is no mean of anything."""
    watched = Watched()
    watched.history.add_point_if_due()
    watched.clock.now_s += 5
    nothing = Point(at_s=1005.0, span_s=5.0, requests=0, errors=0, overhead_ms=None, approval_wait_s=None, pending=0)
    assert watched.history.list_points() == [nothing]
    assert watched.history.list_points() == [nothing], "reading changes nothing"


def test_history_point_holds_the_figures_of_its_minute() -> None:
    """Not those of the time before it."""
    watched = Watched()
    watched.history.add_point_if_due()
    watched.answered(200, overhead_s=0.002)
    watched.answered(503, overhead_s=0.004)
    watched.answered(404, overhead_s=0.003)
    watched.counters.observe("approval_wait_seconds", 20.0)
    watched.counters.observe("approval_wait_seconds", 40.0)
    watched.later()
    watched.answered(200, overhead_s=0.010)
    watched.waiting = 3
    watched.clock.now_s += 15
    first, now = watched.history.list_points()
    assert (first.at_s, first.span_s, first.requests, first.errors, first.pending) == (1060.0, 60.0, 3, 1, 0)
    assert first.overhead_ms is not None and abs(first.overhead_ms - 3.0) < 1e-9 and first.approval_wait_s == 30.0
    assert (now.span_s, now.requests, now.errors, now.approval_wait_s, now.pending) == (15.0, 1, 0, None, 3)
    assert now.overhead_ms is not None and abs(now.overhead_ms - 10.0) < 1e-9


def test_early_history_sample_adds_no_point() -> None:
    """And a late one adds a point that says how long it is."""
    watched = Watched()
    watched.history.add_point_if_due()
    for _ in range(5):
        watched.later(10)
    assert len(watched.history.list_points()) == 1
    watched.later(25)
    assert [point.span_s for point in watched.history.list_points()] == [75.0, 0.0]


def test_history_survives_a_clock_set_back() -> None:
    """A point without a length, and the history goes on."""
    watched = Watched()
    watched.history.add_point_if_due()
    watched.later(-3600)
    watched.later()
    assert [point.span_s for point in watched.history.list_points()] == [0.0, 60.0, 0.0]


def test_old_history_points_are_dropped() -> None:
    """Six hours stay."""
    watched = Watched()
    for _ in range(POINTS + 20):
        watched.later()
    points = watched.history.list_points()
    assert len(points) == POINTS and points[-1].at_s - points[0].at_s == (POINTS - 2) * STEP_S


def test_history_includes_the_counts_of_other_workers(tmp_path: Path) -> None:
    """Also those of one that ended: its place has them."""
    shared = [SharedCounts(), SharedCounts()]
    watched, other = Watched(), Metrics()
    expositions = [
        Exposition(metrics, shared=shared, folder=tmp_path, index=i)
        for i, metrics in enumerate((watched.metrics, other))
    ]
    history = History(expositions[0].read_counts, lambda: 0, clock=watched.clock)
    history.add_point_if_due()
    other.route("/v1/", "passthrough").count_codes("POST")[200] += 4
    watched.answered(200, overhead_s=0.001)
    expositions[1].read_counts()
    (point,) = history.list_points()
    assert point.requests == 5
