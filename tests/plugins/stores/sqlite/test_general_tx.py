"""Statements on what is kept besides the journal: rows fit their facts, nothing searches through a table."""

import sqlite3
from dataclasses import fields

import pytest

from gateway.contracts.storage.store import StoredPrompt, StoredService, WorkerService
from gateway.plugins.stores.sqlite import general_tx as kept_sql

SERVICE = ("time", b"{}", True, 2, "{}", 9, 1.0)


@pytest.mark.parametrize(
    ("statement", "fact"),
    [
        (kept_sql.ALL_PROMPTS, StoredPrompt),
        (kept_sql.SERVICES, StoredService),
        (kept_sql.TOLD, WorkerService),
    ],
)
def test_row_columns_follow_the_field_order(connection: sqlite3.Connection, statement: str, fact: type) -> None:
    """A row is turned into its fact by position."""
    cursor = connection.execute(statement, (None,) * statement.count("?"))
    assert [column[0] for column in cursor.description] == [field.name for field in fields(fact)]


@pytest.mark.parametrize("name", ["PROMPT", "TOLD", "FORGET_TOLD", "DEFINITIONS", "FORGET_DEFINITIONS"])
def test_general_lookups_use_an_index(connection: sqlite3.Connection, name: str) -> None:
    """However many rows there are."""
    statement = getattr(kept_sql, name)
    plan = connection.execute(f"EXPLAIN QUERY PLAN {statement}", (None,) * statement.count("?")).fetchall()
    scans = [row[3] for row in plan if row[3].startswith("SCAN") and "json_each" not in row[3]]
    assert scans == []


def test_service_write_increments_the_expected_version(connection: sqlite3.Connection) -> None:
    """Whatever version its row says; the generation counts what was written and nothing else."""
    before = connection.execute(kept_sql.GENERATION).fetchone()[0]
    assert kept_sql.put_service(connection, SERVICE, expected=0)
    for expected, written in ((0, False), (2, False), (1, True), (1, False)):
        assert kept_sql.put_service(connection, SERVICE, expected=expected) is written
    assert connection.execute(kept_sql.SERVICES).fetchall() == [("time", b"{}", 1, 2, "{}", 2, 1.0)]
    kept_sql.report_services(connection, "w", [("w", "time", "error", "gone", 1.0)])
    assert connection.execute(kept_sql.GENERATION).fetchone()[0] == before + 2


def test_old_definitions_are_deleted(connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest stay; one that is stored again is as old as it was."""
    monkeypatch.setattr(kept_sql, "DEFINITIONS_KEPT", 3)
    for sha256 in "abcad":
        kept_sql.put_definitions(connection, [(sha256, "{}")])
    found = connection.execute(kept_sql.DEFINITIONS, ('["a", "b", "c", "d"]',)).fetchall()
    assert sorted(found) == [("b", "{}"), ("c", "{}"), ("d", "{}")]
