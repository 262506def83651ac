"""Facts as rows and back."""

import sqlite3
from contextlib import closing
from dataclasses import dataclass

import pytest

from gateway.plugins.stores.sqlite.rows import Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    name: str
    done: bool
    size: int | None
    body: bytes = b""


ROWS = Rows(Fact)


def test_record_is_unchanged_after_a_table_round_trip() -> None:
    """In the order of its fields; a boolean is one again, and an integer stays one."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE facts (name TEXT, done INTEGER, size INTEGER, body BLOB)")
        facts = [Fact(name="a", done=True, size=1), Fact(name="é", done=False, size=None, body=b"\xff")]
        connection.executemany("INSERT INTO facts VALUES (?, ?, ?, ?)", map(ROWS.values, facts))
        found = [ROWS.read_fact(row) for row in connection.execute("SELECT * FROM facts")]
    assert found == facts
    assert (found[0].done, found[1].done) == (True, False)
    assert type(found[0].size) is int
    assert ROWS.names == ("name", "done", "size", "body")


def test_row_with_a_wrong_number_of_columns_is_refused() -> None:
    """A column too many or too few is found at once."""
    for row in (("a", 1, 1), ("a", 1, 1, b"", "more")):
        with pytest.raises(ValueError, match="zip"):
            ROWS.read_fact(row)
