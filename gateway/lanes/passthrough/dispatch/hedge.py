"""A second endpoint is asked, too, when the first one is slow; the first good answer counts.

An error, and a head whose body does not begin, wait for the other endpoint while that one may still answer well.

The request stays one: the second connection is no part of the exchange until it answers, or until the first request
fails. Then it takes the first one's place, and the loser's connection ends at once.
"""

from contextlib import suppress
from typing import Final

from gateway.http.body import BodyError
from gateway.http.response_head import ResponseError, ResponseHead
from gateway.lanes.passthrough.dispatch.dispatcher import DispatchedExchange
from gateway.lanes.passthrough.dispatch.failover import Failover
from gateway.lanes.passthrough.dispatch.hedge_request import Failure, HedgeRequest, is_only_success_head
from gateway.upstream.attempts import Tries
from gateway.upstream.connection import UpstreamConnection
from gateway.upstream.endpoint_state import Member
from gateway.upstream.shared_timer import Waits

_FIRST_ERROR: Final = "4"


class Hedge(Failover):
    """The attempts of one request, two of which may be under way at once."""

    _second: HedgeRequest | None = None
    _waits: Waits | None = None  # of the upstream, while an attempt waits
    _waiting: DispatchedExchange | None = None

    def _send(self, exchange: DispatchedExchange, tries: Tries, member: Member) -> None:
        # Each try may have one beside it, within the number of tries. Its wait goes on while it connects.
        self._end_wait()
        waits = self._targets.group.hedges
        if waits is not None:
            self._waits, self._waiting = waits, exchange
            waits.begin(self)
        super()._send(exchange, tries, member)

    def on_timeout(self) -> None:
        """Ask a second endpoint, if the whole request is here and there is one."""
        exchange, self._waits, self._waiting = self._waiting, None, None
        if exchange is None or not exchange.is_under_way or self._judged or self._second is not None:
            return
        if exchange.request_body is not None or self._kept is None or self._tries is None or self._tries.member is None:
            return
        if (tries := self._tries.begin_hedge()) is None or tries.member is None:
            return
        target = exchange.start_attempt(self._targets.find(tries.group, tries.member))
        before, after = target.head
        request = b"".join((before, self._digits, after, *self._kept))
        self._second = second = HedgeRequest(self, exchange, tries, target, request)
        second.start()

    def _try_again(
        self,
        exchange: DispatchedExchange,
        reason: str,
        outcome: str,
        *,
        head: ResponseHead | None = None,
        clean: bool = False,
    ) -> bool:
        """Continue with the second request, if there is one; else try again as without hedging."""
        second = self._second
        if second is None:
            return super()._try_again(exchange, reason, outcome, head=head, clean=clean)
        # The second request is already the next try.
        assert self._tries is not None
        exchange.end_attempt(exchange.target, outcome, int(reason) if reason.isdigit() else 0)
        stale = self._stale and reason == "reset"
        self._tries.end_failed_try(reason, rival=True, excused=stale, pause_s=self._read_wanted_pause_s(head))
        exchange.target.group.tally.outcomes[outcome] += 1
        exchange.drop_upstream()
        self._forget_response(exchange)
        if second.is_connected:
            self._adopt_second(exchange, second)
        return True

    def on_second_connected(
        self, exchange: DispatchedExchange, second: HedgeRequest, upstream: UpstreamConnection
    ) -> bool:
        """Send the second request as the only one, if the first has failed meanwhile. Return whether it has."""
        if self._tries is None or self._tries.member is not None:
            return False
        self._promote_second(exchange, second)
        self.on_connected(exchange, upstream, second.request)
        return True

    def on_second_answered(self, exchange: DispatchedExchange, second: HedgeRequest) -> None:
        """Take the second connection with the beginning of its answer; the first request has lost."""
        assert self._tries is not None
        self._tries.end(failed=None)
        exchange.end_attempt(exchange.target, "cancelled")
        exchange.target.group.tally.outcomes["cancelled"] += 1
        exchange.drop_upstream()
        self._forget_response(exchange)
        self._adopt_second(exchange, second)

    def on_second_failed(self, exchange: DispatchedExchange, second: HedgeRequest, failure: Failure) -> None:
        """Go on with the first request. If that has failed, too, the next try follows, or the end.

        If all of what the second endpoint answered is there, the client gets it when no better answer comes.
        """
        if failure.head is not None:
            with suppress(ResponseError, BodyError):
                self._keep_answer(exchange, second.target, failure.answer, failure.end)
        tally = second.target.group.tally
        if self._tries is not None and self._tries.member is not None:
            self._second = None
            exchange.end_attempt(second.target, failure.outcome)
            pause_s = self._read_wanted_pause_s(failure.head)
            second.tries.end_failed_try(failure.reason, rival=True, excused=failure.stale, pause_s=pause_s)
            tally.outcomes[failure.outcome] += 1
            if failure.outcome != "ok":
                second.target.member.pool.failures.record_failure(failure.error.message)
            return
        # It was still being connected, and nothing of it was sent.
        self._promote_second(exchange, second)
        self._sent, exchange.pending = False, [b"", *(self._kept or ())]
        exchange.handle_failure(failure.error, outcome=failure.outcome)

    def _adopt_second(self, exchange: DispatchedExchange, second: HedgeRequest) -> None:
        """Go on with the second request's connection, and with what came of its answer."""
        self._promote_second(exchange, second)
        exchange.upstream = upstream = second.release()
        upstream.turn = exchange
        exchange.record.sent_at = second.sent_at
        self._sent, self._stale = True, upstream.reused and not second.seen
        if self._stale and exchange.record.policy.repeatable:
            exchange.repeat = [second.request]
        if exchange.client.blocked_since is not None:
            upstream.pause()
        if second.seen:
            self.on_response_bytes(exchange, second.seen)

    def _promote_second(self, exchange: DispatchedExchange, second: HedgeRequest) -> None:
        """Make the second request the only one. Nothing of the first may go to its endpoint: it has another key."""
        self._second = None
        self._tries = second.tries
        self._use_endpoint(exchange, second.target)
        exchange.repeat, exchange.pending, exchange.moved = None, [], None

    def _is_telling(self, status: str) -> bool:
        """Return whether an answer is held back: an error of one endpoint waits for the answer of the other."""
        return (self._second is not None and status >= _FIRST_ERROR) or super()._is_telling(status)

    def on_response_bytes(self, exchange: DispatchedExchange, data: bytes) -> None:
        """Hold a head without a body back while a second request runs; else handle it as failover does."""
        if self._second is not None and not self._judged:
            data, self._seen = self._seen + data, b""
            if is_only_success_head(data, exchange.record.head.method):  # if it ends here, the other answer counts
                self._seen, self._stale, exchange.repeat = data, False, None
                return
        super().on_response_bytes(exchange, data)

    def _accept_answer(self, exchange: DispatchedExchange, data: bytes, status: str) -> None:
        self._drop_second(exchange)
        super()._accept_answer(exchange, data, status)

    def drop(self, exchange: DispatchedExchange) -> None:
        self._drop_second(exchange)
        exchange.drop_upstream()

    def _end_wait(self) -> None:
        """Cancel the wait for a second request. Idempotent."""
        if self._waits is not None:
            self._waits.end(self)
            self._waits = self._waiting = None

    def _drop_second(self, exchange: DispatchedExchange) -> None:
        """Cancel the second request and the wait for one. Idempotent."""
        self._end_wait()
        second, self._second = self._second, None
        if second is not None:
            exchange.end_attempt(second.target, "cancelled")
            second.target.group.tally.outcomes["cancelled"] += 1
            second.drop()
