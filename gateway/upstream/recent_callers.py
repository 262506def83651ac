"""The callers that use an upstream lately: one alone does not take an endpoint from all others.

A server may fail because of a request's content: a model that is down, a provider that is not there. A caller that
sends such requests could make all endpoints look down. While other callers send some, too, their requests have to fail
as well.
"""

from typing import Final, TypeAlias

#: The tenant and the name of a key.
CallerId: TypeAlias = tuple[str, str]
#: So long after its latest request a caller counts as active, in seconds.
LATELY_S: Final = 10.0


class Callers:
    """The two callers whose requests came last. Times are on one monotonic clock, in seconds."""

    __slots__ = ("_before_s", "_latest", "_latest_s")

    def __init__(self) -> None:
        self._latest: CallerId | None = None
        self._latest_s = self._before_s = float("-inf")  # of its latest request, and of that of the other one

    def note_request(self, caller: CallerId, now_s: float) -> None:
        """Note that a request of a caller begins."""
        if caller != self._latest:
            self._latest, self._before_s = caller, self._latest_s
        self._latest_s = now_s

    def has_others(self, caller: CallerId, now_s: float) -> bool:
        """Return whether another caller has sent a request lately."""
        other_s = self._before_s if caller == self._latest else self._latest_s
        return now_s - other_s <= LATELY_S
