"""One parameter, told to models in one way."""

import jsonschema_rs
import pytest

from gateway.contracts.risk import CHOICES, LEVELS, MEANING, RAISED, RISK_LEVEL, build_schema


def test_risk_level_meaning_describes_every_level() -> None:
    """Those that raise the risk are those that a person confirms."""
    assert RISK_LEVEL == "risk_level" and CHOICES == "One of: low, medium, high"
    assert all(level in MEANING for level in LEVELS) and set(RAISED) < set(LEVELS) and "low" not in RAISED


@pytest.mark.parametrize(("level", "fits"), [("low", True), ("high", True), ("LOW", False), ("", False), (1, False)])
def test_the_schema_takes_the_levels_and_nothing_else(level: object, fits: bool) -> None:
    """As a part of any tool's own schema."""
    assert jsonschema_rs.is_valid({"properties": {RISK_LEVEL: build_schema()}}, {RISK_LEVEL: level}) is fits
