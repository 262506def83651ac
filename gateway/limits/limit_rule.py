"""One rule: the limits of a key, a tenant, a model or an upstream, and what is counted for it in all workers."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Final, NamedTuple

from gateway.contracts.allowance import COSTS, LIMITS, Allowance, BudgetLimit, Limit
from gateway.contracts.errors import GatewayError
from gateway.limits.budgets import Budgets, Scope
from gateway.limits.counter import LEAST, MOST, Counter, Rows, Sums
from gateway.limits.reservation import RulePlaces

#: How long a client waits for one of the requests under way to end.
BUSY_S: Final = 1.0
#: So much of the mean is that of the latest request; of the first ones, as much as of each other.
_SHARE: Final = 1 / 16
#: So many requests before count as much as the next one each.
_FIRST: Final = 15
#: The most that the mean takes of a limit. So requests get in beside each other, whatever those before used.
_MOST_OF_LIMIT: Final = 1 / 4
#: So many tokens a request is thought to use while none has told.
USUAL: Final = 1000
#: Of the tokens of a minute: with more than this share used, each request looks at what those before used first.
_NEAR: Final = 15 / 16
#: The figure of what is not limited.
_NO_LIMIT: Final = sys.maxsize


def do_nothing() -> None:
    """Do nothing: there is nothing to catch up on."""


def key_id(tenant: str, name: str) -> str:
    """Return the name under which a key is counted: tenants may give their keys the same one."""
    return f"{tenant}\0{name}"


class Over(NamedTuple):
    """A limit that is reached. `wait_s`: when there is room again; None: when the day or the month ends."""

    rule: "LimitRule"
    limit: Limit
    wait_s: float | None


class LimitMeter(Counter):
    """The counts of a rule. They outlive the rule's figures: a reload may change those.

    `mean` is that of the tokens of the rule's requests in this worker (0: there was none), `learnt` is of how many
    requests, up to `_FIRST`, and `expected` is the next whole number, or `USUAL`. What a request used above `most_mean`
    (`bound_mean`) does not teach it.

    `stored` is what was read of the store last, for budgets (`Counter.pending`); None: nothing since it has rows.

    `usual` are the places of the latest request in this tick that had to look at the sums; those that are `ahead` are
    such.
    """

    __slots__ = ("__weakref__", "expected", "learnt", "mean", "most_mean", "stored", "told_s", "usual")

    def __init__(self, opened: Callable[[Counter], Rows], clock: Callable[[], float]) -> None:
        super().__init__(opened, clock)
        self.mean = 0.0
        self.learnt = 0
        self.most_mean = sys.maxsize
        self.told_s = float("-inf")  # when the log was told of it last
        self.expected = USUAL
        self.usual: RulePlaces | None = None
        self.stored: Sequence[int] | None = None

    def places(self, reserved: int, made: int, *, is_held: bool = False) -> RulePlaces:
        """Return places of the latest tick that reserve so many tokens, for requests that count as so many.

        `is_held`: a budget counts them.
        """
        usual = self.usual
        if usual is not None and usual.reserved == reserved and usual.made == made and usual.is_held is is_held:
            return usual
        return RulePlaces(self, self.tick, reserved, made, is_held=is_held)

    def have(self, places: RulePlaces) -> None:
        """Note that a request has these places. Further ones of the tick may share them."""
        if places.is_held:
            self.hold(places.reserved)
        self.usual = places
        places.suit(self._reserved_tokens)

    @property
    def _reserved_tokens(self) -> int:
        """Return the tokens that a request reserves if its body says no more."""
        return self.expected if self.looked_by[2] < _NO_LIMIT else 0

    def _expect(self, tokens: int) -> None:
        if tokens != self.expected:
            self.expected = tokens
            if self.usual is not None:
                self.usual.suit(self._reserved_tokens)

    def settle(self, tick: int, tokens: int) -> None:
        """Count so many tokens more in a tick than were reserved there, or fewer."""
        try:
            if tokens:
                self.correct(0, tokens, tick)
        except GatewayError:
            return  # the counter was given away, so all that was reserved has left the window

    def learn(self, used: float, requests: int) -> None:
        """Take into the mean that some requests used so many tokens each."""
        share = 1 - (1 - _SHARE) ** requests
        if self.learnt < _FIRST:
            share = max(share, requests / (self.learnt + requests))
            self.learnt = min(self.learnt + requests, _FIRST)
        self.mean += (min(used, self.most_mean) - self.mean) * share
        self._expect(ceil(self.mean))

    def remember(self, mean: float, learnt: int) -> None:
        """Begin with the mean that an earlier meter of the rule had."""
        self.mean, self.learnt = mean, learnt
        self._expect(ceil(mean))

    def bound_mean(self, tokens_per_minute: int) -> None:
        """Keep the mean, and what is expected without one, within a part of what a rule allows in a minute."""
        self.most_mean = ceil(tokens_per_minute * _MOST_OF_LIMIT)
        self.mean = min(self.mean, float(self.most_mean))
        self._expect(ceil(self.mean) or min(USUAL, self.most_mean))

    def _set_thresholds(self, most: Sums) -> None:
        super()._set_thresholds(most)
        self.usual = None

    def close(self) -> None:
        super().close()
        self.usual = self.stored = None

    def _turn(self, now_s: float) -> None:
        super()._turn(now_s)
        self.usual = None


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class LimitRule:
    """The limits of one `name` in its scope. `allowance` is what the configuration in use has for it.

    `id` is the name under which it is counted. `catch_up` is that of the limiter. `most`: more than that has to be
    looked at (`over`), which for tokens is somewhat less than their limit; so has each request where there is a budget
    (`bounds`). `most_tokens` is the most that a request may reserve; 0: it need not reserve any.
    """

    scope: Scope
    name: str
    allowance: Allowance
    meter: LimitMeter
    budgets: Budgets
    id: str
    catch_up: Callable[[], None] = do_nothing
    has_budget: bool = field(init=False)
    most: Sums = field(init=False)
    bounds: Sums = field(init=False)
    most_tokens: int = field(init=False)

    def __post_init__(self) -> None:
        figures = self.allowance
        most = [
            _NO_LIMIT if figure is None else figure
            for figure in (figures.concurrent, figures.requests_per_minute, figures.tokens_per_minute)
        ]
        if figures.tokens_per_minute is not None:
            most[2] = int(figures.tokens_per_minute * _NEAR)
        object.__setattr__(self, "has_budget", figures.has_budget)
        object.__setattr__(self, "most", tuple(most))
        object.__setattr__(self, "bounds", LEAST if figures.has_budget else self.most)
        object.__setattr__(self, "most_tokens", figures.tokens_per_minute or (MOST if figures.has_budget else 0))
        self.meter.give_back_ahead()
        counted = [getattr(figures, name) for name in LIMITS if name.startswith("tokens_")]
        if (least := min((one for one in counted if one is not None), default=None)) is not None:
            self.meter.bound_mean(least)

    @property
    def most_guess(self) -> int:
        """Return the most tokens that a request reserves because it says that it may use them: a part of each limit."""
        figures, most = self.allowance, self.meter.most_mean
        costs = [cost for name in COSTS if (cost := getattr(figures, name)) is not None]
        if costs:
            most = min(most, self.budgets.convert_to_tokens(min(costs) * _MOST_OF_LIMIT, self.scope, self.id))
        return most

    @property
    def tenant(self) -> str | None:
        """Return the tenant of a key; None for other scopes."""
        return self.id.partition("\0")[0] if self.scope == "key" else None

    def find_exceeded(self, sums: Sums, now_s: float, reserved: int, requests: int) -> Over | None:
        """Return the first limit that is reached with a request, which has added to the `sums` of the meter.

        Raises GatewayError (overloaded): a budget cannot be counted.
        """
        figures, (present, made, used) = self.allowance, sums
        if self.has_budget:
            if not figures.soft:
                self._check_budget()
            if (limit := self.budgets.find_exceeded(self.scope, self.id, figures)) is not None:
                return Over(self, limit, None)
            if reserved and (limit := self._over_with_held(reserved)) is not None:
                return Over(self, limit, BUSY_S)
        if requests and (most := figures.concurrent) is not None and present > most:
            self.catch_up()
            if self.meter.present() > most:
                return Over(self, "concurrent", BUSY_S)
        if requests and (most := figures.requests_per_minute) is not None and made > most:
            return Over(self, "requests_per_minute", self.meter.wait_s("requests", made - most, now_s))
        if reserved and used > self.most[2]:
            self.catch_up()
            used = self.meter.get_used("tokens", now_s)
            if used > self.most_tokens:
                return Over(self, "tokens_per_minute", self._tokens_wait_s(used - self.most_tokens, now_s))
        return None

    def over_grown(self, reserved: int, now_s: float) -> Over | None:
        """Return the limit without room for a request that has come to reserve so many tokens; None: each has room."""
        if self.has_budget and (limit := self._over_with_held(reserved)) is not None:
            return Over(self, limit, BUSY_S)
        if self.meter.get_used("tokens", now_s) > self.most_tokens:
            self.catch_up()
            if (more := self.meter.get_used("tokens", now_s) - self.most_tokens) > 0:
                return Over(self, "tokens_per_minute", self.meter.wait_s("tokens", more, now_s))
        return None

    def _over_with_held(self, reserved: int) -> BudgetLimit | None:
        """Return the budget that has no room beside what others hold, and used since it was read; None: each has."""
        limit: BudgetLimit | None = None
        for catch_up in (do_nothing, self.catch_up):
            catch_up()
            others = self.meter.get_pending_tokens(self.meter.stored, self.budgets.read_s) - reserved
            if others <= 0:
                return None
            limit = self.budgets.find_exceeded(self.scope, self.id, self.allowance, held=others)
            if limit is None:
                return None
        return limit

    def _tokens_wait_s(self, over: int, now_s: float) -> float:
        """Return when so many tokens will have left the window; or be known, where no request has told yet."""
        return self.meter.wait_s("tokens", over, now_s) if self.meter.mean else BUSY_S

    def _check_budget(self) -> None:
        obstacle = self.budgets.obstacle(self.scope, self.id, self.allowance)
        if obstacle is not None:
            raise GatewayError(
                "overloaded", f"The {self.scope} {self.name!r} has a budget, and {obstacle}.", retry_after_s=BUSY_S
            )
