"""The file of prices, read and checked as strictly as the configuration itself."""

from pathlib import Path

from pydantic import ValidationError

from gateway.config.document import Document
from gateway.config.messages import explain
from gateway.config.problems import ConfigError, Problem
from gateway.config.reading.yaml_reader import MAX_FILE_BYTES, parse, read_text
from gateway.features.usage.section import PriceEntry, PriceFile, UsageSettings
from gateway.usage.prices import Price, Prices


def load_prices(section: UsageSettings) -> Prices:
    """Return the prices that usage is to have; none where no file is named. Raises ConfigError with every problem."""
    if not section.enabled or section.prices is None:
        return Prices()
    return read_prices(section.prices)


def read_prices(path: Path) -> Prices:
    """Return the prices of a file. Raises ConfigError with every problem in it."""
    try:
        text = read_text(path, limit_bytes=MAX_FILE_BYTES)
    except ValueError as error:
        raise ConfigError((Problem(str(path), "", str(error)),)) from None
    source = parse(text, environ=None)
    document = Document(source, file=str(path), folder=path.parent)
    document.raise_problems()
    if not isinstance(document.tree, dict):
        document.complain((), "expected prices (currency: USD, and prices: with a list)")
    file: PriceFile | None = None
    try:
        file = PriceFile.model_validate(document.tree)
    except ValidationError as error:
        explain(document, error, root=PriceFile)
    if document.get("prices") == []:
        document.complain(("prices",), "expected at least one price: without any, no cost is known")
    document.raise_problems()
    assert file is not None
    return Prices(file.currency, [_build_price(entry) for entry in file.prices])


def _build_price(entry: PriceEntry) -> Price:
    """Return the price of an entry; prices that are not given follow from others."""
    return Price(
        model=entry.model,
        input=entry.input,
        output=entry.output,
        cached=entry.input if entry.cached is None else entry.cached,
        cache_write=entry.input if entry.cache_write is None else entry.cache_write,
        cache_write_1h=entry.cache_write_1h,
        audio_input=_convert_audio_price(entry.audio_input, entry),
        audio_output=_convert_audio_price(entry.audio_output, entry),
    )


def _convert_audio_price(price: float | None, entry: PriceEntry) -> float | None:
    """Return a price of audio. A model that is free is free for audio, too."""
    return 0.0 if price is None and not (entry.input or entry.output) else price
