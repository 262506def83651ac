"""The used part of the fullest limit of each kind, for a metric. A look at limits is no use of them."""

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from gateway.contracts.allowance import Allowance, Limit, LimitScope
from gateway.limits.budgets import Budgets
from gateway.limits.counter import Kind
from gateway.limits.counter_registry import Meters
from gateway.limits.limit_rule import LimitMeter
from gateway.limits.share_client import SHARED

#: A scope, the name under which something is counted in it, and its limits.
Limited: TypeAlias = tuple[LimitScope, str, Allowance]


def measure_fullest(
    limited: Iterable[Limited], *, meters: Meters, budgets: Budgets, now_s: float
) -> Mapping[tuple[LimitScope, Limit], float]:
    """Return the largest used part of each limit of a scope; 1: it is reached. Soft limits may have more.

    Of limits per minute this is what the worker knows: those that it has used in the last minutes. `now_s` is of the
    clock of the meters.
    """
    parts: dict[tuple[LimitScope, Limit], float] = {}

    def note_share(scope: LimitScope, limit: Limit, used: float, most: float) -> None:
        part = used / most if most else 1.0
        parts[scope, limit] = max(parts.get((scope, limit), 0.0), part)

    def measure_meter(scope: LimitScope, limit: Limit, kind: Kind, meter: LimitMeter | None, most: int) -> None:
        largest = parts.setdefault((scope, limit), 0.0)
        if meter is None:
            return
        elsewhere = meter.get_used_elsewhere(SHARED.index(limit))
        if meter.estimate_most(kind) + elsewhere > largest * most:  # few are fuller than all before them
            note_share(scope, limit, meter.peek_used(kind, now_s) + elsewhere, most)

    for scope, name, allowance in limited:
        meter = meters.find_used_meter(scope, name)
        if (most := allowance.requests_per_minute) is not None:
            measure_meter(scope, "requests_per_minute", "requests", meter, most)
        if (most := allowance.tokens_per_minute) is not None:
            measure_meter(scope, "tokens_per_minute", "tokens", meter, most)
        if (most := allowance.concurrent) is not None:
            here = (
                0 if meter is None else meter.count_under_way() + meter.get_used_elsewhere(SHARED.index("concurrent"))
            )
            note_share(scope, "concurrent", here, most)
        if allowance.has_budget:
            for limit, figure, used in budgets.get_usage(scope, name, allowance):
                if figure is not None:
                    note_share(scope, limit, used, figure)
    return parts
