"""Transactions of a writer: what is in the log afterwards, and what is not."""

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gateway.plugins.stores.sqlite import transactions as module
from gateway.plugins.stores.sqlite.file import SqliteError, open_file
from gateway.plugins.stores.sqlite.file_guard import SqliteWatch
from gateway.plugins.stores.sqlite.general_tx import MARK
from gateway.plugins.stores.sqlite.migrations import MIGRATIONS
from gateway.plugins.stores.sqlite.transactions import (
    CHECKPOINT_COMMITS,
    CHECKPOINT_ROWS,
    Lasts,
    LoggedTransactions,
    PlainTransactions,
)

#: Of a log that would grow to twenty times as much in so many turns.
LONG_PAGES, PAGE_BYTES, TURNS = 20, 4096, 30
PUT = "INSERT INTO counters VALUES (?, 1)"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "gateway.db"


@pytest.fixture
def transactions(place: Path) -> Iterator[LoggedTransactions]:
    connection = open_file(str(place), migrations=MIGRATIONS)
    with closing(LoggedTransactions(connection, watch=SqliteWatch(str(place)), mark=MARK)) as transactions:
        yield transactions


def put(transactions: PlainTransactions, name: str) -> None:
    transactions.begin(lasts=Lasts.FOR_SURE)
    transactions.connection.execute(PUT, (name,))
    transactions.commit(lasts=Lasts.FOR_SURE)


def names(place: Path) -> set[str]:
    """Return the names in a copy of the files, as after a crash."""
    copy = place.with_name("copy.db")
    shutil.copyfile(place, copy)
    shutil.copyfile(f"{place}-wal", f"{copy}-wal")
    with closing(sqlite3.connect(copy)) as connection:
        return {row[0] for row in connection.execute("SELECT name FROM counters")} - {"generation", "mark"}


def test_rolled_back_transaction_is_not_stored(transactions: LoggedTransactions, place: Path) -> None:
    """Nor is the connection in it any more."""
    transactions.begin(lasts=Lasts.AS_LONG_AS_THE_SYSTEM)
    transactions.connection.execute(PUT, ("undone",))
    transactions.roll_back()
    put(transactions, "done")
    assert names(place) == {"done"}


def test_wal_is_checkpointed_regularly(transactions: LoggedTransactions, place: Path) -> None:
    """It does not grow without end."""
    sizes = []
    for n in range(4 * CHECKPOINT_COMMITS):
        put(transactions, str(n))
        transactions.do_idle_work()
        sizes.append(place.with_name(f"{place.name}-wal").stat().st_size)
    assert max(sizes) == max(sizes[: CHECKPOINT_COMMITS + 1])
    assert names(place) == {str(n) for n in range(4 * CHECKPOINT_COMMITS)}


class Full:
    """A connection to a file on a full disk, whose log is on another one."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.is_full = True
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        if self.is_full and "wal_checkpoint" in statement:
            raise sqlite3.OperationalError("database or disk is full")
        return self._connection.execute(statement, *values)


def test_failed_checkpoint_is_logged_once_and_so_is_recovery(
    transactions: LoggedTransactions, place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is lost, and no transaction fails; and its end is told, too."""
    caplog.set_level("INFO")
    full: Any = Full(transactions.connection)
    transactions.connection = full
    told = []
    for n in range(4 * CHECKPOINT_COMMITS):
        full.is_full = n < 3 * CHECKPOINT_COMMITS
        put(transactions, str(n))
        transactions.do_idle_work()
        told.append([record.getMessage() for record in caplog.records if "the log of the store" in record.getMessage()])
    (before,), after = told[3 * CHECKPOINT_COMMITS - 1], told[-1]
    assert before.endswith("it cannot be played into its file: database or disk is full; nothing is lost")
    assert after == [before, "the log of the store is played into its file again"]
    assert names(place) == {str(n) for n in range(4 * CHECKPOINT_COMMITS)}


class Watch(SqliteWatch):
    """Lets others do something while it waits for the disk."""

    def __init__(self, place: Path, meanwhile: Callable[[], None]) -> None:
        super().__init__(str(place))
        self._meanwhile = meanwhile

    def sync_log(self) -> None:
        self._meanwhile()
        super().sync_log()


