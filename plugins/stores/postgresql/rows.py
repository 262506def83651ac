"""Frozen dataclasses as rows of PostgreSQL, whose columns have the names of their fields; rows as parameters."""

from collections.abc import Iterable, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any, Generic, TypeVar

from .text_codec import restore_values

RecordT = TypeVar("RecordT")


class PostgresqlRows(Generic[RecordT]):
    """The rows of one dataclass with two or more fields."""

    def __init__(self, kind: type[RecordT]) -> None:
        self._kind = kind
        self.names: Sequence[str] = tuple(field.name for field in fields(kind))  # type: ignore[arg-type]  # as in SQLite's
        self.values = attrgetter(*self.names)

    def list_columns(self, table: str = "") -> str:
        """Return the columns in the order of the fields, of this table or row if one is named."""
        return ", ".join(f'{table}."{name}"' if table else f'"{name}"' for name in self.names)

    def to_json(self, record: RecordT) -> dict[str, Any]:
        """Return the record as `encode_json` takes it."""
        return dict(zip(self.names, self.values(record), strict=True))

    def from_row(self, row: Iterable[Any]) -> RecordT:
        """Return the record of a row with exactly the columns of `list_columns`."""
        return self._kind(**dict(zip(self.names, restore_values(tuple(row)), strict=True)))


def to_arrays(rows: Iterable[Sequence[Any]], width: int) -> list[list[Any]]:
    """Return the columns of rows as parameters of one statement: `width` arrays, which are empty without rows."""
    columns: list[list[Any]] = [[] for _ in range(width)]
    for row in rows:
        for column, value in zip(columns, row, strict=True):
            column.append(value)
    return columns
