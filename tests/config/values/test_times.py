"""Moments in the configuration."""

import pytest

from gateway.config.values.times import format_time, parse_time


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2027-01-31T23:59:59Z", "2027-01-31T23:59:59Z"),
        ("2027-01-31t23:59:59z", "2027-01-31T23:59:59Z"),
        ("2027-01-31T23:59:59.5+02:00", "2027-01-31T21:59:59.500000Z"),
        ("2027-01-31T23:59:59-00:30", "2027-02-01T00:29:59Z"),
    ],
)
def test_a_moment_is_read_in_any_zone_and_written_in_utc(text: str, moment: str) -> None:
    assert format_time(parse_time(text)) == moment


@pytest.mark.parametrize(
    "value", ["2027-01-31", "2027-01-31T23:59:59", "2027-02-30T00:00:00Z", "0001-01-01T00:00:00+23:00", "soon", "", 1]
)
def test_a_moment_without_its_zone_is_none(value: object) -> None:
    """Nor is one that no calendar has."""
    with pytest.raises(ValueError, match=r"expected|there is no such time"):
        parse_time(value)