def test_waiting_for_fsync_does_not_block_other_writers(transactions: LoggedTransactions, place: Path) -> None:
    """Nobody has the lock of writers meanwhile (docs/decisions/0039): the other one does not wait for it at all."""
    transactions.connection.execute("PRAGMA busy_timeout = 0")
    connection = open_file(str(place), migrations=MIGRATIONS)
    watch = Watch(place, lambda: put(transactions, "meanwhile"))
    with closing(LoggedTransactions(connection, watch=watch, mark=MARK)) as waiting:
        waiting.begin(lasts=Lasts.ON_DISK)
        waiting.connection.execute(PUT, ("waiting",))
        waiting.commit(lasts=Lasts.ON_DISK)
        assert names(place) == {"waiting", "meanwhile"}


def test_wal_is_restarted_under_several_writers(
    transactions: LoggedTransactions, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them is always in a transaction that began before the log was played, and puts its lines behind it."""
    monkeypatch.setattr(module, "LONG_PAGES", LONG_PAGES)
    sizes: list[int] = []
    connection = open_file(str(place), migrations=MIGRATIONS)
    with closing(LoggedTransactions(connection, watch=SqliteWatch(str(place)), mark=MARK)) as other:

        def interleave(statement: str) -> None:
            """The other one's transaction is under way while the log is played, and over right behind that."""
            if "wal_checkpoint(PASSIVE)" in statement:
                other.begin(lasts=Lasts.AS_LONG_AS_THE_SYSTEM)
                other.connection.execute(PUT, (f"other {len(sizes)}",))
            elif other.connection.in_transaction:
                other.commit(lasts=Lasts.AS_LONG_AS_THE_SYSTEM)

        transactions.connection.set_trace_callback(interleave)
        for turn in range(TURNS):
            transactions.begin(lasts=Lasts.AS_LONG_AS_THE_SYSTEM)
            rows = [(f"{turn} {row}",) for row in range(CHECKPOINT_ROWS)]
            transactions.connection.executemany(PUT, rows)
            transactions.commit(lasts=Lasts.AS_LONG_AS_THE_SYSTEM)
            transactions.do_idle_work()
            sizes.append(place.with_name(f"{place.name}-wal").stat().st_size)
        put(transactions, "last")  # behind the other one's last transaction
        transactions.connection.set_trace_callback(None)
    assert max(sizes) < 3 * LONG_PAGES * PAGE_BYTES, sizes
    assert len(names(place)) == TURNS * (CHECKPOINT_ROWS + 1) + 1


def test_deleted_wal_refuses_further_transactions(place: Path) -> None:
    """Before a transaction begins; what was there is saved at the end."""
    connection = open_file(str(place), migrations=MIGRATIONS)
    with closing(LoggedTransactions(connection, watch=SqliteWatch(str(place)), mark=MARK)) as transactions:
        put(transactions, "before")
        place.with_name(f"{place.name}-wal").unlink()
        with pytest.raises(SqliteError):
            put(transactions, "after")
    with closing(sqlite3.connect(place)) as saved:
        assert {row[0] for row in saved.execute("SELECT name FROM counters")} == {"generation", "before"}


NO_ROOM = """
import resource, sqlite3, sys
from gateway.plugins.stores.sqlite.general_tx import MARK
from gateway.plugins.stores.sqlite.migrations import MIGRATIONS
from gateway.plugins.stores.sqlite.file import open_file
from gateway.plugins.stores.sqlite.transactions import Lasts, LoggedTransactions
from gateway.plugins.stores.sqlite.file_guard import SqliteWatch
place = sys.argv[1]
transactions = LoggedTransactions(open_file(place, migrations=MIGRATIONS), watch=SqliteWatch(place), mark=MARK)
transactions.begin(lasts=Lasts.FOR_SURE)
transactions.connection.execute("INSERT INTO counters VALUES ('big', zeroblob(40000))")
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (20000, hard))
try:
    transactions.commit(lasts=Lasts.FOR_SURE)
except sqlite3.Error as error:
    assert not transactions.connection.in_transaction
    print("undone:", error)
"""


def test_commit_without_disk_space_is_rolled_back_permanently(place: Path) -> None:
    """There was room for the mark in its place."""
    done = subprocess.run([sys.executable, "-c", NO_ROOM, str(place)], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("undone: ")
