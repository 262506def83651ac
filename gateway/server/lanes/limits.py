"""The limits of one configuration, as the lanes need them."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily, Metric

from gateway.auth.keyring import KeyRing
from gateway.config import Settings
from gateway.config.schema.allowances import AllowanceSettings
from gateway.contracts.allowance import Allowance
from gateway.contracts.caller import Caller
from gateway.contracts.plugin import Clock, Counters
from gateway.limits.budget_reader import BudgetReader, counts_towards
from gateway.limits.budgets import Budgets, Counted, Scope
from gateway.limits.counter_registry import Meters
from gateway.limits.fullest import Limited, fullest
from gateway.limits.limit_rule import key_id
from gateway.limits.limiter import Limiter
from gateway.server.worker_services import WorkerServices
from gateway.usage.ledger import Ledger


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
        tenants=_allowances(settings.limits.tenants),
        models=_allowances(settings.limits.models),
        upstreams=_allowances(upstreams),
    )


def build_shared_limiter(settings: Settings, shared: WorkerServices) -> Limiter:
    """Return the limits of a configuration."""
    return build_limiter(
        settings,
        meters=shared.meters,
        budgets=shared.budgets,
        clock=shared.clock,
        counters=shared.counters,
        catch_up=shared.usage_batch.read,
    )


def budget_reader(
    shared: WorkerServices, settings: Callable[[], Settings], keys: Callable[[], KeyRing]
) -> BudgetReader:
    """Return the reader of the budgets of the configuration and of the keys in use."""
    return BudgetReader(
        shared.store,
        shared.budgets,
        shared.meters,
        names=lambda: _with_budget(settings(), keys().callers()),
        limited=lambda: any(True for _ in _list_limits(settings(), keys().callers())),
        clock=shared.clock,
    )


def limit_families(
    shared: WorkerServices, settings: Callable[[], Settings], keys: Callable[[], KeyRing]
) -> Callable[[], Iterator[Metric]]:
    """Return what yields the metric of how full the limits of the configuration and of the keys in use are."""

    def families() -> Iterator[Metric]:
        limited = _list_limits(settings(), keys().callers())
        parts = fullest(limited, meters=shared.meters, budgets=shared.budgets, now_s=shared.clock.monotonic())
        family = GaugeMetricFamily(
            "gateway_limit_used_ratio", "Used part of the fullest limit of its kind", labels=["scope", "limit"]
        )
        for (scope, limit), part in parts.items():
            family.add_metric([scope, limit], part)
        yield family

    return families


def cost_of_token(ledger: Ledger, scope: Scope, name: str) -> float:
    """Return what a token cost lately of what has a budget; without usage, a guess by the prices."""

    def counts(tenant: str, key: str, model: str, upstream: str) -> bool:
        return counts_towards(scope, name, tenant=tenant, key=key, model=model, upstream=upstream)

    return ledger.cost_of_token(counts)


def _list_limits(settings: Settings, callers: Iterable[Caller]) -> Iterator[Limited]:
    """Yield what has limits: by the configuration, or as a key of the store."""
    for caller in callers:
        if (limits := caller.bounds.limits) is not None:
            yield "key", key_id(caller.tenant, caller.name), limits
    for scope, named in _sections(settings).items():
        for name, section in named.items():
            if section is not None:
                yield scope, name, section.allowance


def _sections(settings: Settings) -> Mapping[Scope, Mapping[str, AllowanceSettings | None]]:
    return {
        "tenant": settings.limits.tenants,
        "model": settings.limits.models,
        "upstream": {one.name: one.limits for one in settings.upstreams},
    }


def _with_budget(settings: Settings, callers: Iterable[Caller]) -> Iterator[Counted]:
    """Yield what has a budget: by the configuration, or as a key of the store."""
    return ((scope, name) for scope, name, limits in _list_limits(settings, callers) if limits.has_budget)


def _allowances(sections: Mapping[str, AllowanceSettings]) -> Mapping[str, Allowance]:
    return {name: section.allowance for name, section in sections.items()}
