"""One rule: the limits of a key, a tenant, a model or an upstream, and what is counted for it in all workers."""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil
from typing import Final, NamedTuple

from gateway.contracts.allowance import LIMITS, Allowance, Limit
from gateway.errors import GatewayError
from gateway.limits.budgets import Budgets, Scope
from gateway.limits.counter import Counter

#: How long a client waits for one of the requests under way to end.
BUSY_S: Final = 1.0
#: So much of the mean is that of the latest request.
_SHARE: Final = 1 / 16


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


class Meter:
    """The counts of a rule. They outlive the rule's figures: a reload may change those.

    `mean` is that of the tokens of the rule's requests in this worker, and `expected` the next whole number. `opened`
    returns the counters of requests and of tokens, and raises GatewayError if there is no room for them. A meter that
    nobody uses gives them back (`close`), and has them again when it is used.
    """

    __slots__ = ("__weakref__", "_opened", "expected", "mean", "requests", "tokens", "told_s")

    requests: Counter
    tokens: Counter

    def __init__(self, opened: Callable[["Meter"], tuple[Counter, Counter]]) -> None:
        self._opened = opened
        self.requests, self.tokens = opened(self)
        self.mean = 0.0
        self.expected = 0
        self.told_s = float("-inf")  # when the log was told of it last

    def __getattr__(self, name: str) -> Counter:
        # Only what is not there comes here, so counters that are there cost nothing.
        if name not in ("requests", "tokens"):
            raise AttributeError(name)
        self.requests, self.tokens = self._opened(self)
        return self.requests if name == "requests" else self.tokens

    def is_unused(self, since_s: float) -> bool:
        """Return whether nothing is under way, and nothing was counted since then."""
        return self.requests.is_unused(since_s) and self.tokens.is_unused(since_s)

    def close(self) -> None:
        """Have no counters until they are used again."""
        del self.requests, self.tokens

    def learn(self, tokens: int) -> None:
        """Take the tokens of a request into the mean."""
        mean = self.mean
        self.mean = mean = mean + (tokens - mean) * _SHARE if mean else tokens
        self.expected = ceil(mean)

    def note_over(self, limit: Limit) -> None:
        """Count a request over a limit."""
        self.requests.note_over(LIMITS.index(limit))

    def over(self, limit: Limit) -> int:
        """Return how many requests were over a limit since the gateway started."""
        return self.requests.over(LIMITS.index(limit))


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
    has_budget: bool = field(init=False)  # kept, because each request asks

    def __post_init__(self) -> None:
        object.__setattr__(self, "has_budget", self.allowance.has_budget)

    @property
    def tenant(self) -> str | None:
        """Return the tenant of a key; None for other scopes."""
        return self.id.partition("\0")[0] if self.scope == "key" else None

    def take(self, now_s: float, tokens: int | None, enters: bool, reserves: bool) -> tuple[int, Over | None]:
        """Take a place for a request. Return the tokens that are reserved for it, and the limit that is reached.

        Then nothing is taken, unless the rule is `soft`. The parameters are those of `Limiter.admit`.
        """
        reserved, over = 0, self._used_up() if self.has_budget else None
        if enters and (over is None or self.allowance.soft):
            over = self._enter(now_s) or over
        if tokens is not None and (over is None or self.allowance.soft):
            reserved, lacking = self._reserve(tokens, now_s) if reserves else (0, self._room(tokens, now_s))
            if lacking is not None:
                over = over or lacking
                if enters and not self.allowance.soft:
                    self._withdraw(now_s, now_s)
        return reserved, over

    def undo(self, reserved: int, *, since_s: float, now_s: float, entered: bool) -> None:
        """Take back what was taken at `since_s`, because another rule refuses the request."""
        if entered:
            self._withdraw(since_s, now_s)
        if reserved:
            self.meter.tokens.correct(-reserved, since_s, now_s)

    def leave(self) -> None:
        """Count a request as over."""
        if self.allowance.concurrent is not None:
            self.meter.requests.leave()

    def settle(self, reserved: int, tokens: int, since_s: float, now_s: float) -> None:
        """Correct what was reserved at `since_s` to what was used."""
        if self.allowance.tokens_per_minute is None:
            return
        if tokens:
            self.meter.learn(tokens)
        if tokens != reserved:
            try:
                self.meter.tokens.correct(tokens - reserved, since_s, now_s)
            except GatewayError:
                return  # the counter was given away, so all that was reserved has left the window

    def _enter(self, now_s: float) -> Over | None:
        """Count a request as made and under way. Return the limit that is reached; then it counts only where soft."""
        allowance, requests = self.allowance, self.meter.requests
        over: Over | None = None
        most = allowance.concurrent
        if most is not None and requests.enter() > most:
            over = Over(self, "concurrent", BUSY_S)
            if not allowance.soft:
                requests.leave()
                return over
        most = allowance.requests_per_minute
        if most is not None and (used := requests.add(1, now_s)) > most:
            over = over or Over(self, "requests_per_minute", requests.wait_s(used - most, now_s))
            if not allowance.soft:
                self._withdraw(now_s, now_s)
        return over

    def _withdraw(self, since_s: float, now_s: float) -> None:
        self.leave()
        if self.allowance.requests_per_minute is not None:
            self.meter.requests.correct(-1, since_s, now_s)

    def _reserve(self, least: int, now_s: float) -> tuple[int, Over | None]:
        """Reserve tokens. Return them, and the limit that is reached; then they are reserved only where soft."""
        most = self.allowance.tokens_per_minute
        if most is None:
            return 0, None
        wanted, tokens = self._wanted(least, most), self.meter.tokens
        used = tokens.add(wanted, now_s)
        if used > most:
            self.catch_up()
            used = tokens.used(now_s)
        if used <= most:
            return wanted, None
        over = Over(self, "tokens_per_minute", tokens.wait_s(used - most, now_s))
        if self.allowance.soft:
            return wanted, over
        tokens.correct(-wanted, now_s, now_s)
        return 0, over

    def _room(self, least: int, now_s: float) -> Over | None:
        """Return the limit of tokens if it has no room for a request now."""
        most = self.allowance.tokens_per_minute
        if most is None:
            return None
        self.catch_up()
        over = self.meter.tokens.used(now_s) + self._wanted(least, most) - most
        return Over(self, "tokens_per_minute", self.meter.tokens.wait_s(over, now_s)) if over > 0 else None

    def _used_up(self) -> Over | None:
        limit = self.budgets.over(self.scope, self.id, self.allowance)
        return None if limit is None else Over(self, limit, None)

    def _wanted(self, least: int, most: int) -> int:
        """Return an estimate. One above the limit would never fit, so such a request waits for an empty window."""
        wanted = self.meter.expected or 1
        if least > wanted:
            wanted = least
        return min(wanted, most)
