"""Durations and sizes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.values.units import (
    build_size_type,
    format_duration,
    format_size,
    parse_duration,
    parse_positive_duration,
    parse_size,
)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("500ms", 0.5),
        ("10s", 10.0),
        ("5m", 300.0),
        ("24h", 86400.0),
        ("1.5s", 1.5),
        (7, 7.0),
        (0.25, 0.25),
        ("30", 30.0),
        (" 2m ", 120.0),
        ("8760h", 31_536_000.0),
    ],
)
def test_durations_are_seconds(value: object, seconds: float) -> None:
    """`500ms 10s 5m 24h` and plain numbers are understood as seconds."""
    assert parse_positive_duration(value) == seconds


@pytest.mark.parametrize(
    "value",
    [
        "",
        "s",
        "10 s",
        "10S",
        "1h30m",
        "-1s",
        "1e3",
        "5min",
        "inf",
        "nan",
        True,
        None,
        [],
        {},
        "8761h",
        -1,
        1e300,
        10**400,
        float("nan"),
        float("inf"),
        "٣s",
        "9" * 5000,
    ],
)
def test_invalid_duration_is_refused(value: object) -> None:
    """Everything else is a ValueError that shows how durations are written or how long they may be."""
    with pytest.raises(ValueError, match=r"500ms|8760h"):
        parse_positive_duration(value)


def test_zero_duration_is_refused_unless_explicitly_allowed() -> None:
    """A drain may take no time, a timeout may not."""
    assert parse_duration(0) == parse_duration("0s") == 0.0
    with pytest.raises(ValueError, match="more than 0"):
        parse_positive_duration("0ms")


@pytest.mark.parametrize(
    ("value", "size_bytes"), [("32KiB", 32768), ("1MiB", 1 << 20), ("2GiB", 2 << 30), ("7B", 7), (512, 512), ("9", 9)]
)
def test_sizes_are_bytes(value: object, size_bytes: int) -> None:
    """`32KiB 1MiB` and plain numbers are understood as bytes."""
    assert parse_size(value) == size_bytes


@pytest.mark.parametrize("value", ["1KB", "1MB", "1 KiB", "1kib", "1.5MiB", "-1", "", True, None, 1.5, [], "9" * 5000])
def test_invalid_size_is_refused(value: object) -> None:
    """KB and MB mean two things, so they are refused like everything else."""
    with pytest.raises(ValueError, match="expected a size such as"):
        parse_size(value)


def test_size_out_of_limits_is_refused_with_readable_limits() -> None:
    """The message names both limits as one would write them."""
    leaf = build_size_type(1024, 1 << 20)
    assert leaf.parse("1KiB") == 1024
    for value in (1023, "2MiB", -5):
        with pytest.raises(ValueError, match="must be between 1KiB and 1MiB"):
            leaf.parse(value)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.5, "500ms"), (5.0, "5s"), (60.0, "60s"), (75.0, "75s"), (600.0, "10m"), (86400.0, "24h"), (0.0, "0s")],
)
def test_durations_are_formatted_in_the_usual_unit(seconds: float, text: str) -> None:
    """The usual spelling, not the longest unit at any price."""
    assert format_duration(seconds) == text


@given(st.integers(0, 8760 * 3600 * 1000))
def test_a_written_duration_reads_as_itself(milliseconds: int) -> None:
    """Writing loses nothing down to the millisecond."""
    seconds = milliseconds / 1000
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds, rel=1e-5)


@given(st.integers(0, 1 << 45))
def test_a_written_size_reads_as_itself(size_bytes: int) -> None:
    """Writing loses nothing."""
    assert parse_size(format_size(size_bytes)) == size_bytes
