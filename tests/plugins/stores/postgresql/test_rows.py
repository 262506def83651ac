"""Dataclasses as rows of PostgreSQL, and rows as parameters."""

import pytest

from gateway.contracts.storage.journal import RunEvent
from gateway.plugins.stores.postgresql.rows import PostgresqlRows, to_arrays
from tests.plugins.stores.records import event

ROWS = PostgresqlRows(RunEvent)


def test_columns_are_quoted_and_in_the_order_of_the_fields() -> None:
    """Some are words of SQL."""
    assert ROWS.list_columns() == '"tenant", "run_id", "type", "data", "created_s", "seq"'
    assert ROWS.list_columns("e").startswith('e."tenant", e."run_id"')


def test_record_comes_back_from_its_row() -> None:
    assert ROWS.from_row(ROWS.to_json(event()).values()) == event()


def test_escaped_texts_of_a_row_are_restored() -> None:
    row = ["acme", "a\x01\x01b", "step", b"\x01\x01", 1.0, 2]
    assert ROWS.from_row(row) == RunEvent(
        tenant="acme", run_id="a\0b", type="step", data=b"\x01\x01", created_s=1.0, seq=2
    )


def test_rows_become_columns() -> None:
    assert to_arrays([(1, "a"), (2, None)], 2) == [[1, 2], ["a", None]]
    assert to_arrays([], 3) == [[], [], []]


def test_row_of_another_width_is_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        to_arrays([(1, 2, 3)], 2)
