"""Metrics are valid Prometheus text and, however wild the traffic, a bounded number of series."""

import math
from itertools import accumulate
from random import Random

import pytest
from metrics_page import busy, busy_context, check_by_promtool, page_of, samples
from prometheus_client.parser import text_string_to_metric_families

from gateway.contracts import errors
from gateway.telemetry.metrics import (
    CODES,
    DURATION_BUCKETS_S,
    LAG_BUCKETS_S,
    METHODS,
    OVERHEAD_BUCKETS_S,
    Histogram,
    Metrics,
)

SERIES_LIMIT = 4500
OWN = (("chat", "context"), ("health", "own"), ("polling", "own"), ("pages", "own"), ("none", "none"))


def value(metrics: Metrics, name: str, **labels: str) -> float:
    return samples(page_of(metrics.collect_counts()))[name, tuple(sorted(labels.items()))]


def test_all_counted_metrics_are_exposed_with_their_labels() -> None:
    """By the names and labels of the catalogue."""
    metrics = busy()
    requests = {"route": "/v1/", "method": "POST", "code": "200", "mode": "passthrough"}
    assert value(metrics, "gateway_http_requests_total", **requests) == 3
    for stream, total in (("false", 0.5), ("true", 100.0)):
        labels = {"route": "/v1/", "mode": "passthrough", "stream": stream}
        assert value(metrics, "gateway_http_request_duration_seconds_sum", **labels) == total
        assert value(metrics, "gateway_http_request_duration_seconds_count", **labels) == 1
    assert value(metrics, "gateway_overhead_seconds_count", mode="passthrough") == 1
    assert value(metrics, "gateway_upstream_requests_total", upstream="openai", outcome="ok") == 2
    assert value(metrics, "gateway_upstream_retries_total", upstream="openai", reason="stale") == 1
    assert value(metrics, "gateway_upstream_time_to_first_byte_seconds_sum", upstream="openai") == 0.02
    assert value(metrics, "gateway_client_disconnects_total") == 4
    assert value(metrics, "gateway_deadlines_total", deadline="head") == 5
    assert value(metrics, "gateway_config_reloads_total", result="failure") == 1
    assert value(metrics, "gateway_config_reloads_total", result="success") == 0
    assert value(metrics, "gateway_log_lines_dropped_total") == 1
    assert value(metrics, "gateway_event_loop_lag_seconds_bucket", le="0.001") == 1


@pytest.mark.parametrize("metrics", [Metrics(), busy()], ids=["idle", "busy"])
def test_metrics_page_passes_parser_and_promtool(metrics: Metrics) -> None:
    """For the parser and for promtool; every metric is ours by name and explained, no `_created` doubles the series."""
    text = page_of(metrics.collect_counts())
    check_by_promtool(text)
    for family in text_string_to_metric_families(text.decode()):
        assert family.name.startswith("gateway_") and family.documentation and family.type != "unknown"
    assert b"_created" not in text


def test_labels_are_escaped() -> None:
    """Routes and upstreams are the operator's words."""
    odd = 'a"b\\c\nd'
    metrics = Metrics()
    metrics.get_upstream(odd).outcomes["ok"] += 1
    metrics.route(odd, "passthrough").count_codes("GET")[200] += 1
    assert value(metrics, "gateway_upstream_requests_total", upstream=odd, outcome="ok") == 1
    check_by_promtool(page_of(metrics.collect_counts()))


# Histograms.


@pytest.mark.parametrize("bounds", [DURATION_BUCKETS_S, OVERHEAD_BUCKETS_S, LAG_BUCKETS_S])
def test_histogram_bounds_are_strictly_increasing(bounds: tuple[float, ...]) -> None:
    """As Prometheus wants them."""
    assert list(bounds) == sorted(set(bounds)) and bounds[0] > 0


def test_a_histogram_counts_up_to_and_including_each_bound() -> None:
    """Behind the last bound, too."""
    histogram = Histogram((1.0, 2.5))
    assert not histogram.has_samples
    for observed in (0.0, 0.5, 1.0, 1.1, 2.5, 2.6, 1e9):
        histogram.observe(observed)
    assert histogram.has_samples
    assert histogram.read_values() == [3, 2, 2, pytest.approx(1e9 + 7.7)]


