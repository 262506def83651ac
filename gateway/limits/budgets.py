"""The use of budgets in their periods of today (UTC), by all replicas."""

import sys
from collections.abc import Callable, Collection, Mapping
from math import ceil
from typing import Final, TypeAlias

from gateway.contracts.allowance import BUDGETS, COSTS, Allowance, BudgetLimit, LimitScope

#: What a rule is counted under: its scope and its id.
Counted: TypeAlias = tuple[LimitScope, str]
#: What is used of each budget, in the order of `BUDGETS`. Costs are in the currency of the prices.
BudgetSums: TypeAlias = tuple[float, ...]
NOTHING_USED: Final[BudgetSums] = tuple(0.0 if limit in COSTS else 0 for limit in BUDGETS)
_TOKENS_OF_MONTH, _COST_OF_MONTH = BUDGETS.index("tokens_per_month"), BUDGETS.index("cost_per_month")


def _cost_nothing(_scope: LimitScope, _name: str) -> float:
    """Return 0.0: nothing costs anything where there are no prices."""
    return 0.0


class Budgets:
    """The sums as they were read last. `replace_sums` takes newer ones. `wanted`: a limit needs them, or an operator.

    `missing` has what a limit or an operator wanted and was not read.

    `currency` returns that of the prices in use; "": there are none. `guess` returns what a token may cost.
    `gateways` is how many gateways share the budgets: each leaves the others their part of what is left. `read_s` is
    when the latest read began, by the clock of the meters.
    """

    def __init__(
        self, currency: Callable[[], str], *, guess: Callable[[LimitScope, str], float] = _cost_nothing
    ) -> None:
        self.wanted = False
        self.gateways = 1
        self.read_s = float("-inf")
        self.missing: set[Counted] = set()
        self.currency = currency
        self._guess = guess
        self._spent: Mapping[Counted, BudgetSums] = {}
        self._names: Collection[Counted] = ()
        self._read_currency: str | None = None  # None: nothing was read yet

    def replace_sums(self, spent: Mapping[Counted, BudgetSums], *, names: Collection[Counted], currency: str) -> None:
        """Use these sums from now on. They are of all `names`, of which some have none; costs are in `currency`."""
        self._spent, self._names, self._read_currency = spent, names, currency

    def find_obstacle(self, scope: LimitScope, name: str, allowance: Allowance) -> str | None:
        """Return why the budgets of a rule cannot be counted now, and what to do; None: they can."""
        self.wanted = True
        currency = self.currency() if allowance.has_cost else self._read_currency
        if currency == "" and allowance.has_cost:
            return (
                "this gateway has no prices to count its cost by: its operator has to set 'usage.prices', or take the "
                "budget away"
            )
        is_known = (scope, name) in self._names
        if not is_known:
            self.missing.add((scope, name))
        if currency is None or currency != self._read_currency or not is_known:
            return "what is used of it is not read from the store yet: try again in a second"
        return None

    def find_exceeded(self, scope: LimitScope, name: str, allowance: Allowance, *, held: int = 0) -> BudgetLimit | None:
        """Return the first budget of a rule that is used up; None: there is none.

        `held`: with so many tokens that the sums do not have, of this gateway, and as many of each other one.
        """
        for limit, most, used in self.get_usage(scope, name, allowance):
            if most is None:
                continue
            more = held * self.gateways
            if used + (more * self.get_token_cost(scope, name) if more and limit in COSTS else more) >= most:
                return limit
        return None

    def convert_to_tokens(self, cost: float, scope: LimitScope, name: str) -> int:
        """Return how many tokens have this cost, as they do for `over`; the largest number if they are free."""
        each = self.get_token_cost(scope, name)
        return ceil(min(cost / each, sys.maxsize)) if each else sys.maxsize

    @property
    def names(self) -> Collection[Counted]:
        """Return what the sums are of."""
        return self._names

    def get_spent(self, scope: LimitScope, name: str) -> BudgetSums:
        """Return what was read of a rule."""
        return self._spent.get((scope, name), NOTHING_USED)

    def get_token_cost(self, scope: LimitScope, name: str) -> float:
        """Return the mean cost of a token in this month, or a guess if nothing was used."""
        spent = self.get_spent(scope, name)
        tokens = spent[_TOKENS_OF_MONTH]
        return spent[_COST_OF_MONTH] / tokens if tokens else self._guess(scope, name)

    def get_usage(
        self, scope: LimitScope, name: str, allowance: Allowance
    ) -> list[tuple[BudgetLimit, float | None, float]]:
        """Return each budget of a rule: the limit, its figure (None: not limited), and what is used."""
        self.wanted = True
        spent = self.get_spent(scope, name)
        return [(limit, getattr(allowance, limit), used) for limit, used in zip(BUDGETS, spent, strict=True)]
