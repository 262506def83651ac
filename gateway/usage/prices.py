"""The cost of tokens: the operator's prices, by the model that an answer names. Without a price no cost is known."""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from gateway.contracts.usage import COST_UNITS
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
    """The prices of a file, in one currency. The first one whose glob matches counts."""

    def __init__(self, currency: str = "", prices: Sequence[Price] = ()) -> None:
        self.currency = currency
        self._prices = tuple(prices)
        self.has_any = bool(prices)
        self._known: dict[str, Price | None] = {}

    def of(self, model: str) -> Price | None:
        """Return the price of a model. The caller bounds the number of models."""
        if model not in self._known:
            self._known[model] = next((price for price in self._prices if fnmatchcase(model, price.model)), None)
        return self._known[model]
