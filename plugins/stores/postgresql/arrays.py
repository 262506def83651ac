"""Several rows as the parameters of one statement: an array for each column."""

from collections.abc import Iterable, Sequence
from typing import Any


def to_arrays(rows: Iterable[Sequence[Any]], width: int) -> list[list[Any]]:
    """Return the columns of rows that have `width` of them; without rows, empty ones."""
    columns: list[list[Any]] = [[] for _ in range(width)]
    for row in rows:
        for column, value in zip(columns, row, strict=True):
            column.append(value)
    return columns
