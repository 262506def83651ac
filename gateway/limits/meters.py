"""The meters of one worker: what it counts for each rule, in memory that all workers share."""

import logging

from gateway.errors import GatewayError
from gateway.limits.budgets import Scope
from gateway.limits.counter import Counter
from gateway.limits.rule import Meter
from gateway.limits.shared import SharedCounters

log = logging.getLogger("gateway")


class Meters:
    """The meters of the worker at a `place` of the shared memory. It takes over from the worker that had the place."""

    def __init__(self, shared: SharedCounters, *, place: int) -> None:
        self._shared = shared
        self._place = place
        self._known: dict[tuple[Scope, str], Meter] = {}
        self._is_full = False
        shared.adopt(place)

    def of(self, scope: Scope, name: str) -> Meter:
        """Return the meter of a rule, the same each time. Raises GatewayError (overloaded) if there is no room."""
        meter = self._known.get((scope, name))
        if meter is None:
            requests, tokens = (self._counter(f"{scope} {name} {kind}") for kind in ("requests", "tokens"))
            meter = self._known[scope, name] = Meter(requests, tokens)
        return meter

    def _counter(self, name: str) -> Counter:
        number = self._shared.number_of(name)
        if number is not None:
            return Counter(self._shared, number, place=self._place)
        if not self._is_full:
            self._is_full = True
            log.error("there is no room to count further limits: their requests are refused until a new start")
        raise GatewayError(
            "overloaded",
            "The gateway has no room to count the limits of this request, so it refuses it: the operator of this "
            "gateway has to start it anew.",
        )
