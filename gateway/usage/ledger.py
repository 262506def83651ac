"""The ledger of one worker: what each finished request used, summed up in memory, and stored each second.

1. `recorded` is the one place that gets a finished request: of passthrough when its transaction ends or a little later
   (`catch_up` records what waits), of the context lane after each call of a model.
2. The sums go to the store while there are any, every `EVERY_S`. The store adds them to the sums of the other workers
   and replicas. So a worker that is killed loses what it recorded since: no more than that.
3. While a worker has something to store, or may have, the store has a mark of it. A mark that is not renewed belongs to
   a process that is gone: the worker that finds it logs the loss. A worker without a request for `EVERY_S` has none.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from gateway.aio.supervise import supervise
from gateway.contracts.allowance import find_first_day
from gateway.contracts.model_names import (
    EVERY,
    MODEL_CHARS,
    OTHER,
    build_shared_name,
    is_model_match,
    is_usage_match,
    may_be_shared,
)
from gateway.contracts.plugin import Clock, Counters
from gateway.contracts.storage.store import Store, StoreError, UncertainError
from gateway.contracts.storage.usage import COST_UNITS, MOST_USAGE, StoredUsage
from gateway.usage.prices import Price, Prices
from gateway.usage.tokens import RequestUsage, Times

log = logging.getLogger("gateway")

EVERY_S: Final = 1.0
#: How often old usage is deleted, and after how many days unless `keep_days` is set.
PRUNE_S: Final = 3600.0
KEEP_DAYS: Final = 400
#: A process that has not renewed its mark for so long is gone.
GONE_S: Final = 10.0
#: Models with their own row in one process, and of these, a tenant's. Upstreams name them, and so do clients: there
#: could be any number.
MODELS: Final = 1000
MODELS_OF_TENANT: Final = 200
#: Further models share rows. So many of them are of several budgets: how their globs overlap decides how many there
#: could be.
COMBINED: Final = 100
_DAY_S: Final = 86400
#: By the day, tenant, key, model, upstream, lane and currency, as in `StoredUsage`; the counts follow its order.
_Key = tuple[str, str, str, str, str, str, str]
_COUNTS: Final = 9
#: Of a model: the name of its row, the price by which its cost is counted, and the currency, "" where it has no price.
_Known = tuple[str, Price | None, str]


class ModelRows:
    """The rows that models have: the name of each, and the price by which it is counted.

    `budgets` are the globs of the models with a budget.
    """

    def __init__(self) -> None:
        self.prices = Prices()
        self.budgets: Sequence[str] = ()
        self.known: dict[tuple[str, str], _Known] = {}  # by tenant and model
        self._of_tenants: dict[str, set[str]] = {}
        self._all: set[str] = set()
        self._combined: set[str] = set()  # names of rows of several budgets

    def use_prices(self, prices: Prices) -> None:
        """Count by these prices from now on."""
        self.prices = prices
        self.known.clear()
        self._combined.clear()

    def find_row(self, tenant: str, model: str) -> _Known:
        """Return row name, price and currency for a model, and remember them if it has its own row."""
        price = self.prices.find_price(model)
        paid, currency = (self.prices.dearest, "") if price is None else (price, self.prices.currency)
        if not may_be_shared(model) and self._has_room(tenant, model):
            known = self.known[tenant, model] = model, paid, currency
            return known
        return self._get_shared_name(model, OTHER if price is None else price.model), paid, currency

    def _get_shared_name(self, model: str, name: str) -> str:
        """Return the row name that a model shares: `name` if its budgets match that, else a wider one."""
        told = [glob for glob in self.budgets if glob.strip("* ")]  # those of all models find every row
        globs = [glob for glob in told if is_model_match(model, glob)]
        if [glob for glob in told if is_usage_match(name, glob)] == globs:
            return name
        if not globs:
            return OTHER
        name = build_shared_name(globs)
        if len(globs) > 1 and name not in self._combined:
            if len(self._combined) >= COMBINED or len(name) > MODEL_CHARS:
                return EVERY
            self._combined.add(name)
        return name

    def _has_room(self, tenant: str, model: str) -> bool:
        """Return whether a model of a tenant has a row of its own, as the first ones have."""
        models = self._of_tenants.setdefault(tenant, set())
        if model not in models:
            if len(models) >= MODELS_OF_TENANT or (len(self._all) >= MODELS and model not in self._all):
                return False
            models.add(model)
            self._all.add(model)
        return True


class _Day:
    """The day of a Unix time in UTC."""

    __slots__ = ("begins_s", "ends_s", "name")

    def __init__(self, now_s: float) -> None:
        self.name = format_day(now_s)
        self.begins_s = now_s // _DAY_S * _DAY_S
        self.ends_s = self.begins_s + _DAY_S


class _UsageMetrics:
    """The metrics of what is recorded and stored."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._answered: set[str] = set()  # names of rows whose model has answered

    def observe(self, times: Times, *, lane: str, model: str) -> None:
        """Observe the times of answers, for metrics."""
        labels = {"lane": lane, "model": model or OTHER}
        self._counters.observe_all("model_time_to_first_byte_seconds", times.first_byte_s, **labels)
        self._counters.observe_all("model_duration_seconds", times.duration_s, **labels)
        if times.token_s:
            self._counters.observe_all("model_time_per_output_token_seconds", times.token_s, **labels)

    def count(self, usage: StoredUsage) -> None:
        """Count what is stored, for metrics. A model that has not answered yet may be one that a client made up."""
        count, model = self._counters.count, usage.model
        if usage.requests > usage.rejected:
            self._answered.add(model)
        labels = {"lane": usage.lane, "model": model if model and model in self._answered else OTHER}
        who = {"tenant": usage.tenant, "key": usage.key}
        outcomes = {"rejected": usage.rejected, "cut": usage.cut}
        outcomes["ok"] = usage.requests - usage.rejected - usage.cut
        for outcome, requests in outcomes.items():
            if requests:
                count("usage_requests", requests, **labels, outcome=outcome)
                count("usage_key_requests", requests, **who, outcome=outcome)
        for kind in ("input", "cached", "output", "reasoning"):
            if tokens := getattr(usage, kind):
                count("usage_tokens", tokens, **labels, type=kind)
                if kind in ("input", "output"):
                    count("usage_key_tokens", tokens, **who, type=kind)
        if usage.estimated:
            count("usage_estimated", usage.estimated, **labels)
        if usage.currency and usage.cost:
            count("usage_cost", usage.cost / COST_UNITS, **labels, currency=usage.currency)


