"""The statements about keys in SQLite."""

import sqlite3

import pytest

from gateway.plugins.stores.sqlite import keys as sql


@pytest.mark.parametrize(
    ("statement", "values"),
    [
        (sql.ONE, ("t", "id")),
        (sql.NEWEST, ("t", 9)),
        (sql.BEHIND, ("t", "id", 9)),
        (sql.END, (1.0, "t", "id", 1.0)),
        (sql.REVOKE, (1.0, "by", "t", "id")),
        (sql.PRUNE, (1.0, 9)),
    ],
)
def test_keys_are_found_through_an_index(connection: sqlite3.Connection, statement: str, values: tuple[object]) -> None:
    """However many have ended."""
    plan = connection.execute(f"EXPLAIN QUERY PLAN {statement}", values).fetchall()
    assert not [row[3] for row in plan if row[3].startswith("SCAN")]


def test_key_text_is_not_stored(connection: sqlite3.Connection) -> None:
    columns = {row[1] for row in connection.execute("PRAGMA table_info(keys)")}
    assert columns == {"number", *sql.KEYS.names}
