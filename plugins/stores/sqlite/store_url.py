"""The URL of a SQLite store, and its file beside the gateways that write it: the audit log, or a consistent copy.

A look at the URL makes nothing and opens nothing. Reading the file shows more than the gateway would: data that another
program wrote into it is read as it stands.
"""

import math
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.plugin import AuditLine, KeptLine, StoreError

from .file import IN_MEMORY, SqliteError, choose_reading_mode, connect, end_log
from .file_check import find_defect
from .journal_statements import AUDIT_ROWS
from .migrations import APPLICATION_ID, AUDIT_TRIGGERS
from .rows import Rows

if TYPE_CHECKING:
    from .tables import SqliteTables

#: Pages that are copied between two looks at the progress: 64 MiB of 4 KiB.
_PAGES = 1 << 14
_NAMES = Rows(AuditLine).names
#: What stands between the scheme and the file.
_SLASHES = ":///"


class SqliteBeside:
    """The `gateway.contracts.storage.store.StoreFile` of one file."""

    def __init__(self, place: str) -> None:
        self._place = place

    def audit_log(self, *, after: int, size: int) -> Iterator[list[KeptLine]]:
        with self._open_connection() as connection:
            while page := [_convert_row(row) for row in connection.execute(AUDIT_ROWS, (after, size))]:
                yield page
                after = page[-1][0]

    def audit_guards(self) -> list[str]:
        with self._open_connection() as connection:
            found = dict(
                connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'audit'")
            )
        names = AUDIT_TRIGGERS.keys() | found.keys()
        return sorted(name for name in names if found.get(name) != AUDIT_TRIGGERS.get(name))

    def write_copy(self, draft: str, *, progress: Callable[[int, int], None]) -> None:
        try:
            self._write_copy(draft, progress=progress)
        except (sqlite3.Error, SqliteError) as error:
            raise StoreError(str(error)) from None

    def _write_copy(self, draft: str, *, progress: Callable[[int, int], None]) -> None:
        place = self._place
        with (
            closing(connect(place, mode=choose_reading_mode(place))) as source,
            closing(sqlite3.connect(draft)) as target,
        ):
            if source.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
                raise SqliteError("it is a database of another program")
            # A read transaction is what makes the copy end: without one it begins anew at each write.
            source.execute("BEGIN")
            source.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            source.backup(target, pages=_PAGES, progress=lambda _, left, total: progress(left, total), sleep=0)
            end_log(target)
        # Immutable: read as it stands, without a log beside it.
        with closing(sqlite3.connect(f"{Path(draft).as_uri()}?mode=ro&immutable=1", uri=True)) as copy:
            if (found := find_defect(copy)) is not None:
                raise SqliteError(f"the store is damaged ({found})")

    @contextmanager
    def _open_connection(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(connect(self._place, mode="ro")) as connection:
                if connection.execute("PRAGMA application_id").fetchone() != (APPLICATION_ID,):
                    raise StoreError(f"{self._place!r} is not the store of a gateway: name its configuration with -c")
                connection.text_factory = _decode_text
                yield connection
        except SqliteError as error:
            raise StoreError(str(error)) from None
        except sqlite3.Error as error:
            raise StoreError(
                f"the store {self._place!r} cannot be read: {error}; if nothing may be written beside it, copy it "
                "elsewhere"
            ) from None


def _decode_text(content: bytes) -> str:
    """Decode bytes. Bytes that are not text come from another program, and must not end the reading."""
    return content.decode("utf-8", "surrogateescape")


def _convert_row(row: tuple[object, ...]) -> KeptLine:
    seq, *values, found = row
    if not isinstance(seq, int):
        raise StoreError(f"the audit log has a line {seq!r}, and lines have numbers: its table is not the gateway's")
    return seq, {name: _get_plain(value) for name, value in zip(_NAMES, values, strict=True)}, str(found)


def _get_plain(value: object) -> object:
    """Return the value.

    Bytes and infinity, which the gateway never writes and JSON lacks, are returned as their `repr`.
    """
    if isinstance(value, bytes) or (isinstance(value, float) and not math.isfinite(value)):
        return {"not written by a gateway": repr(value)}
    return value


class SqliteAddress:
    """The `gateway.contracts.storage.store.StoreAddress` of `sqlite:///FILE`; a relative file begins at `folder`."""

    is_shared = False

    def __init__(self, url: str, folder: Path) -> None:
        scheme, slashes, place = url.partition(_SLASHES)
        if slashes and place not in ("", IN_MEMORY) and "\0" not in place:
            place = str(folder / place)
            self.file: Path | None = Path(place)
        else:
            self.file = None
        self.url, self.redacted_url = f"{scheme}{slashes}{place}", url

    def problem(self) -> str | None:
        if self.file is None:
            return None
        try:
            if self.file.exists():
                os.close(os.open(self.file, os.O_RDWR))
            with tempfile.TemporaryFile(dir=self.file.parent):  # for the files that SQLite puts beside it
                pass
        except OSError as error:
            what = "its folder" if self.file.exists() or not self.file.parent.is_dir() else "it"
            reason = f"{str(self.file)!r} cannot be opened for writing: {error.strerror}"
            return f"{reason}: make {what} writable, or name another file"
        return None

    def get_reader(self) -> SqliteBeside:
        if self.file is None:
            raise StoreError("the store is in memory")
        return SqliteBeside(str(self.file))

    def get_tables(self) -> "SqliteTables":
        if self.file is None:
            raise StoreError("a store in memory ends with its gateway: name a file, such as sqlite:///./gateway.db")
        from .tables import SqliteTables  # a gateway copies no store, and keeps for life what it imports

        return SqliteTables(self.file)
