"""Traces of passthrough requests: one span each, one for each try, and not a byte that differs."""

import asyncio
from collections.abc import Sequence
from urllib.parse import urlsplit

import pytest
from collector import SENDER, TRACE, TRACEPARENT, Collector, Seen, tree
from functional.several import BODY, CHAT, several
from functional.through import (
    FINE,
    HOSTS,
    NO_WORKFLOWS,
    PATIENT,
    ask,
    client_of,
    get,
    post,
    post_chunked,
    says,
    through,
)
from gateways import key, until
from usage.shapes import CHAT as CHAT_ANSWER
from usage.shapes import text

from gateway.telemetry.tracing.export import SCHEMA_URL
from gateway.testing.local_gateway import LocalGateway
from gateway.testing.raw_connection import Peer
from gateway.testing.scripts import build_answer, build_event, build_event_stream, build_head, serve
from gateway.testing.upstream import FakeUpstream

PARENT = f"traceparent: {TRACEPARENT}".encode()
STREAM = build_head(
    200, [("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked")]
) + build_event_stream([build_event("one"), build_event("two"), build_event("[DONE]")])
REQUESTS = {
    "get": get(b"/v1/models?key=hidden", PARENT, b"TraceState: a=b"),
    "post": post(BODY, CHAT, b"TRACEPARENT:   broken  ", b"X-Odd:\tvalue "),
    "chunked": post_chunked(b"3\r\nabc\r\n0\r\n\r\n", CHAT, PARENT),
    "old": get(b"/v1/x", PARENT, version=b"1.0"),
    "stream": post(BODY, CHAT, PARENT, b"tracestate: congo=t61"),
}


def answers(peer_request: bytes) -> bytes:
    return STREAM if b"congo" in peer_request else build_answer(200, b"fine", [("X-Odd", " v ")])


async def script(peer: Peer) -> None:
    while request := await peer.read_request():
        await peer.send(answers(request.raw_head))


async def raw_answers(url: str, requests: Sequence[bytes], **settings: object) -> list[bytes]:
    entry = {"name": "up", "base_url": url, "timeouts": PATIENT}
    common = {"upstreams": [entry], "allowed_hosts": HOSTS, "workflows": NO_WORKFLOWS}
    async with LocalGateway({**common, **settings}) as gateway:
        return [(await ask(gateway, request)).raw for request in requests]


@pytest.mark.parametrize("further", [{}, {"usage": {"enabled": True}}])
async def test_tracing_changes_no_relayed_byte(further: dict[str, object]) -> None:
    """Upstreams and clients get equal bytes, read from raw sockets, without traces and with them."""
    async with Collector() as collector, FakeUpstream(script) as upstream:
        without = await raw_answers(upstream.base_url, [*REQUESTS.values()], **further)
        sent = [(one.raw_head, one.raw_body) for one in upstream.requests]
        upstream.requests.clear()
        with_traces = await raw_answers(
            upstream.base_url, [*REQUESTS.values()], tracing={"endpoint": collector.url}, **further
        )
        assert [(one.raw_head, one.raw_body) for one in upstream.requests] == sent
        assert with_traces == without
        spans = await collector.until(where=lambda spans: len(spans) == 2 * len(REQUESTS))
        assert {one.trace for one in spans if one.kind == "server"} >= {TRACE}
        assert "hidden" not in "".join(one.text for one in spans)


