"""What the gateway counts, and its Prometheus exposition.

On the hot path a count is an integer in a dict and an observation is one bisect: prometheus_client's own children take
a lock and about 1 us each. The numbers become prometheus_client metric families when they are scraped.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

DURATION_BUCKETS_S = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
OVERHEAD_BUCKETS_S = (0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25)
LAG_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0)

#: Methods and status codes with a label of their own; all others share one, whatever clients and upstreams send. With
#: the limit of routes this makes at most 6 x 5 x 24 series, and 240 more for what is not passthrough.
METHODS = frozenset(("GET", "HEAD", "POST", "DELETE"))
CODES = frozenset((101, 200, 201, 204, 400, 401, 403, 404, 408, 413, 422, 429, 499, 500, 501, 502, 503, 504))
#: Routes are configured prefixes; beyond this many they share the label `other`, which bounds the series.
ROUTES_LIMIT = 5


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

    @property
    def used(self) -> bool:
        return any(self._counts)

    def buckets(self) -> tuple[list[tuple[str, float]], float]:
        """Cumulative (bound, count) pairs, and the sum."""
        total, pairs = 0, []
        for bound, count in zip([*map(str, self._bounds), "+Inf"], self._counts, strict=True):
            total += count
            pairs.append((bound, float(total)))
        return pairs, self._sum


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

    def codes(self, method: str) -> defaultdict[int, int]:
        """Status code -> requests, for one method."""
        return self._codes.setdefault(method if method in METHODS else "other", defaultdict(int))

    def requests(self) -> Iterator[tuple[tuple[str, str, str, str], int]]:
        """((route, method, code, mode), count) with codes folded into the closed set."""
        for method, codes in self._codes.items():
            folded: defaultdict[str, int] = defaultdict(int)
            for code, count in codes.items():
                folded[_code_label(code)] += count
            for label, count in folded.items():
                yield (self.route, method, label, self.mode), count


class UpstreamTally:
    """The counts of one upstream. Outcomes: ok, error (5xx), connect, timeout, reset, truncated, invalid, cancelled."""

    __slots__ = ("first_byte", "outcomes", "retries")

    def __init__(self) -> None:
        self.outcomes: defaultdict[str, int] = defaultdict(int)
        self.retries: defaultdict[str, int] = defaultdict(int)
        self.first_byte = Histogram(DURATION_BUCKETS_S)


class Metrics:
    """Everything one process counts. It is a prometheus_client collector."""

    def __init__(self) -> None:
        self.client_disconnects = 0
        self.deadlines: defaultdict[str, int] = defaultdict(int)
        self.reloads = {"success": 0, "failure": 0}
        self.last_reload_success_s: float | None = None
        self.log_lines_dropped = 0
        self.loop_lag = Histogram(LAG_BUCKETS_S)
        #: Others' families (pools, connections), asked for at each scrape.
        self.sources: list[Callable[[], Iterable[Metric]]] = []
        self._overhead: dict[str, Histogram] = {}
        self._routes: dict[tuple[str, str], RouteTally] = {}
        self._upstreams: dict[str, UpstreamTally] = {}

    def log_line_dropped(self) -> None:
        self.log_lines_dropped += 1

    def route(self, route: str, mode: str) -> RouteTally:
        """The tally of a configured route; further routes than the limit share one."""
        if (route, mode) not in self._routes and sum(m == mode for _, m in self._routes) >= ROUTES_LIMIT:
            route = "other"
        tally = self._routes.get((route, mode))
        if tally is None:
            overhead = self._overhead.setdefault(mode, Histogram(OVERHEAD_BUCKETS_S))
            tally = self._routes[route, mode] = RouteTally(route, mode, overhead)
        return tally

    def upstream(self, name: str) -> UpstreamTally:
        """The tally of a configured upstream; it outlives reloads."""
        return self._upstreams.setdefault(name, UpstreamTally())

    def collect(self) -> Iterator[Metric]:
        yield from self._requests()
        yield from self._upstream_families()
        for source in self.sources:
            yield from source()
        yield counter(
            "gateway_client_disconnects", "Clients that left before their answer was whole", self.client_disconnects
        )
        yield labelled("gateway_deadlines", "Connections ended by a deadline", "deadline", self.deadlines)
        yield counter(
            "gateway_log_lines_dropped", "Log lines dropped because the reader was too slow", self.log_lines_dropped
        )
        yield labelled("gateway_config_reloads", "Configuration reloads", "result", self.reloads)
        if self.last_reload_success_s is not None:
            yield GaugeMetricFamily(
                "gateway_config_last_reload_success_timestamp_seconds",
                "Unix time of the configuration in use",
                value=self.last_reload_success_s,
            )
        lag = HistogramMetricFamily("gateway_event_loop_lag_seconds", "How late a timer of the event loop fired")
        lag.add_metric([], *self.loop_lag.buckets())
        yield lag

    def _requests(self) -> Iterator[Metric]:
        total = CounterMetricFamily(
            "gateway_http_requests",
            "Requests answered (499: the client left)",
            labels=["route", "method", "code", "mode"],
        )
        duration = HistogramMetricFamily(
            "gateway_http_request_duration_seconds",
            "From the request's head to the last byte of its answer",
            labels=["route", "mode", "stream"],
        )
        for tally in self._routes.values():
            for labels, count in tally.requests():
                total.add_metric(labels, count)
            for stream, histogram in (("false", tally.answered), ("true", tally.streamed)):
                if histogram.used:
                    duration.add_metric([tally.route, tally.mode, stream], *histogram.buckets())
        overhead = HistogramMetricFamily(
            "gateway_overhead_seconds", "Time that the gateway itself added before the first byte", labels=["mode"]
        )
        for mode, histogram in self._overhead.items():
            if histogram.used:
                overhead.add_metric([mode], *histogram.buckets())
        yield from (total, duration, overhead)

    def _upstream_families(self) -> Iterator[Metric]:
        outcomes = CounterMetricFamily(
            "gateway_upstream_requests", "Requests sent upstream, by how they ended", labels=["upstream", "outcome"]
        )
        retries = CounterMetricFamily(
            "gateway_upstream_retries", "Requests sent again on a fresh connection", labels=["upstream", "reason"]
        )
        first_byte = HistogramMetricFamily(
            "gateway_upstream_time_to_first_byte_seconds",
            "From the request sent to the first byte of the answer",
            labels=["upstream"],
        )
        for name, tally in self._upstreams.items():
            for outcome, count in tally.outcomes.items():
                outcomes.add_metric([name, outcome], count)
            for reason, count in tally.retries.items():
                retries.add_metric([name, reason], count)
            first_byte.add_metric([name], *tally.first_byte.buckets())
        yield from (outcomes, retries, first_byte)


def counter(name: str, documentation: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(name, documentation, value=value)


def labelled(name: str, documentation: str, label: str, counts: dict[str, int]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, documentation, labels=[label])
    for value, count in counts.items():
        family.add_metric([value], count)
    return family


def _code_label(code: int) -> str:
    if code in CODES:
        return str(code)
    return f"{code // 100}xx" if 100 <= code < 600 else "other"
