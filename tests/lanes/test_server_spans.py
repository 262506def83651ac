"""The spans of our own pages: which requests have one, and what it says."""

import pytest
from collector import SENDER, TRACE, TRACEPARENT, Collector
from functional.through import FINE, ask, get, post, through

from gateway.lanes.server_spans import get_failure_type, get_span_method

PARENT = f"traceparent: {TRACEPARENT}".encode()


async def test_tracing_covers_api_pages_but_not_health_metrics_or_console() -> None:
    async with Collector() as collector, through(FINE, tracing={"endpoint": collector.url}) as (gateway, _):
        for path in (b"/health/live", b"/metrics", b"/", b"/console"):
            await ask(gateway, get(path, PARENT))
        await ask(gateway, get(b"/context/approvals?status=hidden", PARENT))
        span = await collector.one("GET /context/approvals")
        assert [one.name for one in collector.spans] == ["GET /context/approvals"]
        assert (span.trace, span.parent, span.kind) == (TRACE, SENDER, "server")
        assert span.attributes["url.path"] == span.attributes["http.route"] == "/context/approvals"
        assert "hidden" not in span.text


@pytest.mark.parametrize(
    "fields", [[PARENT, PARENT], [b"traceparent: 00-x"], [b"trace_parent: " + TRACEPARENT.encode()]]
)
async def test_invalid_trace_context_starts_a_new_trace(fields: list[bytes]) -> None:
    async with Collector() as collector, through(FINE, tracing={"endpoint": collector.url}) as (gateway, _):
        await ask(gateway, post(b"{}", b"/context/runs/none/cancel", *fields))
        span = await collector.one("POST /context/runs")
        assert span.trace != TRACE and span.parent == ""


@pytest.mark.parametrize("sampled", [b"01", b"00"])
async def test_untrusted_client_trace_context_is_ignored(sampled: bytes) -> None:
    parent = PARENT[:-2] + sampled
    tracing = {"trust_clients": False, "passthrough": True}
    async with Collector() as collector:
        async with through(FINE, tracing={"endpoint": collector.url, **tracing}) as (gateway, upstream):
            await ask(gateway, get(b"/v1/x", parent, b"tracestate: congo=t61"))
            await ask(gateway, post(b"{}", b"/context/v1/chat/completions", parent, b"Content-Type: application/json"))
            await ask(gateway, get(b"/context/runs", parent))
            head = upstream.requests[0].raw_head
        spans = {one.name: one for one in collector.spans}
        assert sorted(spans) == ["GET", "GET /v1/", "POST /context/v1/chat/completions"]
        assert TRACE not in {one.trace for one in collector.spans}
        assert spans["GET /v1/"].parent == spans["POST /context/v1/chat/completions"].parent == ""
        assert spans["GET /v1/"].trace.encode() in head and TRACE.encode() not in head and b"congo" not in head


async def test_page_read_has_a_span_only_within_a_client_trace() -> None:
    async with Collector() as collector, through(FINE, tracing={"endpoint": collector.url}) as (gateway, _):
        await ask(gateway, get(b"/context/runs"))
        await ask(gateway, get(b"/context/runs", PARENT))
        await collector.one("GET /context/runs")


async def test_page_spans_have_bounded_names_and_methods() -> None:
    async with Collector() as collector, through(FINE, tracing={"endpoint": collector.url}) as (gateway, _):
        await ask(gateway, post(b"{", b"/context/v1/chat/completions", b"Content-Type: application/json"))
        await ask(gateway, get(b"/v1/x", method=b"BREW"))
        spans = await collector.until("POST /context/v1/chat/completions", "HTTP /v1/")
        bad, odd = (next(one for one in spans if one.name.startswith(name)) for name in ("POST", "HTTP"))
        assert (bad.attributes["http.response.status_code"], bad.failed) == (400, False)
        assert (bad.attributes["twolane.lane"], bad.attributes["http.route"]) == ("context", bad.name[5:])
        assert odd.attributes["http.request.method"] == "_OTHER"


async def test_unknown_client_path_is_not_used_as_span_name() -> None:
    """It ends like one at which a model answers, and there is no such page."""
    async with Collector() as collector, through(FINE, tracing={"endpoint": collector.url}) as (gateway, _):
        await ask(gateway, post(b"{}", b"/context/made-up/v1/chat/completions", b"Content-Type: application/json"))
        span = await collector.one("POST chat")
        assert span.attributes["http.response.status_code"] == 404 and "http.route" not in span.attributes


def test_span_methods_and_failure_types_are_normalized() -> None:
    assert [get_span_method(one) for one in (b"GET", b"get", b"X")] == ["GET", "_OTHER", "_OTHER"]
    assert [get_failure_type(200, ""), get_failure_type(503, ""), get_failure_type(503, "why")] == ["", "503", "why"]
