"""Whole answers of one worker that are counted, and whose usage is read, a little later, several at a time.

Between two requests, the code and the data of reading leave the caches of the processor. So reading answers one after
another costs half of what it costs to read each when it ends. The same holds for the counts of their transactions. The
sums of equal neighbours are recorded later still, as those of up to `SUMMED` answers. What nobody has recorded yet is
never older than `WAIT_S`, and whoever wants to know what was used records it first.
"""

from asyncio import AbstractEventLoop
from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from gateway.lanes.plan import Plan
from gateway.limits.counter import LATE
from gateway.usage.decompression import DecodingQueue
from gateway.usage.tokens import RequestUsage, Times

if TYPE_CHECKING:
    from gateway.lanes.passthrough.metered import MeteredAccounting
    from gateway.lanes.passthrough.usual import Usual

#: So many answers wait at most. More would not stay in the cache themselves until they are read.
MOST: Final = LATE
#: So many are recorded as one sum, with the rest of those that are read with the last one.
SUMMED: Final = 256
#: How long they wait at most, until they are recorded.
WAIT_S: Final = 0.02
LANE: Final = "passthrough"
_plan_of: Final = attrgetter("plan")


class Unread:
    """The accounts whose answers wait, in `waiting`. Used on one event loop only.

    Whoever adds one sums them up when they are `MOST` (`sum_up`), and has all read soon (`read_soon`) unless that
    `is_timed` already.
    `undecoded` are those that are compressed, and not decoded yet.
    """

    __slots__ = ("_usual", "is_timed", "undecoded", "waiting")

    def __init__(self) -> None:
        self.waiting: list[MeteredAccounting] = []
        self._usual: Usual | None = None
        self.is_timed = False
        self.undecoded = DecodingQueue()

    def read_soon(self, loop: AbstractEventLoop) -> None:
        """Read all answers that wait, in a moment."""
        self.is_timed = True
        loop.call_later(WAIT_S, self._read_in_time)

    def sum_up(self) -> None:
        """Read all answers that wait. Their sums may be recorded later (`read`)."""
        if self._usual is None:
            # Late: its decoder's library is loaded only where answers are read.
            from gateway.lanes.passthrough.usual import Usual

            self._usual = Usual(most=SUMMED)
        waiting, self.waiting = self.waiting, []
        _count(waiting)
        self._usual.read(waiting)

    def read(self) -> None:
        """Read all answers that wait, and record what they used."""
        if self.waiting:
            self.sum_up()
        if self._usual is not None:
            self._usual.record()

    def finish(self) -> None:
        """Read all answers, also those that are not decoded yet, because the worker ends."""
        self.read()
        self.undecoded.finish()

    def _read_in_time(self) -> None:
        self.is_timed = False
        self.read()


def tell(plan: Plan, usage: RequestUsage, model: str, times: Times | None = None) -> None:
    """Record the usage of a plan's requests, and the times of what a model answered."""
    meter, caller = plan.meter, plan.caller
    assert meter is not None
    meter.recorded(usage, caller.name, caller.tenant, model, plan.pool.endpoint.name, LANE, times)


def _count(accounts: Iterable["MeteredAccounting"]) -> None:
    """Count transactions that ended with short whole answers, which have status 200."""
    for plan, neighbours in groupby(accounts, _plan_of):
        equal = list(neighbours)
        plan.upstream.first_byte.observe_all([one.came - one.sent_at for one in equal])
        plan.route.overhead.observe_all([one.overhead_s + one.forwarded - one.came for one in equal])
        plan.route.answered.observe_all([one.forwarded - one.began for one in equal])
        plan.codes[200] += len(equal)
        plan.upstream.outcomes["ok"] += len(equal)
