"""The names of quirks, which operators write and tables of refusals refer to."""

import re
from pathlib import Path

from gateway.config.schema.upstreams import UpstreamSettings
from gateway.contracts.quirks import QUIRKS

PAGE = Path(__file__).parents[2] / "docs" / "upstreams.md"


def test_configuration_takes_each_quirk_by_its_name() -> None:
    settings = UpstreamSettings.model_validate({"name": "up", "base_url": "http://up/v1", "quirks": list(QUIRKS)})
    assert settings.quirks == QUIRKS


def test_page_of_upstreams_explains_each_quirk() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", PAGE.read_text(), re.MULTILINE)
    assert set(QUIRKS) <= set(rows)
