"""Moments as people write them."""

import pytest

from gateway.contracts.times import format_time, parse_time, resolve_time


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
    "text", ["2027-01-31", "2027-01-31T23:59:59", "2027-02-30T00:00:00Z", "0001-01-01T00:00:00+23:00", "soon", ""]
)
def test_time_without_a_zone_is_refused(text: str) -> None:
    """Nor is one that no calendar has."""
    with pytest.raises(ValueError, match=r"expected|there is no such time"):
        parse_time(text)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("30d", "1970-01-31T00:00:10Z"),
        ("90m", "1970-01-01T01:30:10Z"),
        ("2027-01-31T23:59:59Z", "2027-01-31T23:59:59Z"),
    ],
)
def test_relative_time_resolves_from_now(text: str, moment: str) -> None:
    """Counted from now; anything else is no moment."""
    assert resolve_time(text, now_s=10.9) == moment
    for wrong in ("soon", "1w", "-1d", "2027-01-31"):
        with pytest.raises(ValueError, match="expected"):
            resolve_time(wrong, now_s=0.0)
