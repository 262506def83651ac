"""The retry budget: requests sent again are at most a part of the clients' requests, so retries are never a storm.

Counts fade: all are halved every 10 seconds. The bound then holds for the sums since the start as well, but for
`ALWAYS`, of which half comes back each time.

Requests that fail because of their clients count apart, within the same bound: the endpoint gave up while it waited for
the body, or the client's own account there is limited. Clients make any number of them on purpose, and would leave
nothing for others.
"""

from collections.abc import Callable
from typing import Final

#: So often the counts are halved, in seconds.
HALVED_EVERY_S: Final = 10.0
#: So many may always be sent again within the time that counts: a part of few requests would be none.
ALWAYS: Final = 20


class RetryBudget:
    """Counts of one upstream. `part` is the bound, such as 0.2; `clock` is monotonic, in seconds."""

    __slots__ = ("_apart", "_clock", "_due_s", "_part", "_requests", "_retries")

    def __init__(self, part: float, *, clock: Callable[[], float]) -> None:
        self._part = part
        self._clock = clock
        self._requests = self._retries = self._apart = 0.0
        self._due_s = clock() + HALVED_EVERY_S

    def record_request(self) -> None:
        """Count a request of a client."""
        if (now_s := self._clock()) >= self._due_s:
            self._decay_counts(now_s)
        self._requests += 1

    def has_room(self, *, apart: bool = False) -> bool:
        """Return whether a retry is allowed now. `apart`: the client caused the failure."""
        return self._has_room(1.0, apart=apart)

    def take_retry(self, *, apart: bool = False) -> bool:
        """Count a retry. Return False if the budget has no room: then it must not be sent."""
        if not self.has_room(apart=apart):
            return False
        if apart:
            self._apart += 1
        else:
            self._retries += 1
        return True

    def take_hedge(self) -> bool:
        """Count a hedged request, as `take_retry` does; it may use only half of the room."""
        return self._has_room(0.5) and self.take_retry()

    def _has_room(self, share: float, *, apart: bool = False) -> bool:
        if (now_s := self._clock()) >= self._due_s:
            self._decay_counts(now_s)
        retries = self._apart if apart else self._retries
        return retries + 1 <= max(self._requests * self._part, ALWAYS if self._part else 0) * share

    def _decay_counts(self, now_s: float) -> None:
        """Halve the counts once for each HALVED_EVERY_S seconds that have passed."""
        times = int((now_s - self._due_s) // HALVED_EVERY_S) + 1
        part = 0.5 ** min(times, 64)
        self._requests *= part
        self._retries *= part
        self._apart *= part
        self._due_s += times * HALVED_EVERY_S
