"""A passthrough request to an upstream with several endpoints, or with rules for one that fails.

It is a splice whose start and whose failures go through `Tries` (gateway/upstream/attempts.py); what lies between them
is the same code. Until the head of an answer is judged, nothing of it was forwarded, so another endpoint can still
answer instead. From there on an answer that breaks is cut, as everywhere.

What is kept for that: the body of the request up to `retry.body`, until the answer is judged; of the last answer that
was not good enough, its bytes if they all came at once, so that a client whose last try got no answer at all is given
that one.

Invariants: each place at an endpoint is given back once, however the request ends; nothing is sent again after a byte
of an answer was forwarded, also of an interim one; the request that is sent again is the same but for its plan.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from time import perf_counter
from typing import Final

from gateway.contracts.errors import GatewayError
from gateway.http.body import BodyError
from gateway.http.response_head import (
    INTERIMS_LIMIT,
    ResponseError,
    ResponseHead,
    build_body,
    may_become_head,
    parse_response_head,
)
from gateway.http.retry_after import wanted_pause_s
from gateway.lanes.passthrough.splice import CUT, Splice
from gateway.lanes.plan import Plan, Ways
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


class Balanced(Splice):
    """A passthrough transaction with a choice of endpoints."""

    #: Takes the places of the request in the limits of an upstream (`Tries`).
    _enter: Callable[[str], None] | None = None
    # Each turn begins with these, too.
    _ways: Ways
    _tries: Tries | None = None
    _digits = b""
    _kept: list[bytes] | None = None  # the body so far, while it is short enough to be sent again
    _kept_bytes = 0
    _sent = False  # this try has sent something, or may have
    _stale = False  # this try's connection was an idle one
    _seen = b""  # the beginning of a head that is not judged yet
    _judged = False  # what comes of the answer goes to the client
    _interims = 0  # that were not for the client
    _last: tuple[Plan, bytes] | None = None  # an answer that was not good enough

    def _begin(self, digits: bytes, body: bytes) -> None:
        ways = self._plan.ways
        assert ways is not None
        self._digits = digits
        self._go_ways(ways, [body])

    def _go_ways(self, ways: Ways, pieces: list[bytes], *, model: str | None = None) -> None:
        """Begin the tries, with what is here of the body."""
        self._ways = ways
        caller = self._plan.caller
        self._tries = tries = Tries(
            ways.group,
            twice=ways.twice,
            computes=ways.computes,
            whole=self._request is None,
            sticky=ways.sticky,
            model=model,
            fallbacks=ways.fallbacks,
            enter=self._enter,
            caller=(caller.tenant, caller.name),
        )
        retry = ways.group.rules.retry
        if retry is not None and (kept_bytes := sum(map(len, pieces))) <= retry.body_bytes:
            self._kept, self._kept_bytes = pieces, kept_bytes
        self._pending = [b"", *pieces]
        self._next(tries)

    def _feed_request(self, data: bytes) -> bytes | None:
        fed = super()._feed_request(data)
        if fed and self._kept is not None:
            self._keep(fed)
        if self._request is None and self._tries is not None:
            self._tries.record_sent()
        return fed

    def _keep(self, piece: bytes) -> None:
        rules = self._ways.group.rules.retry
        self._kept_bytes += len(piece)
        if rules is None or self._kept_bytes > rules.body_bytes:
            self._kept = None
        elif self._kept is not None:
            self._kept.append(piece)

    # Tries.

    def _next(self, tries: Tries) -> None:
        """Begin a try, or wait for a place. `_pending` is the whole request so far, but for its head."""
        try:
            member = tries.begin()
        except GatewayError as error:
            # Not at once: requests that are held behind this one would be refused inside each other.
            self._client.listener.loop.call_soon(self._refuse, error)
            return
        if member is None:
            self._connecting = self._client.listener.loop.create_task(self._wait(tries))
        else:
            self._go(tries, member)

    async def _wait(self, tries: Tries) -> None:
        """Wait in the queue of the upstream."""
        try:
            member = await tries.home.place(tries)
        except GatewayError as error:
            self._connecting = None
            self._refuse(error)
            return
        self._connecting = None
        self._go(tries, member)

    async def _pause(self, tries: Tries) -> None:
        """Wait before the same endpoint is asked again."""
        await asyncio.sleep(tries.pause_s)
        self._connecting = None
        self._next(tries)

    def _go(self, tries: Tries, member: Member) -> None:
        """Send what is pending to an endpoint."""
        plan, pending = self._ways.get_plan(tries.group, member), self._pending
        self._plan = plan
        self._account.use(plan)
        self._again_with = None
        upstream = plan.pool.take()
        if upstream is None:
            self._sent = self._stale = False
            pending[0] = b"".join((plan.before, self._digits, plan.after))
            self._connecting = self._client.listener.loop.create_task(self._connect())
        else:
            self._pending = []
            request = [plan.before, self._digits, plan.after, *pending[1:]]
            if plan.repeatable:
                self._again_with = request
            self._attach(upstream, b"".join(request))

    def _use(self, plan: Plan) -> None:
        self._plan = plan
        self._account.use(plan)

    def _attach(self, upstream: UpstreamConnection, data: bytes) -> None:
        self._sent, self._stale, self._seen = True, upstream.reused, b""
        super()._attach(upstream, data)

    @property
    def _unanswered(self) -> bool:
        return self._stale and super()._unanswered

    def _refuse(self, error: GatewayError, *, outcome: str = "unavailable") -> None:
        """Answer for an upstream that cannot take the request."""
        if self._under_way and not self._give_last():
            super()._fail(error, outcome=outcome)

    def _again(self, reason: str, outcome: str, *, head: ResponseHead | None = None, clean: bool = False) -> bool:
        """End a try without a good answer. Return whether another one follows.

        `clean`: the connection can be used again.
        """
        tries, plan = self._tries, self._plan
        assert tries is not None
        pieces = self._kept if self._sent else self._pending[1:]
        follows = tries.again(
            reason,
            possible=pieces is not None,
            excused=self._stale and reason == "reset",
            awaited=self._waits_for_client,
            told_not=head is not None and (head.value(b"x-should-retry") or b"").lower() == b"false",
            pause_s=self._wanted_pause(head),
        )
        if not follows or pieces is None:
            return False
        plan.upstream.outcomes[outcome] += 1
        if clean and self._upstream is not None and head is not None:
            upstream, self._upstream = self._upstream, None
            plan.pool.give(upstream, idle_timeout_s=head.idle_timeout_s)
        else:
            self._drop_upstream()
        self._forget_answer()
        self._pending = [b"", *pieces]
        if tries.pause_s:
            self._connecting = self._client.listener.loop.create_task(self._pause(tries))
        else:
            self._next(tries)
        return True

    @property
    def _waits_for_client(self) -> bool:
        """Return whether the endpoint could not answer yet, because the body is slow to come from the client."""
        if self._request is None or self._upstream_full or not self._sent:
            return False
        return perf_counter() - self._account.sent_at > SLOW_BODY_S

    def _wanted_pause(self, head: ResponseHead | None) -> float | None:
        """Return the seconds for which an endpoint asked to be left alone (Retry-After).

        That of an upstream without rules, which only a model chose, is the client's affair.
        """
        return None if head is None or self._ways.group.plain else wanted_pause_s(head)

    def _forget_answer(self) -> None:
        """Begin anew: nothing of an answer was forwarded."""
        self._heads = self._answer = self._idle_timeout_s = self._last_event = None
        self._seen, self._upstream_full, self._until_close = b"", False, False
        self._keep_client = self._keep_upstream = self._framed = True
        self._judged = False
        self._account.status, self._account.streaming = 0, False

    # Answers.

    def _head_received(self, data: bytes) -> None:
        if self._judged:
            super()._head_received(data)
            return
        if self._seen:
            data = self._seen + data
        if data.startswith(b"2", 9) and b"\r\n\r\n" in data:  # nearly always; no reason for another try
            self._pass(data, data[9:_STATUS_BYTES].decode("latin-1"))
            return
        if data.startswith(b"1", 9) and not (data := self._after_interim(data)):
            return
        status, end = data[9:_STATUS_BYTES].decode("latin-1"), data.find(b"\r\n\r\n")
        if end < 0 and may_become_head(data):
            self._seen = data  # if it ends here, nothing of it went to the client
            self._stale, self._again_with = False, None
        elif end < 0 or not self._is_telling(status) or not self._refused_by(status, data, end + 4):
            self._pass(data, status)

    def _is_telling(self, status: str) -> bool:
        """Return whether an answer with this status is looked at before it goes to the client."""
        return self._ways.group.is_telling(status)

    def _after_interim(self, data: bytes) -> bytes:
        """Return what follows interim answers that are not for the client: another endpoint can still answer."""
        method = self._plan.method
        with suppress(ResponseError):  # it is reported where it is read
            while self._interims < INTERIMS_LIMIT and data.startswith(b"1", 9) and (end := data.find(b"\r\n\r\n")) >= 0:
                status = parse_response_head(data[: end + 4], method=method).status
                if status == HTTPStatus.SWITCHING_PROTOCOLS or self._forwards_interim(status):
                    break
                self._interims += 1
                data = data[end + 4 :]
                self._seen, self._stale, self._again_with = b"", False, None
        return data

    def _refused_by(self, status: str, data: bytes, end: int) -> bool:
        """Handle an answer whose status is a reason for another try. Return whether one follows."""
        plan, tries = self._plan, self._tries
        assert tries is not None
        try:
            head, whole = self._keep_answer(plan, data, end)
        except (ResponseError, BodyError):
            return False  # it is reported where it is read
        clean = whole and head.keep_alive and self._request is None
        text = f"Upstream {plan.pool.endpoint.name!r} answered {status}."
        code = "upstream_limited" if status == "429" else "upstream_error"
        code = "upstream_refused" if status in KEY_REFUSED else code
        tries.failure = GatewayError(code, text, retry_after_s=wanted_pause_s(head))
        if not self._again(
            status, "error" if head.status >= HTTPStatus.INTERNAL_SERVER_ERROR else "ok", head=head, clean=clean
        ):
            return False
        plan.pool.failures.note(text)
        return True

    def _keep_answer(self, plan: Plan, data: bytes, end: int) -> tuple[ResponseHead, bool]:
        """Keep an answer that is not good enough, if it is whole. Return its head, which ends at `end`, and whether.

        Raises ResponseError or BodyError.
        """
        head = parse_response_head(data[:end], method=plan.method)
        body = build_body(head, payload_only=False)
        body.feed(data[end:])
        whole = body.done and not body.rest
        if whole:
            self._last = (plan, data)
        return head, whole

    def _pass(self, data: bytes, status: str) -> None:
        """Let an answer go to the client, if it is one. An interim one, and a failure, say nothing good."""
        self._judged, self._seen = True, b""
        if data.startswith(b"1", 9):
            self._kept = None  # what follows the interim answer may be none
        elif status not in FAILING and self._tries is not None:
            self._tries.record_answer(status)
        super()._head_received(data)
        if self._judged:  # else it was malformed, and another try follows
            self._kept = None

    def _give_last(self) -> bool:
        """Give the client an answer that was not good enough, now that no better one comes. Return whether one is."""
        if self._last is None:
            return False
        plan, data = self._last
        self._drop_upstream()
        self._forget_answer()
        self._use(plan)
        self._judged = True
        super()._head_received(data)
        return True

    # Ends.

    def stop(self) -> bool:
        if self._answer is None and self._last is not None:
            self._end(failed=None)
            return self._give_last()
        return super().stop()

    def _fail(self, error: GatewayError, *, outcome: str) -> None:
        tries = self._tries
        if tries is not None and tries.member is not None and error.code in UPSTREAMS_FAULT:
            reason = _REASONS.get(outcome, "reset") if self._sent else "connect"
            plan, tries.failure = self._plan, error
            if self._again(reason, outcome):
                plan.pool.failures.note(error.message)
                return
            if self._give_last():
                plan.upstream.outcomes[outcome] += 1
                plan.pool.failures.note(error.message)
                return
        self._end(failed=None)
        super()._fail(error, outcome=outcome)

    def _complete(self, *, excess: bool) -> None:
        status = self._account.status
        failed = False if status < 500 else str(status) in FAILING or None
        self._end(failed=None if failed and self._waits_for_client else failed)
        super()._complete(excess=excess)

    def _switch(self, head: ResponseHead, data: bytes, came: float) -> None:
        self._end(failed=False)
        super()._switch(head, data, came)

    def _cut(self, outcome: str) -> None:
        self._end(failed=True if outcome in CUT and not self._waits_for_client else None)
        super()._cut(outcome)

    def _abandon(self) -> None:
        self._end(failed=None)
        super()._abandon()

    def _leave_rest(self) -> None:
        self._end(failed=False)
        super()._leave_rest()

    def _end(self, *, failed: bool | None) -> None:
        """Give back the place at the endpoint. Idempotent; there are no tries after it."""
        tries, self._tries = self._tries, None  # it may hold `_enter`, and so this transaction
        if tries is not None:
            tries.end(failed=failed)
