"""The order of the rows of a table, as its headers link to it: `?sort=name`, or `?sort=-name` for the largest first."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

RowT = TypeVar("RowT")
#: Returns what a row is sorted by: a number or a text; None where it has none.
Key: TypeAlias = Callable[[Any], Any]


def sort_rows(rows: Sequence[RowT], wanted: str | None, keys: Mapping[str, Key]) -> Sequence[RowT]:
    """Return the rows in the order that the query wants; as they are if it names none of `keys`.

    Rows that have nothing to sort by stand last, in either order.
    """
    name = wanted or ""
    key = keys.get(name.removeprefix("-"))
    if key is None:
        return rows
    placed = [(key(row), row) for row in rows]
    known = sorted((one for one in placed if one[0] is not None), key=lambda one: one[0], reverse=name.startswith("-"))
    return [row for _, row in known] + [row for value, row in placed if value is None]
