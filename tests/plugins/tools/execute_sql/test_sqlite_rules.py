"""The rules of SQLite's authorizer, on a connection of the test's own."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from gateway.plugins.tools.execute_sql.sqlite_rules import FUNCTIONS, list_reading_rules, list_running_rules

#: Of SQLite's own functions: they load code, write to a log or an index, or are of no use by themselves.
NOT_KNOWN = {"load_extension", "fts3_tokenizer", "sqlite_log", "optimize", "fts5", "fts5_source_id", "fts5_locale"}


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as made:
        made.executescript("CREATE TABLE t (a); INSERT INTO t VALUES (1)")
        yield made


def test_function_list_covers_every_function_of_sqlite(connection: sqlite3.Connection) -> None:
    """Each function of SQLite is on it, or known to act; so a new one is looked at before it is let run."""
    there = {name for (name,) in connection.execute("SELECT name FROM pragma_function_list")}
    assert there - FUNCTIONS <= NOT_KNOWN and not FUNCTIONS & NOT_KNOWN


def test_authorizer_denies_and_reports_application_defined_functions(connection: sqlite3.Connection) -> None:
    """Nobody knows what it does; what is denied is told."""
    called: list[object] = []
    connection.create_function("purge", 1, called.append)
    denied: list[str] = []
    connection.set_authorizer(list_reading_rules(frozenset(), denied))
    with pytest.raises(sqlite3.DatabaseError):
        connection.execute("SELECT purge(a) FROM t")
    assert (denied, called) == (["calls 'purge'"], [])
    assert connection.execute("SELECT max(a) FROM t").fetchall() == [(1,)]


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize(
    "sql", ["ATTACH ':memory:' AS x", "COMMIT", "PRAGMA user_version = 5", "SELECT load_extension('x')"]
)
def test_attach_commit_pragma_and_extensions_are_never_authorized(
    connection: sqlite3.Connection, sql: str, read_only: bool
) -> None:
    """Other files, the end of the transaction, settings, code: also for what a person approved."""
    connection.execute("BEGIN")
    connection.set_authorizer(list_running_rules(read_only=read_only))
    with pytest.raises(sqlite3.DatabaseError, match="not authorized"):
        connection.execute(sql)


def test_approved_statement_may_write_unless_read_only(connection: sqlite3.Connection) -> None:
    """Where the database is not read-only."""
    connection.set_authorizer(list_running_rules(read_only=False))
    connection.execute("DELETE FROM t")
    connection.set_authorizer(list_running_rules(read_only=True))
    with pytest.raises(sqlite3.DatabaseError, match="not authorized"):
        connection.execute("INSERT INTO t VALUES (2)")
