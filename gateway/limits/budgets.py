"""The use of budgets today and this month (UTC), by all replicas."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from gateway.contracts.allowance import Allowance
from gateway.limits.rule import Limit, Scope


class Spent(NamedTuple):
    """The tokens and the cost of a day, and of the month with that day. Costs are in the currency of the prices."""

    tokens_day: int = 0
    tokens_month: int = 0
    cost_day: float = 0.0
    cost_month: float = 0.0


_LIMITS: Final[tuple[Limit, ...]] = ("tokens_per_day", "tokens_per_month", "cost_per_day", "cost_per_month")
_NOTHING: Final = Spent()


class Budgets:
    """The sums as they were read last. `replace` takes newer ones. `wanted`: somebody has asked for them."""

    def __init__(self) -> None:
        self.wanted = False
        self._spent: Mapping[tuple[Scope, str], Spent] = {}

    def replace(self, spent: Mapping[tuple[Scope, str], Spent]) -> None:
        """Use these sums from now on."""
        self._spent = spent

    def over(self, scope: Scope, name: str, allowance: Allowance) -> Limit | None:
        """Return the first budget of a rule that is used up; None: there is none."""
        for limit, most, used, _ in self.used(scope, name, allowance):
            if most is not None and used >= most:
                return limit
        return None

    def used(
        self, scope: Scope, name: str, allowance: Allowance
    ) -> list[tuple[Limit, float | None, float, float | None]]:
        """Return each budget of a rule: the limit, its figure, what is used, and None (it ends with its period)."""
        self.wanted = True
        spent = self._spent.get((scope, name), _NOTHING)
        return [(limit, getattr(allowance, limit), used, None) for limit, used in zip(_LIMITS, spent, strict=True)]
