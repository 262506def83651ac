"""The meters of one worker: what it counts for each rule, in memory that all workers share."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final
from weakref import WeakValueDictionary

from cachetools import LRUCache

from gateway.contracts.allowance import LimitScope
from gateway.contracts.errors import GatewayError
from gateway.limits.budgets import Budgets
from gateway.limits.counter import Counter, Rows
from gateway.limits.limit_rule import LimitMeter
from gateway.limits.share_client import ShareClient
from gateway.limits.shared_memory import SharedCounters

log = logging.getLogger("gateway")

#: The counters of a rule that a worker has not used for so long may be another's, and how often it looks for those.
UNUSED_S: Final = 120.0
EVERY_S: Final = 5.0
#: The means of so many rules are remembered that were not used for longer.
MEANS: Final = 8192
#: Where there is no room, nobody looks for some again within this time; the log has a line a minute.
FULL_S: Final = 1.0
LOG_S: Final = 60.0


class Meters:
    """The meters of the worker at a `place` of the shared memory. It takes over from the worker that had the place.

    `clock` is that of all workers (monotonic).
    """

    def __init__(self, shared: SharedCounters, *, place: int, clock: Callable[[], float]) -> None:
        self._shared = shared
        self._place = place
        self._clock = clock
        # A plan may keep a meter for longer than it has counters. It stays the only one of its rule.
        self._known: WeakValueDictionary[tuple[LimitScope, str], LimitMeter] = WeakValueDictionary()
        self._open: dict[tuple[LimitScope, str], tuple[Counter, int]] = {}
        self._by_number: dict[int, Counter] = {}
        self._means: LRUCache[tuple[LimitScope, str], tuple[float, int]] = LRUCache(MEANS)
        self._full_until_s = self._log_from_s = float("-inf")
        #: The way to the shares of limits that this gateway has in common with others; None: it counts for itself.
        self.shares = None if shared.shares is None else ShareClient(shared.shares, place=place, clock=clock)
        shared.adopt_place(place)

    def get_meter(self, scope: LimitScope, name: str) -> LimitMeter:
        """Return the meter of a rule, the same each time. Raises GatewayError (overloaded) if there is no room."""
        meter = self._known.get((scope, name))
        if meter is None:
            meter = self._known[scope, name] = LimitMeter(partial(self._open_rows, scope, name), self._clock)
            if (known := self._means.pop((scope, name), None)) is not None:
                meter.adopt_mean(*known)
        return meter

    def find_used_meter(self, scope: LimitScope, name: str) -> LimitMeter | None:
        """Return the meter of a rule that this worker has used in the last minutes; None: it has not."""
        return self._known.get((scope, name)) if (scope, name) in self._open else None

    async def run(self) -> None:
        """Give back what is not used any more, again and again."""
        while True:
            await asyncio.sleep(EVERY_S)
            self.release_unused()

    def release_unused(self) -> None:
        """Give back what was taken ahead in ticks that are over, and counters that this worker has not used lately."""
        now_s = self._clock()
        since_s = now_s - UNUSED_S
        for rule, (meter, number) in list(self._open.items()):
            if meter.is_unused(since_s):
                if (known := self._known.get(rule)) is not None and known.mean:
                    self._means[rule] = known.mean, known.learnt
                meter.close()
                del self._open[rule], self._by_number[number]
                self._shared.release(number, place=self._place)
            elif meter.ends_s <= now_s:
                meter.give_back_ahead()

    @property
    def gateway(self) -> str:
        """Return the id of the gateway, which all its workers share."""
        return self._shared.gateway

    @property
    def is_first(self) -> bool:
        """Return whether this worker is the first one of its gateway: it tells what concerns all of them."""
        return self._place == 0

    def mark_used_until_now(self) -> Callable[[], None]:
        """Return what notes, once it is stored, that all is which was used until now."""
        used = [(meter, own) for meter, _ in self._open.values() if (own := meter.own_use) is not None]

        def note_stored() -> None:
            for meter, own in used:
                meter.note_stored(own)

        return note_stored

    def mark_stored_until_now(self, budgets: Budgets) -> Callable[[], None]:
        """Return what notes, once it is read, that all is which was stored until now."""
        now_s = self._clock()
        stored = [(meter, meter.read_all_stored()) for meter in self._known.values()]

        def note_read() -> None:
            budgets.read_s = now_s
            for meter, known in stored:
                meter.stored = known

        return note_read

    def find_open(self, number: int) -> Counter | None:
        """Return the counter of this number, if this worker uses it."""
        return self._by_number.get(number)

    @property
    def memory(self) -> SharedCounters:
        """Return the memory of all workers."""
        return self._shared

    def _open_rows(self, scope: LimitScope, name: str, meter: Counter) -> Rows:
        """Return the rows of a rule. Raises GatewayError (overloaded) if there is no room."""
        number = self._hold_counter(scope, name)
        if number is None and self._clock() >= self._full_until_s:
            self.release_unused()
            number = self._hold_counter(scope, name)
        if number is None:
            raise self._build_full_error(scope, name)
        self._open[scope, name] = meter, number
        self._by_number[number] = meter
        if self.shares is not None:
            meter.open_shares(number, self.shares.memory.get_words(number))
        return self._shared.get_rows(number, self._place)

    def _hold_counter(self, scope: LimitScope, name: str) -> int | None:
        now_s = self._clock()
        return self._shared.hold_counter(
            f"{scope} {name}", place=self._place, now_s=now_s, makes=now_s >= self._full_until_s
        )

    def _build_full_error(self, scope: LimitScope, name: str) -> GatewayError:
        now_s = self._clock()
        self._full_until_s = now_s + FULL_S
        if now_s >= self._log_from_s:
            self._log_from_s = now_s + LOG_S
            log.error(
                "there is no room to count further limits: requests of the %s %r, and perhaps of others, are refused "
                "until some limits have not been used for %g s",
                scope,
                name.rpartition("\0")[2],
                UNUSED_S,
            )
        return GatewayError(
            "overloaded",
            "The gateway has no room to count the limits of this request, so it refuses it: try again in some minutes, "
            "when unused limits have made room.",
        )
