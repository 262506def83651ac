"""The limits of one configuration, as the lanes need them."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from gateway.config import Settings
from gateway.config.schema.allowances import AllowanceSettings
from gateway.contracts.allowance import Allowance
from gateway.contracts.plugin import Clock, Counters
from gateway.limits.budgets import Budgets
from gateway.limits.limiter import Limiter
from gateway.limits.meters import Meters
from gateway.limits.reading import BudgetReader

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


def budget_reader(shared: "Shared", settings: Callable[[], Settings]) -> BudgetReader:
    """Return the reader of the budgets of the configuration in use."""
    return BudgetReader(
        shared.store, shared.budgets, models=lambda: settings().limits.models.keys(), clock=shared.clock
    )


def has_budgets(settings: Settings, shared: "Shared") -> bool:
    """Return whether a budget is set: by the configuration, or for a key of the store."""
    limits = settings.limits
    sections = (*limits.tenants.values(), *limits.models.values(), *(one.limits for one in settings.upstreams))
    configured = [one.allowance for one in (*sections, *(key.limits for key in settings.keys)) if one is not None]
    stored = (key.caller.bounds.limits for key in shared.keys.accepted.by_digest.values())
    return any(one is not None and one.has_budget for one in (*configured, *stored))


def _allowances(sections: Mapping[str, AllowanceSettings]) -> Mapping[str, Allowance]:
    return {name: section.allowance for name, section in sections.items()}
