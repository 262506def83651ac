"""One answer of a model, which the first endpoint gives that can: of its upstream, of a fallback, of the next model.

Where a request goes next is decided here and in `gateway.upstream.attempts`, while nothing of the answer has gone to
the run (`buffered_start.py`). When a run calls its model again later is decided in `gateway.agent.upstream_recovery`:
such a call (`Execution.again`) is sent once, so that the two do not multiply, and takes its place in the same budget.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Final

from gateway.contracts.errors import GatewayError, UndecidedError
from gateway.contracts.exchange import Emit, Exchange
from gateway.contracts.tracing.context import CURRENT
from gateway.contracts.tracing.tracer import Attribute, Span, Tracer
from gateway.http.response_head import ResponseHead
from gateway.model.adaptation.quirks import (
    NONE,
    LearntQuirks,
    QuirkKey,
    Quirks,
    get_key_identity,
    sort_quirks,
)
from gateway.model.apis.table import get_model_api
from gateway.model.buffered_start import ChunkBuffer
from gateway.model.candidates import Candidates, ModelCandidate
from gateway.model.hooks import CallObserver, wait_for_room
from gateway.model.http_request import build_model_request, build_trace_lines
from gateway.model.metering import CallMeter, ModelUsageRecorder
from gateway.model.refusal import ERROR_LIMIT_BYTES, build_no_answer_error, build_upstream_error, get_call_outcome
from gateway.model.upstream_client import Target
from gateway.upstream.attempts import Tries
from gateway.upstream.call import UpstreamCall
from gateway.upstream.endpoint_state import Member
from gateway.upstream.failures import UPSTREAMS_FAULT
from gateway.upstream.status_verdict import KEY_REFUSED

log = logging.getLogger("gateway")

#: A request of this size takes milliseconds to write, and again to send.
_LARGE_BYTES: Final = 1 << 20


@dataclass(slots=True)
class By:
    """The upstream, endpoint and model that answer: an `exchange.AnsweredBy`."""

    upstream: str = ""
    endpoint: str = ""
    model: str = ""
    provider: str = "openai"
    host: str = ""
    port: int = 0
    streams: bool = True


async def _take_place(tries: Tries) -> Member:
    """Return the endpoint of the next try, with a place at it. Raises GatewayError: none can take it.

    This is no `wait_for_room`: an UndecidedError may come out of the queue, too, and the try then begins anew.
    """
    while True:
        try:
            return tries.begin() or await tries.home.wait_for_place(tries)
        except UndecidedError as undecided:
            await undecided.answered


def _enter_upstream(observers: Sequence[CallObserver], upstream: str) -> None:
    """Tell the observers of a call which upstream is asked. Raises the GatewayError with which one refuses it."""
    for observer in observers:
        observer.on_upstream(upstream)


class _Try:
    """The try under way, or the last one."""

    __slots__ = ("call", "candidate", "head", "reason", "span", "taken", "target")

    candidate: ModelCandidate
    target: Target
    head: ResponseHead

    def __init__(self) -> None:
        self.call: UpstreamCall | None = None
        self.span: Span | None = None
        self.taken: Quirks = NONE  # with which the request was taken
        self.reason = ""  # of its failure, in the words of `RetryRules.on`


class FallbackCall:
    """The call of a model for one exchange. `by` is who answers, once it began. `clock` is monotonic, in seconds."""

    def __init__(
        self,
        exchange: Exchange,
        candidates: Candidates,
        *,
        quirks: LearntQuirks,
        clock: Callable[[], float],
        metering: ModelUsageRecorder,
        observers: Sequence[CallObserver] = (),
        tracer: Tracer | None = None,
    ) -> None:
        self._exchange = exchange
        # A call that is made again begins with the next candidate each time.
        turn = exchange.execution.again % len(candidates.models)
        self._left = [*candidates.models[turn:], *candidates.models[:turn]]
        self._first = candidates.models[0].upstream.group
        asked = self._left[0]
        self.by = By(asked.upstream.name, model=asked.get_model_name(exchange.body))
        self._quirks = quirks
        self._clock = clock
        self._observers = observers
        self._meter = CallMeter(metering, exchange, self.by, observers)
        self._tracer = tracer
        self._released = False
        self._is_over = False  # its answer has ended, and nothing of it is open
        self._tries: Tries | None = None  # of the candidate that is asked
        self._try = _Try()

    async def begin(self) -> None:
        """Send the request until an endpoint accepts it. Raises the GatewayError of the last one."""
        while True:
            try:
                await self._begin_try()
            except GatewayError as error:
                if not await self._may_retry(error):
                    self._meter.end(rejected=not self._released)
                    raise
            else:
                return

    async def emit_answer(self, emit: Emit) -> None:
        """Emit the answer (`Reply.stream`). Raises GatewayError if it breaks off, or no candidate begins it.

        If its client gets it at its end only, as does a workflow, another one may give it until then.
        """
        exchange = self._exchange
        is_unseen = not exchange.delivery.streams or exchange.job.workflow is not None
        try:
            while True:
                held = ChunkBuffer(emit, whole=is_unseen)
                try:
                    await self._read_answer(held.take_chunk if self._has_alternatives else emit)
                    await held.release()
                except GatewayError as error:
                    if held.began or not await self._may_retry(error):
                        self._end_try(error)
                        raise
                else:
                    self._end_try(None)
                    return
                await self.begin()
        finally:
            await self.release()
            self._is_over = True

    async def release(self) -> None:
        """End the call (`Reply.release`). Idempotent."""
        if self._is_over:
            return
        self._released = True
        self._end_span("cancelled")  # unless it has ended
        if self._try.call is not None:
            self._try.call.close()
        if self._tries is not None:
            self._tries.end(failed=None)
        self._meter.end()

    # Where it goes next.

    @property
    def _has_alternatives(self) -> bool:
        """Return whether another endpoint or candidate could take the call over."""
        return bool(self._left) or self._tries is None or not self._tries.home.plain

    def _end_try(self, error: GatewayError | None) -> None:
        """End the try with its answer, which is whole or broke off with this error."""
        self._end_span(error)
        self._meter.end_try(cut=error is not None)
        if self._tries is not None:
            is_fault = error is not None and error.code in UPSTREAMS_FAULT and self._try.target.error_status is None
            says_something = error is None or (is_fault and not self._released)
            self._tries.end(failed=is_fault if says_something else None)

    async def _may_retry(self, error: GatewayError) -> bool:
        """Return whether another try follows this failure, after the pause that comes first."""
        self._end_span(error)
        self._meter.end_try(cut=True)
        tries, is_last = self._tries, self._exchange.execution.again > 0
        if self._released:
            return False
        if tries is not None and tries.member is not None:  # it was sent
            tries.failure = error.copy()  # what it went through refers to us
            pause_s = None if tries.group.plain else error.retry_after_s  # without rules it is the client's affair
            told_not, excused = error.settled or is_last, self._try.target.is_excused
            if tries.end_failed_try(self._try.reason, excused=excused, told_not=told_not, pause_s=pause_s):
                await asyncio.sleep(tries.pause_s)
                return True
            if is_last:
                return False
        is_refused = self._try.reason.startswith("4") and self._try.reason != "429"
        may = self._is_gateway_fault() if is_refused else error.passes
        if not self._left or error.settled or not may:
            return False
        if tries is not None:
            tries.home.tally.retries["model"] += 1
        self._tries = None
        return True

    def _is_gateway_fault(self) -> bool:
        """Return whether the last failure is about our own key, our name of a model, or a wait: no client can mend it.

        Other 4xx mean that the request is wrong for every model.
        """
        if self._try.reason in KEY_REFUSED:
            return self._try.target.pool.endpoint.api_key is not None
        return self._try.reason == "408" or (self._try.reason == "404" and self._try.candidate.model is not None)

    async def _begin_candidate(self) -> Tries:
        """Return the tries of the next candidate.

        Raises GatewayError if its upstream has no budget for this call, or the limits of the model have no room.
        """
        candidate = self._try.candidate = self._left.pop(0)
        group, again = candidate.upstream.group, self._exchange.execution.again
        if again and group.rules.retry is not None and not group.budget.take_retry():
            group.tally.refused["budget"] += 1
            text = f"Upstream {group.name!r} fails too often: nothing is sent to it again for now (its retry.budget)."
            raise GatewayError("upstream_unavailable", text)
        caller, model = self._exchange.caller, candidate.get_model_name(self._exchange.body)
        for observer in self._observers:
            await wait_for_room(partial(observer.on_model, model))
        return Tries(
            group,
            twice=True,
            computes=True,
            sticky=b"" if again else caller.get_cache_group((self._exchange.conversation or "").encode()),
            model=model or None,
            fallbacks=[fallback for fallback in group.fallbacks if caller.may_use_upstream(fallback.name)],
            enter=partial(_enter_upstream, self._observers) if self._observers else None,
            caller=(caller.tenant, caller.name),
        )

    # One try.

    async def _begin_try(self) -> None:
        """Send the request to the next endpoint. Raises GatewayError if there is none, or it does not answer."""
        self._meter.begin_try()
        self._try.reason = ""
        if self._tries is None:
            self._tries = await self._begin_candidate()
        tries, model = self._tries, self._try.candidate.get_model_name(self._exchange.body)
        member = await _take_place(tries)
        if self._released:
            tries.end(failed=None)
            raise GatewayError("upstream_error", "The call of the model was given up.")
        endpoint = member.pool.endpoint
        self.by.upstream, self.by.endpoint, self.by.model = tries.group.name, member.name, model
        self.by.provider, self.by.host, self.by.port = endpoint.provider, endpoint.host, endpoint.port
        self._try.target = Target(member.pool, tries.group)
        self._begin_span(member, count=tries.count)
        try:
            await self._send(member, is_first=tries.home is self._first)
        except BaseException as error:
            self._end_span(error)
            if not isinstance(error, GatewayError) or error.code == "overloaded":  # not the upstream's fault
                tries.end(failed=None)
            raise
        tries.record_answer()

    async def _send(self, member: Member, *, is_first: bool) -> None:
        """Send the request to one endpoint, as that takes it. Raises GatewayError if it does not answer."""
        target, endpoint, model = self._try.target, member.pool.endpoint, self.by.model
        # The client's own credential is meant for the first upstream, and for its fallbacks by the operator's word.
        credential = self._exchange.origin.credential if is_first else b""
        asked = QuirkKey(self.by.upstream, member.name, model, get_key_identity(self._exchange.caller))
        api = get_model_api(endpoint)
        quirks = first = self._quirks.get_quirks(asked, configured=endpoint.models.quirks)
        trace = (
            b""
            if self._try.span is None or self._tracer is None
            else build_trace_lines(self._try.span.context, self._tracer)
        )
        while True:
            named, self.by.streams = self._try.candidate.model, "no_stream" not in quirks
            request = build_model_request(
                self._exchange, target, quirks, model=named, credential=credential, trace=trace
            )
            if len(request) >= _LARGE_BYTES:
                await asyncio.sleep(0)  # others go on between writing a request and sending it
            call = self._try.call = UpstreamCall(target.pool)
            self._meter.note_start(call, request)
            try:
                refused = await self._send_request(call, request)
                if refused is None:
                    break
                status, body = self._try.head.status, self._exchange.body
                more = api.find_quirk(quirks, body, status=status, refusal=refused)
                if more is None:
                    self._try.reason = str(status)
                    raise build_upstream_error(self._try.head, refused, target, api)
                quirks = more
            except BaseException as error:
                outcome = "cancelled" if call.given_up else get_call_outcome(error)
                if not call.given_up:
                    target.log_failure(error, self._exchange.id)
                target.group.tally.outcomes["connect" if outcome == "error" and not call.sent else outcome] += 1
                call.close()
                raise
            call.close()
            target.group.tally.outcomes["ok"] += 1
        self._try.taken = quirks
        if quirks != first:
            self._quirks.remember_quirks(asked, quirks)
            log.warning(
                "upstream %r refused the requests for model %r so far: its quirks are %s now",
                endpoint.name,
                model,
                ", ".join(sort_quirks(quirks)),
            )

    def _begin_span(self, member: Member, *, count: int) -> None:
        """Begin the span of a request to this endpoint, if calls are traced."""
        if self._tracer is None:
            return
        endpoint = member.pool.endpoint
        attributes: dict[str, Attribute] = {
            "http.request.method": "POST",
            "http.request.resend_count": count - 1 or None,
            "server.address": endpoint.host,
            "server.port": endpoint.port,
            "url.full": self._try.target.build_url(get_model_api(endpoint).path),
            "twolane.upstream": self.by.upstream,
            "twolane.endpoint": member.name,
        }
        self._try.span = self._tracer.begin("POST", "client", attributes, parent=CURRENT.get())

    def _end_span(self, error: BaseException | str | None) -> None:
        if self._try.span is not None:
            self._try.span.end(error)

    async def _send_request(self, call: UpstreamCall, request: bytes) -> bytes | None:
        """Return the body of an error answer, or None. Raises GatewayError for other answers."""
        began_s, target = self._clock(), self._try.target
        try:
            head = self._try.head = await call.send(request)
            target.group.tally.first_byte.observe(self._clock() - began_s)
            if self._try.span is not None:
                self._try.span.attributes["http.response.status_code"] = head.status
            if head.status != HTTPStatus.OK:
                self._meter.note_refusal()
                return await call.read_within(ERROR_LIMIT_BYTES)
            if not head.event_stream and not _is_json(head):
                raise build_no_answer_error(head, target, get_model_api(target.pool.endpoint))
        except GatewayError as error:
            self._try.reason = _get_failure_reason(error, call)
            raise
        return None

    async def _read_answer(self, emit: Emit) -> None:
        """Read an answer. Log a failure, unless the call was given up before."""
        assert self._try.call is not None
        api = get_model_api(self._try.target.pool.endpoint)
        read = api.emit_stream if self._try.head.event_stream else api.emit_whole
        emit = api.wrap_emit(emit, self._exchange.body, self._try.taken)
        try:
            await read(
                self._try.call, self._try.target, self._meter.wrap_emit(emit, streams=self._try.head.event_stream)
            )
        except GatewayError as error:
            if not self._try.call.given_up:
                self._try.target.log_failure(error, self._exchange.id)
            status = self._try.target.error_status
            self._try.reason = _get_failure_reason(error, self._try.call) if status is None else str(status)
            raise


def _get_failure_reason(error: GatewayError, call: UpstreamCall) -> str:
    """Return why an endpoint gave no usable answer, as retry rules name it."""
    if not call.sent:
        return "connect"
    return "timeout" if error.code == "upstream_timeout" else "reset"


def _is_json(head: ResponseHead) -> bool:
    """Return whether the content type is JSON, or missing."""
    kind = (head.find_value(b"content-type") or b"application/json").partition(b";")[0].strip().lower()
    return kind == b"application/json" or kind.endswith(b"+json")
