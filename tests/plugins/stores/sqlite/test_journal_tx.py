"""The journal's transactions on a connection: all of one, or nothing; the rest is the store's contract."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from gateway.contracts.storage.journal import ConflictError
from gateway.plugins.stores.sqlite import journal_tx as journal_sqlite
from gateway.plugins.stores.sqlite.file import IN_MEMORY, open_file
from gateway.plugins.stores.sqlite.migrations import MIGRATIONS
from tests.plugins.stores.records import approval, audit_line, event, moved, new, parked, run, write


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(open_file(IN_MEMORY, migrations=MIGRATIONS)) as connection:
        yield connection


def events(connection: sqlite3.Connection) -> list[str]:
    return [row[0] for row in connection.execute("SELECT type FROM events ORDER BY seq")]


def test_ended_run_cancels_its_pending_approvals(connection: sqlite3.Connection) -> None:
    """Each leaves its event, in front of those of the change."""
    journal_sqlite.write(connection, change=parked())
    ended = moved(run(state="failed"), events=(event("run.failed"),))
    journal_sqlite.write(connection, change=ended)
    assert events(connection) == ["approval.resolved", "run.failed"]
    assert journal_sqlite.decide_approval(connection, writes=[write()])[0][0] == "other"


def test_change_with_an_unmet_condition_raises_conflict_error(connection: sqlite3.Connection) -> None:
    """A run that is there, one that is not, and an approval that is there."""
    journal_sqlite.write(connection, change=parked())
    for change in (new(), moved(run("run_2")), new(run("run_3"), approvals=(approval(run_id="run_3"),))):
        with pytest.raises(ConflictError):
            journal_sqlite.write(connection, change=change)


def test_approval_is_reissued_once(connection: sqlite3.Connection) -> None:
    """Only while that is pending."""
    journal_sqlite.write(connection, change=parked())
    other = approval("ap_2")
    assert journal_sqlite.reissue(connection, old_id="ap_1", approval=other, events=())
    assert not journal_sqlite.reissue(connection, old_id="ap_1", approval=approval("ap_3"), events=())
    assert (
        journal_sqlite.decide_approval(connection, writes=[write("ap_2", audit=(audit_line("decision"),))])[0][0]
        == "decided"
    )
