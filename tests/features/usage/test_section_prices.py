"""The file of prices: what it says, and what is wrong in it, each with its place."""

from pathlib import Path

import pytest

from gateway.config import ConfigError
from gateway.features.usage.section import UsageSettings
from gateway.features.usage.section_prices import load_prices, read_prices
from gateway.usage.prices import Price

GOOD = """
currency: USD
prices:
  - {model: "gpt-4.1-mini*", input: 0.40, cached: 0.10, output: 1.60}
  - {model: "claude-*", input: 3, cached: 0.3, cache_write: 3.75, output: 15}
  - {model: "*embedding*", input: "0.02"}
"""


def test_prices_are_read(tmp_path: Path) -> None:
    """In their order; what is not said of cached tokens costs as other input."""
    file = tmp_path / "prices.yaml"
    file.write_text(GOOD)
    prices = read_prices(file)
    assert prices.currency == "USD"
    assert prices.find_price("gpt-4.1-mini-2025-04-14") == Price(
        model="gpt-4.1-mini*", input=0.4, cached=0.1, cache_write=0.4, output=1.6
    )
    assert prices.find_price("text-embedding-3-small") == Price(
        model="*embedding*", input=0.02, cached=0.02, cache_write=0.02, output=0
    )
    assert prices.find_price("llama3") is None


def test_audio_price_is_zero_only_for_free_models(tmp_path: Path) -> None:
    """Else it has the price that is written, or none; so has what a cache keeps for an hour."""
    file = tmp_path / "prices.yaml"
    told = "{model: told, input: 1, audio_input: 9, audio_output: 8, cache_write_1h: 7}"
    file.write_text(
        f"currency: USD\nprices:\n  - {told}\n  - {{model: free, input: 0}}\n  - {{model: text, input: 1}}\n"
    )
    prices = read_prices(file)
    found = {model: prices.find_price(model) for model in ("told", "free", "text")}
    assert {
        model: price and (price.audio_input, price.audio_output, price.cache_write_1h) for model, price in found.items()
    } == {"told": (9, 8, 7), "free": (0, 0, None), "text": (None, None, None)}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "prices.yaml: expected prices (currency: USD, and prices: with a list)"),
        ("- x", ":1:1: expected prices (currency: USD, and prices: with a list)"),
        ("currency: USD", ":1:1 prices: this key is required"),
        ("currency: USD\nprices: []", ":2:9 prices: expected at least one price: without any, no cost is known"),
        ("currency: dollars\nprices: []", ":1:11 currency: expected the three letters of a currency, such as USD"),
        (
            "currency: USD\nprices: [{model: m, input: -1}]",
            ":2:28 prices[0].input: must be between 0 and 1000000",
        ),
        ("currency: USD\nprices: [{model: m, input: .nan}]", "prices[0].input: "),
        ("currency: USD\nprices: [{model: m, input: cheap}]", "prices[0].input: expected a number such as 0.15"),
        ("currency: USD\nprices: [{model: m, input: 1, ouput: 2}]", "prices[0].ouput: unknown key"),
        ("currency: USD\nprices: [{input: 1}]", "prices[0].model: this key is required"),
        ("currency: [USD", "2:1"),
    ],
)
def test_invalid_price_file_is_reported_with_its_place(tmp_path: Path, text: str, problem: str) -> None:
    """And nothing is guessed."""
    file = tmp_path / "prices.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as raised:
        read_prices(file)
    assert problem in str(raised.value), str(raised.value)


def test_unreadable_prices_file_is_named_in_the_error(tmp_path: Path) -> None:
    """It is named."""
    with pytest.raises(ConfigError) as raised:
        read_prices(tmp_path / "none.yaml")
    assert "none.yaml" in str(raised.value)


def test_without_a_file_there_are_no_prices(tmp_path: Path) -> None:
    """Nor are there where usage is off."""
    assert load_prices(UsageSettings(enabled=True)).find_price("gpt-4.1") is None
    file = tmp_path / "prices.yaml"
    file.write_text("no prices")
    assert load_prices(UsageSettings(prices=file)).currency == ""
