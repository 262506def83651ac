"""The reading of budgets: sums of the usage in the store, of all gateways on it.

The store tells which days have changed, so that each second only those are read. They are the last ones, but for what
a gateway stores late.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from fnmatch import fnmatchcase
from itertools import chain
from typing import Final, TypeAlias

from gateway.clock import until_set
from gateway.contracts.plugin import Clock
from gateway.contracts.store import StoreError
from gateway.contracts.usage import COST_UNITS, Dimension, StoredUsage, UsageStore
from gateway.limits.budgets import Budgets, Scope, Spent
from gateway.limits.rule import key_id

log = logging.getLogger("gateway")

EVERY_S: Final = 1.0
#: How long a start waits for the first sums, if there are budgets. Requests with a budget are refused without any.
FIRST_S: Final = 5.0
#: The first and the last of some days.
Days: TypeAlias = tuple[str, str]
#: The tokens and the cost, in units of `COST_UNITS`, of what a rule counts.
Sums: TypeAlias = Mapping[tuple[Scope, str], Sequence[int]]
#: Returns what a row counts for.
Named: TypeAlias = Callable[[StoredUsage], Iterable[tuple[Scope, str]]]
_NOTHING: Final = (0, 0)


class BudgetReader:
    """Reads the sums of one worker's budgets. `models` returns the patterns of models that have limits."""

    def __init__(
        self, store: UsageStore, budgets: Budgets, *, models: Callable[[], Iterable[str]], clock: Clock
    ) -> None:
        self._store = store
        self._budgets = budgets
        self._models = models
        self._clock = clock
        #: What is read, and of which state of the store, patterns and currency it is the sum.
        self._known: dict[Days, tuple[object, Sums]] = {}
        self._reading, self._tried = asyncio.Lock(), asyncio.Event()
        self._failed = False

    async def run(self) -> None:
        """Read the sums now, and each second from the first request on that has a budget."""
        await self.read()
        while True:
            await asyncio.sleep(EVERY_S)
            if self._budgets.wanted:
                await self.read()

    async def first(self) -> None:
        """Wait for the sums of `run`, `FIRST_S` at most. Until there are some, requests with a budget are refused."""
        self._budgets.wanted = True
        if not await until_set(self._tried, FIRST_S):
            log.warning("budgets are not read after %g s: requests that have one are refused until they are", FIRST_S)

    async def read(self) -> None:
        """Read the sums as they are now. If the store fails, those that were read last stay in use."""
        async with self._reading:
            try:
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

    async def _read(self) -> None:
        today = datetime.fromtimestamp(self._clock.time(), UTC).date()
        models, currency = tuple(self._models()), self._budgets.currency()
        parts = parts_of(today)
        changes = await self._store.usage_changes(since=parts[-1][0], until=parts[0][1])
        known: dict[Days, tuple[object, Sums]] = {}
        for days in parts:
            since, until = days
            basis = models, currency, {day: count for day, count in changes.items() if since <= day <= until}
            before = self._known.get(days)
            if before is not None and before[0] == basis:
                known[days] = before
            else:
                known[days] = basis, await self._sums(days, models=models, currency=currency)
        if any(part is not self._known.get(days) for days, part in known.items()) or len(known) != len(self._known):
            latest, *earlier = (sums for _, sums in known.values())
            spent = await asyncio.to_thread(spent_of, latest, earlier)
            self._budgets.replace(spent, models=models, currency=currency)
            self._known = known

    async def _sums(self, days: Days, *, models: Sequence[str], currency: str) -> Sums:
        """Read what was used on some days by each key, tenant and upstream, and of the models of each pattern.

        Each scope is read by itself, because there may be very many combinations of them.
        """
        scopes: Sequence[tuple[tuple[Dimension, ...], Named]] = (
            (("tenant", "key"), lambda row: (("key", key_id(row.tenant, row.key)), ("tenant", row.tenant))),
            (("upstream",), lambda row: (("upstream", row.upstream),)),
            (("model",), lambda row: [("model", one) for one in models if fnmatchcase(row.model, one)]),
        )
        sums: defaultdict[tuple[Scope, str], list[int]] = defaultdict(lambda: [0, 0])
        for by, named in scopes:
            if by != ("model",) or models:
                rows = await self._store.usage(since=days[0], until=days[1], by=by, tenant=None)
                await asyncio.to_thread(_add, sums, rows, named=named, currency=currency)  # requests go on meanwhile
        return sums


def parts_of(today: date) -> Sequence[Days]:
    """Return the days of a month until today in parts: today, yesterday, which may still change, and those before."""
    first, yesterday, before = today.replace(day=1), today - timedelta(1), today - timedelta(2)
    parts = (today, today), (yesterday, yesterday), (first, before)
    return [(since.isoformat(), until.isoformat()) for since, until in parts if first <= since <= until]


def _add(
    sums: defaultdict[tuple[Scope, str], list[int]], rows: Iterable[StoredUsage], *, named: Named, currency: str
) -> None:
    """Add rows to the sums of all that each counts for. A cost in another currency is none that a budget is in."""
    for row in rows:
        cost = row.cost if row.currency in ("", currency) else 0
        for name in named(row):
            found = sums[name]
            found[0] += row.input + row.output
            found[1] += cost


def spent_of(today: Sums, earlier: Sequence[Sums]) -> dict[tuple[Scope, str], Spent]:
    """Return what was spent of each budget, of the sums of today and of other parts of its month."""
    spent = {}
    for scope in {*today, *chain.from_iterable(earlier)}:
        tokens, cost = tokens_month, cost_month = today.get(scope, _NOTHING)
        for sums in earlier:
            tokens_before, cost_before = sums.get(scope, _NOTHING)
            tokens_month += tokens_before
            cost_month += cost_before
        spent[scope] = Spent(tokens, tokens_month, cost / COST_UNITS, cost_month / COST_UNITS)
    return spent
