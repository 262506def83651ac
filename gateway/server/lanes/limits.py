"""The limits of one configuration, as the lanes need them."""

from collections.abc import Mapping

from gateway.config import Settings
from gateway.config.schema.allowances import AllowanceSettings
from gateway.contracts.allowance import Allowance
from gateway.contracts.plugin import Clock, Counters
from gateway.limits.budgets import Budgets
from gateway.limits.limiter import Limiter
from gateway.limits.meters import Meters


def build_limiter(settings: Settings, *, meters: Meters, budgets: Budgets, clock: Clock, counters: Counters) -> Limiter:
    """Build the limits of a configuration on what `meters` count."""
    upstreams = {one.name: one.limits for one in settings.upstreams if one.limits is not None}
    return Limiter(
        meters,
        clock=clock.monotonic,
        budgets=budgets,
        counters=counters,
        has_ledger=settings.usage.enabled,
        tenants=_allowances(settings.limits.tenants),
        models=_allowances(settings.limits.models),
        upstreams=_allowances(upstreams),
    )


def _allowances(sections: Mapping[str, AllowanceSettings]) -> Mapping[str, Allowance]:
    return {name: section.allowance for name, section in sections.items()}
