"""Spans of MCP clients' messages: below the span that a message names, and the run of a call below them."""

import asyncio

import pytest
from collector import SENDER, TRACE, TRACEPARENT, Collector, tree
from mcp_types import CallToolRequest, CallToolRequestParams, CallToolResult

from gateway.contracts.storage.store import Json
from tests.mcp_server.serving import Era, both_eras, server, texts, world

ECHO: Json = {"name": "here__echo", "arguments": {"text": "hidden-words"}}


@both_eras
async def test_tool_call_and_its_run_share_one_trace(era: Era) -> None:
    """It is held, decided elsewhere, and made at a server, which gets the context."""
    async with Collector() as collector:
        tracing = {"endpoint": collector.url, "propagate": ["mcp"]}
        async with world(here=server("ok"), tracing=tracing) as made, made.client(era) as client:
            params = CallToolRequestParams.model_validate({**ECHO, "_meta": {"traceparent": TRACEPARENT}})
            asked = client.session.send_request(CallToolRequest(params=params), CallToolResult)
            result, _ = await asyncio.gather(asked, made.decide("approve"))
            assert texts(result) == "hidden-words"
        spans = [one for one in collector.spans if one.trace == TRACE]
        assert tree(spans, top=SENDER) == [
            "tools/call here__echo",
            "  run here.echo",
            "    approval here.echo",
            "    execute_tool here.echo",
        ]
        call = next(one for one in spans if one.name.startswith("tools/call"))
        assert (call.kind, call.remote, len(call.links)) == ("server", True, 1)
        assert call.attributes["gen_ai.tool.name"] == "here__echo" and call.attributes["mcp.protocol.version"]
        assert "hidden-words" not in "".join(one.text for one in collector.spans)


@pytest.mark.parametrize("meta", [{}, {"traceparent": 7}, {"traceparent": "00-x"}, {"traceparent": [TRACEPARENT]}])
async def test_message_without_trace_context_is_below_its_http_span(meta: Json) -> None:
    async with Collector() as collector, world(here=server("ok"), tracing={"endpoint": collector.url}) as made:
        fields = await made.session()
        message = {"jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": {"_meta": meta}}
        await made.post("/mcp", message, **fields, traceparent=TRACEPARENT)
        spans = [one for one in await collector.until("tools/list") if one.trace == TRACE]
        await collector.until(
            where=lambda spans: any(
                one.trace == TRACE and one.kind == "server" and one.parent == SENDER for one in spans
            )
        )
        names = tree([one for one in collector.spans if one.trace == TRACE], top=SENDER)
        assert names == ["POST /mcp", "  tools/list"], spans


async def test_trace_context_of_an_untrusted_client_is_ignored() -> None:
    tracing = {"propagate": ["mcp"], "trust_clients": False}
    async with (
        Collector() as collector,
        world(here=server("ok"), tracing={"endpoint": collector.url, **tracing}) as made,
    ):
        fields = await made.session()
        meta = {"traceparent": TRACEPARENT}
        message = {"jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": {"_meta": meta}}
        await made.post("/mcp", message, **fields, traceparent=TRACEPARENT)
        named = await collector.one("tools/list")
        await collector.until(where=lambda spans: any(one.id == named.parent for one in spans))
        (above,) = [one for one in collector.spans if one.id == named.parent]
        assert (above.name, above.parent, named.links) == ("POST /mcp", "", ())
        assert TRACE not in {one.trace for one in collector.spans}


async def test_refused_message_marks_its_span_as_failed() -> None:
    async with Collector() as collector, world(here=server("ok"), tracing={"endpoint": collector.url}) as made:
        fields = await made.session()
        message = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "none", "arguments": {}}}
        await made.post("/mcp", message, **fields)
        span = await collector.one("tools/call none")
        assert span.failed and span.attributes["error.type"] in ("refused", "tool_error")
