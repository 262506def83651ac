"""The type of a moment in the configuration."""

from datetime import datetime
from typing import Annotated

from gateway.config.values.scalars import parse_text
from gateway.config.values.value import ValueType
from gateway.contracts.times import format_time, parse_time


def read_time(value: object) -> datetime:
    """Return the moment of a value of the configuration, which is a text. Raises ValueError."""
    return parse_time(parse_text(value))


Time = Annotated[datetime, ValueType(kind="time with its zone", parse=read_time, write=format_time)]
