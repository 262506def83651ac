"""The counts of one gateway process.

On the hot path a count is an integer in a dict and an observation is one bisect. The children of prometheus_client take
a lock and about 1 us each. `gateway.telemetry.exposition` writes the numbers as text when they are scraped.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from gateway.contracts.figures import Counted

DURATION_BUCKETS_S = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
OVERHEAD_BUCKETS_S = (0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25)
LAG_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0)

#: Methods and status codes with a label of their own; all others share one, whatever clients and upstreams send. With
#: the limit of routes this makes at most 6 x 5 x 25 series, and half as many for what is not passthrough.
METHODS = frozenset(("GET", "HEAD", "POST", "DELETE"))
CODES = frozenset((101, 200, 201, 204, 400, 401, 403, 404, 408, 413, 422, 429, 499, 500, 501, 502, 503, 504, 507))
#: Routes are configured prefixes; beyond this many they share the label `other`, which bounds the series.
ROUTES_LIMIT = 5


@dataclass(frozen=True, slots=True)
class MetricFacts:
    """The description of a metric and the names of its labels. `bounds` are a histogram's.

    A counter has none.
    """

    help: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()


REQUESTS, DURATION, OVERHEAD = (
    "gateway_http_requests",
    "gateway_http_request_duration_seconds",
    "gateway_overhead_seconds",
)
OUTCOMES, RETRIES, FIRST_BYTE = (
    "gateway_upstream_requests",
    "gateway_upstream_retries",
    "gateway_upstream_time_to_first_byte_seconds",
)
REFUSED, EJECTIONS, TRIES, ANSWERS = (
    "gateway_upstream_refused",
    "gateway_upstream_endpoint_ejections",
    "gateway_upstream_endpoint_tries",
    "gateway_upstream_endpoint_answers",
)
DISCONNECTS, DEADLINES, RELOADS = "gateway_client_disconnects", "gateway_deadlines", "gateway_config_reloads"
DROPPED_LINES, LAG = "gateway_log_lines_dropped", "gateway_event_loop_lag_seconds"
#: By the name without `_total`.
HTTP_FACTS: Mapping[str, MetricFacts] = MappingProxyType(
    {
        REQUESTS: MetricFacts("Requests answered (499: the client left)", ("route", "method", "code", "mode")),
        DURATION: MetricFacts(
            "From the request's head to the last byte of its answer", ("route", "mode", "stream"), DURATION_BUCKETS_S
        ),
        OVERHEAD: MetricFacts(
            "Time that the gateway itself added before the first byte", ("mode",), OVERHEAD_BUCKETS_S
        ),
        OUTCOMES: MetricFacts("Requests sent upstream, by how they ended", ("upstream", "outcome")),
        RETRIES: MetricFacts("Requests sent again, or to a fallback", ("upstream", "reason")),
        REFUSED: MetricFacts("Requests not sent, or not sent again", ("upstream", "reason")),
        EJECTIONS: MetricFacts("Endpoints taken out, by what found them failing", ("upstream", "endpoint", "reason")),
        TRIES: MetricFacts("Requests sent to an endpoint, by what they say of it", ("upstream", "endpoint", "outcome")),
        ANSWERS: MetricFacts("Answers of an endpoint, by their status", ("upstream", "endpoint", "code")),
        FIRST_BYTE: MetricFacts(
            "From the request sent to the first byte of the answer", ("upstream",), DURATION_BUCKETS_S
        ),
        DISCONNECTS: MetricFacts("Clients that left before their answer was whole"),
        DEADLINES: MetricFacts("Connections ended by a deadline", ("deadline",)),
        DROPPED_LINES: MetricFacts("Log lines dropped because the reader was too slow"),
        RELOADS: MetricFacts("Configuration reloads", ("result",)),
        LAG: MetricFacts("How late a timer of the event loop fired", (), LAG_BUCKETS_S),
    }
)


class Histogram:
    """Counts by upper bound, in seconds."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def observe_all(self, values: Sequence[float]) -> None:
        """Observe several values, at less cost than one by one."""
        bounds, counts = self._bounds, self._counts
        for value in values:
            counts[bisect_left(bounds, value)] += 1
        self._sum += sum(values)

    @property
    def has_samples(self) -> bool:
        return any(self._counts)

    def read_values(self) -> list[float]:
        """Return the count of each bucket, the last of which has no bound, and the sum."""
        return [*self._counts, self._sum]


class RouteTally:
    """The counts of one route and mode, bound once so that a request pays no label look-up."""

    __slots__ = ("_codes", "answered", "mode", "overhead", "route", "streamed")

    def __init__(self, route: str, mode: str, overhead: Histogram) -> None:
        self.route = route
        self.mode = mode
        self.overhead = overhead
        self.answered = Histogram(DURATION_BUCKETS_S)
        self.streamed = Histogram(DURATION_BUCKETS_S)
        self._codes: dict[str, defaultdict[int, int]] = {}

    def count_codes(self, method: str) -> defaultdict[int, int]:
        """Return the map of status code -> requests, for one method."""
        label = method if method in METHODS else "other"
        codes = self._codes.get(label)
        if codes is None:
            codes = self._codes[label] = defaultdict(int)
        return codes

    def collect_counts(self) -> Iterator[Counted]:
        """Yield everything that was counted until now, with codes folded into the closed set."""
        for method, codes in self._codes.items():
            folded: defaultdict[str, int] = defaultdict(int)
            for code, count in codes.items():
                folded[_get_code_label(code)] += count
            for label, count in folded.items():
                yield (REQUESTS, (self.route, method, label, self.mode)), (count,)
        for stream, histogram in (("false", self.answered), ("true", self.streamed)):
            if histogram.has_samples:
                yield (DURATION, (self.route, self.mode, stream)), histogram.read_values()


