"""`gateway backup`: a copy of the store's file as it is at one moment, while gateways read and write it.

1. The copy is of one snapshot: it ends, however fast gateways write meanwhile, and delays none of them.
2. FILE appears whole, checked and on disk, with mode 0600 from its first byte; or it does not appear.
"""

import os
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from gateway.cli.audit import place_of
from gateway.cli.formatting import CommandError
from gateway.config import Loaded
from gateway.plugins.stores.sqlite.check import defect
from gateway.plugins.stores.sqlite.file import SqliteError, connect, mode_to_look
from gateway.plugins.stores.sqlite.migrations import APPLICATION_ID

#: Pages that are copied between two lines of progress: 64 MiB of 4 KiB.
_PAGES = 1 << 14


def back_up(loaded: Loaded, file: Path) -> Iterator[str]:
    """Copies the store of the configuration to `file` and yields what there is to print. Raises CommandError.

    Nothing is overwritten: a `file` that is there stays as it is.
    """
    place = place_of(loaded, instead="back it up with the tools of its database, such as pg_dump")
    if os.path.lexists(file):
        raise CommandError(f"{str(file)!r} is there already: it stays as it is. Name another file")
    try:
        descriptor, draft = tempfile.mkstemp(prefix=f"{file.name}.new-", dir=file.absolute().parent)
    except OSError as error:
        raise CommandError(f"{str(file)!r} cannot be written: {error.strerror}") from None
    try:
        os.close(descriptor)
        _copy(place, draft)
        _write_through(draft)
        os.link(draft, file)
    except FileExistsError:
        raise CommandError(f"{str(file)!r} is there already: it stays as it is. Name another file") from None
    except (sqlite3.Error, SqliteError, OSError) as error:
        raise CommandError(f"{place!r} cannot be copied to {str(file)!r}: {error}") from None
    finally:
        Path(draft).unlink(missing_ok=True)
    _write_through(str(file.absolute().parent))
    yield f"wrote {file}: {file.stat().st_size} bytes, read again and whole"


def _copy(place: str, draft: str) -> None:
    """Copies one snapshot of `place`, and reads the copy. Raises sqlite3.Error and SqliteError."""
    with closing(connect(place, mode=mode_to_look(place))) as source, closing(sqlite3.connect(draft)) as target:
        if source.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
            raise SqliteError("it is a database of another program")
        # A read transaction is what makes the copy end: without one it begins anew whenever somebody writes.
        source.execute("BEGIN")
        source.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        source.backup(target, pages=_PAGES, progress=_progress, sleep=0)
    # Immutable: read as it stands, without a log beside it.
    with closing(sqlite3.connect(f"{Path(draft).as_uri()}?mode=ro&immutable=1", uri=True)) as copy:
        if (found := defect(copy)) is not None:
            raise SqliteError(f"the store is damaged ({found})")


def _progress(_status: int, remaining: int, total: int) -> None:
    """Writes how far the copy is, to a terminal only."""
    if sys.stderr.isatty():
        end = "\r" if remaining else "\n"
        sys.stderr.write(f"copied {100 - 100 * remaining // max(total, 1)} %{end}")
        sys.stderr.flush()


def _write_through(path: str) -> None:
    """Waits until a file or folder is on disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
