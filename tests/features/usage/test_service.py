"""The usage of a worker follows the configuration."""

import logging
from pathlib import Path

import pytest

from gateway.config import ConfigError, Settings
from gateway.features.usage.service import UsageService, check_prices_file
from tests.features.worker import features

PRICES = "currency: USD\nprices: [{model: '*', input: 1.5}]\n"


def settings(**usage: object) -> Settings:
    return Settings.model_validate({"usage": {"enabled": True, **usage}}, context={"folder": Path.cwd()})


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    file = tmp_path / "prices.yaml"
    file.write_text(PRICES)
    return file


async def test_ledger_follows_days_and_prices_of_the_configuration(prices: Path) -> None:
    async with features({}) as found:
        found.apply_settings(settings(keep_days=7, prices=str(prices)))
        ledger = found.find(UsageService).ledger
        assert (ledger.keep_days, ledger.prices.currency) == (7, "USD")


async def test_unreadable_prices_keep_the_old_ones_and_are_logged(
    prices: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with features({"usage": {"enabled": True, "prices": str(prices)}}) as found:
        following = settings(prices=str(prices))
        prices.write_text("currency: USD")
        with caplog.at_level(logging.ERROR, "gateway"):
            found.apply_settings(following)
        assert found.find(UsageService).ledger.prices.currency == "USD"
    assert "the old prices stay in use" in caplog.text


async def test_usage_that_is_off_has_no_hook_in_the_context_lane() -> None:
    async with features({}) as found:
        service = found.find(UsageService)
        assert service.build_hook(Settings()) is None
        assert service.build_hook(settings()) is not None


def test_check_of_files_reports_every_problem_of_the_prices(prices: Path) -> None:
    check_prices_file(settings(prices=str(prices)))
    prices.write_text("currency: dollars\nprices: []\n")
    with pytest.raises(ConfigError) as failed:
        check_prices_file(settings(prices=str(prices)))
    assert len(failed.value.problems) == 2