def test_a_histogram_agrees_with_counting_by_hand() -> None:
    """A thousand random durations, one at a time and together."""
    rng = Random(1)
    seen = [rng.expovariate(1.0) for _ in range(1000)]
    histogram = Histogram(DURATION_BUCKETS_S)
    for observed in seen[:300]:
        histogram.observe(observed)
    histogram.observe_all(seen[300:])
    *counts, total = histogram.read_values()
    assert total == pytest.approx(sum(seen))
    for bound, below in zip((*DURATION_BUCKETS_S, math.inf), accumulate(counts), strict=True):
        assert below == sum(observed <= bound for observed in seen)


# Bounded labels.


def test_each_upstream_adds_a_bounded_number_of_series() -> None:
    """Whatever becomes of requests to it: 27, and three gauges."""
    metrics = Metrics()
    few = len(samples(page_of(metrics.collect_counts())))
    for i in range(200):
        tally = metrics.get_upstream(f"upstream {i}")
        for outcome in ("ok", "error", "connect", "timeout", "reset", "truncated", "invalid", "cancelled"):
            tally.outcomes[outcome] += 1
        tally.retries["stale"] += 1
    assert len(samples(page_of(metrics.collect_counts()))) - few <= 200 * 27


def test_tally_lookup_returns_the_same_object() -> None:
    """The same object for the same route and mode: the hot path keeps it."""
    metrics = Metrics()
    assert metrics.route("/v1/", "passthrough") is metrics.route("/v1/", "passthrough")
    assert metrics.route("/v1/", "passthrough") is not metrics.route("/v1/", "own")
    assert metrics.get_upstream("a") is metrics.get_upstream("a")
    tally = metrics.route("/v1/", "passthrough")
    assert tally.count_codes("GET") is tally.count_codes("GET")
    assert tally.count_codes("BREW") is tally.count_codes("get") is not tally.count_codes("GET")


def test_unusual_methods_and_codes_share_a_label() -> None:
    """Whatever clients and upstreams send; nothing goes uncounted."""
    metrics = Metrics()
    tally = metrics.route("/v1/", "passthrough")
    for method in (*METHODS, "BREW", "PROPFIND"):
        for code in range(100, 1000):
            tally.count_codes(method)[code] += 1
    counted = {
        k: v for k, v in samples(page_of(metrics.collect_counts())).items() if k[0] == "gateway_http_requests_total"
    }
    labels = [dict(key[1]) for key in counted]
    assert sum(counted.values()) == (len(METHODS) + 2) * 900
    assert {one["method"] for one in labels} <= METHODS | {"other"}
    assert {one["code"] for one in labels} <= {str(code) for code in CODES} | {
        "1xx",
        "2xx",
        "3xx",
        "4xx",
        "5xx",
        "other",
    }


def test_routes_beyond_the_limit_share_a_label() -> None:
    """And still count."""
    metrics = Metrics()
    for number in range(1000):
        metrics.route(f"/r{number}/", "passthrough").count_codes("GET")[200] += 1
    routes = {
        dict(key[1])["route"]: v
        for key, v in samples(page_of(metrics.collect_counts())).items()
        if "requests" in key[0]
    }
    assert routes["other"] == 1000 - (len(routes) - 1) and routes["/r0/"] == 1


def test_number_of_metric_series_is_bounded() -> None:
    """L16: 50,000 distinct combinations of route, method and status: at most 4,500 series and 1 MB, none uncounted."""
    rng = Random(16)
    metrics = busy()
    metrics.further[:] = [busy_context(values=1000).collect_counts]
    known = sorted(METHODS)
    ours = sorted({facts.status for facts in errors.CODES.values()} | {101, 200, 201, 202, 204, 405, 499})
    seen = set()
    while len(seen) < 50_000:
        prefix = (f"/r{rng.randrange(20)}/", "passthrough")
        route, mode = rng.choice((prefix, prefix, prefix, *OWN))
        method = rng.choice((*known, f"M{rng.randrange(1000)}"))
        code = rng.choice(ours if (route, mode) in OWN else (rng.randrange(100, 1000), *sorted(CODES)))
        seen.add((route, mode, method, code))
        tally = metrics.route(route, mode)
        tally.count_codes(method)[code] += 1
        rng.choice((tally.answered, tally.streamed, tally.overhead)).observe(rng.random())
    text = page_of(metrics.collect_counts())
    found = samples(text)
    print(f"\n50,000 distinct requests: {len(found):,} series, {len(text):,} bytes")
    assert sum(count for key, count in found.items() if key[0] == "gateway_http_requests_total") >= 50_000
    assert len(text) <= 1_000_000
    assert len(found) <= SERIES_LIMIT