class UpstreamTally:
    """The counts of one upstream. Outcomes: ok, error (5xx), connect, timeout, reset, truncated, invalid, cancelled.

    `refused`: why a request was not sent (again): open, pausing, busy, wait, budget. `ejections` are by endpoint and
    reason, `tries` by endpoint and their verdict on it: ok, failed, or none (the client left, or the request may be at
    fault), and `answers` by endpoint and status.
    """

    __slots__ = ("answers", "ejections", "first_byte", "outcomes", "refused", "retries", "tries")

    def __init__(self) -> None:
        self.outcomes: defaultdict[str, int] = defaultdict(int)
        self.retries: defaultdict[str, int] = defaultdict(int)
        self.refused: defaultdict[str, int] = defaultdict(int)
        self.ejections: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.tries: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.answers: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.first_byte = Histogram(DURATION_BUCKETS_S)


class Metrics:
    """All counts of one process."""

    def __init__(self) -> None:
        self.client_disconnects = 0
        self.deadlines: defaultdict[str, int] = defaultdict(int)
        self.reloads = {"success": 0, "failure": 0}
        self.last_reload_success_s: float | None = None
        self.log_lines_dropped = 0
        self.loop_lag = Histogram(LAG_BUCKETS_S)
        #: Count what has ended and is not counted yet, before the counts are read.
        self.late: list[Callable[[], None]] = []
        #: Others' counts.
        self.further: list[Callable[[], Iterable[Counted]]] = []
        #: Others' families (pools, connections), read at each scrape.
        self.sources: list[Callable[[], Iterable[Metric]]] = [self._collect_reload]
        self._overhead: dict[str, Histogram] = {}
        self._routes: dict[tuple[str, str], RouteTally] = {}
        self._upstreams: dict[str, UpstreamTally] = {}

    def log_line_dropped(self) -> None:
        self.log_lines_dropped += 1

    def route(self, route: str, mode: str) -> RouteTally:
        """Return the tally of a configured route. Routes beyond the limit share one."""
        tally = self._routes.get((route, mode))
        if tally is None and sum(m == mode for _, m in self._routes) >= ROUTES_LIMIT:
            route = "other"
            tally = self._routes.get((route, mode))
        if tally is None:
            overhead = self._overhead.setdefault(mode, Histogram(OVERHEAD_BUCKETS_S))
            tally = self._routes[route, mode] = RouteTally(route, mode, overhead)
        return tally

    def get_upstream(self, name: str) -> UpstreamTally:
        """Return the tally of a configured upstream. It outlives reloads."""
        return self._upstreams.setdefault(name, UpstreamTally())

    def collect_counts(self) -> Iterator[Counted]:
        """Yield everything that was counted until now, family by family."""
        for catch_up in self.late:
            catch_up()
        for route in self._routes.values():
            yield from route.collect_counts()
        for mode, histogram in self._overhead.items():
            if histogram.has_samples:
                yield (OVERHEAD, (mode,)), histogram.read_values()
        for name, tally in self._upstreams.items():
            for outcome, count in tally.outcomes.items():
                yield (OUTCOMES, (name, outcome)), (count,)
            for reason, count in tally.retries.items():
                yield (RETRIES, (name, reason)), (count,)
            for reason, count in tally.refused.items():
                yield (REFUSED, (name, reason)), (count,)
            for (endpoint, reason), count in tally.ejections.items():
                yield (EJECTIONS, (name, endpoint, reason)), (count,)
            for (endpoint, outcome), count in tally.tries.items():
                yield (TRIES, (name, endpoint, outcome)), (count,)
            for (endpoint, code), count in _fold_statuses(tally.answers).items():
                yield (ANSWERS, (name, endpoint, code)), (count,)
            yield (FIRST_BYTE, (name,)), tally.first_byte.read_values()
        yield (DISCONNECTS, ()), (self.client_disconnects,)
        for deadline, count in self.deadlines.items():
            yield (DEADLINES, (deadline,)), (count,)
        yield (DROPPED_LINES, ()), (self.log_lines_dropped,)
        for result, count in self.reloads.items():
            yield (RELOADS, (result,)), (count,)
        yield (LAG, ()), self.loop_lag.read_values()
        for counted in self.further:
            yield from counted()

    def _collect_reload(self) -> Iterator[Metric]:
        """Yield the gauge of the time at which the configuration was last loaded."""
        if self.last_reload_success_s is not None:
            yield GaugeMetricFamily(
                "gateway_config_last_reload_success_timestamp_seconds",
                "Unix time of the configuration in use",
                value=self.last_reload_success_s,
            )


def build_counter(name: str, documentation: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(name, documentation, value=value)


def _fold_statuses(answers: Mapping[tuple[str, str], int]) -> Mapping[tuple[str, str], int]:
    """Return counts by endpoint and status with the statuses folded into the closed set."""
    folded: defaultdict[tuple[str, str], int] = defaultdict(int)
    for (endpoint, status), count in answers.items():
        folded[endpoint, _get_code_label(int(status) if status.isdecimal() else 0)] += count
    return folded


def _get_code_label(code: int) -> str:
    if code in CODES:
        return str(code)
    return f"{code // 100}xx" if 100 <= code < 600 else "other"
