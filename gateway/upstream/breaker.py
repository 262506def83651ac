"""The breaker of one endpoint: after enough failures it gets no requests for a while, then one at a time.

Invariants: closed, it admits everything; open, nothing; half-open, one probe at a time has the turn. Only probes change
an open breaker: a request that began before it opened and ends later proves nothing new.

A probe has its turn for as long as the first ejection takes, from when its request is whole. After that another request
may probe beside it, so that neither a slow client nor a silent endpoint keeps all requests out. Of the requests that
their clients are still sending, one in `SENDING_S` may begin: it keeps out only others like it. The good answer of any
of them closes the breaker; only a failure of the one whose turn it is opens it again.

Failures of one caller alone do not open it while others send requests, too (`recent_callers.py`): the requests may be
at fault.

An answer counts as a success when it is whole, so that an endpoint that dies in the middle of each answer is ejected,
too. A probe's head is enough to admit others again, because a stream can take minutes; one more failure then opens it.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final, Literal

from gateway.upstream.recent_callers import CallerId

#: It also opens when half of this many times `failures` answers, the last ones, failed: a flapping endpoint.
WINDOW: Final = 4

#: How long a request that its client is still sending keeps others like it from being probes, in seconds.
SENDING_S: Final = 1.0

#: Of a failure that no request can be at fault for, such as no connection: in place of its caller.
_SURE: Final = ("", "")

State = Literal["closed", "open", "half-open"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerRules:
    """When an endpoint is ejected: after `failures` in a row. The first time lasts `open_s`, each next one twice that.

    No ejection is longer than `longest_s`. Times are seconds.
    """

    failures: int = 5
    open_s: float = 10.0
    longest_s: float = 300.0


@dataclass(slots=True, eq=False)
class Probe:
    """A request that began while a breaker was half-open. `opening` is the number of that opening."""

    opening: int


class Breaker:
    """The state of one endpoint. All times are on the caller's monotonic clock, in seconds."""

    __slots__ = (
        "_ejections",
        "_failures",
        "_opening",
        "_recent",
        "_rules",
        "_sending",
        "_sending_until_s",
        "_turn",
        "_turn_until_s",
        "until_s",
    )

    def __init__(self, rules: BreakerRules | None) -> None:
        """Begin closed. Without `rules` it never opens."""
        self._rules = rules
        self._failures = 0
        #: Of each of the last answers, the caller if it failed.
        self._recent: deque[CallerId | None] = deque(maxlen=WINDOW * rules.failures if rules is not None else 1)
        #: The end of its ejection; None: it is closed.
        self.until_s: float | None = None
        self._opening = 0  # how often it opened
        self._turn: Probe | None = None  # of this probe; closed: of the one that closed it
        self._turn_until_s = 0.0
        self._sending: Probe | None = None  # the latest probe that was not whole when it began
        self._sending_until_s = 0.0
        self._ejections = 0  # in a row: without a whole answer between them

    def get_state(self, now_s: float) -> State:
        """Return the state, for people and metrics."""
        if self.until_s is None:
            return "closed"
        return "open" if now_s < self.until_s else "half-open"

    def may_begin(self, now_s: float, *, whole: bool = True) -> bool:
        """Return whether a request may begin now. `whole`: its client has sent all of it."""
        if self.until_s is None:
            return True
        if now_s < self.until_s or not self._is_turn_free(now_s):
            return False
        return whole or self._sending is None or now_s >= self._sending_until_s

    def get_wait_s(self, now_s: float) -> float:
        """Return the seconds until the breaker may admit a request."""
        if self.until_s is None:
            return 0.0
        return max((self.until_s if self._turn is None else self._turn_until_s) - now_s, 0.0)

    def begin(self, now_s: float, *, whole: bool = True) -> Probe | None:
        """Note that a request began. Return the probe that it is, if it is one: hand that back with its end.

        `whole`: its client has sent all of it. If not, call `sent` then.
        """
        if self.until_s is None:
            return None
        probe = Probe(self._opening)
        if whole:
            self.record_sent(probe, now_s)
        else:
            self._sending, self._sending_until_s = probe, now_s + SENDING_S
        return probe

    def record_sent(self, probe: Probe, now_s: float) -> None:
        """Note that the request of a probe is whole: from now on it has the turn, if no other request has it."""
        if self._is_open_for(probe) and self._is_turn_free(now_s) and self._rules is not None:
            self._turn, self._turn_until_s = probe, now_s + self._rules.open_s

    def record_answer(self, probe: Probe | None) -> bool:
        """Note that a good answer began. Return whether it closes the breaker; one failure more would open it again."""
        if probe is None or not self._is_open_for(probe):
            return False
        self._close()
        self._turn = probe
        self._failures = (self._rules.failures if self._rules is not None else 1) - 1
        return True

    def record_success(self, probe: Probe | None) -> bool:
        """Note a whole good answer. Return whether it closes the breaker."""
        closes = probe is not None and self.record_answer(probe)
        if self.until_s is None:
            self._failures = self._ejections = 0
            self._recent.append(None)
        return closes

    def record_failure(
        self, now_s: float, probe: Probe | None, *, caller: CallerId | None = None, has_others: bool = False
    ) -> bool:
        """Note a failure. Return whether the endpoint is ejected by it, or again.

        `caller`: whose request it was; None: no request can be at fault. `has_others`: other callers ask, too.
        """
        if self._rules is None or (probe is not None and self._turn not in (None, probe)):
            return False
        self._recent.append(caller or _SURE)
        accusers = set(self._recent) - {None}
        is_doubtful = has_others and len(accusers) == 1 and _SURE not in accusers
        if self.until_s is not None:
            opens = probe is not None and self._is_open_for(probe)
            if opens and is_doubtful:
                self.record_client_left(probe)
                return False
            if opens:
                self._open(self._rules, now_s)
            return opens
        self._failures += 1
        failures = len(self._recent) - self._recent.count(None)
        flaps = len(self._recent) == self._recent.maxlen and 2 * failures >= len(self._recent)
        if is_doubtful or (self._failures < self._rules.failures and not flaps):
            return False
        self._open(self._rules, now_s)
        return True

    def record_client_left(self, probe: Probe | None) -> None:
        """Note an end that proves nothing about the endpoint: the client left. Another probe may follow."""
        if probe is None or self.until_s is None:
            return
        if self._turn is probe:
            self._turn = None
        if self._sending is probe:
            self._sending = None

    def close(self) -> None:
        """Admit everything again: something else has found the endpoint well."""
        self._close()
        self._failures = self._ejections = 0

    def _is_turn_free(self, now_s: float) -> bool:
        return self._turn is None or now_s >= self._turn_until_s

    def _is_open_for(self, probe: Probe) -> bool:
        """Return whether the breaker is open, since the same opening as when the probe began."""
        return self.until_s is not None and probe.opening == self._opening

    def _open(self, rules: BreakerRules, now_s: float) -> None:
        length_s = rules.open_s * 2.0 ** min(self._ejections, 32)
        self.until_s = now_s + min(length_s, rules.longest_s)
        self._opening += 1
        self._ejections += 1
        self._turn = self._sending = None

    def _close(self) -> None:
        self.until_s = self._turn = self._sending = None
        self._recent.clear()
