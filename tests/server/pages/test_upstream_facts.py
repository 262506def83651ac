"""The facts of upstreams from what all workers tell."""

import pytest

from gateway.config import Settings
from gateway.model.adaptation.quirks import LearntQuirks
from gateway.server.pages.upstream_facts import UpstreamNumbers, iterate_upstream_facts
from gateway.telemetry.page_text import Gauge

ENDPOINTS = [{"url": "http://a:1/v1", "name": "a", "concurrent": 4, "models": ["x*"]}, {"url": "http://b:2/v1"}]
SETTINGS = Settings.model_validate({"upstreams": [{"name": "up", "endpoints": ENDPOINTS}]})


def gauge(name: str, value: float, endpoint: str = "a") -> Gauge:
    return f"gateway_upstream_{name}", "", [("endpoint", endpoint), ("upstream", "up")], value


@pytest.mark.parametrize(
    ("told", "state", "retry_in_s"),
    [
        ({"endpoint_up": 1.0, "breaker_state": 0.0}, "up", None),
        ({"endpoint_up": 0.0, "breaker_state": 0.0, "endpoint_wait_seconds": 3.0}, "pausing", 3.0),
        ({"endpoint_up": 0.0, "breaker_state": 2.0, "endpoint_wait_seconds": 7.0}, "open", 7.0),
        ({"endpoint_up": 1.0, "breaker_state": 1.0, "endpoint_wait_seconds": 0.0}, "half-open", None),
        ({"endpoint_up": 0.0, "breaker_state": 2.0, "endpoint_healthy": 0.0}, "unhealthy", None),
        ({"endpoint_up": 1.0, "breaker_state": 0.0, "endpoint_healthy": 1.0}, "up", None),
        ({}, "unknown", None),
    ],
)
def test_endpoint_state_reports_the_cause_that_blocks_requests(
    told: dict[str, float], state: str, retry_in_s: float | None
) -> None:
    """Health checks before the breaker: while they fail, nothing else lets a request through."""
    numbers = UpstreamNumbers({}, [gauge(name, value) for name, value in told.items()])
    ((first, _),) = [
        one.endpoints for one in iterate_upstream_facts(SETTINGS, demo_url=None, numbers=numbers, learnt=LearntQuirks())
    ]
    assert (first.state, first.retry_in_s) == (state, retry_in_s)


def test_counts_belong_to_their_endpoint() -> None:
    """Those of an endpoint that the configuration has no more are left out."""
    counts = {
        ("gateway_upstream_requests", ("up", "ok")): (3.0,),
        ("gateway_upstream_requests", ("other", "ok")): (9.0,),
        ("gateway_upstream_endpoint_tries", ("up", "a", "failed")): (2.0,),
        ("gateway_upstream_endpoint_tries", ("up", "gone", "ok")): (5.0,),
        ("gateway_upstream_endpoint_answers", ("up", "a", "401")): (2.0,),
        ("gateway_upstream_endpoint_ejections", ("up", "b:2", "health")): (1.0,),
        ("gateway_upstream_time_to_first_byte_seconds", ("up",)): (1.0, 2.0),
    }
    gauges = [
        gauge("endpoint_last_status", 401.0),
        gauge("endpoint_requests", 1.0),
        gauge("endpoint_requests", 0.0, "b:2"),
    ]
    (found,) = iterate_upstream_facts(
        SETTINGS, demo_url="http://demo", numbers=UpstreamNumbers(counts, gauges), learnt=LearntQuirks()
    )
    first, second = found.endpoints
    assert found.requests == {"ok": 3}
    assert (first.tries, first.ejections, first.under_way, first.concurrent) == ({"failed": 2}, {}, 1, 4)
    assert (first.answers, first.last_status) == ({"401": 2}, 401)
    assert (second.answers, second.last_status) == ({}, None)
    assert (second.name, second.tries, second.ejections) == ("b:2", {}, {"health": 1})


def test_without_upstreams_there_is_the_demo_model() -> None:
    numbers = UpstreamNumbers({}, [("gateway_upstream_up", "", [("upstream", "demo")], 1.0)])
    (found,) = iterate_upstream_facts(
        Settings(), demo_url="http://127.0.0.1:7/v1", numbers=numbers, learnt=LearntQuirks()
    )
    assert [(one.url, one.state, one.tries) for one in found.endpoints] == [("http://127.0.0.1:7/v1", "up", None)]
