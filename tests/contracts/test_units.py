"""Durations of plugins are spelled as everywhere in the configuration."""

import pytest

from gateway.config.values.units import parse_positive_duration
from gateway.contracts.units import parse_positive_seconds

VALID = [
    ("500ms", 0.5),
    ("300s", 300.0),
    ("5m", 300.0),
    ("24h", 86400.0),
    (" 1.5m ", 90.0),
    ("7", 7.0),
    (7, 7.0),
    (0.25, 0.25),
]
INVALID = ["", "5 m", "m", "-1s", "1d", "1e3", "0", "0ms", 0, -1, 8761 * 3600, 10**400, float("nan"), float("inf")]


@pytest.mark.parametrize(("value", "seconds"), VALID)
def test_duration_is_parsed_to_seconds(value: object, seconds: float) -> None:
    """Text with a unit, or a number; the same as in the rest of the configuration."""
    assert parse_positive_seconds(value) == seconds == parse_positive_duration(value)
    assert isinstance(parse_positive_seconds(value), float)


@pytest.mark.parametrize("value", [*INVALID, True, None, [], {}, "٣s", "9" * 400])
def test_invalid_duration_raises_value_error(value: object) -> None:
    """With a ValueError, here as there."""
    with pytest.raises(ValueError, match=r"duration|must be"):
        parse_positive_seconds(value)
    with pytest.raises(ValueError, match=r"duration|must be"):
        parse_positive_duration(value)
