"""The tables of the store fit what is put into them, and no statement searches through a whole table."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import fields

import pytest

from gateway.contracts import Memory, StoredPrompt, StoredRun
from gateway.wire import migrations
from gateway.wire.migrations import MIGRATIONS


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as connection:
        for migration in MIGRATIONS:
            for statement in migration:
                connection.execute(statement)
        yield connection


@pytest.mark.parametrize(("table", "fact"), [("prompts", StoredPrompt), ("memories", Memory), ("runs", StoredRun)])
def test_a_table_has_the_fields_of_its_fact(connection: sqlite3.Connection, table: str, fact: type) -> None:
    """A field that is added to one of them is missing in the other until there is a migration."""
    columns = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
    assert columns == {field.name for field in fields(fact)}


@pytest.mark.parametrize(
    ("statement", "fact"),
    [(migrations.PROMPTS, StoredPrompt), (migrations.MEMORIES, Memory), (migrations.RUNS_LIKE, StoredRun)],
)
def test_rows_come_in_the_order_of_the_fields(connection: sqlite3.Connection, statement: str, fact: type) -> None:
    """A row is turned into its fact by position."""
    cursor = connection.execute(statement, (None,) * statement.count("?"))
    assert [column[0] for column in cursor.description] == [field.name for field in fields(fact)]


@pytest.mark.parametrize(
    "name", ["PROMPT", "MEMORIES", "FORGET", "HIDDEN", "RUN", "RUNS_LIKE", "RUNS_WITH_KEY", "DROP_OLD_MEMORIES"]
)
def test_looking_up_goes_through_an_index(connection: sqlite3.Connection, name: str) -> None:
    """However many rows there are."""
    statement = getattr(migrations, name)
    plan = connection.execute(f"EXPLAIN QUERY PLAN {statement}", (None,) * statement.count("?")).fetchall()
    scans = [row[3] for row in plan if row[3].startswith("SCAN") and "json_each" not in row[3]]
    assert scans == []
