"""The reading of budgets: sums of the usage in the store, of all gateways on it.

The store tells which days have changed, so that each second only those are read. They are the last ones, but for what
a gateway stores late. It sums up what has a budget: others may be very many. Each day is read by itself, so that other
work of the store goes on between two.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Final, TypeAlias

from gateway.aio.clock import wait_until_set
from gateway.contracts.allowance import BUDGETS, COSTS, PERIODS, LimitScope, find_first_day, get_period
from gateway.contracts.model_names import is_usage_match
from gateway.contracts.plugin import Clock
from gateway.contracts.storage.store import StoreError
from gateway.contracts.storage.usage import COST_UNITS, Dimension, StoredUsage, UsageStore
from gateway.limits.budgets import Budgets, BudgetSums, Counted
from gateway.limits.counter_registry import Meters

log = logging.getLogger("gateway")

EVERY_S: Final = 1.0
#: How often a gateway says that it is at work, and for how long that holds.
RENEW_S: Final = 10.0
GONE_S: Final = 30.0
#: How long a start waits for the first sums, if there are budgets. Requests with a budget are refused without any.
FIRST_S: Final = 5.0
#: The first and the last of some days.
Days: TypeAlias = tuple[str, str]
#: The tokens and the cost, in units of `COST_UNITS`, of what a rule counts.
Sums: TypeAlias = Mapping[Counted, Sequence[int]]
#: What the rules of a scope are counted by.
_BY: Final[Mapping[LimitScope, tuple[Dimension, ...]]] = {
    "key": ("tenant", "key"),
    "tenant": ("tenant",),
    "model": ("model",),
    "upstream": ("upstream",),
}


class BudgetReader:
    """Reads the sums of one worker's budgets. `names` returns what has a budget; models are patterns.

    `limited` returns whether something has limits, which other gateways on the store should know of.
    """

    def __init__(
        self,
        store: UsageStore,
        budgets: Budgets,
        meters: Meters,
        *,
        names: Callable[[], Iterable[Counted]],
        clock: Clock,
        limited: Callable[[], bool] = bool,
    ) -> None:
        self._store = store
        self._budgets = budgets
        self._meters = meters
        self._limited = limited
        self._renew_s = float("-inf")  # when to say again that this gateway is at work, in seconds of the clock
        self._attends = False
        self._told = 1  # of so many gateways
        self._names = names
        self._clock = clock
        #: What is read, and of which state of the store, names and currency it is the sum.
        self._known: dict[Days, tuple[object, Sums]] = {}
        self._reading, self._tried = asyncio.Lock(), asyncio.Event()
        self._failed = False

    async def run(self) -> None:
        """Read the sums now, and each second once there is a budget."""
        await self.read()
        while True:
            await asyncio.sleep(EVERY_S)
            if self._budgets.wanted:
                await self.read()
            elif self._clock.monotonic() >= self._renew_s:
                await self.announce_gateway()

    async def close(self) -> None:
        """Say that this gateway is at work no longer. Other workers of it, if there are any, say otherwise soon."""
        attends, self._attends = self._attends, False
        if attends:
            try:
                await self._store.withdraw_gateway(self._meters.gateway)
            except StoreError as error:
                log.error("the store failed: %s", error)

    async def wait_for_first_sums(self) -> None:
        """Wait for the sums of `run`, `FIRST_S` at most. Until there are some, requests with a budget are refused.

        If nothing has a budget, there is nothing to wait for.
        """
        if not any(True for _ in self._names()):
            return
        if not await wait_until_set(self._tried, FIRST_S):
            log.warning("budgets are not read after %g s: requests that have one are refused until they are", FIRST_S)

    async def read(self) -> None:
        """Read the sums as they are now. If the store fails, those that were read last stay in use."""
        async with self._reading:
            try:
                await self._count_active_gateways()
                await self._read()
            except StoreError as error:
                if not self._failed:
                    log.error(
                        "budgets cannot be read: they stay as they were read last, and requests with one that was "
                        "never read are refused: %s",
                        error,
                    )
                self._failed = True
            else:
                self._failed = False
            self._tried.set()

    async def announce_gateway(self) -> None:
        """Say that this gateway is at work, if it has limits. If the store fails, the log says so."""
        try:
            await self._count_active_gateways()
        except StoreError as error:
            log.error("the store failed: %s", error)

    async def _count_active_gateways(self) -> None:
        """Find out how many gateways are at work. Say that this one is, if it has limits, and that is due."""
        now_s, wall_s = self._clock.monotonic(), self._clock.time()
        if now_s >= self._renew_s:
            self._renew_s = now_s + RENEW_S
            self._attends = self._limited() or self._budgets.wanted
            if self._attends:
                await self._store.announce_gateway(self._meters.gateway, now_s=wall_s, until_s=wall_s + GONE_S)
        if not self._attends:
            return
        if self._meters.shares is not None:
            return  # they count together, so each knows what is left
        count = self._budgets.gateways = max(await self._store.count_gateways(now_s=wall_s), 1)
        if count > self._told and self._meters.is_first:
            log.warning(
                "%d gateways with limits are at work on this store, or were %g s ago: they share its budgets, and each "
                "counts requests per minute, tokens per minute and requests under way for itself; with "
                "'limits.shared: true' they count these together",
                count,
                GONE_S,
            )
        self._told = count

    async def _read(self) -> None:
        today = datetime.fromtimestamp(self._clock.time(), UTC).date()
        names, currency = frozenset((*self._names(), *self._budgets.missing)), self._budgets.currency()
        parts = split_days(today)
        self._budgets.wanted |= bool(names)  # else the first to ask would be judged by old sums
        note_read = self._meters.mark_stored_until_now(self._budgets)
        changes = await self._store.list_usage_changes(since=parts[-1][0], until=parts[0][1])
        known: dict[Days, tuple[object, Sums]] = {}
        for days in parts:
            since, until = days
            basis = names, currency, {day: count for day, count in changes.items() if since <= day <= until}
            before = self._known.get(days)
            if before is not None and before[0] == basis:
                known[days] = before
            else:
                known[days] = basis, await self._read_sums(days, names=names, currency=currency)
        if any(part is not self._known.get(days) for days, part in known.items()) or len(known) != len(self._known):
            sums = {since: sums for (since, _), (_, sums) in known.items()}
            spent = await asyncio.to_thread(sum_budgets, today, sums)
            self._budgets.replace_sums(spent, names=names, currency=currency)
            self._known = known
        note_read()

    async def _read_sums(self, days: Days, *, names: Collection[Counted], currency: str) -> Sums:
        """Read what was used on some days of each name.

        Each scope is read by itself, because there may be very many combinations of them.
        """
        wanted: defaultdict[LimitScope, list[str]] = defaultdict(list)
        for scope, name in names:
            wanted[scope].append(name)
        patterns = wanted.get("model", ())
        only = {
            scope: None if scope == "model" else [tuple(one.split("\0")) for one in those]
            for scope, those in wanted.items()
        }
        sums: defaultdict[Counted, list[int]] = defaultdict(lambda: [0, 0])
        for day in list_days(days):
            for scope, values in only.items():
                rows = await self._store.sum_usage(since=day, until=day, by=_BY[scope], tenant=None, only=values)
                if rows:  # requests go on meanwhile
                    await asyncio.to_thread(_add, sums, rows, scope=scope, patterns=patterns, currency=currency)
        return sums


def counts_towards(scope: LimitScope, name: str, *, tenant: str, key: str, model: str, upstream: str) -> bool:
    """Return whether usage counts towards what has this name in its scope."""
    if scope == "model":
        return is_usage_match(model, name)
    own = {"tenant": tenant, "key": key, "upstream": upstream}
    return "\0".join(own[dimension] for dimension in _BY[scope]) == name


def split_days(today: date) -> Sequence[Days]:
    """Return the days that budgets count today in parts, the latest first: each period begins with a part.

    Today is a part by itself, and so is yesterday, which may still change.
    """
    begun = {today, today - timedelta(1), *(period.find_first(today) for period in PERIODS.values())}
    parts, until = [], today
    for since in sorted((day for day in begun if day >= find_first_day(today)), reverse=True):
        parts.append((since.isoformat(), until.isoformat()))
        until = since - timedelta(1)
    return parts


def list_days(days: Days) -> Iterable[str]:
    """Return each day from the first to the last."""
    since, until = map(date.fromisoformat, days)
    return ((since + timedelta(number)).isoformat() for number in range((until - since).days + 1))


def _add(
    sums: defaultdict[Counted, list[int]],
    rows: Iterable[StoredUsage],
    *,
    scope: LimitScope,
    patterns: Sequence[str],
    currency: str,
) -> None:
    """Add rows to the sums of all that each counts for. A cost in another currency is none that a budget is in."""
    by = _BY[scope]
    for row in rows:
        cost = row.cost if row.currency in ("", currency) else 0
        own = "\0".join(getattr(row, dimension) for dimension in by)  # of a key: `key_id`
        for name in [one for one in patterns if is_usage_match(own, one)] if scope == "model" else (own,):
            found = sums[scope, name]
            found[0] += row.input + row.output
            found[1] += cost


def sum_budgets(today: date, sums: Mapping[str, Sums]) -> dict[Counted, BudgetSums]:
    """Return what was spent of each budget. `sums` are those of the parts of `split_days`, by their first days."""
    spent: dict[Counted, list[int]] = {}
    for at, limit in enumerate(BUDGETS):
        first, is_cost = get_period(limit).find_first(today).isoformat(), limit in COSTS
        for part in (part for since, part in sums.items() if since >= first):
            for counted, amounts in part.items():
                spent.setdefault(counted, [0] * len(BUDGETS))[at] += amounts[is_cost]
    units = [COST_UNITS if limit in COSTS else 1 for limit in BUDGETS]
    return {
        counted: tuple(used if unit == 1 else used / unit for used, unit in zip(each, units, strict=True))
        for counted, each in spent.items()
    }
