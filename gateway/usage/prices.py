"""The cost of tokens: the operator's prices, by the model that an answer names.

Without a price no cost is known; budgets then count the dearest one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.contracts.usage import COST_UNITS
from gateway.model_names import is_model_of
from gateway.usage.tokens import Tokens

#: Units of cost for one token at a price of 1 for a million.
_UNITS_A_TOKEN = COST_UNITS // 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """The price of a million tokens of the models that a glob matches.

    `cached` is for input that the upstream had in its cache, and `cache_write` for input that it wrote there.
    """

    model: str
    input: float
    output: float
    cached: float
    cache_write: float

    def cost(self, tokens: Tokens) -> int:
        """Return the cost of an answer, in units of `COST_UNITS`."""
        plain = max(tokens.input - tokens.cached - tokens.written, 0)
        millions = (
            plain * self.input
            + tokens.cached * self.cached
            + tokens.written * self.cache_write
            + tokens.output * self.output
        )
        return round(millions * _UNITS_A_TOKEN)


class Prices:
    """The prices of a file, in one currency. The first one whose glob matches counts.

    `dearest` has each of the highest prices: it bounds what usage without a price may have cost. None: there are none.
    """

    def __init__(self, currency: str = "", prices: Sequence[Price] = ()) -> None:
        self.currency = currency
        self.dearest = _dearest(prices) if prices else None
        self._prices = tuple(prices)

    @property
    def guess_of_token(self) -> float:
        """Return what a token may cost, in the currency: the mean of the dearest prices of input and of output."""
        return 0.0 if self.dearest is None else (self.dearest.input + self.dearest.output) / 2_000_000

    def of(self, model: str) -> Price | None:
        """Return the price of a model; None: it has none."""
        return next((price for price in self._prices if is_model_of(model, price.model)), None)

    @property
    def has_all(self) -> bool:
        """Return whether every model has a price, one without a name as well."""
        return any(not price.model.strip("*") for price in self._prices)


def _dearest(prices: Sequence[Price]) -> Price:
    return Price(
        model="*",
        input=max(price.input for price in prices),
        output=max(price.output for price in prices),
        cached=max(price.cached for price in prices),
        cache_write=max(price.cache_write for price in prices),
    )
