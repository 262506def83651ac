"""A choice of endpoints: a request goes to another one where the first fails, by the rules of its upstream.

Its attempts go through `Tries` (gateway/upstream/attempts.py). Until the head of an answer is judged, nothing of it was
forwarded, so another endpoint can still answer instead. From there on an answer that breaks is cut, as everywhere.

What is kept for that: the body of the request up to `retry.body`, until the answer is judged; of the last answer that
was not good enough, its bytes if they all came at once, so that a client whose last try got no answer at all is given
that one.

Invariants: each place at an endpoint is given back once, however the request ends; nothing is sent again after a byte
of an answer was forwarded, also of an interim one; the request that is sent again is the same but for its plan.
"""

import asyncio
from contextlib import suppress
from http import HTTPStatus
from time import perf_counter
from typing import Final

from gateway.contracts.errors import GatewayError, UndecidedError
from gateway.http.body import BodyError
from gateway.http.response_head import (
    INTERIMS_LIMIT,
    ResponseError,
    ResponseHead,
    build_body,
    may_become_head,
    parse_response_head,
)
from gateway.http.retry_after import read_retry_after_s
from gateway.lanes.passthrough.dispatch.dispatcher import DispatchedExchange, Dispatcher
from gateway.lanes.passthrough.dispatch.targets import Targets
from gateway.lanes.passthrough.observers.observer import REFUSED
from gateway.lanes.passthrough.plan_records import PlanTarget
from gateway.upstream.attempts import Tries
from gateway.upstream.connection import UpstreamConnection
from gateway.upstream.endpoint_state import Member
from gateway.upstream.failures import UPSTREAMS_FAULT
from gateway.upstream.status_verdict import FAILING, KEY_REFUSED

#: `HTTP/1.1 503`: with so many bytes the status is known.
_STATUS_BYTES: Final = 12
#: A try that fails later than this, while its client is still sending the body, says nothing about the endpoint:
#: servers give a slow body up. One that fails at once would fail for all.
SLOW_BODY_S: Final = 0.5
#: The reasons for another try, by the outcome that is counted.
_REASONS: Final = {"connect": "connect", "timeout": "timeout"}
#: Outcomes of answers that broke off, for which an endpoint is at fault.
_BROKEN: Final = frozenset(("invalid", "truncated", "timeout"))
#: Codes of the errors of limits.
_LIMIT_CODES: Final = ("rate_limit_exceeded", "insufficient_quota")


