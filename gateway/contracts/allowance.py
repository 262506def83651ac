"""The limits of one key, tenant, model or upstream, as the operator set them, and the periods of budgets.

A further period is a line of `PERIODS`, its two limits here, its two settings (gateway/features/limits/section.py) and
their Chinese. Whatever counts, shares or shows budgets follows `PERIODS` and `BUDGETS`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Final, Literal, TypeAlias, get_args

#: Whose limits are counted together.
LimitScope: TypeAlias = Literal["key", "tenant", "model", "upstream"]
#: A limit of a period of `PERIODS`, by the name of its setting.
BudgetLimit: TypeAlias = Literal["tokens_per_day", "tokens_per_month", "cost_per_day", "cost_per_month"]
#: A limit, by the name of its setting.
Limit: TypeAlias = Literal["requests_per_minute", "tokens_per_minute", "concurrent", BudgetLimit]
BUDGETS: Final[tuple[BudgetLimit, ...]] = get_args(BudgetLimit)
#: The limits of money.
COSTS: Final[tuple[BudgetLimit, ...]] = tuple(name for name in BUDGETS if name.startswith("cost_"))
LIMITS: Final[tuple[Limit, ...]] = get_args(Limit)


@dataclass(frozen=True, slots=True)
class BudgetPeriod:
    """A period of budgets, in days of UTC.

    `find_first` returns the first day of the period that a day is in. `label` formats this day, as `strftime` does:
    under the result, gateways share what is left of the period.
    """

    find_first: Callable[[date], date]
    label: str = "%Y-%m-%d"

    def get_label(self, today: date) -> str:
        """Return the text that is the same on all days of a period, and different in the next one."""
        return self.find_first(today).strftime(self.label)


#: The periods, by the last word of the names of their limits.
PERIODS: Final[Mapping[str, BudgetPeriod]] = {
    "day": BudgetPeriod(lambda today: today),
    "month": BudgetPeriod(lambda today: today.replace(day=1), "%Y-%m"),
}


def get_period(limit: BudgetLimit) -> BudgetPeriod:
    """Return the period of a budget."""
    return PERIODS[limit.rpartition("_")[2]]


def find_first_day(today: date) -> date:
    """Return the first day of which usage may count towards a budget today."""
    return min(period.find_first(today) for period in PERIODS.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """The limits of one of them. None: not limited.

    `concurrent` are requests under way at a time. Periods are in UTC. Costs are in the currency of the prices.
    `soft`: more than that is reported, and not refused.
    """

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent: int | None = None
    tokens_per_day: int | None = None
    tokens_per_month: int | None = None
    cost_per_day: float | None = None
    cost_per_month: float | None = None
    soft: bool = False

    def find_excess(self, other: "Allowance | None") -> str | None:
        """Return the first figure that `other` has larger, or not at all; None: it is within this one."""
        for name in LIMITS:
            most = getattr(self, name)
            given = None if other is None or (other.soft and not self.soft) else getattr(other, name)
            if most is not None and (given is None or given > most):
                return name
        return None

    @property
    def has_budget(self) -> bool:
        """Return whether something is limited for a period of budgets."""
        return any(getattr(self, name) is not None for name in BUDGETS)

    @property
    def has_cost(self) -> bool:
        """Return whether money is limited, for a period of budgets."""
        return any(getattr(self, name) is not None for name in COSTS)


@dataclass(frozen=True, slots=True)
class LimitUsage:
    """A limit and what is used of it.

    `tenant` is that of a key; others have none. `resets_s`: when nothing of that counts any more, in seconds; None:
    with its period, or its requests. `over`: requests that exceeded it since the gateway started. They were refused,
    unless it is `soft`. `obstacle`: why it cannot be counted now, and what to do; None: it can. Requests are refused
    until it can, unless it is `soft`.
    """

    scope: LimitScope
    name: str
    tenant: str | None
    limit: Limit
    most: float
    used: float
    resets_s: float | None
    soft: bool
    over: int
    obstacle: str | None = None
