"""The limits of one worker: what it has counted, which budgets are used up, and the limits of each configuration."""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from prometheus_client.core import GaugeMetricFamily, Metric

from gateway.config import Settings
from gateway.contracts.allowance import Allowance, LimitScope, LimitUsage
from gateway.contracts.caller import Caller
from gateway.contracts.plugin import Clock, Counters
from gateway.features.limits.hook import LimitHook
from gateway.features.limits.observer import LimitFeature
from gateway.features.limits.section import AllowanceSettings
from gateway.features.limits.service_sharing import LimitSharing, shares_limits
from gateway.features.usage.service import UsageService
from gateway.lanes.passthrough.observers.observer import PassthroughFeature
from gateway.limits.budget_reader import BudgetReader, counts_towards
from gateway.limits.budgets import Budgets, Counted
from gateway.limits.counter_registry import Meters
from gateway.limits.fullest import Limited, measure_fullest
from gateway.limits.limit_rule import build_key_id
from gateway.limits.limiter import Limiter
from gateway.limits.shared_memory import SharedCounters
from gateway.model.hooks import ContextHook
from gateway.server.feature import Feature, FeatureNeeds, FeatureService, WorkerFeatures
from gateway.usage.ledger import Ledger


class LimitService(FeatureService):
    """The limits of one worker. `meters` count for all its configurations."""

    def __init__(self, needs: FeatureNeeds, others: WorkerFeatures) -> None:
        usage = others.find(UsageService)
        self._needs = needs
        self._ledger = usage.ledger
        self._catch_up = usage.batch.read
        self.meters = _get_meters(needs)
        self.budgets = Budgets(lambda: usage.ledger.prices.currency, guess=partial(estimate_token_cost, usage.ledger))
        self._sharing = LimitSharing(needs.settings(), needs.store, self.meters, self.budgets, clock=needs.clock)
        usage.ledger.storing = self.meters.mark_used_until_now
        self._reader = BudgetReader(
            needs.store,
            self.budgets,
            self.meters,
            names=lambda: _with_budget(needs.settings(), needs.callers()),
            limited=lambda: any(True for _ in _list_limits(needs.settings(), needs.callers())),
            clock=needs.clock,
        )

    def apply_settings(self, settings: Settings) -> None:
        """Have the usage of models with a budget counted in rows of their own."""
        budgets = [glob for glob, section in settings.limits.models.items() if section.allowance.has_budget]
        self._ledger.models.budgets = budgets

    async def refresh(self) -> None:
        await self._reader.read()

    async def prepare(self) -> None:
        await self._sharing.start()
        await self._reader.wait_for_first_sums()

    def list_tasks(self) -> Sequence[Callable[[], Awaitable[None]]]:
        return self._reader.run, self.meters.run, self._sharing.run

    def build_limiter(self, settings: Settings) -> Limiter:
        """Return the limits of a configuration."""
        needs = self._needs
        return build_limiter(
            settings,
            meters=self.meters,
            budgets=self.budgets,
            clock=needs.clock,
            counters=needs.counters,
            catch_up=self._catch_up,
        )

    def build_observer(self, settings: Settings) -> PassthroughFeature:
        return LimitFeature(self.build_limiter(settings))

    def build_hook(self, settings: Settings) -> ContextHook:
        return LimitHook(self.build_limiter(settings))

    def collect_families(self) -> Iterable[Metric]:
        """Yield how full the limits of the configuration and of the keys in use are, and whether shares are counted."""
        limited = _list_limits(self._needs.settings(), self._needs.callers())
        now_s = self._needs.clock.monotonic()
        family = GaugeMetricFamily(
            "gateway_limit_used_ratio", "Used part of the fullest limit of its kind", labels=["scope", "limit"]
        )
        parts = measure_fullest(limited, meters=self.meters, budgets=self.budgets, now_s=now_s)
        for (scope, limit), part in parts.items():
            family.add_metric([scope, limit], part)
        yield family
        if (shares := self.meters.shares) is not None:
            up = GaugeMetricFamily("gateway_limit_sharing_up", "Whether the limits that gateways share can be counted")
            up.add_metric([], 0 if shares.is_failing else 1)
            yield up

    def list_usage(self, caller: Caller) -> list[LimitUsage]:
        """Return what is used of the limits that a caller may see."""
        limiter = self.build_limiter(self._needs.settings())
        is_admin = "admin" in caller.scopes
        rules = limiter.list_all_rules(self._needs.callers()) if is_admin else limiter.list_caller_rules(caller)
        return list(limiter.list_usage(rules))

    async def close(self) -> None:
        await self._reader.close()
        await self._sharing.close()


def _get_meters(needs: FeatureNeeds) -> Meters:
    """Return the meters that the workers of this process share; those of a process alone are made here."""
    process = needs.process
    if process is not None and process.meters is not None:
        return process.meters
    has_shares = process is not None and shares_limits(needs.settings())
    return Meters(SharedCounters(places=1, has_shares=has_shares), place=0, clock=needs.clock.monotonic)


def build_limiter(
    settings: Settings,
    *,
    meters: Meters,
    budgets: Budgets,
    clock: Clock,
    counters: Counters,
    catch_up: Callable[[], None] | None = None,
) -> Limiter:
    """Build the limits of a configuration on what `meters` count. `catch_up`: see `Limiter`."""
    upstreams = {one.name: one.limits for one in settings.upstreams if one.limits is not None}
    return Limiter(
        meters,
        clock=clock.monotonic,
        budgets=budgets,
        counters=counters,
        has_ledger=settings.usage.enabled,
        catch_up=catch_up,
        tenants=_list_allowances(settings.limits.tenants),
        models=_list_allowances(settings.limits.models),
        upstreams=_list_allowances(upstreams),
    )


def estimate_token_cost(ledger: Ledger, scope: LimitScope, name: str) -> float:
    """Return what a token cost lately of what has a budget; without usage, a guess by the prices."""

    def counts(tenant: str, key: str, model: str, upstream: str) -> bool:
        return counts_towards(scope, name, tenant=tenant, key=key, model=model, upstream=upstream)

    return ledger.estimate_token_cost(counts)


def _list_limits(settings: Settings, callers: Iterable[Caller]) -> Iterator[Limited]:
    """Yield what has limits: by the configuration, or as a key of the store."""
    for caller in callers:
        if (limits := caller.bounds.limits) is not None:
            yield "key", build_key_id(caller.tenant, caller.name), limits
    for scope, named in _get_sections(settings).items():
        for name, section in named.items():
            if section is not None:
                yield scope, name, section.allowance


def _get_sections(settings: Settings) -> Mapping[LimitScope, Mapping[str, AllowanceSettings | None]]:
    return {
        "tenant": settings.limits.tenants,
        "model": settings.limits.models,
        "upstream": {one.name: one.limits for one in settings.upstreams},
    }


def _with_budget(settings: Settings, callers: Iterable[Caller]) -> Iterator[Counted]:
    """Yield what has a budget: by the configuration, or as a key of the store."""
    return ((scope, name) for scope, name, limits in _list_limits(settings, callers) if limits.has_budget)


def _list_allowances(sections: Mapping[str, AllowanceSettings]) -> Mapping[str, Allowance]:
    return {name: section.allowance for name, section in sections.items()}


FEATURE = Feature(service=LimitService)
