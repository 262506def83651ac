"""Transactions on one SQLite connection, and the handling of one that failed.

1. A failed commit is undone completely before its callers get the error. SQLite then ignores the frames that it had put
   into the log, the mark of the commit included. A process that replays the log after a crash would not ignore them. So
   another commit is written over them at once.
2. If that fails, too, the state after a crash is unknown. This is reported as `SqliteUncertainError`, and nothing more
   is written until it is settled.
3. After a failed fsync, data counts as on disk only once it has been written again.
4. Nothing is written to files other than the opened ones.
"""

import ctypes
import logging
import sqlite3
from contextlib import suppress
from enum import IntEnum

from .file import BUSY_S, SqliteError, end_log
from .file_guard import SqliteWatch

log = logging.getLogger("gateway")

#: About a thousand pages of four kilobytes, SQLite's own measure: in commits, and in rows that were changed.
CHECKPOINT_COMMITS, CHECKPOINT_ROWS = 100, 1000
#: A log of so many pages begins anew as soon as it has no readers; a writer waits so long for that.
LONG_PAGES, ANEW_MS = 4000, 20
#: So long the last process waits for other processes that are closing the store.
LEAVE_MS = 1000
#: The size to which a log is cut once it begins anew, if a long read made it grow.
LOG_BYTES = 64 << 20


class Lasts(IntEnum):
    """The events that a transaction outlives once it is committed."""

    AS_LONG_AS_THE_SYSTEM = 0  # `kill -9`, and no power cut
    ON_DISK = 1  # a power cut, too; others may see it before that is sure, and after a failure it is unknown
    FOR_SURE = 2  # the same; no reader sees it before, and a failure undoes it


class SqliteUncertainError(Exception):
    """A failed commit that may take effect after a crash all the same."""


class PlainTransactions:
    """The transactions of a connection, one at a time.

    It only reads, or its database is in memory: no log can fail.
    """

    def __init__(self, connection: sqlite3.Connection, *, begin: str) -> None:
        self.connection = connection
        self._begin = begin

    def begin(self, *, lasts: Lasts) -> None:
        """Begin a transaction. Raises sqlite3.Error and SqliteError: nothing has happened."""
        del lasts
        self.connection.execute(self._begin)

    def commit(self, *, lasts: Lasts) -> None:
        """Commit the transaction. Raises SqliteUncertainError, or sqlite3.Error: it is undone for good."""
        del lasts
        try:
            self.connection.execute("COMMIT")
        except sqlite3.Error:
            self.roll_back()
            raise

    def roll_back(self) -> None:
        with suppress(sqlite3.Error):  # some failures have rolled back already
            self.connection.execute("ROLLBACK")

    def do_idle_work(self) -> None:
        """Do work for which no caller waits."""

    def close(self) -> None:
        self.connection.close()


