"""Spans of the requests of MCP clients, in OpenTelemetry's names for MCP."""

from collections.abc import Mapping
from typing import Any, Final

from gateway.contracts.tracing.context import CURRENT, TraceContext
from gateway.contracts.tracing.headers import parse_parent
from gateway.contracts.tracing.tracer import Attribute, Span, Tracer
from gateway.lanes.aiohttp_adapter import Facade
from gateway.mcp_server.client_request import ClientRequest

_CALL: Final = "tools/call"


def begin_message_span(tracer: Tracer | None, visit: ClientRequest, ctx: Any, *, method: str) -> Span | None:
    """Begin the span of a message, the current one from here on; None: tracing is off.

    It is below the span that the message names in its `_meta`, and linked to the span of its HTTP request; else below
    the latter. `ctx` is the SDK's context of a handler.
    """
    if tracer is None:
        return None
    transport = visit.request.transport
    carrier = transport.trace if isinstance(transport, Facade) else None
    sender = tracer.find_trusted_sender(_find_sender(ctx.meta))
    context = tracer.open_child_span(carrier) if sender is None else tracer.build_request_context(sender)
    CURRENT.set(context)
    params: Mapping[str, Any] = ctx.params or {}
    tool = str(params.get("name")) if method == _CALL else None
    attributes: dict[str, Attribute] = {
        "mcp.method.name": method,
        "mcp.protocol.version": str(ctx.protocol_version),
        "jsonrpc.request.id": str(ctx.request_id),
        "network.transport": "tcp",
        "gen_ai.operation.name": None if tool is None else "execute_tool",
        "gen_ai.tool.name": tool,
        "twolane.key": visit.identity.caller.name,
    }
    links = () if sender is None or carrier is None else (carrier,)
    return tracer.begin_span(context, method if tool is None else f"{method} {tool}", "server", attributes, links=links)


def _find_sender(meta: object) -> TraceContext | None:
    """Return the span that the `_meta` of a message names, if it does."""
    if not isinstance(meta, dict):
        return None
    found = {name: meta.get(name) for name in ("traceparent", "tracestate")}
    values = {name: [value] if isinstance(value, str) else [] for name, value in found.items()}
    return parse_parent(values["traceparent"], values["tracestate"])