@dataclass(frozen=True, slots=True)
class _Addition:
    """Rows that are stored together, once: `number` distinguishes them from the other additions of the process."""

    number: int
    rows: dict[_Key, list[int]]

    def list_usage(self) -> Sequence[StoredUsage]:
        return [StoredUsage(*key, *(min(count, MOST_USAGE) for count in row)) for key, row in self.rows.items()]


class _Additions:
    """The additions of a process to the store. One that is `uncertain` may be there."""

    def __init__(self) -> None:
        self.latest: dict[_Key, list[int]] = {}
        self.uncertain: _Addition | None = None
        self._count = 0

    def begin(self, rows: dict[_Key, list[int]]) -> _Addition:
        self._count += 1
        self.latest = rows
        return _Addition(self._count, rows)


class Ledger:
    """The usage of one worker. `writer` is unique among all processes of the store. Days are in UTC.

    `catch_up` records what has ended and is not recorded yet; None: everything is recorded when it ends.
    """

    def __init__(
        self,
        store: Store,
        *,
        writer: str,
        counters: Counters,
        clock: Clock,
        catch_up: Callable[[], None] | None = None,
    ) -> None:
        self.keep_days = KEEP_DAYS
        self.models = ModelRows()
        #: Called when what is stored next is complete; what it returns is called when that is stored.
        self.storing: Callable[[], Callable[[], None]] = lambda: _do_nothing
        self._store = store
        self._writer = writer
        self._metrics = _UsageMetrics(counters)
        self._clock = clock
        self._catch_up = catch_up or _do_nothing
        self._rows: dict[_Key, list[int]] = {}
        self._additions = _Additions()
        self._day = _Day(0.0)
        self._wake = asyncio.Event()
        self._flushing = asyncio.Lock()
        self._failed = False
        self._tasks: list[asyncio.Task[None]] = []

    def record(
        self,
        usage: RequestUsage,
        key: str,
        tenant: str,
        model: str,
        upstream: str,
        lane: str,
        times: Times | None = None,
    ) -> None:
        """Add finished requests, whatever became of them. `times` are the times of a model's answers."""
        now_s = self._clock.time()
        if not self._day.begins_s <= now_s < self._day.ends_s:  # the clock may have been set back
            self._day = _Day(now_s)
        tokens, rejected, cut, estimated, asked_for, requests = usage
        name, price, currency = self.models.known.get((tenant, model)) or self.models.find_row(tenant, model)
        # What a client writes is no reason for a lower price, and audio is mostly dearer than text.
        if asked_for or (currency and price is not None and not price.covers_tokens(tokens)):
            price, currency = self.models.prices.dearest, ""
        row_key = (self._day.name, tenant, key, name, upstream, lane, currency)
        row = self._rows.get(row_key)
        if row is None:
            if not self._rows:
                self._wake.set()
            row = self._rows[row_key] = [0] * _COUNTS
        row[0] += requests
        if rejected or cut or estimated:
            row[1] += rejected * requests
            row[2] += cut * requests
            row[3] += estimated * requests
        asked, cached, _, answered, reasoning, *_ = tokens
        row[4] += asked
        row[6] += answered
        if cached or reasoning:
            row[5] += cached
            row[7] += reasoning
        if price is not None:
            row[8] += price.compute_cost(tokens)
        if times is not None:
            self._metrics.observe(times, lane=lane, model=name)

    @property
    def prices(self) -> Prices:
        """Return the prices of what is recorded from now on."""
        return self.models.prices

    @prices.setter
    def prices(self, prices: Prices) -> None:
        self._catch_up()
        self.models.use_prices(prices)

    def estimate_token_cost(self, counts: Callable[[str, str, str, str], bool]) -> float:
        """Return what a token cost lately, in the currency, of usage that counts; without any, a guess by the prices.

        `counts` gets a tenant, key, model and upstream.
        """
        tokens = cost = 0
        for rows in (self._rows, self._additions.latest):
            for (_, tenant, key, model, upstream, *_), row in rows.items():
                if counts(tenant, key, model, upstream):
                    tokens += row[4] + row[6]
                    cost += row[8]
        return cost / COST_UNITS / tokens if tokens else self.models.prices.guess_of_token

    def start(self) -> None:
        """Begin to store what is recorded, and look for processes that ended without having done so. Idempotent."""
        if not self._tasks:
            loop = asyncio.get_running_loop()
            self._tasks = [loop.create_task(supervise(work)) for work in (self._store_repeatedly, self._maintain_store)]

    async def flush(self) -> None:
        """Store what was recorded. If the store fails, it is kept, and stored with what follows."""
        async with self._flushing:
            self._catch_up()
            note_stored = self.storing()
            uncertain = self._additions.uncertain
            if uncertain is not None and not await self._add(uncertain):
                return
            if self._rows:
                rows, self._rows = self._rows, {}
                if not await self._add(self._additions.begin(rows)):
                    return
            note_stored()

    async def _add(self, addition: _Addition) -> bool:
        """Store an addition. Return whether it is stored. One that may be stored is added again under its number."""
        usage = addition.list_usage()
        try:
            await self._store.add_usage(usage, writer=self._writer, number=addition.number, now_s=self._clock.time())
        except StoreError as error:
            if isinstance(error, UncertainError):
                self._additions.uncertain = addition
            if self._additions.uncertain is not addition:
                self._put_back(addition.rows)
            if not self._failed:
                log.error("usage cannot be stored, and waits in memory: %s", error)
            self._failed = True
            return False
        self._additions.uncertain = None
        if self._failed:
            log.info("usage is stored again")
        self._failed = False
        for one in usage:
            self._metrics.count(one)
        return True

    def _put_back(self, rows: dict[_Key, list[int]]) -> None:
        for row_key, row in rows.items():
            known = self._rows.get(row_key)
            self._rows[row_key] = row if known is None else [*map(int.__add__, known, row)]

    @property
    def _has_more(self) -> bool:
        return bool(self._rows) or self._additions.uncertain is not None

    async def close(self) -> None:
        """Store the rest. Idempotent."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.flush()
        if self._has_more:
            log.error("the usage of the last moments is lost, because the store failed")
        else:
            await self._report_idle()

    async def _store_repeatedly(self) -> None:
        """Store new usage at intervals while there is some; never returns."""
        while True:
            if not self._has_more:  # else it begins again, after an error
                await self._wake.wait()
            self._wake.clear()
            is_idle = False
            while self._has_more or not is_idle:  # not at once: a reader of the usage stores what is there, too
                is_idle = not self._has_more
                await asyncio.shield(self.flush())  # what was taken must get back if the store fails
                await asyncio.sleep(EVERY_S)
            await self._report_idle()

    async def _report_idle(self) -> None:
        """Mark in the store that this worker has nothing left to store."""
        try:
            await self._store.end_usage(self._writer)
        except StoreError as error:
            log.error("the store failed: %s", error)

    async def _maintain_store(self) -> None:
        """Log what is lost, and delete what is old. A process that was killed just before is known as gone later."""
        wait_s = 0.0
        while True:
            await asyncio.sleep(wait_s)
            now_s = self._clock.time()
            try:
                for added_s in await self._store.forget_lost_usage(before_s=now_s - GONE_S):
                    log.warning(
                        "a process of the gateway did not end in order: of what it used from %s on, at most %g s are "
                        "not in the usage",
                        datetime.fromtimestamp(added_s, UTC).isoformat(timespec="seconds"),
                        EVERY_S,
                    )
                today = datetime.fromtimestamp(now_s, UTC).date()
                counted = find_first_day(today).isoformat()  # by budgets, also by those of keys made at run time
                await self._store.prune_usage(before=min(counted, format_day(now_s - self.keep_days * _DAY_S)))
            except StoreError as error:
                log.error("the store failed: %s", error)
            wait_s = PRUNE_S if wait_s else GONE_S + EVERY_S


def _do_nothing() -> None:
    """Have nothing to catch up on."""


def format_day(time_s: float) -> str:
    """Return the day of a Unix time in UTC, such as `2026-11-26`."""
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%d")