class LoggedTransactions(PlainTransactions):
    """The transactions of the connection that writes a file in WAL mode.

    `mark` is a statement that sets a meaningless value to a random one.
    """

    def __init__(self, connection: sqlite3.Connection, *, watch: SqliteWatch, mark: str) -> None:
        super().__init__(connection, begin="BEGIN IMMEDIATE")
        self._watch = watch
        self._mark = mark
        self._synchronous = ""
        self._commits = 0
        self._rows = 0
        self._is_behind = False  # the log cannot be played into the database
        #: A log that was found may be of a process whose last fsync failed.
        self._is_settled = not watch.has_log
        # SQLite's own checkpoints keep their failures to themselves.
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute(f"PRAGMA journal_size_limit = {LOG_BYTES}")

    def begin(self, *, lasts: Lasts) -> None:
        if self._watch.check_files():
            self._write_mark()
            self._watch.check_files()
        if not self._is_settled:
            self._settle_commit()
        self._begin_transaction("FULL" if lasts is Lasts.FOR_SURE else "NORMAL")

    def commit(self, *, lasts: Lasts) -> None:
        try:
            super().commit(lasts=lasts)
        except sqlite3.Error as error:
            self._is_settled = False
            try:
                self._settle_commit()
            except (sqlite3.Error, SqliteError) as further:
                raise SqliteUncertainError(f"{error}; then, while that was undone: {further}") from error
            raise
        self._commits += 1
        if lasts is Lasts.ON_DISK:
            self._sync_log()
        elif lasts is Lasts.FOR_SURE:
            try:
                self._watch.check_files()
            except SqliteError as error:
                raise SqliteUncertainError(str(error)) from error

    def _sync_log(self) -> None:
        """Wait for the disk without the lock of writers: processes that write wait for it at the same time.

        All earlier data in the log is on disk then as well, whichever process wrote it.

        Raises: SqliteUncertainError. Then every reader sees the commit, but it may not survive a power cut.
        """
        try:
            try:
                self._watch.sync_log()
            except OSError:  # written once more, it is there, or it is unknown
                self._is_settled = False
                self._settle_commit()
            self._watch.check_files()
        except (sqlite3.Error, SqliteError) as error:
            raise SqliteUncertainError(str(error)) from error

    def do_idle_work(self) -> None:
        """Play the log into the database now and then."""
        rows = self.connection.total_changes
        if self._commits >= CHECKPOINT_COMMITS or rows - self._rows >= CHECKPOINT_ROWS:
            self._commits, self._rows = 0, rows
            try:
                self._watch.check_files()
                _, pages, _ = self.connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
                if pages >= LONG_PAGES:
                    self._begin_log_anew()
            except SqliteError:  # the next transaction reports it
                self._is_settled = False
            except sqlite3.Error as error:  # no transaction would report it: they go on, with the log alone
                self._is_settled = False
                self._log_playback_state(error)
            else:
                self._log_playback_state(None)

    def _log_playback_state(self, error: sqlite3.Error | None) -> None:
        """Log that the log cannot be played, once, and once that it can be again."""
        if (error is not None) == self._is_behind:
            return
        self._is_behind = error is not None
        if error is None:
            log.info("the log of the store is played into its file again")
        else:
            log.error("the log of the store grows, as it cannot be played into its file: %s; nothing is lost", error)

    def _begin_log_anew(self) -> None:
        """Begin the log anew. With several constant writers, one always has something in the log that is not played.

        Does nothing while another connection reads.
        """
        self.connection.execute(f"PRAGMA busy_timeout = {ANEW_MS}")
        try:
            self.connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
        finally:
            self.connection.execute(f"PRAGMA busy_timeout = {int(BUSY_S * 1000)}")

    def close(self) -> None:
        if self._watch.may_close:
            if self._watch.is_last():
                with suppress(sqlite3.Error):  # another program reads the file: its log stays
                    self.connection.execute(f"PRAGMA busy_timeout = {LEAVE_MS}")
                    end_log(self.connection)
            super().close()
            self._watch.close()
        else:  # until the process ends: Python would close it with the last reference
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.connection))
            self._watch.close(is_in_use=True)

    def _settle_commit(self) -> None:
        """Settle an uncertain commit. Raises sqlite3.Error and SqliteError."""
        self._watch.check_files()
        self._write_mark()
        self._begin_transaction("FULL")
        try:
            self._watch.write_log_anew()
        except OSError as error:
            raise SqliteError(f"the log of the store cannot be written: {error}") from None
        finally:
            self.roll_back()
        self._is_settled = True

    def _write_mark(self) -> None:
        self._begin_transaction("FULL")
        try:
            self.connection.execute(self._mark)
        except sqlite3.Error:
            self.roll_back()
            raise
        super().commit(lasts=Lasts.FOR_SURE)

    def _begin_transaction(self, synchronous: str) -> None:
        if synchronous != self._synchronous:
            self.connection.execute(f"PRAGMA synchronous = {synchronous}")
            self._synchronous = synchronous
        self.connection.execute(self._begin)
