"""The statements of the journal fit its records and its tables, and none of them searches through a whole table."""

import re
import sqlite3
from dataclasses import fields
from typing import get_args

import pytest

from gateway.contracts.storage.journal import (
    ENDED,
    Approval,
    AskBefore,
    AuditLine,
    Grant,
    RunEvent,
    RunState,
    StoredRun,
    StoredStep,
)
from gateway.contracts.storage.list_queries import ApprovalGrouping, ApprovalOrder
from gateway.plugins.stores.sqlite import journal_statements as journal_sql
from gateway.plugins.stores.sqlite.journal_statements import build_select

STATEMENTS = [
    (name, statement)
    for name, found in vars(journal_sql).items()
    for statement in (found if isinstance(found, tuple) else (found,))
    if isinstance(statement, str) and re.match("(SELECT|INSERT|UPDATE|DELETE) ", statement)
]
#: What is read from one end, where nothing has to be searched.
FROM_AN_END = {"LAST_AUDIT", "LAST_EVENT"}
#: What is counted for metrics: of runs and approvals that wait, which have an index of their own.
COUNTED = {"STANDING", "ALIVE_RUNS"}
ON_WAITING = re.compile("INDEX (approvals_pending|runs_by_owner)|CONSTANT ROW|VIRTUAL TABLE")


def nothing(statement: str) -> tuple[None, ...]:
    """As many values as it takes."""
    numbered = [int(number) for number in re.findall(r"\?(\d+)", statement)]
    return (None,) * (max(numbered) if numbered else statement.count("?"))


def scans(connection: sqlite3.Connection, statement: str) -> list[str]:
    plan = connection.execute(f"EXPLAIN QUERY PLAN {statement}", nothing(statement)).fetchall()
    known = ("json_each", "subquery")  # what is given, and what was found
    return [row[3] for row in plan if row[3].startswith("SCAN") and not any(word in row[3] for word in known)]


def names(fact: type) -> list[str]:
    return [field.name for field in fields(fact)]


@pytest.mark.parametrize(
    ("statement", "fact"),
    [
        (journal_sql.RUNS, StoredRun),
        (journal_sql.RUN_LISTED, StoredRun),
        (journal_sql.RUN, StoredRun),
        (journal_sql.STEPS, StoredStep),
        (journal_sql.APPROVALS, Approval),
        (journal_sql.ONE_GRANT, Grant),
        (journal_sql.EVENTS, RunEvent),
    ],
)
def test_row_columns_follow_the_field_order(connection: sqlite3.Connection, statement: str, fact: type) -> None:
    """A row is turned into its fact by position."""
    cursor = connection.execute(statement, nothing(statement))
    assert [column[0] for column in cursor.description] == names(fact)


def test_audit_rows_contain_number_line_and_hash(connection: sqlite3.Connection) -> None:
    """The line by position, too."""
    cursor = connection.execute(journal_sql.AUDIT_ROWS, (0, 1))
    assert [column[0] for column in cursor.description] == ["seq", *names(AuditLine), "hash"]


def test_new_run_columns_are_all_fields_except_the_request() -> None:
    """Which has a table of its own."""
    assert [name for name in names(StoredRun) if name != "request"] == list(journal_sql.NEW_RUN)


@pytest.mark.parametrize(
    ("table", "fact"), [("steps", StoredStep), ("approvals", Approval), ("grants", Grant), ("asks", AskBefore)]
)
def test_table_columns_match_the_record_fields(connection: sqlite3.Connection, table: str, fact: type) -> None:
    """A field that is added to one of them is missing in the other until there is a migration."""
    assert [row[1] for row in connection.execute(f"PRAGMA table_info({table})")] == names(fact)


def test_every_state_of_a_run_is_alive_or_ended(connection: sqlite3.Connection) -> None:
    """As the journal says it, and never both."""
    for state in get_args(RunState):
        asked = f"SELECT {journal_sql.ALIVE}, {journal_sql.ENDED} FROM (SELECT ? AS state)"
        assert connection.execute(asked, (state,)).fetchone() == (state not in ENDED, state in ENDED)


