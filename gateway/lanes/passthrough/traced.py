"""Passthrough transactions with traces. Their spans are made when they are over, of the times that were taken anyway.

Nothing of what is relayed differs, unless `tracing.passthrough` is on: each try then carries the trace context of its
own span, in place of the client's.
"""

from dataclasses import dataclass, replace
from time import perf_counter, time_ns
from typing import Final

from gateway.contracts.errors import GatewayError
from gateway.contracts.trace_context import TraceContext
from gateway.http.request_head import RequestHead
from gateway.http.response_head import ResponseHead
from gateway.lanes.generating import find_operation
from gateway.lanes.passthrough.accounting import CLIENT_LEFT, Accounting
from gateway.lanes.passthrough.balanced import Balanced
from gateway.lanes.passthrough.hedging import Hedging
from gateway.lanes.passthrough.second import Failure, Second
from gateway.lanes.passthrough.splice import Splice, extended
from gateway.lanes.plan import Plan, Ways
from gateway.lanes.server_spans import find_sender, get_span_method, server_span
from gateway.lanes.transaction import Client, Clients
from gateway.telemetry.tracing.tracer import Attributes, Record, Tracer
from gateway.upstream.endpoint_state import Member
from gateway.upstream.group import Group
from gateway.usage.tokens import RequestUsage, TokenCounts

#: Outcomes of requests that no endpoint was asked for.
_UNASKED: Final = frozenset(("limited", "unavailable"))
#: For whoever asks, every answer from this status on is an error.
_REFUSED: Final = 400


@dataclass(frozen=True, slots=True)
class PlanTrace:
    """The traces of a plan's requests: who makes them, and the span that all of them come from, if one is named."""

    tracer: Tracer
    sender: TraceContext | None


@dataclass(slots=True)
class Try:
    """A request to an endpoint. Times are perf_counter seconds."""

    plan: Plan
    context: TraceContext
    began: float
    outcome: str = ""
    status: int = 0  # of its answer; 0: there is none
    ended: float = 0.0


class TracedAccounting(Accounting):
    """The account of one transaction, with its spans."""

    def __init__(self, plan: Plan, client: Client, began: float) -> None:
        super().__init__(plan, client, began)
        assert plan.trace is not None
        self._tracer = plan.trace.tracer
        self.trace = self._tracer.build_request_context(plan.trace.sender)
        self.trace_id = self.trace.trace_id
        self.follows_tries = self.trace.sampled or self._tracer.passthrough
        self._asked: list[Try] = []
        self._first_s: float | None = None  # to the first byte of the answer

    def head_forwarded(self, came: float) -> None:
        self._first_s = came - self.sent_at
        super().head_forwarded(came)

    def ask(self, plan: Plan) -> Plan:
        """Note that a try begins. Return its plan, with the trace context of its span where that is sent on."""
        context = self._tracer.below(self.trace)
        if self._tracer.passthrough:
            plan = _with_fields(plan, context)
        self._asked.append(Try(plan, context, perf_counter()))
        return plan

    def failed(self, plan: Plan, outcome: str, reason: str) -> None:
        """Note that a try failed, for a reason as `Tries.again` takes it."""
        self.asked(plan, outcome, int(reason) if reason.isdigit() else 0)

    def asked(self, plan: Plan, outcome: str, status: int = 0) -> None:
        """Note that the oldest try under way with this plan has ended, if there is one."""
        for one in self._asked:
            if one.plan is plan and not one.outcome:
                one.outcome, one.status, one.ended = outcome, status, perf_counter()
                return

    def all_asked(self, outcome: str, *, but: Plan | None = None) -> None:
        """Note that all tries under way have ended, but for one."""
        for one in self._asked:
            if not one.outcome and one.plan is not but:
                one.outcome, one.ended = outcome, perf_counter()

    def close(
        self,
        outcome: str,
        listener: Clients,
        error: GatewayError | None = None,
        request_id: str | None = None,
    ) -> None:
        super().close(outcome, listener, error, request_id)
        if not self.trace.sampled:
            return
        if outcome not in _UNASKED:
            self.asked(self.plan, outcome, 0 if error is not None else self.status)
        self.all_asked("cancelled")
        plan, now, now_ns = self.plan, perf_counter(), time_ns()
        attributes = {
            "twolane.upstream": plan.pool.endpoint.name,
            "twolane.endpoint": plan.endpoint,
            "twolane.outcome": outcome,
            "twolane.tokens": self.tokens,
            "twolane.key": plan.caller.name,
        }
        method, path, route = plan.method, plan.path, plan.route.route
        began_ns = now_ns - int((now - self.began) * 1e9)
        facts = (self.trace, began_ns, now_ns, method, path, route, "passthrough", self.status)
        failure = (error.code if error is not None else "") or ("" if outcome in ("ok", "error") else outcome)
        self._tracer.send(server_span(*facts, failure=failure, attributes=attributes))
        answering = self._answering()
        for number, one in enumerate(self._asked):
            if one.outcome not in _UNASKED:
                more = self._model_facts(one.plan) if one is answering else {}
                self._tracer.send(self._try_span(one, number, now_ns - int(now * 1e9), more))

    def _answering(self) -> Try | None:
        """Return the last try with the plan of the answer that the client got."""
        return next((one for one in reversed(self._asked) if one.plan is self.plan), None)

    def _model_facts(self, plan: Plan) -> Attributes:
        """Return what is known of the model that answered, in OpenTelemetry's names for GenAI."""
        operation = find_operation(plan.path) if plan.method == b"POST" else None
        if operation is None:
            return {}
        usage, model = self.used or (RequestUsage(), "")
        is_told = self.used is not None and not (usage.rejected or usage.asked)
        tokens = usage.tokens if is_told and usage.tokens != TokenCounts() else None
        return {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": plan.pool.endpoint.provider,
            "gen_ai.request.model": self.asked_model or None,
            "gen_ai.request.stream": self.streaming or None,
            "gen_ai.response.model": model if is_told and model else None,
            "gen_ai.response.time_to_first_chunk": self._first_s if self.streaming else None,
            "gen_ai.usage.input_tokens": tokens and tokens.input,
            "gen_ai.usage.output_tokens": tokens and tokens.output,
            "gen_ai.usage.cache_read.input_tokens": (tokens and tokens.cached) or None,
            "gen_ai.usage.cache_write.input_tokens": (tokens and tokens.written) or None,
            "gen_ai.usage.audio.input_tokens": (tokens and tokens.audio_input) or None,
            "gen_ai.usage.audio.output_tokens": (tokens and tokens.audio_output) or None,
            "gen_ai.usage.reasoning.output_tokens": (tokens and tokens.reasoning) or None,
            "twolane.tokens.estimated": usage.estimated or None,
        }

    def _try_span(self, one: Try, number: int, epoch_ns: int, more: Attributes) -> Record:
        """Return the span of a try; `epoch_ns` is the Unix time at which perf_counter was 0."""
        plan, endpoint = one.plan, one.plan.pool.endpoint
        method, status = get_span_method(plan.method), 0 if one.status == CLIENT_LEFT else one.status
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
                "url.full": endpoint.origin + _target_of(plan),
                "twolane.upstream": endpoint.name,
                "twolane.endpoint": plan.endpoint,
                "twolane.outcome": one.outcome,
                **more,
            },
            error=failure or (str(status) if status >= _REFUSED else ""),
        )


