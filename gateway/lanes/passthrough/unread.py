"""Whole answers of one worker whose usage is read a little later, several at a time.

Between two requests, the code and the data of reading leave the caches of the processor. So reading answers one after
another costs half of what it costs to read each when it ends. What nobody has read yet is never older than `WAIT_S`,
and whoever wants to know what was used reads it first.
"""

from asyncio import AbstractEventLoop
from math import ceil
from typing import TYPE_CHECKING, Final, TypeAlias

from gateway.lanes.plan import Plan
from gateway.usage.answers import of_whole
from gateway.usage.tokens import BYTES_A_TOKEN, Tokens, Usage

if TYPE_CHECKING:
    from gateway.limits.limiter import Hold

#: So many answers wait at most. More would not stay in the cache themselves until they are read.
MOST: Final = 16
#: How long they wait at most.
WAIT_S: Final = 0.02
LANE: Final = "passthrough"
#: A whole answer: its plan, its body, the bytes of its request, the model that those name where it is read, and the
#: places of the request in its limits. Its account is let go: the next request can have that memory, warm as it is.
Answer: TypeAlias = "tuple[Plan, bytes, int, str, tuple[Hold, ...]]"


class Unread:
    """The answers that wait. Used on one event loop only."""

    __slots__ = ("_is_timed", "_waiting")

    def __init__(self) -> None:
        self._waiting: list[Answer] = []
        self._is_timed = False

    def add(self, answer: Answer, loop: AbstractEventLoop) -> None:
        """Read an answer soon, and record what it used. Its request is under way no longer."""
        waiting = self._waiting
        waiting.append(answer)
        is_due = len(waiting) >= MOST
        for hold in answer[-1]:
            is_due |= hold.leave()
        if is_due:
            self.read()
        elif not self._is_timed:
            self._is_timed = True
            loop.call_later(WAIT_S, self._read_in_time)

    def read(self) -> None:
        """Read and record all answers that wait. Neighbours with the same plan and model are recorded as one sum."""
        if not self._waiting:
            return
        # Late: its decoder's library is loaded only where answers are read.
        from gateway.lanes.passthrough.usual import read_usual

        waiting, self._waiting = self._waiting, []
        plan, model = waiting[0][0], ""
        requests = asked = cached = written = answered = reasoning = 0
        for its_plan, body, asked_bytes, asked_model, holds in waiting:
            said, named = read_usual(body), ""
            if said is None:
                tokens, named, _ = of_whole(body)
                said = None if tokens is None else (*tokens, named)
            if said is None or (asked_model and not said[-1]):
                tokens = None if said is None else Tokens(*said[:-1])
                used = _record_alone(its_plan, tokens, named, body, asked_bytes, asked_model)
            else:
                its_asked, its_cached, its_written, its_answered, its_reasoning, its_model = said
                if its_plan is not plan or its_model != model:
                    _record(plan, model, requests, Tokens(asked, cached, written, answered, reasoning))
                    plan, model = its_plan, its_model
                    requests = asked = cached = written = answered = reasoning = 0
                requests += 1
                asked += its_asked
                cached += its_cached
                written += its_written
                answered += its_answered
                reasoning += its_reasoning
                used = its_asked + its_answered
            for hold in holds:
                hold.end(used)
        _record(plan, model, requests, Tokens(asked, cached, written, answered, reasoning))

    def _read_in_time(self) -> None:
        self._is_timed = False
        self.read()


def estimated(tokens: Tokens | None, answered: int, asked_bytes: int, *, cut: bool) -> Usage:
    """Return the usage of an answer that says no tokens, or not all of them.

    `answered` is an estimate of its output, `asked_bytes` are those of its request.
    """
    if tokens is None:
        tokens = Tokens(ceil(asked_bytes / BYTES_A_TOKEN))
    return Usage(tokens._replace(output=max(tokens.output, answered)), cut=cut, estimated=True)


def _record(plan: Plan, model: str, requests: int, tokens: Tokens) -> None:
    """Record answers with the same plan and model as one sum."""
    if requests:
        tell(plan, Usage(tokens, requests=requests), model)


def _record_alone(
    plan: Plan, tokens: Tokens | None, model: str, body: bytes, asked_bytes: int, asked_model: str
) -> int:
    """Record an answer that does not say its tokens, or names no model. Return how many it used."""
    meter = plan.meter
    assert meter is not None
    usage = Usage() if tokens is None else Usage(tokens)
    if tokens is None and meter.asks:
        usage = estimated(None, ceil(len(body) / BYTES_A_TOKEN) if meter.answers else 0, asked_bytes, cut=False)
    if asked_model and not model:
        usage, model = usage._replace(asked=True), asked_model
    tell(plan, usage, model)
    return usage.tokens.input + usage.tokens.output


def tell(plan: Plan, usage: Usage, model: str) -> None:
    """Record the usage of a plan's requests."""
    meter, caller = plan.meter, plan.caller
    assert meter is not None
    meter.recorded(usage, caller.name, caller.tenant, model, plan.pool.endpoint.name, LANE)
