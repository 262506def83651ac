"""The tables of a SQLite store as `gateway store copy` reads and writes them.

1. A source is read in one transaction, so it is one moment. No gateway may use it: what it wrote from then on would be
   missing in the copy.
2. A target is written beside its place, and appears there whole.
"""

# ruff: noqa: S608 - what is put together here are names of tables and columns of TABLES

import fcntl
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from gateway.plugin import TABLES, StoreError, TableRow

from .file import SqliteError, choose_reading_mode, connect, end_log, open_file
from .file_check import find_defect
from .migrations import APPLICATION_ID, MIGRATIONS

#: So much is read at once, about.
PIECE_BYTES: Final = 4 << 20
_ROWS: Final = 1000
#: The statements for tables that are none of SQLite's own, or whose rows do not all count.
_SELECTS: Final = {
    "counters": "SELECT name, value FROM counters WHERE name <> 'mark' AND value > 0",
    "sequences": "SELECT name, seq FROM sqlite_sequence WHERE name = 'events' AND seq > 0",
}
_FIND_SEQUENCE: Final = "UPDATE sqlite_sequence SET seq = ?2 WHERE name = ?1"
_ADD_SEQUENCE: Final = "INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)"


class SqliteTableReader:
    """The `gateway.contracts.storage.tables.TableReader` of a connection in a transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def count_rows(self, table: str) -> int:
        with _translate_errors():
            return int(self._connection.execute(f"SELECT count(*) FROM ({_build_select(table)})").fetchone()[0])

    def read_rows(self, table: str) -> Iterator[Sequence[TableRow]]:
        with _translate_errors():
            cursor = self._connection.execute(_build_select(table))
            piece: list[TableRow] = []
            size = 0
            for row in cursor:
                piece.append(row)
                size += sum(len(value) for value in row if isinstance(value, str | bytes))
                if len(piece) == _ROWS or size > PIECE_BYTES:
                    yield piece
                    piece, size = [], 0
            if piece:
                yield piece


class SqliteTableWriter(SqliteTableReader):
    """The `gateway.contracts.storage.tables.TableWriter` of the draft of a file; `place` is where the file appears."""

    def __init__(self, connection: sqlite3.Connection, *, draft: Path, place: Path) -> None:
        super().__init__(connection)
        self._draft = draft
        self._place = place

    def write_rows(self, table: str, rows: Sequence[TableRow]) -> None:
        with _translate_errors():
            if table == "sequences":
                for row in rows:
                    if not self._connection.execute(_FIND_SEQUENCE, row).rowcount:
                        self._connection.execute(_ADD_SEQUENCE, row)
                return
            # Rows that triggers have written, such as counts of changes, are replaced.
            columns = TABLES[table]
            statement = (
                f"INSERT OR REPLACE INTO {table} ({_join_columns(columns)}) VALUES ({', '.join('?' * len(columns))})"
            )
            self._connection.executemany(statement, rows)

    def finish(self) -> None:
        """Do nothing: triggers have written what follows from the rows."""

    def commit(self) -> None:
        with _translate_errors():
            self._connection.execute("COMMIT")
            end_log(self._connection)
            self._connection.close()
            for path in (self._draft, self._place.parent):
                _sync_file(path)
            try:
                os.link(self._draft, self._place)
            except FileExistsError:
                raise _build_taken_error(self._place) from None
            _sync_file(self._place.parent)


class SqliteTables:
    """The `gateway.contracts.storage.tables.StoreTables` of a file."""

    def __init__(self, place: Path) -> None:
        self._place = place

    @contextmanager
    def open_source(self) -> Iterator[SqliteTableReader]:
        place = str(self._place)
        with (
            _translate_errors(),
            _keep_gateways_out(self._place),
            closing(connect(place, mode=choose_reading_mode(place))) as source,
        ):
            _check_version(source, place)
            source.execute("BEGIN")
            source.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            yield SqliteTableReader(source)

    @contextmanager
    def open_target(self) -> Iterator[SqliteTableWriter]:
        if os.path.lexists(self._place):
            raise _build_taken_error(self._place)
        if not self._place.parent.is_dir():
            raise StoreError(f"there is no folder {str(self._place.parent)!r} for the store: create it")
        with _translate_errors():
            folder = Path(tempfile.mkdtemp(prefix=f"{self._place.name}.new-", dir=self._place.parent))
            try:
                draft = folder / self._place.name
                with closing(open_file(str(draft), migrations=MIGRATIONS)) as target:
                    target.execute("PRAGMA synchronous = OFF")  # all of it is synced before the file appears
                    target.execute("BEGIN")
                    yield SqliteTableWriter(target, draft=draft, place=self._place)
            finally:
                shutil.rmtree(folder)


def _build_select(table: str) -> str:
    return (
        _SELECTS.get(table)
        or f"SELECT {_join_columns(TABLES[table])} FROM {table} ORDER BY {_ORDERS.get(table, 'rowid')}"
    )


def _join_columns(columns: Sequence[str]) -> str:
    return ", ".join(f'"{column}"' for column in columns)


#: The keys of the tables that have no rowid.
_ORDERS: Final = {
    "worker_services": "worker, name",
    "secrets": "name",
    "ended_sessions": "digest",
    "duties": "name",
    "hidden_keys": "tenant, key",
    "asks": "tenant, id",
    "undelivered": "tenant, fingerprint",
    "awaited": "tenant, run_id, waiter",
    "answer_chunks": "response, number",
    "conversation_items": "conversation, number",
    "conversation_decisions": "conversation, approval_id",
    "usage": "tenant, day, key, model, upstream, lane, currency",
    "usage_days": "day",
    "usage_writers": "writer",
}


def _check_version(source: sqlite3.Connection, place: str) -> None:
    """Raise SqliteError unless it is a sound store of this version."""
    if source.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise SqliteError(f"{place!r} is a database of another program")
    version = source.execute("PRAGMA user_version").fetchone()[0]
    if version != len(MIGRATIONS):
        way_out = "start this version of the gateway once" if version < len(MIGRATIONS) else "use the newer program"
        raise SqliteError(
            f"the store {place!r} has version {version}, and this program copies {len(MIGRATIONS)}: {way_out}"
        )
    if (found := find_defect(source)) is not None:
        raise SqliteError(f"the store {place!r} is damaged ({found}): put a backup in its place")
    source.text_factory = str  # the check reads what is no text, too


@contextmanager
def _keep_gateways_out(place: Path) -> Iterator[None]:
    """Hold the lock that gateways share, for which they wait at their start. Raises StoreError if one has it."""
    try:
        log = os.open(f"{place}-wal", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:  # the last gateway ended in order
        yield
        return
    try:
        fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise StoreError(
            f"a gateway uses the store {str(place)!r}: stop it, or copy a backup of the store (gateway backup)"
        ) from None
    finally:
        os.close(log)


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Raise a failure of SQLite, or of a file, as a StoreError."""
    try:
        yield
    except (sqlite3.Error, SqliteError, OSError) as error:
        raise StoreError(str(error)) from error


def _build_taken_error(place: Path) -> StoreError:
    return StoreError(f"{str(place)!r} is there already: it stays as it is. Name another file, or move it away")


def _sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
