"""The section about usage: off unless it is asked for."""

from pathlib import Path

import pytest

from gateway.config import ConfigError, load


def loaded(tmp_path: Path, text: str) -> object:
    file = tmp_path / "gateway.yaml"
    file.write_text(text)
    return load(file, environ={}, flags={}).settings.usage


def test_usage_is_off_by_default(tmp_path: Path) -> None:
    """And is kept for a little more than a year where it is on."""
    usage = loaded(tmp_path, "listen: 127.0.0.1:1\n")
    assert (usage.enabled, usage.prices, usage.keep_days) == (False, None, 400)  # type: ignore[attr-defined]


def test_the_file_of_prices_is_relative_to_the_configuration(tmp_path: Path) -> None:
    """And must be there."""
    (tmp_path / "prices.yaml").write_text("currency: USD\nprices: []\n")
    usage = loaded(tmp_path, "usage: {enabled: true, prices: prices.yaml}\n")
    assert usage.prices == tmp_path / "prices.yaml"  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="no such file"):
        loaded(tmp_path, "usage: {prices: none.yaml}\n")
