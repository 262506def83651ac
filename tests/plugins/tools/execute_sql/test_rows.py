"""Rows as a model reads them: whole JSON, whatever the values are."""

import json
from decimal import Decimal

import pytest

from gateway.plugins.tools.execute_sql.rows import MAX_CELL, SqlRows


def told(*row: object) -> list[object]:
    rows = SqlRows(10, 100_000, columns=["c"])
    assert rows.add(row)
    (only,) = json.loads(str(rows))["rows"]
    assert isinstance(only, list)
    return only


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, None),
        (1.5, 1.5),
        ("grüß", "grüß"),
        (b"\x00\x01", "[2 bytes]"),
        (float("nan"), "nan"),
        (Decimal("1.10"), "1.10"),
        ([1, (2, b"x")], [1, [2, "[1 bytes]"]]),
        ("x" * (MAX_CELL + 5), "x" * MAX_CELL + "[... 5 more characters]"),
    ],
)
def test_any_value_is_converted_for_display(value: object, shown: object) -> None:
    """Bytes by their number, a long text by its beginning, what JSON does not know as text."""
    assert told(value) == [shown]


def test_rows_stop_at_their_count_and_byte_limits() -> None:
    """The rows shown are whole, and a note says that there are more."""
    few, small = SqlRows(2, 1000), SqlRows(10, 12)
    assert [few.add((i,)) for i in range(3)] == [True, True, False]
    assert [small.add(("abc",)) for _ in range(2)] == [True, False]
    for rows, count in ((few, 2), (small, 1)):
        said = json.loads(str(rows))
        assert (len(said["rows"]), said["truncated"]) == (count, True)


def test_changed_count_appears_only_for_writing_statements() -> None:
    """A statement that only reads says nothing of changes."""
    assert json.loads(str(SqlRows(1, 1))) == {"columns": [], "rows": [], "truncated": False}
    assert json.loads(str(SqlRows(1, 1, changed=3)))["changed"] == 3
