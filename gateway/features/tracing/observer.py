"""The traces of a passthrough exchange. Their spans are made when it is over, of the times that were taken anyway.

Nothing of what is relayed differs, unless `tracing.passthrough` is on: each attempt then carries the trace context of
its own span, in place of the client's.
"""

from dataclasses import dataclass
from time import perf_counter, time_ns
from typing import Final

from gateway.contracts.errors import GatewayError
from gateway.contracts.tracing.context import TraceContext
from gateway.contracts.tracing.headers import TRACE_FIELDS
from gateway.contracts.tracing.tracer import Attributes, Record, Tracer
from gateway.lanes.billable_paths import find_operation
from gateway.lanes.passthrough.access_record import CLIENT_LEFT, AccessRecord
from gateway.lanes.passthrough.observers.observer import (
    REFUSED,
    Observer,
    ObserverFactory,
    PassthroughFeature,
    PlannedRequest,
)
from gateway.lanes.passthrough.plan_records import PlanTarget
from gateway.lanes.server_spans import build_server_span, find_sender, get_span_method
from gateway.usage.tokens import RequestUsage, TokenCounts

#: Outcomes of requests that no endpoint was asked for.
_UNASKED: Final = frozenset((REFUSED, "unavailable"))
#: For a client, every answer from this status on is an error.
_FIRST_ERROR: Final = 400


class TraceFeature(PassthroughFeature):
    """The traces of one configuration. A span says the tokens of its request."""

    reads_at_once = True

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self.written_fields = TRACE_FIELDS if tracer.passthrough else frozenset[bytes]()

    def choose_observer(self, request: PlannedRequest) -> ObserverFactory | None:
        """Return what makes the observers of a plan's requests, which may all come from one span."""
        return ObserverFactory(TraceObserver, self._tracer, self._tracer.find_trusted_sender(find_sender(request.head)))


@dataclass(slots=True)
class Attempt:
    """A request to an endpoint. Times are perf_counter seconds."""

    target: PlanTarget
    context: TraceContext
    began: float
    outcome: str = ""
    status: int = 0  # of its answer; 0: there is none
    ended: float = 0.0


