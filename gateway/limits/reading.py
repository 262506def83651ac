"""The reading of budgets: sums of the usage in the store, of all gateways on it.

The days before this one do not change any more, but for what a gateway stores late: they are read once an hour. Today
is read each second, while there are requests with budgets.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import Final, TypeAlias

from gateway.contracts.plugin import Clock
from gateway.contracts.store import StoreError
from gateway.contracts.usage import COST_UNITS, Dimension, StoredUsage, UsageStore
from gateway.limits.budgets import Budgets, Scope, Spent
from gateway.limits.rule import key_id

log = logging.getLogger("gateway")

EVERY_S: Final = 1.0
#: How long the sums of the days before this one are taken for right.
EARLIER_S: Final = 3600.0
_BY: Final[tuple[Dimension, ...]] = ("tenant", "key", "model", "upstream")
#: The tokens and the cost, in units of `COST_UNITS`, of what a rule counts.
Sums: TypeAlias = Mapping[tuple[Scope, str], Sequence[int]]
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
        self._earlier: Sums = {}
        self._earlier_of: tuple[str, Sequence[str]] = "", ()  # the day, and the patterns of models
        self._earlier_s = 0.0
        self._failed = False

    async def run(self) -> None:
        """Read the sums at the start, and each second from the first request on that has a budget."""
        await self.read()
        while True:
            await asyncio.sleep(EVERY_S)
            if self._budgets.wanted:
                await self.read()

    async def read(self) -> None:
        """Read the sums now. If the store fails, those that were read last stay in use."""
        now_s = self._clock.time()
        today = datetime.fromtimestamp(now_s, UTC).date()
        day, models = today.isoformat(), tuple(self._models())
        try:
            if self._earlier_of != (day, models) or now_s - self._earlier_s >= EARLIER_S:
                rows = await self._rows(today.replace(day=1).isoformat(), (today - timedelta(1)).isoformat())
                self._earlier = sums_of(rows, models=models)
                self._earlier_of, self._earlier_s = (day, models), now_s
            latest = sums_of(await self._rows(day, day), models=models)
        except StoreError as error:
            if not self._failed:
                log.error("budgets cannot be read, so those of the last moment stay in use: %s", error)
            self._failed = True
            return
        self._failed = False
        self._budgets.replace(spent_of(latest, self._earlier))

    async def _rows(self, since: str, until: str) -> Sequence[StoredUsage]:
        return await self._store.usage(since=since, until=until, by=_BY, tenant=None) if since <= until else ()


def sums_of(rows: Sequence[StoredUsage], *, models: Sequence[str]) -> Sums:
    """Return what was used by each key, tenant and upstream, and of the models of each pattern."""
    sums: defaultdict[tuple[Scope, str], list[int]] = defaultdict(lambda: [0, 0])
    for row in rows:
        scopes: list[tuple[Scope, str]] = [
            ("key", key_id(row.tenant, row.key)),
            ("tenant", row.tenant),
            ("upstream", row.upstream),
            *(("model", pattern) for pattern in models if fnmatchcase(row.model, pattern)),
        ]
        for scope in scopes:
            found = sums[scope]
            found[0] += row.input + row.output
            found[1] += row.cost
    return sums


def spent_of(today: Sums, earlier: Sums) -> dict[tuple[Scope, str], Spent]:
    """Return what was spent of each budget, of the sums of today and of the days of its month before."""
    spent = {}
    for scope in today.keys() | earlier.keys():
        (tokens, cost), (tokens_before, cost_before) = today.get(scope, _NOTHING), earlier.get(scope, _NOTHING)
        spent[scope] = Spent(tokens, tokens + tokens_before, cost / COST_UNITS, (cost + cost_before) / COST_UNITS)
    return spent
