"""The reading of budgets: sums of the usage in the store, of all gateways on it.

The days before this one do not change any more, but for what a gateway stores late: they are read once an hour. Today
is read each second, while there are requests with budgets.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import Final

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


class BudgetReader:
    """Reads the sums of one worker's budgets. `models` returns the patterns of models that have limits."""

    def __init__(
        self, store: UsageStore, budgets: Budgets, *, models: Callable[[], Iterable[str]], clock: Clock
    ) -> None:
        self._store = store
        self._budgets = budgets
        self._models = models
        self._clock = clock
        self._earlier: Sequence[StoredUsage] = ()
        self._earlier_day = ""
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
        day = today.isoformat()
        try:
            if day != self._earlier_day or now_s - self._earlier_s >= EARLIER_S:
                self._earlier = await self._sums(today.replace(day=1).isoformat(), (today - timedelta(1)).isoformat())
                self._earlier_day, self._earlier_s = day, now_s
            latest = await self._sums(day, day)
        except StoreError as error:
            if not self._failed:
                log.error("budgets cannot be read, so those of the last moment stay in use: %s", error)
            self._failed = True
            return
        self._failed = False
        self._budgets.replace(spent_of(latest, self._earlier, models=tuple(self._models())))

    async def _sums(self, since: str, until: str) -> Sequence[StoredUsage]:
        return await self._store.usage(since=since, until=until, by=_BY, tenant=None) if since <= until else ()


def spent_of(
    today: Sequence[StoredUsage], earlier: Sequence[StoredUsage], *, models: Sequence[str]
) -> dict[tuple[Scope, str], Spent]:
    """Return what was spent by each key, tenant and upstream, and of the models of each pattern."""
    sums: defaultdict[tuple[Scope, str], list[float]] = defaultdict(lambda: [0, 0, 0.0, 0.0])
    for rows, is_today in ((today, True), (earlier, False)):
        for row in rows:
            tokens, cost = row.input + row.output, row.cost / COST_UNITS
            patterns = [pattern for pattern in models if fnmatchcase(row.model, pattern)]
            scopes: list[tuple[Scope, str]] = [
                ("key", key_id(row.tenant, row.key)),
                ("tenant", row.tenant),
                ("upstream", row.upstream),
                *(("model", pattern) for pattern in patterns),
            ]
            for scope in scopes:
                found = sums[scope]
                found[1] += tokens
                found[3] += cost
                if is_today:
                    found[0] += tokens
                    found[2] += cost
    return {scope: Spent(int(found[0]), int(found[1]), found[2], found[3]) for scope, found in sums.items()}
