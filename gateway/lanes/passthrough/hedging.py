"""A balanced request that asks a second endpoint, too, when the first one is slow to answer; the first answer counts.

The request stays one: the second connection is no part of the splice until it answers, or until the first request
fails. Then it takes the first one's place, and the loser's connection ends at once.
"""

from contextlib import suppress

from gateway.errors import GatewayError
from gateway.http.body import BodyError
from gateway.http.response_head import ResponseError, ResponseHead
from gateway.lanes.passthrough.balanced import Balanced
from gateway.lanes.passthrough.second import Second
from gateway.upstream.connection import UpstreamConnection
from gateway.upstream.waits import Waits


class Hedging(Balanced):
    """A passthrough transaction that may ask two endpoints at once."""

    _second: Second | None = None
    _hedges: Waits | None = None  # once its wait began: there is one second request at most

    def _attach(self, upstream: UpstreamConnection, data: bytes) -> None:
        hedges = self._ways.group.hedges
        if self._hedges is None and hedges is not None:
            self._hedges = hedges
            hedges.begin(self)
        super()._attach(upstream, data)

    def wait_over(self) -> None:
        """Ask a second endpoint, if the whole request is here and there is one."""
        if not self._under_way or self._judged or self._upstream is None:
            return
        if self._request is not None or self._kept is None or self._tries is None:
            return
        if (tries := self._tries.beside()) is None or tries.member is None:
            return
        plan = self._ways.to(tries.group, tries.member)
        request = b"".join((plan.before, self._digits, plan.after, *self._kept))
        self._second = Second(self, tries, plan, request)
        self._second.start()

    def _again(self, reason: str, outcome: str, *, head: ResponseHead | None = None, clean: bool = False) -> bool:
        second = self._second
        if second is None:
            return super()._again(reason, outcome, head=head, clean=clean)
        # The second request is already the next try.
        assert self._tries is not None
        self._tries.again(reason, possible=False, stale=self._stale and reason == "reset")
        self._plan.upstream.outcomes[outcome] += 1
        super()._drop_upstream()
        self._forget_answer()
        if second.connected:
            self._adopt(second)
        return True

    def second_connected(self, second: Second) -> None:
        """Take the second connection, if the first request has failed meanwhile."""
        if self._tries is not None and self._tries.member is None:
            self._adopt(second)

    def second_answers(self, second: Second, data: bytes) -> None:
        """Take the second connection with the beginning of its answer; the first request has lost."""
        if self._tries is not None and self._tries.member is not None:
            self._tries.ended(failed=None)
            self._plan.upstream.outcomes["cancelled"] += 1
        super()._drop_upstream()
        self._forget_answer()
        self._adopt(second)
        self._head_received(data)

    def second_failed(self, second: Second, error: GatewayError, *, outcome: str, answer: bytes) -> None:
        """Go on with the first request, or end if that has failed, too.

        `answer` is the beginning of what the second endpoint said. If all of it is there, the client gets it when no
        better one comes, with its Retry-After.
        """
        self._second = None
        if (end := answer.find(b"\r\n\r\n")) >= 0:
            with suppress(ResponseError, BodyError):
                self._keep_answer(second.plan, answer, end + 4)
        if self._tries is not None and self._tries.member is not None:
            second.plan.upstream.outcomes[outcome] += 1
            second.plan.pool.failures.note(error.message)
            return
        self._use(second.plan)
        if not self._give_last():
            self._fail(error, outcome=outcome)

    def _adopt(self, second: Second) -> None:
        self._second = None
        self._tries = second.tries
        self._use(second.plan)
        self._upstream = upstream = second.release()
        upstream.turn = self
        self._sent, self._stale, self._moved = True, False, None
        self._account.sent_at = second.sent_at
        if self._client.blocked_since is not None:
            upstream.pause()

    def _pass(self, data: bytes, *, good: bool = True) -> None:
        self._drop_second()
        super()._pass(data, good=good)

    def _drop_upstream(self) -> None:
        self._drop_second()
        super()._drop_upstream()

    def _drop_second(self) -> None:
        if self._hedges is not None:
            self._hedges.end(self)
        second, self._second = self._second, None
        if second is not None:
            second.plan.upstream.outcomes["cancelled"] += 1
            second.drop()
