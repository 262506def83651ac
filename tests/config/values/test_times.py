"""Moments in the configuration."""

from datetime import UTC, datetime

import pytest

from gateway.config.values.times import read_time


def test_moment_of_a_text_is_read() -> None:
    assert read_time("2027-01-31T23:59:59Z") == datetime(2027, 1, 31, 23, 59, 59, tzinfo=UTC)


@pytest.mark.parametrize("value", [1, True, None, ["2027-01-31T23:59:59Z"], "soon"])
def test_value_that_is_no_text_of_a_moment_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="expected"):
        read_time(value)
