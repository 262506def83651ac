"""A balanced request that asks a second endpoint, too, when the first one is slow; the first good answer counts.

An error, and a head whose body does not begin, wait for the other endpoint while that one may still answer well.

The request stays one: the second connection is no part of the splice until it answers, or until the first request
fails. Then it takes the first one's place, and the loser's connection ends at once.
"""

from contextlib import suppress

from gateway.http.body import BodyError
from gateway.http.response_head import ResponseError, ResponseHead
from gateway.lanes.passthrough.balanced import Balanced
from gateway.lanes.passthrough.second import Failure, Second, is_bare
from gateway.upstream.attempts import Tries
from gateway.upstream.connection import UpstreamConnection
from gateway.upstream.endpoint_state import Member
from gateway.upstream.shared_timer import Waits


class Hedging(Balanced):
    """A passthrough transaction that may ask two endpoints at once."""

    _second: Second | None = None
    _hedges: Waits | None = None  # once a wait began

    def _go(self, tries: Tries, member: Member) -> None:
        # Each try may have one beside it, within the number of tries. Its wait goes on while it connects.
        if (hedges := self._hedges) is not None:
            hedges.end(self)
        self._hedges = hedges = self._ways.group.hedges
        if hedges is not None:
            hedges.begin(self)
        super()._go(tries, member)

    def on_timeout(self) -> None:
        """Ask a second endpoint, if the whole request is here and there is one."""
        if not self._under_way or self._judged or self._second is not None:
            return
        if self._request is not None or self._kept is None or self._tries is None or self._tries.member is None:
            return
        if (tries := self._tries.hedge()) is None or tries.member is None:
            return
        plan = self._ways.get_plan(tries.group, tries.member)
        request = b"".join((plan.before, self._digits, plan.after, *self._kept))
        self._second = Second(self, tries, plan, request)
        self._second.start()

    def _again(self, reason: str, outcome: str, *, head: ResponseHead | None = None, clean: bool = False) -> bool:
        second = self._second
        if second is None:
            return super()._again(reason, outcome, head=head, clean=clean)
        # The second request is already the next try.
        assert self._tries is not None
        stale = self._stale and reason == "reset"
        self._tries.again(reason, rival=True, excused=stale, pause_s=self._wanted_pause(head))
        self._plan.upstream.outcomes[outcome] += 1
        super()._drop_upstream()
        self._forget_answer()
        if second.connected:
            self._adopt(second)
        return True

    def second_connected(self, second: Second, upstream: UpstreamConnection) -> bool:
        """Send the second request as the only one, if the first has failed meanwhile. Return whether it has."""
        if self._tries is None or self._tries.member is not None:
            return False
        self._become(second)
        self._attach(upstream, second.request)
        return True

    def second_answers(self, second: Second) -> None:
        """Take the second connection with the beginning of its answer; the first request has lost."""
        assert self._tries is not None
        self._tries.end(failed=None)
        self._plan.upstream.outcomes["cancelled"] += 1
        super()._drop_upstream()
        self._forget_answer()
        self._adopt(second)

    def second_failed(self, second: Second, failure: Failure) -> None:
        """Go on with the first request. If that has failed, too, the next try follows, or the end.

        If all of what the second endpoint answered is there, the client gets it when no better answer comes.
        """
        if failure.head is not None:
            with suppress(ResponseError, BodyError):
                self._keep_answer(second.plan, failure.answer, failure.end)
        if self._tries is not None and self._tries.member is not None:
            self._second = None
            pause_s = self._wanted_pause(failure.head)
            second.tries.again(failure.reason, rival=True, excused=failure.stale, pause_s=pause_s)
            second.plan.upstream.outcomes[failure.outcome] += 1
            if failure.outcome != "ok":
                second.plan.pool.failures.note(failure.error.message)
            return
        # It was still being connected, and nothing of it was sent.
        self._become(second)
        self._sent, self._pending = False, [b"", *(self._kept or ())]
        self._fail(failure.error, outcome=failure.outcome)

    def _adopt(self, second: Second) -> None:
        """Go on with the second request's connection, and with what came of its answer."""
        self._become(second)
        self._upstream = upstream = second.release()
        upstream.turn = self
        self._account.sent_at = second.sent_at
        self._sent, self._stale = True, upstream.reused and not second.seen
        if self._stale and second.plan.repeatable:
            self._again_with = [second.request]
        if self._client.blocked_since is not None:
            upstream.pause()
        if second.seen:
            self._head_received(second.seen)

    def _become(self, second: Second) -> None:
        """Make the second request the only one. Nothing of the first may go to its endpoint: it has another key."""
        self._second = None
        self._tries = second.tries
        self._use(second.plan)
        self._again_with, self._pending, self._moved = None, [], None

    def _is_telling(self, status: str) -> bool:
        """Return whether an answer is looked at: an error of one endpoint waits for the answer of the other."""
        return (self._second is not None and status >= "4") or super()._is_telling(status)

    def _head_received(self, data: bytes) -> None:
        if self._second is not None and not self._judged:
            data, self._seen = self._seen + data, b""
            if is_bare(data, self._plan.method):  # if it ends here, the other answer counts
                self._seen, self._stale, self._again_with = data, False, None
                return
        super()._head_received(data)

    def _pass(self, data: bytes, status: str) -> None:
        self._drop_second()
        super()._pass(data, status)

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
