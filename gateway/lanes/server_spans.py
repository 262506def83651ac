"""The span of a request as its server has it, of either lane, in OpenTelemetry's names for HTTP."""

from dataclasses import dataclass
from time import time_ns
from typing import Final

from gateway.http.request_head import RequestHead
from gateway.lanes.own_routes import page_of
from gateway.lanes.passthrough.accounting import CLIENT_LEFT
from gateway.lanes.routes import path_of
from gateway.lanes.transaction import Client
from gateway.trace_context import TraceContext
from gateway.tracing.tracer import Attributes, Record, Tracer
from gateway.tracing.w3c import TRACEPARENT, TRACESTATE, parent_in

#: Methods with a name of their own in spans (https://opentelemetry.io/docs/specs/semconv/http/http-spans/).
_METHODS: Final = frozenset((b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"OPTIONS", b"PATCH"))
_FAILED: Final = 500
#: Routes of our own pages that programs ask all the time.
_UNTRACED: Final = frozenset(("health", "console"))
_LOOKS: Final = frozenset((b"GET", b"HEAD", b"OPTIONS"))
#: Attributes, by the fact of the access log that they are.
_NAMED: Final = (
    ("twolane.run.id", "run"),
    ("twolane.key", "key"),
    ("twolane.upstream", "upstream"),
    ("twolane.endpoint", "endpoint"),
)


def sender_of(head: RequestHead) -> TraceContext | None:
    """Return the span that a request comes from, if its head names one."""
    values: dict[bytes, list[str]] = {TRACEPARENT: [], TRACESTATE: []}
    for field in head.fields:
        if field.name in values:
            values[field.name].append(field.value.decode("latin-1"))
    return parent_in(values[TRACEPARENT], values[TRACESTATE]) if values[TRACEPARENT] else None


def server_span(
    context: TraceContext,
    began_ns: int,
    ended_ns: int,
    method: bytes,
    path: bytes,
    target: str,
    lane: str,
    status: int,
    *,
    failure: str,
    attributes: Attributes,
) -> Record:
    """Return the span of a request. `path` has no query, which may hold keys; `failure` is why it failed, or "".

    `target` is of a closed set: the path or the prefix of a route, or the kind of the page.
    """
    name = method_of(method)
    return Record(
        name=f"{'HTTP' if name == '_OTHER' else name} {target}",
        kind="server",
        context=context,
        began_ns=began_ns,
        ended_ns=ended_ns,
        attributes={
            "http.request.method": name,
            "http.route": target if target.startswith("/") else None,
            "http.response.status_code": status or None,
            "url.scheme": "http",
            "url.path": path.decode("latin-1"),
            "twolane.lane": lane,
            **attributes,
        },
        error=failure_of(status, failure),
    )


@dataclass(frozen=True, slots=True)
class RequestTrace:
    """The traces of one request to a page of ours. `context` is its span."""

    tracer: Tracer
    context: TraceContext
    head: RequestHead
    target: str
    lane: str

    def end(self, status: int, duration_s: float, facts: dict[str, object]) -> None:
        """End the span now. `facts` are those of the access log, which gets the id of the trace."""
        context, head, now_ns = self.context, self.head, time_ns()
        facts["trace_id"] = context.trace_id
        if not context.sampled:
            return
        named = {name: facts.get(fact) for name, fact in _NAMED}
        attributes = {name: str(value) for name, value in named.items() if value is not None}
        began_ns, path = now_ns - int(duration_s * 1e9), path_of(head.target)
        span = (context, began_ns, now_ns, head.method, path, self.target, self.lane, status)
        failure = "cancelled" if status == CLIENT_LEFT else ""
        self.tracer.send(server_span(*span, failure=failure, attributes=attributes))


def trace_of(client: Client, head: RequestHead, *, route: str, lane: str) -> RequestTrace | None:
    """Return the trace of a request to a page of ours; None: it has none.

    What monitors and the console ask has none, nor has any other look at a page, unless its client traces it: programs
    look again and again.
    """
    tracer = client.listener.router.tracer
    if tracer is None or route in _UNTRACED or client.is_inner:
        return None
    sender = tracer.trusted(sender_of(head))
    if sender is None and lane == "own" and head.method in _LOOKS and not head.websocket:
        return None
    target = page_of(path_of(head.target)) or route
    return RequestTrace(tracer, tracer.received(sender), head, target, lane)


def method_of(method: bytes) -> str:
    """Return the method as spans name it: of a closed set."""
    return method.decode() if method in _METHODS else "_OTHER"


def failure_of(status: int, failure: str) -> str:
    """Return the type of the error of a request with this status, for its server; "" for none."""
    return failure or (str(status) if status >= _FAILED else "")
