"""The counters of which a gateway keeps shares: what it requests from the store, and what follows from the answers.

A gateway takes more than it needs while much is left, and nothing beyond while others lack some. So no request is
refused because another gateway has what it does not use.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Final, NamedTuple

from gateway.aio.cooperative import Work
from gateway.contracts.allowance import BUDGETS, COSTS, get_period
from gateway.contracts.plugin import Clock
from gateway.contracts.storage.quota import ShareGrant, ShareRequest
from gateway.limits.budgets import Budgets, Counted
from gateway.limits.counter_registry import Meters
from gateway.limits.limit_rule import LimitMeter
from gateway.limits.share_client import SHARED, ShareClient, read_figures
from gateway.limits.share_memory import ANSWERS, BINDING, BUDGET, FULL, MICROSECONDS, REQUESTS
from gateway.limits.share_portions import BudgetCeiling, BudgetPortion, CounterUse, Portion, WindowPortion
from gateway.limits.shared_memory import digest_name

#: For so long requests are refused at once after the store had none left.
FULL_S: Final = 0.25
#: While others have some that they do not use, it tries again after so long, and gives up after so long in all.
AGAIN_S: Final = 0.05
PATIENCE_S: Final = 1.5
#: So long after it was noted that a gateway lacks some, the store knows what others use. It holds for a time.
SETTLED_S: Final = 0.4
_SETTLED_FOR_S: Final = 1.0
#: The part of the free rest that a gateway takes which is alone. The others are for one that comes.
_ALONE: Final = 7 / 8
#: For so long after others lacked some of a limit, a gateway takes no more of it than it needs.
_SCARCE_S: Final = 2.0
#: While no gateway lacks any, the store hears of a change of this part of a limit.
_ABOUT: Final = 32
#: How often it looks whether it has some of what others lack.
_GIVE_S: Final = 0.2


class Occasion(NamedTuple):
    """The time of a plan, of how many gateways, and whether it is one for all that changed."""

    now_s: float
    gateways: int
    is_routine: bool


class PlannedShare(NamedTuple):
    """A request to the store, and whose it is."""

    rule: "KeptRule"
    portion: Portion
    request: ShareRequest


@dataclass(slots=True)
class ShareDemand:
    """The shares that workers ask for: so many `requests` and `tokens` were not answered, since `since_s`.

    Since `lacking_s` other gateways may know that this one lacks some. `again_s` is when the store is called next.
    """

    requests: int = 0
    tokens: int = 0
    since_s: float | None = None
    latest_s: float = float("-inf")
    lacking_s: float | None = None
    again_s: float = float("-inf")

    def add(self, requests: int, tokens: int, now_s: float) -> None:
        """Take what workers ask for."""
        if now_s - self.latest_s > _SETTLED_FOR_S:
            self.lacking_s = None
        self.latest_s = now_s
        self.requests += requests
        self.tokens += tokens
        if self.since_s is None:
            self.since_s = now_s

    def clear(self, *, is_last: bool) -> None:
        """Take all as answered. `is_last`: else the rest is requested again."""
        self.requests = self.tokens = 0
        if is_last:
            self.since_s = None
            self.again_s = float("-inf")


@dataclass(slots=True, eq=False)
class KeptRule:
    """The portions of a counter, and what its workers request.

    `figures` and `period` are those that the portions are of. `meter` keeps the counter of a budget open.
    """

    number: int
    digest: bytes
    use: CounterUse
    figures: tuple[int | None, ...] = ()
    period: tuple[date, str] | None = None
    portions: dict[str, Portion] = field(default_factory=dict)
    ceiling: BudgetCeiling | None = None
    meter: LimitMeter | None = None
    demand: ShareDemand = field(default_factory=ShareDemand)
    gave_s: float = float("-inf")
    scarce_until_s: float = float("-inf")

    @property
    def has_demand(self) -> bool:
        """Return whether requests wait for more."""
        return bool(self.demand.requests or self.demand.tokens)

    @property
    def has_share(self) -> bool:
        """Return whether this gateway has something of its limits."""
        return any(portion.share for portion in self.portions.values())

    def note_lacking(self, now_s: float) -> None:
        """Note that another gateway lacks some of a limit."""
        self.scarce_until_s = now_s + _SCARCE_S

    def is_due(self, occasion: Occasion) -> bool:
        """Return whether there may be something to ask for or to give back now."""
        if occasion.is_routine or (self.has_demand and self.demand.again_s <= occasion.now_s):
            return True
        return self.may_give(occasion.now_s)

    def may_give(self, now_s: float) -> bool:
        """Return whether others lack some, and it is time to look whether there is some to give."""
        return now_s < self.scarce_until_s and now_s - self.gave_s >= _GIVE_S

    def is_used(self, now_s: float) -> bool:
        """Return whether there is something under way or in the window."""
        return self.use.count_present() > 0 or self.use.count_window(REQUESTS, now_s) > 0

    def list_rest(self, now_s: float) -> Iterator[ShareRequest]:
        """Yield what is still used when this gateway ends."""
        for portion in self.portions.values():
            portion.observe_now()
            used = min(portion.count_used(now_s), portion.share)
            yield _build_request(portion, base=portion.base, held=used, used=used, wanted=used, needed=used)

    def plan_requests(self, occasion: Occasion) -> Iterator[PlannedShare]:
        """Yield what is to be requested now. What is given back, the workers use no longer."""
        self.gave_s = occasion.now_s
        is_active = self.has_demand or self.is_used(occasion.now_s)
        for portion in self.portions.values():
            request = self._plan_portion(portion, occasion, is_active=is_active)
            if request is not None:
                yield PlannedShare(self, portion, request)

    def _plan_portion(self, portion: Portion, occasion: Occasion, *, is_active: bool) -> ShareRequest | None:
        portion.observe_now()
        used, share, base = portion.count_used(occasion.now_s), portion.share, portion.base
        most = max(portion.limit - base, 0)
        lacks = used + portion.convert_demand(self.demand.requests, self.demand.tokens)
        needed = max(min(lacks, most), used)
        if needed <= share < lacks:
            portion.note_full(_find_full_end(occasion.now_s))  # no gateway has so much
        is_scarce = occasion.now_s < self.scarce_until_s or (portion.grant is not None and portion.grant.free < 0)
        spare = 0
        if is_active and not is_scarce:
            room = most - needed - (0 if portion.grant is None else portion.grant.used)
            spare = max(int(room * _ALONE) if occasion.gateways == 1 else room // (2 * occasion.gateways), 0)
        wanted = needed + spare
        grows = needed > share or (occasion.is_routine and wanted - share > spare // 2)
        shrinks = share - wanted > (0 if is_scarce else spare // 2)
        if shrinks:
            used = _lower_portion(portion, wanted, occasion.now_s)
        elif not grows:
            wanted = share
            if not self._is_news(portion, used, share, occasion, is_scarce=is_scarce):
                return None
        held = portion.share
        used, wanted = min(used, held), max(wanted, held)
        return _build_request(portion, base=base, held=held, used=used, wanted=wanted, needed=needed)

    def _is_news(self, portion: Portion, used: int, share: int, occasion: Occasion, *, is_scarce: bool) -> bool:
        """Return whether others should know what is used: all of it where they lack some, else about."""
        if portion.sent is None or portion.sent[1] != share:
            return occasion.is_routine or is_scarce
        change = abs(used - portion.sent[0])
        return change > 0 if is_scarce else occasion.is_routine and change * _ABOUT > portion.limit

    def lower_to_use(self, now_s: float) -> None:
        """Keep no more than what is used."""
        for portion in self.portions.values():
            portion.observe_now()
            _lower_portion(portion, 0, now_s)

    def take_grant(self, granted: Sequence[tuple[PlannedShare, ShareGrant]], now_s: float) -> None:
        """Let the workers use what was granted, and answer what they requested, if that is known by now."""
        lacking: list[tuple[Portion, ShareGrant]] = []
        has_grown = False
        for (_, portion, request), grant in granted:
            has_grown = has_grown or grant.share > request.held
            portion.grant, portion.sent = grant, (request.used, grant.share)
            portion.publish_room(grant.share)
            if isinstance(portion, WindowPortion):
                portion.note_elsewhere(grant.used)
            if grant.share < request.needed:
                lacking.append((portion, grant))
        if not self.has_demand:
            return
        if not lacking:
            self.demand.lacking_s = None
        elif self.demand.lacking_s is None:
            self.demand.lacking_s = now_s
        full = [portion for portion, grant in lacking if self._is_used_up(grant, now_s)]
        for portion in full:
            portion.note_full(_find_full_end(now_s))
        if full or not lacking:
            self.wake_waiters()
        elif has_grown:
            self.wake_waiters(is_last=False)
            self.demand.again_s = now_s + AGAIN_S
        else:
            self.demand.again_s = now_s + AGAIN_S

    def _is_used_up(self, grant: ShareGrant, now_s: float) -> bool:
        """Return whether other gateways use all that this one lacks, or have kept the rest for too long."""
        if self.demand.since_s is not None and now_s - self.demand.since_s > PATIENCE_S:
            return True
        if grant.free > 0 or grant.spare > 0:
            return False
        is_settled = self.demand.lacking_s is not None and now_s - self.demand.lacking_s >= SETTLED_S
        return is_settled or not grant.used

    def refuse_budgets(self, at: int, now_s: float) -> None:
        """Have nothing of budgets of which it is not known what is used; `at` is the first one."""
        self.use.words[BINDING] = at
        self.use.words[FULL + BUDGET] = _find_full_end(now_s)

    def wake_waiters(self, *, is_last: bool = True) -> None:
        """Let those look again who wait. They ask again if they still lack some."""
        self.demand.clear(is_last=is_last)
        self.use.words[ANSWERS] += 1


def _lower_portion(portion: Portion, share: int, now_s: float) -> int:
    """Lower a portion to a share, or to what is used of it. Return what is used.

    No more than the portion was: what a worker counts and is about to refuse may be seen here, too.
    """
    before = portion.share
    portion.publish_room(share)
    used = portion.count_used(now_s)
    if used > share:
        portion.publish_room(min(used, before))
    return used


def _build_request(portion: Portion, *, base: int, held: int, used: int, wanted: int, needed: int) -> ShareRequest:
    return ShareRequest(
        name=portion.name,
        limit=portion.limit,
        base=base,
        held=held,
        used=used,
        wanted=wanted,
        needed=needed,
        lapse_s=portion.lapse_s,
    )


def _find_full_end(now_s: float) -> int:
    return int((now_s + FULL_S) * MICROSECONDS)


class RuleList:
    """The counters that the workers of a gateway use and that have limits, by their numbers.

    `released` are requests to forget what this gateway has nothing of any more, by their names.
    """

    def __init__(self, meters: Meters, budgets: Budgets, *, shares: ShareClient, clock: Clock) -> None:
        self.found: dict[int, KeptRule] = {}
        self.released: dict[str, ShareRequest] = {}
        self._memory = meters.memory
        self._meters = meters
        self._budgets = budgets
        self._shares = shares
        self._clock = clock
        self._by_name: dict[str, KeptRule] = {}
        self._today = datetime.fromtimestamp(clock.time(), UTC).date()
        self._names: tuple[Collection[Counted], dict[bytes, Counted]] = (), {}
        for number in range(self._memory.size):  # what an earlier keeper had, this one requests again
            words = shares.memory.get_words(number)
            if any(figure is not None for figure in read_figures(words)):
                self.update_rule(number)
        self.lower_to_use(clock.monotonic())

    def follow_all(self) -> Work[None]:
        """Follow the counters in use, and drop those that are not in use any more."""
        held = set(self._memory.list_held())
        self._today = datetime.fromtimestamp(self._clock.time(), UTC).date()
        for number in held:
            self.update_rule(number)
            yield
        now_s = self._clock.monotonic()
        for number, rule in list(self.found.items()):
            if number in held or rule.has_demand or rule.is_used(now_s) or rule.has_share:
                continue
            self._drop(rule)

    def update_rule(self, number: int) -> KeptRule:
        """Return the rule of a counter, with the portions of its limits as they are now."""
        digest = self._memory.get_digest(number)
        rule = self.found.get(number)
        if rule is not None and rule.digest != digest:
            self._drop(rule)
            rule = None
        if rule is None:
            mine, others = self._memory.get_rows(number, self._shares.place)
            use = CounterUse((mine, *others), self._shares.memory.get_words(number))
            rule = self.found[number] = KeptRule(number, digest, use)
        rule.use.own = self._meters.find_open(number)
        self._renew(rule)
        return rule

    def lower_to_use(self, now_s: float) -> None:
        """Keep no more than what is used."""
        for rule in self.found.values():
            rule.lower_to_use(now_s)

    def note_lacking(self, names: Collection[str], now_s: float) -> None:
        """Note that another gateway lacks some of these."""
        for name in names:
            if (rule := self._by_name.get(name)) is not None:
                rule.note_lacking(now_s)

    def _drop(self, rule: KeptRule) -> None:
        del self.found[rule.number]
        self._release(rule.portions.values())

    def _release(self, portions: Collection[Portion]) -> None:
        for portion in portions:
            self._by_name.pop(portion.name, None)
            self.released[portion.name] = ShareRequest(
                name=portion.name, limit=0, held=0, used=0, wanted=0, needed=0, lapse_s=portion.lapse_s
            )

    def _renew(self, rule: KeptRule) -> None:
        """Have the portions of the limits as they are now, of the periods of today."""
        figures, now_s = read_figures(rule.use.words), self._clock.monotonic()
        period = self._today, self._budgets.currency()
        budgeted = figures[len(SHARED) :]
        has_budget = any(figure is not None for figure in budgeted)
        if rule.meter is not None and rule.is_used(now_s):
            rule.meter.get_used("tokens", now_s)  # so it stays open
        if (figures, period) == (rule.figures, rule.period) and (rule.ceiling is not None or not has_budget):
            return
        portions = self._build_windows(rule, figures)
        if has_budget:
            portions += self._build_budgets(rule, budgeted, period)
        made = {portion.name: rule.portions.get(portion.name, portion) for portion in portions}
        for portion in portions:
            made[portion.name].limit = portion.limit
        self._release([portion for name, portion in rule.portions.items() if name not in made])
        rule.figures, rule.period, rule.portions = figures, period, made
        for name in made:
            self._by_name[name] = rule
            self.released.pop(name, None)

    def _build_windows(self, rule: KeptRule, figures: Sequence[int | None]) -> list[Portion]:
        return [
            WindowPortion(rule.use, slot, f"{rule.digest.hex()} {limit}", figure)
            for slot, (limit, figure) in enumerate(zip(SHARED, figures, strict=False))
            if figure is not None
        ]

    def _build_budgets(self, rule: KeptRule, figures: Sequence[int | None], period: tuple[date, str]) -> list[Portion]:
        """Return the portions of budgets; none while it is not known what is used of them."""
        counted = self._find_budget(rule.digest)
        if counted is None:
            at = next(at for at, figure in enumerate(figures) if figure is not None)
            rule.refuse_budgets(at, self._clock.monotonic())
            return []
        if rule.meter is None:
            rule.meter = self._meters.get_meter(*counted)
            rule.use.own = rule.meter
        meter, (today, currency) = rule.meter, period
        if rule.ceiling is None:
            rule.ceiling = BudgetCeiling(rule.use, self._budgets, counted, lambda: meter.stored)
        found: list[Portion] = []
        for at, (limit, figure) in enumerate(zip(BUDGETS, figures, strict=True)):
            if figure is not None:
                when = get_period(limit).get_label(today)
                name = f"{rule.digest.hex()} {limit} {when} {currency if limit in COSTS else ''}".rstrip()
                found.append(rule.portions.get(name) or BudgetPortion(rule.ceiling, at, name, figure))
        return found

    def _find_budget(self, digest: bytes) -> Counted | None:
        """Return what has a budget, by the digest of its counter."""
        names = self._budgets.names
        if names is not self._names[0]:
            self._names = names, {digest_name(f"{scope} {name}"): (scope, name) for scope, name in names}
        return self._names[1].get(digest)