class TraceObserver(Observer):
    """The spans of one exchange."""

    def __init__(self, tracer: Tracer, sender: TraceContext | None, record: AccessRecord) -> None:
        self._tracer = tracer
        self._record = record
        self._trace = trace = tracer.build_request_context(sender)
        self._follows_attempts = trace.sampled or tracer.passthrough
        self._attempts: list[Attempt] = []
        record.trace_id = trace.trace_id

    def on_attempt_started(self, target: PlanTarget) -> PlanTarget:
        """Begin the span of an attempt, and add its trace context to the head if that is enabled."""
        if not self._follows_attempts:
            return target
        context = self._tracer.open_child_span(self._trace)
        if self._tracer.passthrough:
            target = _add_fields(target, context)
        self._attempts.append(Attempt(target, context, perf_counter()))
        return target

    def on_attempt_ended(self, target: PlanTarget, outcome: str, status: int) -> None:
        # The oldest one under way: an endpoint may be asked twice.
        for one in self._attempts:
            if one.target is target and not one.outcome:
                one.outcome, one.status, one.ended = outcome, status, perf_counter()
                return

    def on_closed(self, outcome: str, error: GatewayError | None) -> bool:
        if self._trace.sampled:
            self._send_spans(outcome, error)
        return False

    def _send_spans(self, outcome: str, error: GatewayError | None) -> None:
        """Send the span of the exchange, and one span for each of its attempts."""
        record = self._record
        target, head = record.target, record.head
        if outcome not in _UNASKED:
            self.on_attempt_ended(target, outcome, 0 if error is not None else record.status)
        now, now_ns = perf_counter(), time_ns()
        for one in self._attempts:
            if not one.outcome:
                one.outcome, one.ended = "cancelled", now
        attributes = {
            "twolane.upstream": target.member.pool.endpoint.name,
            "twolane.endpoint": target.endpoint,
            "twolane.outcome": outcome,
            "twolane.tokens": record.tokens,
            "twolane.key": target.identity.caller.name,
        }
        route = record.policy.counts.route.route
        began_ns = now_ns - int((now - record.began) * 1e9)
        facts = (self._trace, began_ns, now_ns, head.method, head.path, route, "passthrough", record.status)
        failure = (error.code if error is not None else "") or ("" if outcome in ("ok", "error") else outcome)
        self._tracer.send(build_server_span(*facts, failure=failure, attributes=attributes))
        answering = self._find_answering()
        for number, one in enumerate(self._attempts):
            if one.outcome not in _UNASKED:
                more = self._build_model_facts(one.target) if one is answering else {}
                self._tracer.send(self._build_attempt_span(one, number, now_ns - int(now * 1e9), more))

    def _find_answering(self) -> Attempt | None:
        """Return the last attempt with the target of the answer that the client got."""
        return next((one for one in reversed(self._attempts) if one.target is self._record.target), None)

    def _build_model_facts(self, target: PlanTarget) -> Attributes:
        """Return the attributes of the model that answered, in OpenTelemetry's names for GenAI."""
        record = self._record
        operation = find_operation(record.head.path) if record.head.method == b"POST" else None
        if operation is None:
            return {}
        usage, model = record.used or (RequestUsage(), "")
        is_told = record.used is not None and not (usage.rejected or usage.asked)
        tokens = usage.tokens if is_told and usage.tokens != TokenCounts() else None
        first_s = record.came - record.sent_at if record.streaming and record.came else None
        return {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": target.member.pool.endpoint.provider,
            "gen_ai.request.model": record.asked_model or None,
            "gen_ai.request.stream": record.streaming or None,
            "gen_ai.response.model": model if is_told and model else None,
            "gen_ai.response.time_to_first_chunk": first_s,
            "gen_ai.usage.input_tokens": tokens and tokens.input,
            "gen_ai.usage.output_tokens": tokens and tokens.output,
            "gen_ai.usage.cache_read.input_tokens": (tokens and tokens.cached) or None,
            "gen_ai.usage.cache_write.input_tokens": (tokens and tokens.written) or None,
            "gen_ai.usage.audio.input_tokens": (tokens and tokens.audio_input) or None,
            "gen_ai.usage.audio.output_tokens": (tokens and tokens.audio_output) or None,
            "gen_ai.usage.reasoning.output_tokens": (tokens and tokens.reasoning) or None,
            "twolane.tokens.estimated": usage.estimated or None,
        }

    def _build_attempt_span(self, one: Attempt, number: int, epoch_ns: int, more: Attributes) -> Record:
        """Return the span of an attempt; `epoch_ns` is the Unix time at which perf_counter was 0."""
        target, endpoint = one.target, one.target.member.pool.endpoint
        method, status = get_span_method(self._record.head.method), 0 if one.status == CLIENT_LEFT else one.status
        failure = "" if one.outcome in ("ok", "error") else one.outcome
        return Record(
            name=method,
            kind="client",
            context=one.context,
            began_ns=epoch_ns + int(one.began * 1e9),
            ended_ns=epoch_ns + int(one.ended * 1e9),
            attributes={
                "http.request.method": method,
                "http.request.resend_count": number or None,
                "http.response.status_code": status or None,
                "server.address": endpoint.host,
                "server.port": endpoint.port,
                "url.full": endpoint.origin + _read_path(target),
                "twolane.upstream": endpoint.name,
                "twolane.endpoint": target.endpoint,
                "twolane.outcome": one.outcome,
                **more,
            },
            error=failure or (str(status) if status >= _FIRST_ERROR else ""),
        )


def _read_path(target: PlanTarget) -> str:
    """Return the path at an endpoint, without the query, which may hold keys."""
    return target.head[0].split(b" ", 2)[1].partition(b"?")[0].decode("latin-1")


def _add_fields(target: PlanTarget, context: TraceContext) -> PlanTarget:
    """Return the target with a trace context at the end of its head, which has none of the client's."""
    before, after = target.head
    more = context.lines + b"\r\n"
    head = (before, after[:-2] + more) if after else (before[:-2] + more, b"")
    return PlanTarget(target.group, target.member, head, target.identity)