@pytest.mark.parametrize(("name", "statement"), STATEMENTS, ids=[name for name, _ in STATEMENTS])
def test_journal_lookups_use_an_index(connection: sqlite3.Connection, name: str, statement: str) -> None:
    """However many rows there are."""
    assert name in FROM_AN_END or not [
        line for line in scans(connection, statement) if name not in COUNTED or not ON_WAITING.search(line)
    ]


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("RUNS_LIKE", "runs_by_fingerprint (tenant=? AND fingerprint=?)"),
        ("RUNS_WITH_KEY", "runs_by_key (tenant=? AND caller=? AND idempotency_key=?)"),
        ("CLAIMABLE", "runs_free (state=?)"),
        ("CLAIMABLE", "runs_by_owner (owner>?)"),
        ("CLAIMABLE_RUN", "runs_by_id (id=?)"),
        ("RENEW", "runs_by_owner (owner=?)"),
        ("EXPIRE", "approvals_pending (expires_s<?)"),
        ("STANDING", "approvals_pending"),
        ("TALLY", "COVERING INDEX approvals_by_urgency (tenant=?)"),
        ("TALLY_RUNS", "INDEX runs_by_state (tenant=? AND state=?)"),
        ("TALLY_RUNS", "COVERING INDEX runs_by_state (tenant=? AND state=?)"),
        ("ONE_GRANT", "grants_by_call (tenant=? AND caller=? AND sha256=?)"),
        ("GRANT_BY_ID", "sqlite_autoindex_grants_1 (tenant=? AND id=?)"),
        ("GRANTS", "grants_by_begin (tenant=?)"),
        ("GRANTS_BEHIND", "grants_by_begin (tenant=? AND created_s>?)"),
        ("GRANTS_BEHIND", "sqlite_autoindex_grants_1 (tenant=? AND id=?)"),
        ("ASK_BY_ID", "PRIMARY KEY (tenant=? AND id=?)"),
        ("ASKS", "COVERING INDEX asks_by_begin (tenant=?)"),
        ("ASKS_BEHIND", "COVERING INDEX asks_by_begin (tenant=? AND created_s>?)"),
        ("ASKS_BEHIND", "PRIMARY KEY (tenant=? AND id=?)"),
        ("DELETE_ASK", "PRIMARY KEY (tenant=? AND id=?)"),
    ],
)
def test_journal_statements_use_their_index(connection: sqlite3.Connection, name: str, index: str) -> None:
    """A partial index serves only the very condition that it was made with."""
    statement = getattr(journal_sql, name)
    plan = connection.execute(f"EXPLAIN QUERY PLAN {statement}", nothing(statement)).fetchall()
    assert any(row[3].endswith(index) for row in plan), plan


@pytest.mark.parametrize("name", ["GRANTS", "GRANTS_BEHIND", "ASKS", "ASKS_BEHIND"])
def test_pages_are_read_without_sorting(connection: sqlite3.Connection, name: str) -> None:
    """Nothing is sorted: a page ends at its limit, however long the list is."""
    statement = getattr(journal_sql, name)
    plan = connection.execute(f"EXPLAIN QUERY PLAN {statement}", nothing(statement)).fetchall()
    assert not any("TEMP B-TREE" in row[3] for row in plan), plan


@pytest.mark.parametrize("order", journal_sql.APPROVALS_BY)
def test_approval_pages_are_read_in_index_order(connection: sqlite3.Connection, order: ApprovalOrder) -> None:
    """From an index, from behind one of them, and nothing is sorted."""
    for after in (None, "ap_1"):
        which = journal_sql.build_approvals_page("acme", {"conversation": None}, order=order, after=after, limit=7)
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {which[0]}", which[1])]
        index = "approvals_by_urgency" if order == "urgency" else "approvals_by_begin"
        assert any(f"USING INDEX {index} (tenant=?" in line for line in plan), plan
        assert not any("TEMP B-TREE" in line for line in plan), plan


