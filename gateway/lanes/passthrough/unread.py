"""Whole answers of one worker whose usage is read a little later, several at a time.

Between two requests, the code and the data of reading leave the caches of the processor. So reading answers one after
another costs half of what it costs to read each when it ends. What nobody has read yet is never older than `WAIT_S`,
and whoever wants to know what was used reads it first.
"""

from asyncio import AbstractEventLoop
from collections import defaultdict
from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING, Final, TypeAlias

from gateway.lanes.plan import Plan
from gateway.usage.answers import of_whole
from gateway.usage.tokens import BYTES_A_TOKEN, Tokens, Usage

if TYPE_CHECKING:
    from gateway.limits.limiter import Hold
    from gateway.limits.rule import Rule, Use

#: So many answers wait at most. More would not stay in the cache themselves until they are read.
MOST: Final = 16
#: How long they wait at most.
WAIT_S: Final = 0.02
LANE: Final = "passthrough"
#: A whole answer: its plan, its body, the bytes of its request, the model that those name where it is read, and the
#: places of the request in its limits, if it has any. Its account is let go: the next request can have that memory,
#: warm as it is.
Answer: TypeAlias = "tuple[Plan, bytes, int, str, Hold | None]"
_Tokens: TypeAlias = tuple[int, int, int, int, int]  # as in `Tokens`


class Unread:
    """The answers that wait. Used on one event loop only."""

    __slots__ = ("_is_timed", "_waiting")

    def __init__(self) -> None:
        self._waiting: list[Answer] = []
        self._is_timed = False

    def add(self, answer: Answer, loop: AbstractEventLoop) -> None:
        """Read an answer soon, and record what it used. Its request is under way no longer."""
        waiting, hold = self._waiting, answer[-1]
        waiting.append(answer)
        wants_it = hold is not None and hold.leave()
        if wants_it or len(waiting) >= MOST:
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
        alike: list[_Tokens] = []
        uses: defaultdict[Rule, list[Use]] = defaultdict(list)
        for its_plan, body, asked_bytes, asked_model, hold in waiting:
            said = read_usual(body) or of_whole(body)
            tokens: _Tokens | None = said[0]
            its_model = said[1]
            if tokens is None or (asked_model and not its_model):
                tokens = _record_alone(its_plan, tokens, its_model, body, asked_bytes, asked_model)
            else:
                if its_plan is not plan or its_model != model:
                    _record(plan, model, alike)
                    plan, model, alike = its_plan, its_model, []
                alike.append(tokens)
            if hold is not None:
                used = tokens[0] + tokens[3]
                for rule, tick, reserved, _ in hold:
                    if reserved is not None:
                        uses[rule].append((tick, reserved, used))
        _record(plan, model, alike)
        for rule, of_rule in uses.items():
            rule.settle(of_rule)

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


def _record(plan: Plan, model: str, alike: Sequence[_Tokens]) -> None:
    """Record answers with the same plan and model as one sum."""
    if alike:
        tell(plan, Usage(Tokens(*map(sum, zip(*alike, strict=True))), requests=len(alike)), model)


def _record_alone(
    plan: Plan, tokens: _Tokens | None, model: str, body: bytes, asked_bytes: int, asked_model: str
) -> Tokens:
    """Record an answer that does not say its tokens, or names no model. Return what it used."""
    meter = plan.meter
    assert meter is not None
    usage = Usage() if tokens is None else Usage(Tokens(*tokens))
    if tokens is None and meter.asks:
        usage = estimated(None, ceil(len(body) / BYTES_A_TOKEN) if meter.answers else 0, asked_bytes, cut=False)
    if asked_model and not model:
        usage, model = usage._replace(asked=True), asked_model
    tell(plan, usage, model)
    return usage.tokens


def tell(plan: Plan, usage: Usage, model: str) -> None:
    """Record the usage of a plan's requests."""
    meter, caller = plan.meter, plan.caller
    assert meter is not None
    meter.recorded(usage, caller.name, caller.tenant, model, plan.pool.endpoint.name, LANE)
