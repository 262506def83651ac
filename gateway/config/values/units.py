"""Durations and sizes as people write them: `500ms 10s 5m 24h`, `32KiB 1MiB`. Plain numbers are seconds and bytes.

Shares are `20%` or 0.2, and amounts of money plain numbers.
"""

import re
from collections.abc import Callable
from typing import Annotated

from gateway.config.values.value import REFERENCE, ValueType, describe_kind, limit_range
from gateway.contracts.units import EXPECTED, UNITS_S, parse_bounded_seconds

_BYTES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_SIZE = re.compile(r"([0-9]{1,15})(B|KiB|MiB|GiB)?\Z")
_SHARE = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,6})?)(%)?\Z")


def parse_duration(value: object) -> float:
    """Return the seconds of `500ms`, `10s`, `5m`, `24h` or a plain number, from 0 to `8760h`."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{EXPECTED}, found {describe_kind(value)}")
    return parse_bounded_seconds(value)


def parse_positive_duration(value: object) -> float:
    """Return the seconds as `parse_duration` does, but more than 0."""
    seconds = parse_duration(value)
    if seconds == 0:
        raise ValueError("must be more than 0")
    return seconds


def parse_size(value: object) -> int:
    """Return the bytes of `32KiB`, `1MiB`, `2GiB` or a plain whole number."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f"expected a size such as 32KiB or 1MiB, found {describe_kind(value)}")
    if isinstance(value, int):
        return value
    match = _SIZE.match(value.strip())
    if match is None:
        raise ValueError("expected a size such as 512B, 32KiB, 1MiB or 2GiB")
    return int(match[1]) * _BYTES[match[2] or "B"]


def parse_share(value: object) -> float:
    """Return the part from 0 to 1 of `20%` or a plain number."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"expected a share such as 20% or 0.2, found {describe_kind(value)}")
    if isinstance(value, str):
        match = _SHARE.match(value.strip())
        if match is None:
            raise ValueError("expected a share such as 20% or 0.2")
        value = float(match[1]) / 100 if match[2] else float(match[1])
    if not 0 <= value <= 1:
        raise ValueError("must be between 0% and 100%")
    return float(value)


def format_share(part: float) -> str:
    """Return the share as a percentage: 0.2 is `20%`."""
    return f"{part * 100:.4f}".rstrip("0").rstrip(".") + "%"


def format_duration(seconds: float) -> str:
    """Return the usual exact spelling: 600.0 is `10m`, 60.0 is `60s`, 0.5 is `500ms`."""
    for unit in ("h", "m"):
        if seconds >= 2 * UNITS_S[unit] and seconds % UNITS_S[unit] == 0:
            return f"{int(seconds / UNITS_S[unit])}{unit}"
    if seconds == int(seconds):
        return f"{int(seconds)}s"
    return f"{seconds * 1000:.6f}".rstrip("0").rstrip(".") + "ms"


def format_size(size_bytes: int) -> str:
    """Return the shortest exact spelling: 32768 is `32KiB`."""
    for unit in ("GiB", "MiB", "KiB"):
        if size_bytes >= _BYTES[unit] and size_bytes % _BYTES[unit] == 0:
            return f"{size_bytes // _BYTES[unit]}{unit}"
    return f"{size_bytes}B"


_DURATION_PATTERN = r"^[0-9.]+(ms|s|m|h)?$|" + REFERENCE
_SIZE_PATTERN = r"^[0-9]+(B|KiB|MiB|GiB)?$|" + REFERENCE


def _build_duration_type(kind: str, parse: Callable[[object], float]) -> ValueType:
    return ValueType(kind=kind, parse=parse, write=format_duration, json_type="number", pattern=_DURATION_PATTERN)


Duration = Annotated[float, _build_duration_type("duration", parse_positive_duration)]
DurationOrZero = Annotated[float, _build_duration_type("duration, 0 allowed", parse_duration)]

Share = Annotated[
    float,
    ValueType(
        kind="share", parse=parse_share, write=format_share, json_type="number", pattern=r"^[0-9.]+%?$|" + REFERENCE
    ),
]


def build_amount_type(high: int, *, kind: str, example: str) -> ValueType:
    """Return the type of an amount of money from 0 to `high`, which messages call `example`."""

    def parse(value: object) -> float:
        if isinstance(value, str):
            try:
                value = float(value)
            except ValueError:
                raise ValueError(f"expected {example}") from None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"expected {example}, found {describe_kind(value)}")
        if not 0 <= value <= high:
            raise ValueError(f"must be between 0 and {high}")
        return float(value)

    return ValueType(kind=kind, parse=parse, json_type="number")


def build_size_type(low_bytes: int, high_bytes: int) -> ValueType:
    """Return the type of a size from `low_bytes` to `high_bytes`."""
    return ValueType(
        kind=f"size between {format_size(low_bytes)} and {format_size(high_bytes)}",
        parse=limit_range(low_bytes, high_bytes, parse_size, format_size),
        write=format_size,
        json_type="integer",
        pattern=_SIZE_PATTERN,
        limits=(low_bytes, high_bytes),
    )
