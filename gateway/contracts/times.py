"""Moments as the configuration and the API spell them: `2027-01-31T23:59:59Z`."""

import re
from datetime import UTC, datetime

from gateway.contracts.units import parse_bounded_seconds

_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?(?:[Zz]|[+-][0-9]{2}:[0-9]{2})\Z"
)

_DAYS = re.compile(r"([0-9]{1,5})d\Z")


def parse_time(text: str) -> datetime:
    """Return the moment of a text by RFC 3339, in UTC. Raises ValueError, also for one that names no zone."""
    if _TIME.match(text) is None:
        raise ValueError("expected a time with its zone, such as 2027-01-31T23:59:59Z")
    try:
        return datetime.fromisoformat(text.upper()).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"there is no such time: {error}") from None


def resolve_time(text: str, *, now_s: float) -> str:
    """Return a moment that a person writes, as `parse_time` reads it: a time, or so long from `now_s` (Unix) on.

    Raises ValueError.
    """
    if (days := _DAYS.match(text)) is not None:
        duration_s = float(days[1]) * 86400.0
    elif _TIME.match(text) is None:
        duration_s = parse_bounded_seconds(text)
    else:
        return format_time(parse_time(text))
    return format_time(datetime.fromtimestamp(int(now_s + duration_s), UTC))


def format_time(moment: datetime) -> str:
    """Return the shortest exact spelling of a moment in UTC."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
