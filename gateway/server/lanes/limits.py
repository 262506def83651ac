"""The limits of one configuration, as the lanes need them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from gateway.config import Settings
from gateway.config.schema.allowances import AllowanceSettings
from gateway.contracts.allowance import Allowance
from gateway.contracts.caller import Caller
from gateway.contracts.plugin import Clock, Counters
from gateway.lanes.keys import KeyRing
from gateway.limits.budgets import Budgets, Counted, Scope
from gateway.limits.limiter import Limiter
from gateway.limits.meters import Meters
from gateway.limits.reading import BudgetReader
from gateway.limits.rule import key_id

if TYPE_CHECKING:
    from gateway.server.context_lane import Shared


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


def limiter_of(settings: Settings, shared: "Shared") -> Limiter:
    """Return the limits of a configuration."""
    return build_limiter(
        settings,
        meters=shared.meters,
        budgets=shared.budgets,
        clock=shared.clock,
        counters=shared.counters,
        catch_up=shared.unread.read,
    )


def budget_reader(shared: "Shared", settings: Callable[[], Settings], keys: Callable[[], KeyRing]) -> BudgetReader:
    """Return the reader of the budgets of the configuration and of the keys in use."""
    return BudgetReader(
        shared.store, shared.budgets, names=lambda: _with_budget(settings(), keys().callers()), clock=shared.clock
    )


def _with_budget(settings: Settings, callers: Iterable[Caller]) -> Iterator[Counted]:
    """Yield what has a budget: by the configuration, or as a key of the store."""
    for caller in callers:
        if (limits := caller.bounds.limits) is not None and limits.has_budget:
            yield "key", key_id(caller.tenant, caller.name)
    sections: Mapping[Scope, Mapping[str, AllowanceSettings | None]] = {
        "tenant": settings.limits.tenants,
        "model": settings.limits.models,
        "upstream": {one.name: one.limits for one in settings.upstreams},
    }
    for scope, named in sections.items():
        for name, section in named.items():
            if section is not None and section.allowance.has_budget:
                yield scope, name


def _allowances(sections: Mapping[str, AllowanceSettings]) -> Mapping[str, Allowance]:
    return {name: section.allowance for name, section in sections.items()}