class Failover(Dispatcher):
    """The attempts of one request at several endpoints. Names of fields are those of the latest attempt."""

    # Each begins with these; as class attributes they cost nothing until they change.
    _tries: Tries | None = None
    _digits = b""
    _kept: list[bytes] | None = None  # the body so far, while it is short enough to be sent again
    _kept_bytes = 0
    _sent = False  # this try has sent something, or may have
    _stale = False  # this try's connection was an idle one
    _seen = b""  # the beginning of a head that is not judged yet
    _judged = False  # what comes of the answer goes to the client
    _interims = 0  # that were not for the client
    _last: tuple[PlanTarget, bytes] | None = None  # an answer that was not good enough

    def __init__(self, targets: Targets) -> None:
        self._targets = targets

    @property
    def is_silent(self) -> bool:  # type: ignore[override]
        """Return whether no byte of the attempt's response was seen, which went over an idle connection."""
        return self._stale

    def start(self, exchange: DispatchedExchange, digits: bytes, body: bytes) -> None:
        self.begin(exchange, digits, [body])

    def begin(
        self, exchange: DispatchedExchange, digits: bytes, pieces: list[bytes], *, model: str | None = None
    ) -> None:
        """Begin the tries, with what is here of the body."""
        self._digits = digits
        targets, caller = self._targets, exchange.target.identity.caller
        self._tries = tries = Tries(
            targets.group,
            twice=targets.twice,
            computes=targets.computes,
            whole=exchange.request_body is None,
            sticky=targets.sticky,
            model=model,
            fallbacks=targets.fallbacks,
            enter=exchange.choose_upstream if exchange.has_routed_observers else None,
            caller=(caller.tenant, caller.name),
        )
        retry = targets.group.rules.retry
        if retry is not None and (kept_bytes := sum(map(len, pieces))) <= retry.body_bytes:
            self._kept, self._kept_bytes = pieces, kept_bytes
        exchange.pending = [b"", *pieces]
        self._try_next(exchange, tries)

    def note_request_piece(self, exchange: DispatchedExchange, piece: bytes) -> None:
        if piece and self._kept is not None:
            self._retain_body(piece)
        if exchange.request_body is None and self._tries is not None:
            self._tries.record_sent()

    def _retain_body(self, piece: bytes) -> None:
        rules = self._targets.group.rules.retry
        self._kept_bytes += len(piece)
        if rules is None or self._kept_bytes > rules.body_bytes:
            self._kept = None
        elif self._kept is not None:
            self._kept.append(piece)

    # Tries.

    def _try_next(self, exchange: DispatchedExchange, tries: Tries) -> None:
        """Begin a try, or wait for a place. `pending` is the whole request so far, but for its head."""
        try:
            member = tries.begin()
        except UndecidedError as undecided:
            exchange.await_room(undecided, lambda: self._try_next(exchange, tries))
            return
        except GatewayError as error:
            # Not at once: requests that are held behind this one would be refused inside each other.
            exchange.client.listener.loop.call_soon(self._answer_unavailable, exchange, error)
            return
        if member is None:
            exchange.connecting = exchange.client.listener.loop.create_task(self._wait(exchange, tries))
        else:
            self._send(exchange, tries, member)

    async def _wait(self, exchange: DispatchedExchange, tries: Tries) -> None:
        """Wait in the queue of the upstream."""
        try:
            member = await tries.home.wait_for_place(tries)
        except UndecidedError as undecided:
            exchange.connecting = None
            exchange.await_room(undecided, lambda: self._try_next(exchange, tries))
            return
        except GatewayError as error:
            exchange.connecting = None
            self._answer_unavailable(exchange, error)
            return
        exchange.connecting = None
        self._send(exchange, tries, member)

    async def _pause(self, exchange: DispatchedExchange, tries: Tries) -> None:
        """Wait before the same endpoint is asked again."""
        await asyncio.sleep(tries.pause_s)
        exchange.connecting = None
        self._try_next(exchange, tries)

    def _send(self, exchange: DispatchedExchange, tries: Tries, member: Member) -> None:
        """Send what is pending to an endpoint."""
        target, pending = self._targets.find(tries.group, member), exchange.pending
        if exchange.has_followed_attempts:
            target = exchange.start_attempt(target)
        self._use_endpoint(exchange, target)
        exchange.repeat = None
        before, after = target.head
        upstream = member.pool.take_idle()
        if upstream is None:
            self._sent = self._stale = False
            pending[0] = b"".join((before, self._digits, after))
            exchange.connecting = exchange.client.listener.loop.create_task(exchange.connect())
        else:
            exchange.pending = []
            request = [before, self._digits, after, *pending[1:]]
            if exchange.record.policy.repeatable:
                exchange.repeat = request
            self.on_connected(exchange, upstream, b"".join(request))

    def _use_endpoint(self, exchange: DispatchedExchange, target: PlanTarget) -> None:
        exchange.switch_target(target)
        exchange.record.attempts += 1

    def on_connected(self, exchange: DispatchedExchange, upstream: UpstreamConnection, request: bytes) -> None:
        self._sent, self._stale, self._seen = True, upstream.reused, b""
        exchange.attach_connection(upstream, request)

    def _answer_unavailable(self, exchange: DispatchedExchange, error: GatewayError) -> None:
        """Answer for an upstream that cannot take the request."""
        if exchange.is_under_way and not self._forward_last_answer(exchange):
            self._end(failed=None)
            exchange.respond_error(error, outcome=REFUSED if error.code in _LIMIT_CODES else "unavailable")

    def _try_again(
        self,
        exchange: DispatchedExchange,
        reason: str,
        outcome: str,
        *,
        head: ResponseHead | None = None,
        clean: bool = False,
    ) -> bool:
        """End a try without a good answer. Return whether another one follows.

        `clean`: the connection can be used again.
        """
        tries, target = self._tries, exchange.target
        assert tries is not None
        pieces = self._kept if self._sent else exchange.pending[1:]
        follows = tries.end_failed_try(
            reason,
            possible=pieces is not None,
            excused=self._stale and reason == "reset",
            awaited=self._waits_for_client(exchange),
            told_not=head is not None and (head.find_value(b"x-should-retry") or b"").lower() == b"false",
            pause_s=self._read_wanted_pause_s(head),
        )
        if not follows or pieces is None:
            return False
        target.group.tally.outcomes[outcome] += 1
        exchange.end_attempt(target, outcome, int(reason) if reason.isdigit() else 0)
        if clean and exchange.upstream is not None and head is not None:
            upstream, exchange.upstream = exchange.upstream, None
            target.member.pool.return_connection(upstream, idle_timeout_s=head.idle_timeout_s)
        else:
            self.drop(exchange)
        self._forget_response(exchange)
        exchange.pending = [b"", *pieces]
        if tries.pause_s:
            exchange.connecting = exchange.client.listener.loop.create_task(self._pause(exchange, tries))
        else:
            self._try_next(exchange, tries)
        return True

    def _waits_for_client(self, exchange: DispatchedExchange) -> bool:
        """Return whether the endpoint could not answer yet, because the body is slow to come from the client."""
        if exchange.request_body is None or exchange.upload_blocked or not self._sent:
            return False
        return perf_counter() - exchange.record.sent_at > SLOW_BODY_S

    def _read_wanted_pause_s(self, head: ResponseHead | None) -> float | None:
        """Return the seconds for which an endpoint asked to be left alone (Retry-After).

        That of an upstream without rules, which only a model chose, is the client's affair.
        """
        return None if head is None or self._targets.group.plain else read_retry_after_s(head)

    def _forget_response(self, exchange: DispatchedExchange) -> None:
        """Begin anew: nothing of a response was forwarded."""
        self._seen, self._judged = b"", False
        exchange.forget_response()

    # Answers.

    def on_response_bytes(self, exchange: DispatchedExchange, data: bytes) -> None:
        if self._judged:
            exchange.forward_response(data)
            return
        if self._seen:
            data = self._seen + data
        if data.startswith(b"2", 9) and b"\r\n\r\n" in data:  # nearly always; no reason for another try
            self._accept_answer(exchange, data, data[9:_STATUS_BYTES].decode("latin-1"))
            return
        if data.startswith(b"1", 9) and not (data := self._skip_interims(exchange, data)):
            return
        status, end = data[9:_STATUS_BYTES].decode("latin-1"), data.find(b"\r\n\r\n")
        if end < 0 and may_become_head(data):
            self._seen = data  # if it ends here, nothing of it went to the client
            self._stale, exchange.repeat = False, None
        elif end < 0 or not self._is_telling(status) or not self._handle_refusal(exchange, status, data, end + 4):
            self._accept_answer(exchange, data, status)

    def _is_telling(self, status: str) -> bool:
        """Return whether an answer with this status is looked at before it goes to the client."""
        return self._targets.group.is_telling(status)

    def _skip_interims(self, exchange: DispatchedExchange, data: bytes) -> bytes:
        """Return what follows interim answers that are not for the client: another endpoint can still answer."""
        method = exchange.record.head.method
        with suppress(ResponseError):  # it is reported where it is read
            while self._interims < INTERIMS_LIMIT and data.startswith(b"1", 9) and (end := data.find(b"\r\n\r\n")) >= 0:
                status = parse_response_head(data[: end + 4], method=method).status
                if status == HTTPStatus.SWITCHING_PROTOCOLS or exchange.forwards_interim(status):
                    break
                self._interims += 1
                data = data[end + 4 :]
                self._seen, self._stale, exchange.repeat = b"", False, None
        return data

    def _handle_refusal(self, exchange: DispatchedExchange, status: str, data: bytes, end: int) -> bool:
        """Handle an answer whose status is a reason for another try. Return whether one follows."""
        target, tries = exchange.target, self._tries
        assert tries is not None
        try:
            head, whole = self._keep_answer(exchange, target, data, end)
        except (ResponseError, BodyError):
            return False  # it is reported where it is read
        clean = whole and head.keep_alive and exchange.request_body is None
        pool = target.member.pool
        text = f"Upstream {pool.endpoint.name!r} answered {status}."
        code = "upstream_limited" if status == "429" else "upstream_error"
        code = "upstream_refused" if status in KEY_REFUSED else code
        tries.failure = GatewayError(code, text, retry_after_s=read_retry_after_s(head))
        outcome = "error" if head.status >= HTTPStatus.INTERNAL_SERVER_ERROR else "ok"
        if not self._try_again(exchange, status, outcome, head=head, clean=clean):
            return False
        pool.failures.record_failure(text)
        return True

    def _keep_answer(
        self, exchange: DispatchedExchange, target: PlanTarget, data: bytes, end: int
    ) -> tuple[ResponseHead, bool]:
        """Keep an answer that is not good enough, if it is whole. Return its head, which ends at `end`, and whether.

        Raises ResponseError or BodyError.
        """
        head = parse_response_head(data[:end], method=exchange.record.head.method)
        body = build_body(head, payload_only=False)
        body.feed(data[end:])
        whole = body.done and not body.rest
        if whole:
            self._last = (target, data)
        return head, whole

    def _accept_answer(self, exchange: DispatchedExchange, data: bytes, status: str) -> None:
        """Let an answer go to the client, if it is one. An interim one, and a failure, say nothing good."""
        self._judged, self._seen = True, b""
        if data.startswith(b"1", 9):
            self._kept = None  # what follows the interim answer may be none
        elif status not in FAILING and self._tries is not None:
            self._tries.record_answer(status)
        exchange.forward_response(data)
        if self._judged:  # else it was malformed, and another try follows
            self._kept = None

    def _forward_last_answer(self, exchange: DispatchedExchange) -> bool:
        """Give the client an answer that was not good enough, now that no better one comes. Return whether one is."""
        if self._last is None:
            return False
        target, data = self._last
        self.drop(exchange)
        self._forget_response(exchange)
        self._use_endpoint(exchange, target)
        self._judged = True
        exchange.forward_response(data)
        return True

    # Ends.

    def stop(self, exchange: DispatchedExchange) -> bool:
        if self._last is None:
            return False
        self._end(failed=None)
        return self._forward_last_answer(exchange)

    def attempt_failed(self, exchange: DispatchedExchange, error: GatewayError, outcome: str) -> bool:
        tries, target = self._tries, exchange.target
        if tries is not None and tries.member is not None and error.code in UPSTREAMS_FAULT:
            reason = _REASONS.get(outcome, "reset") if self._sent else "connect"
            tries.failure = error
            if self._try_again(exchange, reason, outcome):
                target.member.pool.failures.record_failure(error.message)
                return True
            if self._last is not None:
                exchange.end_attempt(target, outcome)  # the answer that the client gets is another try's
            if self._forward_last_answer(exchange):
                target.group.tally.outcomes[outcome] += 1
                target.member.pool.failures.record_failure(error.message)
                return True
        self._end(failed=None)
        return False

    def end(self, exchange: DispatchedExchange, outcome: str, status: int = 0) -> None:
        if outcome == "ok":
            failed = False if status < HTTPStatus.INTERNAL_SERVER_ERROR else str(status) in FAILING or None
        else:
            failed = True if outcome in _BROKEN else None
        self._end(failed=None if failed and self._waits_for_client(exchange) else failed)

    def _end(self, *, failed: bool | None) -> None:
        """Give back the place at the endpoint. Idempotent; there are no tries after it."""
        tries, self._tries = self._tries, None  # it may hold the exchange, by `choose_upstream`
        if tries is not None:
            tries.end(failed=failed)


class FailoverFactory:
    """Makes the dispatchers of a plan whose requests have a choice of endpoints, by the rules of their upstream."""

    def __init__(self, targets: Targets, kind: type[Failover] = Failover) -> None:
        self._targets = targets
        self._kind = kind
        self.most_targets = targets.count

    def build_dispatcher(self) -> Failover:
        """Return the dispatcher of a request."""
        return self._kind(self._targets)
