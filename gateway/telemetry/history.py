"""The figures of the last hours, in the memory of one worker: sums over all workers, one point for each minute.

A worker that starts anew begins anew. Its first point covers the time since that start.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from gateway.contracts.figures import Counts, Point
from gateway.telemetry.metrics import OVERHEAD, REQUESTS

#: Six hours of minutes.
STEP_S: Final = 60.0
POINTS: Final = 360
_APPROVAL_WAIT: Final = "gateway_approval_wait_seconds"
#: The place of the label `code` of `REQUESTS`.
_CODE: Final = 2


class HistoryClock(Protocol):
    """The time, as the history needs it."""

    def time(self) -> float:
        """Return Unix time in seconds."""
        ...


@dataclass(frozen=True, slots=True)
class _Totals:
    """The sums of all counts until `at_s`."""

    at_s: float
    requests: float = 0.0
    errors: float = 0.0
    overheads: float = 0.0
    overhead_s: float = 0.0
    waits: float = 0.0
    waited_s: float = 0.0


class History:
    """One worker's points. `counts` returns the counts of all workers, `pending` the number of pending approvals."""

    def __init__(self, counts: Callable[[], Counts], pending: Callable[[], int], *, clock: HistoryClock) -> None:
        self._counts = counts
        self._pending = pending
        self._clock = clock
        self._points: deque[Point] = deque(maxlen=POINTS)
        self._before: _Totals | None = None

    def add_point_if_due(self) -> None:
        """Add a point if the last one is `STEP_S` old. Call it often: it costs nothing in between."""
        if self._before is None:
            self._before = self._compute_totals()
        elif not 0 <= self._clock.time() - self._before.at_s < STEP_S:  # a clock that was set back counts as due
            now = self._compute_totals()
            self._points.append(self._build_point(self._before, now))
            self._before = now

    def list_points(self) -> Sequence[Point]:
        """Return the points, the oldest first. The last one covers the time since the one before it."""
        before = self._before = self._before or self._compute_totals()
        return [*self._points, self._build_point(before, self._compute_totals())][-POINTS:]

    def _compute_totals(self) -> _Totals:
        """Return the sums of requests, errors, overhead and approval waits since the start."""
        requests = errors = 0.0
        sums = {OVERHEAD: [0.0, 0.0], _APPROVAL_WAIT: [0.0, 0.0]}
        for (family, labels), values in self._counts().items():
            if family == REQUESTS:
                requests += values[0]
                errors += values[0] if labels[_CODE].startswith("5") else 0.0
            elif (known := sums.get(family)) is not None:
                *buckets, total = values
                known[0] += sum(buckets)
                known[1] += total
        return _Totals(self._clock.time(), requests, errors, *sums[OVERHEAD], *sums[_APPROVAL_WAIT])

    def _build_point(self, before: _Totals, now: _Totals) -> Point:
        """Return the point of history between two totals."""
        overhead_s = _compute_mean(now.overhead_s - before.overhead_s, now.overheads - before.overheads)
        return Point(
            at_s=now.at_s,
            span_s=max(now.at_s - before.at_s, 0.0),
            requests=int(now.requests - before.requests),
            errors=int(now.errors - before.errors),
            overhead_ms=None if overhead_s is None else overhead_s * 1000,
            approval_wait_s=_compute_mean(now.waited_s - before.waited_s, now.waits - before.waits),
            pending=self._pending(),
        )


def _compute_mean(total: float, count: float) -> float | None:
    return total / count if count > 0 else None
