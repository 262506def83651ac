"""The limits of one key, tenant, model or upstream, as the operator set them."""

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

#: A limit of a day or a month, by the name of its setting.
BudgetLimit: TypeAlias = Literal["tokens_per_day", "tokens_per_month", "cost_per_day", "cost_per_month"]
#: A limit, by the name of its setting.
Limit: TypeAlias = Literal["requests_per_minute", "tokens_per_minute", "concurrent", BudgetLimit]
BUDGETS: Final[tuple[BudgetLimit, ...]] = get_args(BudgetLimit)
#: The limits of money.
COSTS: Final[tuple[BudgetLimit, ...]] = tuple(name for name in BUDGETS if name.startswith("cost_"))
LIMITS: Final[tuple[Limit, ...]] = get_args(Limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """The limits of one of them. None: not limited.

    `concurrent` are requests under way at a time. Days and months are in UTC. Costs are in the currency of the prices.
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
        """Return whether something is limited for a day or a month."""
        return any(getattr(self, name) is not None for name in BUDGETS)

    @property
    def has_cost(self) -> bool:
        """Return whether money is limited, for a day or a month."""
        return any(getattr(self, name) is not None for name in COSTS)
