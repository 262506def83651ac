"""Durations as people write them, `500ms 10s 5m 24h` or a plain number of seconds, for the configuration of plugins."""

import re

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)(ms|s|m|h)?\Z")
# A year, as everywhere in the configuration: beyond that a timer is a mistake, and some event loops overflow.
_LONGEST_S = 8760 * 3600.0


def positive_seconds(value: object) -> float:
    """Return the seconds of `500ms`, `10s`, `5m`, `24h` or a number: more than 0, up to `8760h`. Raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("expected a duration such as 500ms, 10s, 5m or 24h")
    if isinstance(value, str):
        match = _DURATION.match(value.strip())
        if match is None:
            raise ValueError("expected a duration such as 500ms, 10s, 5m or 24h")
        seconds = float(match[1]) * _SECONDS[match[2] or "s"]
    else:
        seconds = value
    if not 0 < seconds <= _LONGEST_S:
        raise ValueError("must be more than 0, and at most 8760h")
    return float(seconds)