async def test_request_has_a_server_span_and_a_client_span() -> None:
    async with Collector() as collector, through(FINE, tracing={"endpoint": collector.url}) as (gateway, upstream):
        await ask(gateway, post(BODY, CHAT + b"?key=hidden", PARENT, b"tracestate: a=b"))
        spans = await collector.until("POST /v1/", "POST")
        assert tree(spans, top=SENDER) == ["POST /v1/", "  POST"]
        server, client = (next(one for one in spans if one.kind == kind) for kind in ("server", "client"))
        assert (server.trace, server.state, server.remote, server.failed) == (TRACE, "a=b", True, False)
        assert server.attributes == {
            "http.request.method": "POST",
            "http.route": "/v1/",
            "http.response.status_code": 200,
            "url.scheme": "http",
            "url.path": CHAT.decode(),
            "twolane.lane": "passthrough",
            "twolane.upstream": "up",
            "twolane.outcome": "ok",
            "twolane.key": "local",
        }
        assert client.attributes["server.port"] == upstream.port and not client.remote
        assert client.attributes["url.full"] == f"{upstream.base_url}{CHAT.decode()}"
        assert client.schema == SCHEMA_URL
        assert server.began_ns <= client.began_ns <= client.ended_ns <= server.ended_ns


async def test_log_lines_have_the_trace() -> None:
    async with (
        Collector() as collector,
        through(FINE, tracing={"endpoint": collector.url}, logging={"access": True}) as (gateway, _),
    ):
        await ask(gateway, get(b"/v1/x", PARENT))
        await ask(gateway, get(b"/context/runs", PARENT))
        assert gateway.get_log().count(f'"trace_id":"{TRACE}"') == 2


MODEL_FACTS = ("gen_ai.", "twolane.tokens.")


def model_facts(span: Seen) -> dict[str, object]:
    return {name: value for name, value in span.attributes.items() if name.startswith(MODEL_FACTS)}


async def test_only_the_successful_attempt_span_carries_model_usage() -> None:
    """In the names for GenAI, which the request's own span does not repeat: whoever adds up would count twice."""
    told = text({**CHAT_ANSWER, "model": "claude-1"})
    answers = serve(build_answer(503, b"no")), serve(build_answer(200, told, [("Content-Type", "application/json")]))
    settings = {"usage": {"enabled": True}}
    async with Collector() as collector:
        rules: dict[str, object] = {"retry": {"tries": 3, "on": ["503"]}, "provider": "anthropic"}
        tracing = {"tracing": {"endpoint": collector.url}, **settings}
        async with several(*answers, settings=tracing, **rules) as one:
            assert (await ask(one.gateway, post(BODY, CHAT))).status == 200
        spans = await collector.until("POST /v1/", where=lambda spans: len(spans) == 3)
        server, failed, fine = sorted(spans, key=lambda one: (one.kind != "server", one.began_ns))
        assert model_facts(server) == model_facts(failed) == {}
        assert model_facts(fine) == {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "anthropic",
            "gen_ai.response.model": "claude-1",
            "gen_ai.usage.input_tokens": 19,
            "gen_ai.usage.output_tokens": 10,
            "gen_ai.usage.cache_read.input_tokens": 4,
            "gen_ai.usage.reasoning.output_tokens": 3,
        }


async def test_spans_report_time_to_first_chunk_and_estimated_tokens() -> None:
    facts = {"usage": {"enabled": True}, "passthrough": {"by_model": True}}
    async with Collector() as collector:
        async with through(serve(STREAM), tracing={"endpoint": collector.url}, **facts) as (gateway, _):
            await ask(gateway, post(b'{"model": "m"}', CHAT))
            await ask(gateway, post(b"", b"/v1/files"))
        spans = await collector.until(where=lambda spans: len(spans) == 4)
        streamed, other = sorted((one for one in spans if one.kind == "client"), key=lambda one: one.began_ns)
        assert streamed.attributes["gen_ai.request.model"] == "m" and streamed.attributes["gen_ai.request.stream"]
        assert 0 < streamed.attributes["gen_ai.response.time_to_first_chunk"] < streamed.ended_ns - streamed.began_ns
        assert streamed.attributes["twolane.tokens.estimated"] and "gen_ai.response.model" not in streamed.attributes
        assert model_facts(other) == {}


async def test_unsampled_client_trace_has_no_spans() -> None:
    async with Collector() as collector, through(FINE, tracing={"endpoint": collector.url}) as (gateway, _):
        await ask(gateway, get(b"/v1/first", f"traceparent: 00-{TRACE}-{SENDER}-00".encode()))
        await ask(gateway, get(b"/v1/second"))
        await collector.until("GET")
        assert TRACE not in {one.trace for one in collector.spans}


