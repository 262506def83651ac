"""Durations as people write them, `500ms 10s 5m 24h` or a plain number of seconds, everywhere in a configuration."""

import re
from typing import Final

#: A year: beyond that a timer is a mistake, and some event loops overflow.
LONGEST_S: Final = 8760 * 3600.0
UNITS_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
EXPECTED: Final = "expected a duration such as 500ms, 10s, 5m or 24h"
_DURATION = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)(ms|s|m|h)?\Z")


def parse_seconds(value: object) -> float:
    """Return the seconds of `500ms`, `10s`, `5m`, `24h` or a number, whatever their range. Raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(EXPECTED)
    if not isinstance(value, str):
        return float(value) if abs(value) <= LONGEST_S else value  # an integer may be too large for a float
    match = _DURATION.match(value.strip())
    if match is None:
        raise ValueError(EXPECTED)
    return float(match[1]) * UNITS_S[match[2] or "s"]


def parse_bounded_seconds(value: object) -> float:
    """Return the seconds of a duration: from 0 to `8760h`. Raises ValueError."""
    seconds = parse_seconds(value)
    if not 0 <= seconds <= LONGEST_S:
        raise ValueError("must be between 0 and 8760h")
    return seconds


def parse_positive_seconds(value: object) -> float:
    """Return the seconds of a duration: more than 0, up to `8760h`. Raises ValueError."""
    seconds = parse_seconds(value)
    if not 0 < seconds <= LONGEST_S:
        raise ValueError("must be more than 0, and at most 8760h")
    return seconds
