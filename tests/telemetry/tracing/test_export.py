"""Spans on their way: a real collector, one that is slow, fails or is not there, and what never leaves."""

import asyncio
import socket
import sys

import pytest
from collector import Collector
from functional.through import FINE, ask, get, through
from gateways import until, until_read
from metrics_page import samples

from gateway.contracts.tracing.tracer import Attribute, Record, Tracer
from gateway.telemetry.tracing.export import BATCH, LAST_S, WAITING, SpanSender
from gateway.telemetry.tracing.export import Collector as Target
from gateway.testing.ports import free_port


def target(url: str) -> Target:
    return Target(url, {"Authorization": "Bearer sesame-key"}, None, "svc", "here:1")


async def sent(collector: Collector, attributes: dict[str, Attribute], *, secrets: tuple[str, ...] = ()) -> None:
    sending = SpanSender(target(f"{collector.url}/v1/traces"), secrets=lambda: secrets)
    tracer = Tracer(sending.send, share=1.0, receivers=frozenset())
    with tracer.under_way("one", "internal", attributes):
        pass
    await sending.close()


async def test_exported_span_carries_resource_and_headers() -> None:
    async with Collector() as collector:
        await sent(collector, {"text": "a", "number": 1, "list": ("x", "y"), "none": None, "flag": True})
        span = await collector.one("one")
        assert span.attributes == {"text": "a", "number": 1, "list": ("x", "y"), "flag": True}
        named = {"service.name": "svc", "service.instance.id": "here:1"}
        assert named.items() <= span.resource.items() and "service.version" in span.resource
        assert collector.headers[0]["Authorization"] == "Bearer sesame-key"
        assert span.ended_ns >= span.began_ns > 0


async def test_exported_attributes_are_redacted_truncated_and_escaped() -> None:
    async with Collector() as collector:
        texts = {
            "a": "path/hidden-word/x",
            "b": "sk-abcdefgh",
            "c": "x" * 5000,
            "d": "\ud800 half",
            "e": "Bearer abcdef",
            "f": "a\r\n\x1b[2J\u2028b",
        }
        await sent(collector, {**texts, "list": ("hidden-word",)}, secrets=("hidden-word",))
        span = await collector.one("one")
        assert span.attributes["a"] == "path/***/x" and span.attributes["b"] == "***"
        assert len(span.attributes["c"]) == 256 and "half" in span.attributes["d"]
        assert span.attributes["f"] == r"a\x0d\x0a\x1b[2J\x2028b"
        assert "abcdef" not in span.text and "hidden-word" not in span.text


async def test_a_collector_that_fails_is_tried_again_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "gateway")
    async with Collector(500, 500) as collector:
        sending = SpanSender(target(f"{collector.url}/v1/traces"), secrets=tuple)
        tracer = Tracer(sending.send, share=1.0, receivers=frozenset())
        for i in range(3):
            tracer.begin("one", "internal", {}, parent=None).end()
            await collector.until(where=lambda _, i=i: len(collector.headers) > i)  # type: ignore[misc]
        await until(lambda: "are sent" in caplog.text)
        told = [one.getMessage() for one in caplog.records if one.name == "gateway"]
        assert len(told) == 2 and "are sent" in told[1]
        assert f"cannot be sent to {collector.url}/v1/traces: it answered with status 500." in told[0]
        assert {labels[0]: count for (_, labels), (count,) in sending.collect_counts()} == {"sent": 1, "failed": 2}
        await sending.close()


async def test_span_outcomes_appear_on_the_metrics_page() -> None:
    async with Collector() as collector, through(FINE, tracing={"endpoint": collector.url}) as (gateway, _):
        await ask(gateway, get(b"/v1/x"))
        await collector.until("GET /v1/", "GET")

        async def sent_spans() -> float:
            page = samples((await ask(gateway, get(b"/metrics"))).payload)
            return page.get(("gateway_trace_spans_total", (("outcome", "sent"),)), 0.0)

        await until_read(sent_spans, lambda count: count == 2)


async def test_unreachable_collector_delays_neither_requests_nor_shutdown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    endpoint = f"http://127.0.0.1:{free_port('127.0.0.1')}"
    async with through(FINE, tracing={"endpoint": endpoint}) as (gateway, _):
        answers = [await ask(gateway, get(b"/v1/x")) for _ in range(20)]
        assert {one.status for one in answers} == {200}
        async with asyncio.timeout(LAST_S + 20):
            await gateway.gateway.close()
    assert sum("traces cannot be sent" in one.getMessage() for one in caplog.records) <= 1
    assert not [one for one in caplog.records if one.name.startswith(("opentelemetry", "urllib3"))]


async def test_spans_lost_at_shutdown_are_counted_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        sending = SpanSender(target(f"http://127.0.0.1:{silent.getsockname()[1]}/v1/traces"), secrets=tuple)
        tracer = Tracer(sending.send, share=1.0, receivers=frozenset())
        for _ in range(BATCH + 100):
            tracer.begin("one", "internal", {}, parent=None).end()
        async with asyncio.timeout(LAST_S + 20):
            await sending.close()
    (told,) = [one.getMessage() for one in caplog.records if one.name == "gateway"]
    assert told.startswith(f"{BATCH + 100} spans of traces are lost: http://127.0.0.1:")


async def test_full_span_queue_drops_and_counts_spans() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        sending = SpanSender(target(f"http://127.0.0.1:{silent.getsockname()[1]}/v1/traces"), secrets=tuple)
        record = Record(
            "one", "internal", Tracer(sending.send, share=1.0, receivers=frozenset()).open_child_span(None), 1, 2, {}
        )
        for _ in range(WAITING + 2000):
            sending.send(record)
        counted = {labels[0]: count for (_, labels), (count,) in sending.collect_counts()}
        assert 2000 - BATCH <= counted["dropped"] <= 2000
        sending._exporter.shutdown()


async def test_without_an_endpoint_the_sdk_is_not_loaded() -> None:
    code = "import sys, gateway.server.app, gateway.features.tracing.service; print('\\n'.join(sys.modules))"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    loaded = (await process.communicate())[0].decode().split()
    assert "gateway.contracts.tracing.tracer" in loaded
    assert not [one for one in loaded if one.startswith(("opentelemetry", "google.protobuf", "requests"))]
