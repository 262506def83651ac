"""The span of a request as its server has it, of either lane, in OpenTelemetry's names for HTTP."""

from dataclasses import dataclass
from time import time_ns
from typing import Final

from gateway.contracts.tracing.context import TraceContext
from gateway.contracts.tracing.headers import TRACEPARENT, TRACESTATE, parse_parent
from gateway.contracts.tracing.tracer import Attributes, Record, Tracer
from gateway.http.request_head import RequestHead
from gateway.lanes.client import Client
from gateway.lanes.page_labels import find_page_name
from gateway.lanes.passthrough.access_record import CLIENT_LEFT
from gateway.lanes.routes import get_path

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


def find_sender(head: RequestHead) -> TraceContext | None:
    """Return the span that a request comes from, if its head names one."""
    values: dict[bytes, list[str]] = {TRACEPARENT: [], TRACESTATE: []}
    for field in head.fields:
        if field.name in values:
            values[field.name].append(field.value.decode("latin-1"))
    return parse_parent(values[TRACEPARENT], values[TRACESTATE]) if values[TRACEPARENT] else None


def build_server_span(
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
    name = get_span_method(method)
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
        error=get_failure_type(status, failure),
    )


@dataclass(frozen=True, slots=True)
class RequestTrace:
    """The traces of one request to a page of the gateway. `context` is its span."""

    tracer: Tracer
    context: TraceContext
    head: RequestHead
    target: str
    lane: str

    def end(self, status: int, duration_s: float, facts: dict[str, object]) -> None:
        """End the span now. `facts` are the access log's facts, which get the id of the trace."""
        context, head, now_ns = self.context, self.head, time_ns()
        facts["trace_id"] = context.trace_id
        if not context.sampled:
            return
        named = {name: facts.get(fact) for name, fact in _NAMED}
        attributes = {name: str(value) for name, value in named.items() if value is not None}
        began_ns, path = now_ns - int(duration_s * 1e9), get_path(head.target)
        span = (context, began_ns, now_ns, head.method, path, self.target, self.lane, status)
        failure = "cancelled" if status == CLIENT_LEFT else ""
        self.tracer.send(build_server_span(*span, failure=failure, attributes=attributes))


def start_trace(client: Client, head: RequestHead, *, route: str, lane: str) -> RequestTrace | None:
    """Return the trace of a request to a page of the gateway; None: it has none.

    Requests of monitors and of the console have none, nor has any other look at a page, unless its client traces it:
    programs look again and again.
    """
    tracer = client.listener.tracer
    if tracer is None or route in _UNTRACED or client.is_inner:
        return None
    sender = tracer.find_trusted_sender(find_sender(head))
    if sender is None and lane == "own" and head.method in _LOOKS and not head.websocket:
        return None
    target = find_page_name(get_path(head.target)) or route
    return RequestTrace(tracer, tracer.build_request_context(sender), head, target, lane)


def get_span_method(method: bytes) -> str:
    """Return the method as spans name it: of a closed set."""
    return method.decode() if method in _METHODS else "_OTHER"


def get_failure_type(status: int, failure: str) -> str:
    """Return the type of the error of a request with this status, for its server; "" for none."""
    return failure or (str(status) if status >= _FAILED else "")
