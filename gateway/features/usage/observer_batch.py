"""Whole answers of one worker that are counted, and whose usage is read, a little later, several at a time.

Between two requests, the code and the data of reading leave the caches of the processor. So reading answers one after
another costs half of what it costs to read each when it ends. The same holds for the counts of their transactions. The
sums of equal neighbours are recorded later still, as those of up to `SUMMED` answers. What is not recorded yet is never
older than `WAIT_S`, and a reader of the usage has it recorded first.
"""

from asyncio import AbstractEventLoop
from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from gateway.features.usage.observer_meter import PendingUsage
from gateway.lanes.passthrough.access_record import AccessRecord
from gateway.limits.counter import LATE
from gateway.usage.decompression import DecodingQueue

if TYPE_CHECKING:
    from gateway.features.usage.observer_decoder import UsageDecoder

#: So many answers wait at most. More would not stay in the cache themselves until they are read.
MOST: Final = LATE
#: So many are recorded as one sum, with the rest of those that are read with the last one.
SUMMED: Final = 256
#: How long they wait at most, until they are recorded.
WAIT_S: Final = 0.02
_record_of: Final = attrgetter("record")
_target_of: Final = attrgetter("target")


class UsageBatch:
    """The exchanges whose answers wait, in `waiting`. Used on one event loop only.

    The observer that adds one sums them up when they are `MOST` (`sum_up`), and has all read soon (`read_soon`) unless
    that `is_timed` already. `undecoded` are those that are compressed, and not decoded yet.
    """

    __slots__ = ("_decoder", "is_timed", "undecoded", "waiting")

    def __init__(self) -> None:
        self.waiting: list[PendingUsage] = []
        self._decoder: UsageDecoder | None = None
        self.is_timed = False
        self.undecoded = DecodingQueue()

    def read_soon(self, loop: AbstractEventLoop) -> None:
        """Read all answers that wait, in a moment."""
        self.is_timed = True
        loop.call_later(WAIT_S, self._read_on_timer)

    def sum_up(self) -> None:
        """Read all waiting answers, and keep their sums, which `read` records later."""
        if self._decoder is None:
            # Late: its library is loaded only where answers are read.
            from gateway.features.usage.observer_decoder import UsageDecoder

            self._decoder = UsageDecoder(most=SUMMED)
        waiting, self.waiting = self.waiting, []
        _count_exchanges(map(_record_of, waiting))
        self._decoder.read(waiting)

    def read(self) -> None:
        """Read all waiting answers, and record what they used."""
        if self.waiting:
            self.sum_up()
        if self._decoder is not None:
            self._decoder.record()

    def finish(self) -> None:
        """Read all answers, also those that are not decoded yet, because the worker ends."""
        self.read()
        self.undecoded.finish()

    def _read_on_timer(self) -> None:
        """Read the waiting answers, as their time has come."""
        self.is_timed = False
        self.read()


def _count_exchanges(records: Iterable[AccessRecord]) -> None:
    """Count exchanges that ended with short whole answers, which have status 200."""
    for target, neighbours in groupby(records, _target_of):
        equal = list(neighbours)
        counts, tally = equal[0].policy.counts, target.group.tally
        tally.first_byte.observe_all([one.came - one.sent_at for one in equal])
        counts.route.overhead.observe_all([one.overhead_s + one.forwarded - one.came for one in equal])
        counts.route.answered.observe_all([one.forwarded - one.began for one in equal])
        counts.codes[200] += len(equal)
        tally.outcomes["ok"] += len(equal)
