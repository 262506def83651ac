"""The use of budgets today and this month (UTC), by all replicas."""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

from gateway.contracts.allowance import BUDGETS, Allowance, BudgetLimit

Scope: TypeAlias = Literal["key", "tenant", "model", "upstream"]


class Spent(NamedTuple):
    """The tokens and the cost of a day, and of the month with that day, in the order of `BUDGETS`.

    Costs are in the currency of the prices.
    """

    tokens_day: int = 0
    tokens_month: int = 0
    cost_day: float = 0.0
    cost_month: float = 0.0


_NOTHING: Final = Spent()


class Budgets:
    """The sums as they were read last. `replace` takes newer ones. `wanted`: somebody has asked for them."""

    def __init__(self) -> None:
        self.wanted = False
        self._spent: Mapping[tuple[Scope, str], Spent] = {}

    def replace(self, spent: Mapping[tuple[Scope, str], Spent]) -> None:
        """Use these sums from now on."""
        self._spent = spent

    def over(self, scope: Scope, name: str, allowance: Allowance) -> BudgetLimit | None:
        """Return the first budget of a rule that is used up; None: there is none."""
        for limit, most, used in self.used(scope, name, allowance):
            if most is not None and used >= most:
                return limit
        return None

    def used(self, scope: Scope, name: str, allowance: Allowance) -> list[tuple[BudgetLimit, float | None, float]]:
        """Return each budget of a rule: the limit, its figure (None: not limited), and what is used."""
        self.wanted = True
        spent = self._spent.get((scope, name), _NOTHING)
        return [(limit, getattr(allowance, limit), used) for limit, used in zip(BUDGETS, spent, strict=True)]
