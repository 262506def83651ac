"""The cost of tokens: the operator's prices, by the model that an answer names.

Without a price no cost is known; budgets then count the dearest one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.contracts.model_names import is_model_match
from gateway.contracts.storage.usage import COST_UNITS
from gateway.usage.tokens import TokenCounts

#: Units of cost for one token at a price of 1 for a million.
_UNITS_A_TOKEN = COST_UNITS // 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """The price of a million tokens of the models that a glob matches.

    `cached` is for input that the upstream had in its cache, `cache_write` for input that it wrote there, and
    `cache_write_1h` for what it keeps for an hour; None: as `cache_write`. `audio_input` and `audio_output` are for
    audio; None: it has no price, so what an answer with audio costs is not known.
    """

    model: str
    input: float
    output: float
    cached: float
    cache_write: float
    cache_write_1h: float | None = None
    audio_input: float | None = None
    audio_output: float | None = None

    def covers_tokens(self, tokens: TokenCounts) -> bool:
        """Return whether each of the tokens has a price."""
        has_input = not tokens.audio_input or self.audio_input is not None
        return has_input and (not tokens.audio_output or self.audio_output is not None)

    def compute_cost(self, tokens: TokenCounts) -> int:
        """Return the cost of an answer, in units of `COST_UNITS`. Audio without a price costs as text."""
        fresh = max(tokens.input - tokens.cached - tokens.written, 0)
        heard, spoken = min(tokens.audio_input, fresh), tokens.audio_output
        millions = (
            (fresh - heard) * self.input
            + tokens.cached * self.cached
            + (tokens.written - tokens.written_1h) * self.cache_write
            + (tokens.output - spoken) * self.output
        )
        if tokens.written_1h:
            millions += tokens.written_1h * (self.cache_write if self.cache_write_1h is None else self.cache_write_1h)
        if heard or spoken:
            millions += heard * (self.input if self.audio_input is None else self.audio_input)
            millions += spoken * (self.output if self.audio_output is None else self.audio_output)
        return round(millions * _UNITS_A_TOKEN)


class Prices:
    """The prices of a file, in one currency. The first one whose glob matches counts.

    `dearest` has each of the highest prices: it bounds what usage without a price may have cost. None: there are none.
    """

    def __init__(self, currency: str = "", prices: Sequence[Price] = ()) -> None:
        self.currency = currency
        self.dearest = _find_dearest(prices) if prices else None
        self._prices = tuple(prices)

    @property
    def guess_of_token(self) -> float:
        """Return what a token may cost, in the currency: the mean of the dearest prices of input and of output."""
        return 0.0 if self.dearest is None else (self.dearest.input + self.dearest.output) / 2_000_000

    def find_price(self, model: str) -> Price | None:
        """Return the price of a model; None: it has none."""
        return next((price for price in self._prices if is_model_match(model, price.model)), None)

    @property
    def covers_all_models(self) -> bool:
        """Return whether every model has a price, one without a name as well."""
        return any(not price.model.strip("*") for price in self._prices)


def _find_dearest(prices: Sequence[Price]) -> Price:
    """Return a price with the largest figure of each kind."""
    return Price(
        model="*",
        input=max(price.input for price in prices),
        output=max(price.output for price in prices),
        cached=max(price.cached for price in prices),
        cache_write=max(price.cache_write for price in prices),
        cache_write_1h=_find_largest(
            [price.cache_write_1h for price in prices], [price.cache_write for price in prices]
        ),
        audio_input=_find_largest([price.audio_input for price in prices], [price.input for price in prices]),
        audio_output=_find_largest([price.audio_output for price in prices], [price.output for price in prices]),
    )


def _find_largest(own: Sequence[float | None], others: Sequence[float]) -> float | None:
    """Return the largest of the `own` and the `others`' prices; None: no own price is set."""
    known = [price for price in own if price is not None]
    return max(*known, *others) if known else None
