"""One rule: the limits of a key, a tenant, a model or an upstream, and what is counted for it in all workers."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Final, NamedTuple

from gateway.contracts.allowance import BUDGETS, COSTS, LIMITS, Allowance, BudgetLimit, Limit, LimitScope
from gateway.contracts.errors import GatewayError, UndecidedError
from gateway.limits.budgets import Budgets
from gateway.limits.counter import LEAST, MOST, Counter, Rows, Sums
from gateway.limits.reservation import RulePlaces
from gateway.limits.share_client import SHARED, ShareClient, build_sharing_error, is_used_up, write_figures
from gateway.limits.share_memory import BINDING, BUDGET, EPOCH

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


def build_key_id(tenant: str, name: str) -> str:
    """Return the name under which a key is counted: tenants may give their keys the same one."""
    return f"{tenant}\0{name}"


class Over(NamedTuple):
    """A limit that is reached. `wait_s`: when there is room again; None: when the day or the month ends.

    `may_grow`: only this gateway's share of it is, and perhaps it can have more.
    """

    rule: "LimitRule"
    limit: Limit
    wait_s: float | None
    may_grow: bool = False


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

    def find_places(self, reserved: int, made: int, *, is_held: bool = False) -> RulePlaces:
        """Return places of the latest tick that reserve so many tokens, for requests that count as so many.

        `is_held`: a budget counts them.
        """
        usual = self.usual
        if usual is not None and usual.reserved == reserved and usual.made == made and usual.is_held is is_held:
            return usual
        return RulePlaces(self, self.tick, reserved, made, is_held=is_held)

    def take_places(self, places: RulePlaces) -> RulePlaces:
        """Note that a request has these places, and return them. Further ones of the tick may share them."""
        if places.is_held:
            self.hold_tokens(places.reserved)
        self.usual = places
        places.fit_token_estimate(self._reserved_tokens)
        return places

    @property
    def _reserved_tokens(self) -> int:
        """Return the tokens that a request reserves if its body says no more."""
        return self.expected if self.looked_by[2] < _NO_LIMIT else 0

    def _expect_tokens(self, tokens: int) -> None:
        if tokens != self.expected:
            self.expected = tokens
            if self.usual is not None:
                self.usual.fit_token_estimate(self._reserved_tokens)

    def settle_tokens(self, tick: int, tokens: int) -> None:
        """Count so many tokens more in a tick than were reserved there, or fewer."""
        try:
            if tokens:
                self.correct_tick(0, tokens, tick)
        except GatewayError:
            return  # the counter was given away, so all that was reserved has left the window

    def learn_tokens(self, used: float, requests: int) -> None:
        """Take into the mean that some requests used so many tokens each."""
        share = 1 - (1 - _SHARE) ** requests
        if self.learnt < _FIRST:
            share = max(share, requests / (self.learnt + requests))
            self.learnt = min(self.learnt + requests, _FIRST)
        self.mean += (min(used, self.most_mean) - self.mean) * share
        self._expect_tokens(ceil(self.mean))

    def adopt_mean(self, mean: float, learnt: int) -> None:
        """Begin with the mean that an earlier meter of the rule had."""
        self.mean, self.learnt = mean, learnt
        self._expect_tokens(ceil(mean))

    def bound_mean(self, tokens_per_minute: int) -> None:
        """Keep the mean, and what is expected without one, within a part of what a rule allows in a minute."""
        self.most_mean = ceil(tokens_per_minute * _MOST_OF_LIMIT)
        self.mean = min(self.mean, float(self.most_mean))
        self._expect_tokens(ceil(self.mean) or min(USUAL, self.most_mean))

    def _set_thresholds(self, most: Sums) -> None:
        super()._set_thresholds(most)
        self.usual = None

    def close(self) -> None:
        super().close()
        self.usual = self.stored = None

    def _begin_tick(self, now_s: float) -> None:
        super()._begin_tick(now_s)
        self.usual = None


@dataclass(slots=True, eq=False, weakref_slot=True)
class LimitRule:
    """The limits of one `name` in its scope. `allowance` is what the configuration in use has for it.

    `id` is the name under which it is counted. `catch_up` is that of the limiter. `most`: more than that has to be
    looked at (`find_exceeded`), which for tokens is somewhat less than their limit; so has each request where there is
    a budget (`bounds`). `most_tokens` is the most that a request may reserve; 0: it need not reserve any.

    `shares` is the way to what this gateway may use of limits that several have in common; None: it has all of them.
    Then `most` follows the share.
    """

    scope: LimitScope
    name: str
    allowance: Allowance
    meter: LimitMeter
    budgets: Budgets
    id: str
    catch_up: Callable[[], None] = do_nothing
    shares: ShareClient | None = None
    has_budget: bool = field(init=False)
    most: Sums = field(init=False)
    bounds: Sums = field(init=False)
    most_tokens: int = field(init=False)
    _room: Sums = field(init=False)  # until which there is room
    _words: memoryview | None = field(init=False, default=None)  # of the share that `most` follows
    _epoch: int = field(init=False, default=-1)

    def __post_init__(self) -> None:
        figures = self.allowance
        self.has_budget = figures.has_budget
        self.most_tokens = figures.tokens_per_minute or (MOST if figures.has_budget else 0)
        self._set_room(_NO_LIMIT, _NO_LIMIT, _NO_LIMIT)
        if figures.soft:
            self.shares = None
        if self.shares is not None:
            write_figures(self.meter.share_words, figures)
        self.meter.give_back_ahead()
        counted = [getattr(figures, name) for name in LIMITS if name.startswith("tokens_")]
        if (least := min((one for one in counted if one is not None), default=None)) is not None:
            self.meter.bound_mean(least)

    def _set_room(self, *share: int) -> None:
        """Have room for no more than a share of the limits."""
        figures = self.allowance
        limits = figures.concurrent, figures.requests_per_minute, figures.tokens_per_minute
        present, made, used = (
            _NO_LIMIT if figure is None else min(figure, part) for figure, part in zip(limits, share, strict=True)
        )
        self._room = present, made, used
        self.most = present, made, used if limits[2] is None else int(used * _NEAR)
        self.bounds = LEAST if self.has_budget else self.most

    def check_lease(self, now_s: float, tokens: int) -> None:
        """Raise GatewayError unless the shares may be used now. `tokens`: so many the request would take."""
        shares = self.shares
        if shares is None or shares.has_lease(now_s):
            return
        error = build_sharing_error(self.scope, self.name)
        if shares.is_failing:
            raise error
        self.meter.get_used("tokens", now_s)  # it may have been given back
        self.follow_share(None)
        raise self.wait_for_more(error, requests=1, tokens=tokens)

    def follow_share(self, sums: Sums | None) -> Sums | None:
        """Return the sums of the meter if the share has changed since `most` was looked at; else these sums."""
        words, meter = self._words, self.meter
        if words is meter.share_words and words[EPOCH] == self._epoch:
            return sums
        if words is not meter.share_words:
            self._words = words = meter.share_words
            write_figures(words, self.allowance)
        self._epoch = words[EPOCH]
        self._set_room(*words[:3])
        return meter.sum_all()

    def may_have_more(self, over: Over, now_s: float) -> bool:
        """Return whether only the share is used up, and other gateways may have left more of the limit."""
        if self.shares is None or not over.may_grow:
            return False
        return not is_used_up(self.meter.share_words, over.limit, now_s)

    def ask_for_more(self, tokens: int) -> None:
        """Ask for so many tokens more, which a request has taken."""
        if self.shares is not None:
            self.shares.request_more(self.meter.number, requests=0, tokens=tokens)

    def wait_for_more(self, refusal: GatewayError, *, requests: int, tokens: int) -> UndecidedError:
        """Ask for more. Return the error of a request that waits for it."""
        assert self.shares is not None
        return self.shares.wait_for_more(self.meter.number, refusal, requests=requests, tokens=tokens)

    def get_used_elsewhere(self, limit: Limit) -> int:
        """Return what other gateways use of a limit per minute, or of requests under way, as far as it is known."""
        return 0 if self.shares is None or limit in BUDGETS else self.meter.get_used_elsewhere(SHARED.index(limit))

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
        figures, (present, made, used), (most_present, most_made, most_used) = self.allowance, sums, self._room
        if self.has_budget:
            if not figures.soft:
                self._check_budget()
            if (limit := self.budgets.find_exceeded(self.scope, self.id, figures)) is not None:
                return Over(self, limit, None)
            if reserved and (limit := self._find_budget_over_with_held(reserved)) is not None:
                return Over(self, limit, BUSY_S, may_grow=True)
        if requests and present > most_present:
            self.catch_up()
            if (present := self.meter.count_under_way()) > most_present:
                return Over(self, "concurrent", BUSY_S, may_grow=present <= (figures.concurrent or 0))
        if requests and made > most_made:
            wait_s = self.meter.wait_s("requests", made - most_made, now_s)
            return Over(self, "requests_per_minute", wait_s, may_grow=made <= (figures.requests_per_minute or 0))
        if reserved and used > self.most[2]:
            self.catch_up()
            used = self.meter.get_used("tokens", now_s)
            if used > most_used:
                wait_s = self._wait_for_tokens_s(used - most_used, now_s)
                return Over(self, "tokens_per_minute", wait_s, may_grow=used <= self.most_tokens)
        return None

    def find_outgrown_limit(self, reserved: int, now_s: float) -> Over | None:
        """Return the limit without room for a request that has come to reserve so many tokens; None: each has room."""
        if self.has_budget and (limit := self._find_budget_over_with_held(reserved)) is not None:
            return Over(self, limit, BUSY_S, may_grow=True)
        most = min(self.most_tokens, self._room[2])
        if self.meter.get_used("tokens", now_s) > most:
            self.catch_up()
            if (used := self.meter.get_used("tokens", now_s)) > most:
                wait_s = self.meter.wait_s("tokens", used - most, now_s)
                return Over(self, "tokens_per_minute", wait_s, may_grow=used <= self.most_tokens)
        return None

    def _find_budget_over_with_held(self, reserved: int) -> BudgetLimit | None:
        """Return the budget that has no room beside what others hold, and used since it was read; None: each has."""
        if self.shares is not None:
            return self._find_budget_over_ceiling(reserved)
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

    def _find_budget_over_ceiling(self, reserved: int) -> BudgetLimit | None:
        """Return the budget of which this gateway has used up its share, with what others hold; None: each has some."""
        for catch_up in (do_nothing, self.catch_up):
            catch_up()
            words = self.meter.share_words
            left = (words[BUDGET] - self.meter.get_budgeted_tokens() + reserved) & MOST
            if 0 < left <= MOST // 2:
                return None
        return BUDGETS[words[BINDING]]

    def _wait_for_tokens_s(self, over: int, now_s: float) -> float:
        """Return when so many tokens will have left the window; or be known, where no request has told yet."""
        return self.meter.wait_s("tokens", over, now_s) if self.meter.mean else BUSY_S

    def _check_budget(self) -> None:
        obstacle = self.budgets.find_obstacle(self.scope, self.id, self.allowance)
        if obstacle is not None:
            raise GatewayError(
                "overloaded", f"The {self.scope} {self.name!r} has a budget, and {obstacle}.", retry_after_s=BUSY_S
            )
