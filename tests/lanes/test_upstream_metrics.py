"""What a scrape sees of upstreams."""

from upstream.groups import group

from gateway.lanes.upstream_metrics import build_gauges
from gateway.testing.clock import ManualClock
from gateway.upstream.breaker import BreakerRules


def test_endpoint_metrics_are_shown_for_upstreams_with_several_endpoints() -> None:
    """One with an open breaker is not up, and counted as open."""
    clock = ManualClock()
    many = group("ab", clock, breaker=BreakerRules(failures=1, open_s=10.0))
    single = group("c", clock)
    many.take_place(many.members[0])
    many.members[1].breaker.record_failure(0.0, probe=False)
    seen = {
        (sample.name.removeprefix("gateway_upstream_"), *sample.labels.values()): sample.value
        for family in build_gauges((many, single))
        for sample in family.samples
    }
    assert seen == {
        ("up", "up"): 1.0,
        ("pool_connections", "up", "idle"): 0,
        ("pool_connections", "up", "busy"): 0,
        ("endpoint_up", "up", "a"): 1.0,
        ("endpoint_up", "up", "b"): 0.0,
        ("endpoint_requests", "up", "a"): 1,
        ("endpoint_requests", "up", "b"): 0,
        ("breaker_state", "up", "a"): 0,
        ("breaker_state", "up", "b"): 2,
        ("endpoint_wait_seconds", "up", "a"): 0,
        ("endpoint_wait_seconds", "up", "b"): 10,
        ("queued_requests", "up"): 0,
    }