@pytest.mark.parametrize("order", journal_sql.APPROVALS_BY)
def test_pending_approvals_page_uses_an_index_in_page_order(
    connection: sqlite3.Connection, order: ApprovalOrder
) -> None:
    """However many calls were decided: an index leads to the pending ones, in the order of the page."""
    narrowed = {"state": "pending", "tool": "look", "caller": "ann", "text": "50%", "equal_to": "ap_2", "since_s": 1.0}
    which = journal_sql.build_approvals_page("acme", narrowed, order=order, after="ap_1", limit=7)
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {which[0]}", which[1])]
    index = "approvals_by_urgency (tenant=?" if order == "urgency" else "approvals_by_state (tenant=? AND state=?"
    assert any(f"USING INDEX {index}" in line for line in plan), plan
    assert not any("TEMP B-TREE" in line or line.startswith("SCAN approvals") for line in plan), plan


def test_approval_text_search_uses_no_like_pattern() -> None:
    """A pattern of LIKE is tried anew at each character: long equal ones held the thread of the store for minutes."""
    statement, values = journal_sql.build_approvals_page("acme", {"text": "Aa%"}, order="oldest", after=None, limit=7)
    assert "LIKE" not in statement
    assert list(values) == ["acme", "aa%", "aa%", 7]


@pytest.mark.parametrize("by", get_args(ApprovalGrouping))
def test_approval_groups_use_the_index_of_pending_approvals(
    connection: sqlite3.Connection, by: ApprovalGrouping
) -> None:
    """Through the index of pending approvals."""
    which = journal_sql.build_approval_groups("acme", {"text": "x"}, by=by, limit=7)
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {which[0]}", which[1])]
    assert any("USING INDEX approvals_by_urgency (tenant=?" in line for line in plan), plan


@pytest.mark.parametrize("owner", [None, "w1"])
def test_claim_query_cost_is_independent_of_waiting_runs(connection: sqlite3.Connection, owner: str | None) -> None:
    """However many they are: those that may go on are found without them."""
    for number in range(2000):
        connection.execute(
            """INSERT INTO runs (tenant, id, caller, chain, fingerprint, state, effects, created_s, updated_s, owner)
            VALUES ('acme', ?, 'ann', 'c', 'f', 'awaiting_approval', 0, 1.0, 1.0, ?)""",
            (f"run_{number}", owner if number == 7 else None),
        )
        connection.execute(
            f"INSERT INTO approvals ({', '.join(journal_sql.APPROVAL)}) SELECT {', '.join('?' * 30)}",
            [f"ap_{number}", "acme", "ann", None, f"run_{number}", *[1] * 9, "pending", *[1] * 15],
        )
    steps = 0

    def step() -> None:
        nonlocal steps
        steps += 1

    look = (journal_sql.CLAIMABLE, ('["running", "awaiting_approval"]', 9.0, 20))
    connection.set_progress_handler(step, 1)
    assert connection.execute(*look).fetchall() == []
    assert steps < 500
    connection.set_progress_handler(None, 0)
    connection.execute("UPDATE approvals SET state = 'rejected' WHERE id = 'ap_7'")
    assert connection.execute(*look).fetchall() == [("acme", "run_7")]


@pytest.mark.parametrize("select", [journal_sql.RUNS, journal_sql.APPROVALS, journal_sql.EVENTS])
def test_select_filters_by_the_given_columns_only(connection: sqlite3.Connection, select: str) -> None:
    """In every combination, through an index; a value is never part of the statement."""
    own = "tenant" if select is journal_sql.EVENTS else "conversation"
    for columns in ({}, {own: "x'; --"}, {own: None}, {own: "1"}):
        statement, values = build_select(select, "first", columns, order="rowid", limit=7)
        given = [value for value in columns.values() if value is not None]
        assert list(values) == ["first", *given, 7]
        assert "--" not in statement
        assert scans(connection, statement) == []
