"""One rule: the limits of a key, a tenant, a model or an upstream, and what is counted for it in all workers."""

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import ceil
from typing import Final, NamedTuple, TypeAlias

from gateway.contracts.allowance import Allowance, Limit
from gateway.errors import GatewayError
from gateway.limits.budgets import Budgets, Scope
from gateway.limits.counter import Counter, Rows

#: How long a client waits for one of the requests under way to end.
BUSY_S: Final = 1.0
#: So much of the mean is that of the latest request.
_SHARE: Final = 1 / 16
#: The figure of what is not limited.
_NO_LIMIT: Final = sys.maxsize
#: A request's place in a rule: the rule, the tick in which it was taken, the tokens that are reserved (None: they do
#: not count), and whether it is under way.
Place: TypeAlias = "tuple[Rule, int, int | None, bool]"
#: What came of a place: its tick, the tokens that were reserved, and those that were used.
Use: TypeAlias = tuple[int, int, int]


def nothing() -> None:
    """Do nothing: there is nothing to catch up on."""


def key_id(tenant: str, name: str) -> str:
    """Return the name under which a key is counted: tenants may give their keys the same one."""
    return f"{tenant}\0{name}"


class Over(NamedTuple):
    """A limit that is reached. `wait_s`: when there is room again; None: when the day or the month ends."""

    rule: "Rule"
    limit: Limit
    wait_s: float | None


class Meter(Counter):
    """The counts of a rule. They outlive the rule's figures: a reload may change those.

    `mean` is that of the tokens of the rule's requests in this worker (0: there was none), and `expected` the next
    whole number, or 1.
    """

    __slots__ = ("__weakref__", "expected", "mean", "told_s")

    def __init__(self, opened: Callable[[Counter], Rows], clock: Callable[[], float]) -> None:
        super().__init__(opened, clock)
        self.mean = 0.0
        self.expected = 1
        self.told_s = float("-inf")  # when the log was told of it last


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """The limits of one `name` in its scope. `allowance` is what the configuration in use has for it.

    `id` is the name under which it is counted. `catch_up` is that of the limiter.
    """

    scope: Scope
    name: str
    allowance: Allowance
    meter: Meter
    budgets: Budgets
    id: str
    catch_up: Callable[[], None] = nothing
    # Kept, because each request asks.
    _has_budget: bool = field(init=False)
    _counts_tokens: bool = field(init=False)
    _most_present: int = field(init=False)
    _most_requests: int = field(init=False)
    _most_tokens: int = field(init=False)

    def __post_init__(self) -> None:
        figures = self.allowance
        for name, most in (
            ("_most_present", figures.concurrent),
            ("_most_requests", figures.requests_per_minute),
            ("_most_tokens", figures.tokens_per_minute),
        ):
            object.__setattr__(self, name, _NO_LIMIT if most is None else most)
        object.__setattr__(self, "_has_budget", figures.has_budget)
        object.__setattr__(self, "_counts_tokens", figures.tokens_per_minute is not None)

    @property
    def tenant(self) -> str | None:
        """Return the tenant of a key; None for other scopes."""
        return self.id.partition("\0")[0] if self.scope == "key" else None

    def take(self, hold: list[Place], now_s: float, tokens: int | None, enters: bool) -> Over | None:
        """Add a place for a request to `hold`. Return the limit that is reached, if one is.

        Then nothing is taken, unless the rule is `soft`. The parameters are those of `Limiter.admit`. Raises
        GatewayError (overloaded) if the rule cannot be counted; then nothing is taken, either.
        """
        meter, wanted = self.meter, 0
        if tokens is not None and self._counts_tokens:
            wanted = meter.expected
            if tokens > wanted:
                wanted = tokens
            if wanted > self._most_tokens:  # it would never fit, so it waits for an empty window
                wanted = self._most_tokens
        present, made, used = meter.take(1 if enters else 0, wanted, now_s)
        tick, over = meter.tick, None
        if present > self._most_present or made > self._most_requests or used > self._most_tokens or self._has_budget:
            try:
                over = self._reached(present, made, used if wanted else 0, now_s, enters)
            except GatewayError:
                self.undo(tick, wanted, enters)
                raise
            if over is not None and not self.allowance.soft:
                self.undo(tick, wanted, enters)
                return over
        hold.append((self, tick, wanted or None, enters))
        return over

    def undo(self, tick: int, reserved: int | None, entered: bool) -> None:
        """Take back a place, because a rule refuses the request."""
        if entered:
            self.meter.leave()
        self.meter.correct(-1 if entered else 0, -(reserved or 0), tick)

    def settle(self, uses: Iterable[Use]) -> None:
        """Correct what was reserved for requests to what they used, and take that into the mean."""
        meter, mean = self.meter, self.meter.mean
        corrections: defaultdict[int, int] = defaultdict(int)
        for tick, reserved, used in uses:
            if used:
                mean = mean + (used - mean) * _SHARE if mean else used
            corrections[tick] += used - reserved
        meter.mean, meter.expected = mean, ceil(mean) or 1
        try:
            for tick, tokens in corrections.items():
                if tokens:
                    meter.correct(0, tokens, tick)
        except GatewayError:
            return  # the counter was given away, so all that was reserved has left the window

    def _reached(self, present: int, made: int, used: int, now_s: float, enters: bool) -> Over | None:
        """Return the first limit that is reached with this request. Raises GatewayError: a budget cannot be counted."""
        if self._has_budget:
            if not self.allowance.soft:
                self._check_budget()
            if (limit := self.budgets.over(self.scope, self.id, self.allowance)) is not None:
                return Over(self, limit, None)
        if enters and present > self._most_present:
            return Over(self, "concurrent", BUSY_S)
        if enters and made > self._most_requests:
            return Over(self, "requests_per_minute", self.meter.wait_s("requests", made - self._most_requests, now_s))
        if used > self._most_tokens:
            self.catch_up()
            used = self.meter.used("tokens", now_s)
        if used > self._most_tokens:
            return Over(self, "tokens_per_minute", self.meter.wait_s("tokens", used - self._most_tokens, now_s))
        return None

    def _check_budget(self) -> None:
        obstacle = self.budgets.obstacle(self.scope, self.id, self.allowance)
        if obstacle is not None:
            raise GatewayError(
                "overloaded", f"The {self.scope} {self.name!r} has a budget, and {obstacle}.", retry_after_s=BUSY_S
            )