async def test_errors_and_client_disconnects_fail_their_spans() -> None:
    scripts = says(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"), serve(build_answer(503, b"no"))
    async with Collector() as collector, through(*scripts, tracing={"endpoint": collector.url}) as (gateway, _):
        async with client_of(gateway) as client:
            await client.send(get(b"/v1/left"))
            await client.read_until(b"abc")
        await ask(gateway, get(b"/v1/busy"))
        spans = await collector.until(where=lambda spans: len(spans) == 4)
        failed = {(path_of(one), one.kind): one.attributes["error.type"] for one in spans if one.failed}
        assert failed == {
            ("/v1/left", "server"): "cancelled",
            ("/v1/left", "client"): "cancelled",
            ("/v1/busy", "server"): "503",
            ("/v1/busy", "client"): "503",
        }


def path_of(span: Seen) -> str:
    """The path of a request, which a try has in its URL."""
    return urlsplit(span.attributes.get("url.full") or span.attributes["url.path"]).path


def tries_in(spans: Sequence[Seen]) -> list[tuple[str, str]]:
    clients = sorted((one for one in spans if one.kind == "client"), key=lambda one: one.began_ns)
    return [(one.attributes["twolane.endpoint"], one.attributes["twolane.outcome"]) for one in clients]


async def test_each_try_has_a_span() -> None:
    async with Collector() as collector:
        rules: dict[str, object] = {"retry": {"tries": 3, "on": ["503"]}}
        async with several(
            serve(build_answer(503, b"no")), FINE, settings={"tracing": {"endpoint": collector.url}}, **rules
        ) as one:
            assert (await ask(one.gateway, post(BODY, CHAT))).status == 200
            assert one.counts == [1, 1]
        spans = await collector.until("POST /v1/", where=lambda spans: len(spans) == 3)
        assert tries_in(spans) == [("a", "error"), ("b", "ok")]
        assert tree(spans) == ["POST /v1/", "  POST", "  POST"]
        clients = sorted((one for one in spans if one.kind == "client"), key=lambda one: one.began_ns)
        assert [one.attributes.get("http.request.resend_count") for one in clients] == [None, 1]
        assert [one.attributes["http.response.status_code"] for one in clients] == [503, 200]
        assert [one.attributes.get("error.type") for one in clients] == ["503", None]


async def test_relayed_answer_of_an_earlier_try_stays_on_its_span() -> None:
    """The last one got none, so its client gets the one before."""
    gone = says(b"", holds=False)
    async with Collector() as collector:
        rules: dict[str, object] = {"retry": {"tries": 2, "on": ["503", "reset"]}}
        async with several(
            serve(build_answer(503, b"no")), gone, settings={"tracing": {"endpoint": collector.url}}, **rules
        ) as one:
            assert (await ask(one.gateway, post(BODY, CHAT))).status == 503
        spans = await collector.until("POST /v1/", where=lambda spans: len(spans) == 3)
        assert tries_in(spans) == [("a", "error"), ("b", "reset")]
        server = next(one for one in spans if one.kind == "server")
        assert server.attributes["http.response.status_code"] == 503 and server.attributes["error.type"] == "503"


async def test_hedged_request_has_a_span_for_each_endpoint() -> None:
    silent = says(b"", holds=True)
    async with Collector() as collector:
        rules: dict[str, object] = {"retry": {"tries": 2}, "hedge": "50ms"}
        async with several(silent, FINE, settings={"tracing": {"endpoint": collector.url}}, **rules) as one:
            assert (await ask(one.gateway, post(BODY, CHAT))).status == 200
        spans = await collector.until("POST /v1/", where=lambda spans: len(spans) == 3)
        assert tries_in(spans) == [("a", "cancelled"), ("b", "ok")]


async def test_span_of_a_failed_hedge_try_reports_its_error() -> None:
    """The other one goes on, and answers."""
    begun, failed = asyncio.Event(), asyncio.Event()

    async def fails(peer: Peer) -> None:
        await peer.read_request()
        await begun.wait()
        peer.reset()
        failed.set()

    async def late(peer: Peer) -> None:
        await peer.read_request()
        begun.set()
        await failed.wait()
        await until(lambda: one.inflight == [0, 1])
        await peer.send(build_answer(200, b"fine"))
        await peer.wait_end(timeout_s=None)

    async with Collector() as collector:
        rules: dict[str, object] = {"retry": {"tries": 2}, "hedge": "50ms"}
        async with several(fails, late, settings={"tracing": {"endpoint": collector.url}}, **rules) as one:
            assert (await ask(one.gateway, post(BODY, CHAT))).status == 200
        spans = await collector.until("POST /v1/", where=lambda spans: len(spans) == 3)
        assert tries_in(spans) == [("a", "reset"), ("b", "ok")]


@pytest.mark.parametrize("by_model", [False, True])
async def test_trace_context_is_forwarded_only_if_enabled(by_model: bool) -> None:
    """It takes the place of the client's; no other byte differs."""
    async with Collector() as collector, FakeUpstream(script) as upstream:
        settings: dict[str, object] = {"passthrough": {"by_model": by_model}}
        await raw_answers(upstream.base_url, [*REQUESTS.values()], **settings)
        sent = [one.raw_head for one in upstream.requests]
        upstream.requests.clear()
        tracing = {"endpoint": collector.url, "passthrough": True}
        await raw_answers(upstream.base_url, [*REQUESTS.values()], tracing=tracing, **settings)
        spans = await collector.until(where=lambda spans: len(spans) == 2 * len(REQUESTS))
        known = {one.id: one for one in spans if one.kind == "client"}
        for before, request in zip(sent, upstream.requests, strict=True):
            lines = [*request.raw_head.split(b"\r\n")]
            traces = [line for line in lines if line.lower().startswith(b"trace")]
            others = [line for line in before.split(b"\r\n") if not line.lower().startswith(b"trace")]
            assert [line for line in lines if line not in traces] == others
            name, _, value = traces[0].decode().partition(": ")
            assert name == "traceparent" and known[value.split("-")[2]].trace == value.split("-")[1]
            if b"TRACEPARENT" in before:  # what came with a broken one is dropped with it
                assert len(traces) == 1
            elif b"racestate" in before.lower():
                assert traces[1:] == [b"tracestate: a=b"] or traces[1:] == [b"tracestate: congo=t61"]


async def test_request_refused_by_a_limit_has_no_client_span() -> None:
    """No endpoint was asked."""
    keys = [{**key("sk-a", "passthrough"), "limits": {"requests_per_minute": 1}}]
    async with Collector() as collector:
        async with through(FINE, tracing={"endpoint": collector.url}, keys=keys) as (gateway, _):
            statuses = [(await ask(gateway, get(b"/v1/x", b"X-Gateway-Key: sk-a"))).status for _ in range(2)]
        assert statuses == [200, 429]
        spans = await collector.until(where=lambda spans: sum(one.kind == "server" for one in spans) == 2)
    assert [one.kind for one in spans].count("client") == 1


@pytest.mark.parametrize("passes_on", [False, True])
async def test_client_span_has_the_outcome_of_its_response(passes_on: bool) -> None:
    """Also where the upstream gets its trace context."""
    async with Collector() as collector:
        tracing = {"endpoint": collector.url, "passthrough": passes_on}
        async with through(FINE, tracing=tracing) as (gateway, _):
            await ask(gateway, get(b"/v1/x"))
        spans = await collector.until(where=lambda spans: len(spans) == 2)
    (one,) = (span for span in spans if span.kind == "client")
    assert (one.attributes["twolane.outcome"], one.attributes["http.response.status_code"]) == ("ok", 200)
