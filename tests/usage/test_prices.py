"""Prices: which one a model has, and what its tokens cost."""

from dataclasses import replace

import pytest

from gateway.usage.prices import Price, Prices
from gateway.usage.tokens import TokenCounts

MINI = Price(model="gpt-4.1-mini*", input=0.4, cached=0.1, cache_write=0.4, output=1.6)
SPEAKS = Price(model="gpt-audio*", input=2, cached=1, cache_write=2, output=8, audio_input=32, audio_output=64)
CLAUDE = Price(model="claude-*", input=3, cached=0.3, cache_write=3.75, output=15)


@pytest.mark.parametrize(
    ("price", "tokens", "billionths"),
    [
        (MINI, TokenCounts(1_000_000), 400_000_000),
        (MINI, TokenCounts(1), 400),
        (MINI, TokenCounts(1000, 400, 0, 10, 9), 600 * 400 + 400 * 100 + 10 * 1600),
        (CLAUDE, TokenCounts(2121, 2000, 100, 393), 21 * 3000 + 2000 * 300 + 100 * 3750 + 393 * 15000),
        (MINI, TokenCounts(), 0),
        (CLAUDE, TokenCounts(100, 0, 100, 0, written_1h=70), 100 * 3750),
        (replace(CLAUDE, cache_write_1h=6), TokenCounts(100, 0, 100, 0, written_1h=70), 30 * 3750 + 70 * 6000),
        (SPEAKS, TokenCounts(100, 10, 0, 50, 0, 60, 40), 30 * 2000 + 10 * 1000 + 60 * 32000 + 10 * 8000 + 40 * 64000),
        (SPEAKS, TokenCounts(100, 80, 0, 0, 0, 60), 80 * 1000 + 20 * 32000),
        (MINI, TokenCounts(100, 0, 0, 50, 0, 60, 40), 100 * 400 + 50 * 1600),
        (Price(model="*", input=0.0004, cached=0, cache_write=0, output=0), TokenCounts(1), 0),
        (Price(model="*", input=0.0006, cached=0, cache_write=0, output=0), TokenCounts(1), 1),
    ],
)
def test_answer_cost_sums_each_kind_of_token_once(price: Price, tokens: TokenCounts, billionths: int) -> None:
    """Each kind of token has its own price; none counts twice."""
    assert price.compute_cost(tokens) == billionths


def test_audio_tokens_need_an_audio_price() -> None:
    heard, spoken = TokenCounts(9, audio_input=5), TokenCounts(output=9, audio_output=5)
    assert SPEAKS.covers_tokens(heard) and SPEAKS.covers_tokens(spoken) and MINI.covers_tokens(TokenCounts(9, output=9))
    assert not (
        MINI.covers_tokens(heard)
        or MINI.covers_tokens(spoken)
        or replace(SPEAKS, audio_output=None).covers_tokens(spoken)
    )
    dearest = Prices("USD", [MINI, SPEAKS, replace(CLAUDE, cache_write_1h=6)]).dearest
    assert dearest is not None
    assert (dearest.audio_input, dearest.audio_output, dearest.cache_write_1h) == (32, 64, 6)


def test_price_is_that_of_the_first_glob_that_matches_the_model() -> None:
    """And a model without one has no price."""
    rest = Price(model="gpt-*", input=1, cached=1, cache_write=1, output=1)
    prices = Prices("USD", [MINI, CLAUDE, rest])
    assert prices.find_price("gpt-4.1-mini-2025-04-14") is MINI
    assert prices.find_price("gpt-4.1") is rest
    assert prices.find_price("llama3") is None is prices.find_price("")
    assert Prices().find_price("gpt-4.1") is None
    assert prices.find_price("llama3") is None and not prices.covers_all_models
    assert Prices("USD", [MINI, Price(model="*", input=0, cached=0, cache_write=0, output=0)]).covers_all_models
    assert Prices().dearest is None
    assert prices.dearest == Price(model="*", input=3, cached=1, cache_write=3.75, output=15)


def test_token_price_guess_averages_the_highest_prices() -> None:
    """Of input and output, which may be those of two models."""
    dear = Price(model="a", input=10.0, output=20.0, cached=0.0, cache_write=0.0)
    other = Price(model="b", input=1.0, output=50.0, cached=0.0, cache_write=0.0)
    assert Prices("USD", [dear, other]).guess_of_token == 30 / 1_000_000
    assert Prices().guess_of_token == 0.0
