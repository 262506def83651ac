"""The breaker of one endpoint: after enough failures it gets no requests for a while, then one at a time.

Invariants: closed, it admits everything; open, nothing; half-open, one probe at a time. Only the probe's own end
changes an open breaker: what began before it opened and ends later says nothing new.

An answer counts as a success when it is whole, so that an endpoint that dies in the middle of each answer is ejected,
too. A probe's head is enough to admit others again, because a stream can take minutes; one more failure then opens it.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final, Literal

#: It also opens when half of this many times `failures` answers, the last ones, failed: a flapping endpoint.
WINDOW: Final = 4

State = Literal["closed", "open", "half-open"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerRules:
    """When an endpoint is ejected: after `failures` in a row. The first time lasts `open_s`, each next one twice that.

    No ejection is longer than `longest_s`. Times are seconds.
    """

    failures: int = 5
    open_s: float = 10.0
    longest_s: float = 300.0


class Breaker:
    """The state of one endpoint. All times are those of the caller's monotonic clock, in seconds."""

    __slots__ = ("_ejections", "_failures", "_probing", "_recent", "_rules", "_until_s")

    def __init__(self, rules: BreakerRules | None) -> None:
        """Begin closed. Without `rules` it never opens."""
        self._rules = rules
        self._failures = 0
        self._recent: deque[bool] = deque(maxlen=WINDOW * rules.failures if rules is not None else 1)
        self._until_s: float | None = None  # None: closed
        self._probing = False
        self._ejections = 0  # in a row: without a whole answer between them

    def state(self, now_s: float) -> State:
        """Return the state, for people and metrics."""
        if self._until_s is None:
            return "closed"
        return "open" if now_s < self._until_s else "half-open"

    def admits(self, now_s: float) -> bool:
        """Return whether a request may begin now."""
        return self._until_s is None or (now_s >= self._until_s and not self._probing)

    def waits_s(self, now_s: float) -> float:
        """Return the seconds until it may admit something."""
        return 0.0 if self._until_s is None else max(self._until_s - now_s, 0.0)

    def begin(self) -> bool:
        """Note that a request began. Return whether it is the probe: hand that back with its end."""
        self._probing = self._until_s is not None
        return self._probing

    def answered(self, *, probe: bool) -> None:
        """Note that a good answer began. A probe's closes the breaker; one failure more would open it again."""
        if probe and self._until_s is not None:
            self._close()
            self._failures = (self._rules.failures if self._rules is not None else 1) - 1

    def succeeded(self, *, probe: bool) -> None:
        """Note a whole good answer."""
        if probe and self._until_s is not None:
            self._close()
        if self._until_s is None:
            self._failures = self._ejections = 0
            self._recent.append(False)

    def failed(self, now_s: float, *, probe: bool) -> bool:
        """Note a failure. Return whether the endpoint is ejected by it, or again."""
        if self._rules is None:
            return False
        if self._until_s is not None:
            if probe:
                self._open(self._rules, now_s)
            return probe
        self._failures += 1
        self._recent.append(True)
        flaps = len(self._recent) == self._recent.maxlen and 2 * sum(self._recent) >= len(self._recent)
        if self._failures < self._rules.failures and not flaps:
            return False
        self._open(self._rules, now_s)
        return True

    def left(self, *, probe: bool) -> None:
        """Note an end that says nothing about the endpoint: the client left. Another probe may follow."""
        if probe:
            self._probing = False

    def close(self) -> None:
        """Admit everything again: something else has found the endpoint well."""
        self._close()
        self._failures = self._ejections = 0

    def _open(self, rules: BreakerRules, now_s: float) -> None:
        length_s = rules.open_s * 2.0 ** min(self._ejections, 32)
        self._until_s = now_s + min(length_s, rules.longest_s)
        self._ejections += 1
        self._probing = False

    def _close(self) -> None:
        self._until_s, self._probing = None, False
        self._recent.clear()
