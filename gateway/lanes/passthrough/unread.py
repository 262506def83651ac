"""Whole answers of one worker whose usage is read a little later, several at a time.

Between two requests, the code and the data of reading leave the caches of the processor. So reading answers one after
another costs half of what it costs to read each when it ends. What nobody has read yet is never older than `WAIT_S`,
and whoever wants to know what was used reads it first.
"""

from asyncio import AbstractEventLoop
from collections.abc import Sequence
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
        waiting, self._waiting = self._waiting, []
        alike: list[Tokens] = []
        plan, model = waiting[0][0], ""
        for its_plan, body, asked_bytes, asked_model, holds in waiting:
            tokens, its_model, _ = of_whole(body)
            if tokens is None or (asked_model and not its_model):
                tokens = _record_alone(its_plan, tokens, its_model, body, asked_bytes, asked_model)
            else:
                if its_model != model or its_plan is not plan:
                    _record(plan, model, alike)
                    alike, plan, model = [], its_plan, its_model
                alike.append(tokens)
            for hold in holds:
                hold.end(tokens.input + tokens.output)
        _record(plan, model, alike)

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


def _record(plan: Plan, model: str, alike: Sequence[Tokens]) -> None:
    """Record answers with the same plan and model as one sum."""
    if alike:
        tokens = alike[0] if len(alike) == 1 else Tokens(*map(sum, zip(*alike, strict=True)))
        _tell(plan, Usage(tokens, requests=len(alike)), model)


def _record_alone(
    plan: Plan, tokens: Tokens | None, model: str, body: bytes, asked_bytes: int, asked_model: str
) -> Tokens:
    """Record an answer that does not say its tokens, or names no model. Return its tokens."""
    meter = plan.meter
    assert meter is not None
    usage = Usage() if tokens is None else Usage(tokens)
    if tokens is None and meter.asks:
        usage = estimated(None, ceil(len(body) / BYTES_A_TOKEN) if meter.answers else 0, asked_bytes, cut=False)
    if asked_model and not model:
        usage, model = usage._replace(asked=True), asked_model
    _tell(plan, usage, model)
    return usage.tokens


def _tell(plan: Plan, usage: Usage, model: str) -> None:
    meter, caller = plan.meter, plan.caller
    assert meter is not None
    meter.recorded(usage, caller.name, caller.tenant, model, plan.pool.endpoint.name, LANE)