class TracedWays(Ways):
    """The ways of one request, which note each try that goes on one."""

    __slots__ = ("_account", "_ways")

    def __init__(self, ways: Ways, account: TracedAccounting) -> None:
        self.group = ways.group
        self.twice = ways.twice
        self.computes = ways.computes
        self.sticky = ways.sticky
        self.fallbacks = ways.fallbacks
        self._ways = ways
        self._account = account

    def get_plan(self, group: Group, member: Member) -> Plan:
        return self._account.ask(self._ways.get_plan(group, member))


class Tracing(Splice):
    """A splice with traces."""

    _account: TracedAccounting

    def _begin(self, digits: bytes, body: bytes) -> None:
        if self._account.follows_tries:
            self._plan = self._account.ask(self._plan)
        super()._begin(digits, body)


class TracingBalanced(Balanced):
    """A balanced transaction with traces."""

    _account: TracedAccounting

    def _go_ways(self, ways: Ways, pieces: list[bytes], *, model: str | None = None) -> None:
        if self._account.follows_tries:
            ways = TracedWays(ways, self._account)
        super()._go_ways(ways, pieces, model=model)

    def _again(self, reason: str, outcome: str, *, head: ResponseHead | None = None, clean: bool = False) -> bool:
        plan = self._plan
        follows = super()._again(reason, outcome, head=head, clean=clean)
        if follows:
            self._account.failed(plan, outcome, reason)
        return follows

    def _fail(self, error: GatewayError, *, outcome: str) -> None:
        if outcome not in _UNASKED and self._last is not None:
            self._account.asked(self._plan, outcome)  # the answer that the client gets is another try's
        super()._fail(error, outcome=outcome)


class TracingHedging(TracingBalanced, Hedging):
    """A hedging transaction with traces, or one by model."""

    def _again(self, reason: str, outcome: str, *, head: ResponseHead | None = None, clean: bool = False) -> bool:
        if self._second is not None:  # it goes on alone, and would end this try as one that is given up
            self._account.failed(self._plan, outcome, reason)
        return super()._again(reason, outcome, head=head, clean=clean)

    def second_failed(self, second: Second, failure: Failure) -> None:
        self._account.asked(second.plan, failure.outcome)
        super().second_failed(second, failure)

    def _become(self, second: Second) -> None:
        self._account.all_asked("cancelled", but=second.plan)
        super()._become(second)

    def _drop_second(self) -> None:
        if self._second is not None:
            self._account.asked(self._second.plan, "cancelled")
        super()._drop_second()


#: By the class whose tries they follow.
_TRACING: Final = ((Hedging, TracingHedging), (Balanced, TracingBalanced), (Splice, Tracing))


def traced(plan: Plan, tracer: Tracer, head: RequestHead) -> Plan:
    """Return the plan of a request whose transactions have traces."""
    kind = extended(plan.splice, "Traced", TracedAccounting, _TRACING)
    return replace(plan, splice=kind, trace=PlanTrace(tracer, tracer.find_trusted_sender(find_sender(head))))


def _target_of(plan: Plan) -> str:
    """Return the path of a plan at its endpoint, without the query, which may hold keys."""
    return plan.before.split(b" ", 2)[1].partition(b"?")[0].decode("latin-1")


def _with_fields(plan: Plan, context: TraceContext) -> Plan:
    """Return the plan with a trace context at the end of its head, which has none of the client's (`upstream_head`)."""
    if plan.after:
        return replace(plan, after=plan.after[:-2] + context.lines + b"\r\n")
    return replace(plan, before=plan.before[:-2] + context.lines + b"\r\n")
