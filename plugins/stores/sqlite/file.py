"""The file of a SQLite store: how it is created, checked, migrated and copied.

1. A file that is damaged, empty, foreign or newer stops the start. It is left as it is, with all files beside it.
2. A new file appears whole, with its tables, or not at all.
"""

import logging
import os
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from gateway.plugin import find_access_fault, find_loose_access

from .file_check import (
    FEW_PAGES,
    REMEDY,
    find_defect,
    format_damage,
    has_foreign_log,
    is_small,
    log_lost_log,
    note_end,
    read_finding,
)
from .migrations import APPLICATION_ID, MIGRATIONS, Migration, execute_statements

log = logging.getLogger("gateway")

IN_MEMORY = ":memory:"
BUSY_S = 5.0  # how long another process may hold the file
_blank: list[bytes] = []  # at most one store without content


class SqliteError(Exception):
    """A file that cannot be used as it is. The text contains the next step."""


def open_file(place: str, *, migrations: Sequence[Migration]) -> sqlite3.Connection:
    """Return the writing connection to a sound file of this version, made or migrated where needed."""
    if place == IN_MEMORY:
        connection = sqlite3.connect(IN_MEMORY, isolation_level=None)
        _fill_blank(connection, migrations)
        _migrate(connection, place, migrations=migrations)
        return connection
    _check_rights(place)
    if not os.path.lexists(place):
        _create(place, migrations=migrations)
    elif Path(place).is_file():
        log_lost_log(place)
        if has_foreign_log(place):
            raise SqliteError(
                f"the store {place!r} is a whole copy, and the log {place + '-wal'!r} beside it is of another state: "
                f"move the log and {place + '-shm'!r} away to use the copy, or put the file of that log back"
            )
    with closing(connect(place, mode=choose_reading_mode(place))) as reader:
        _check_file(reader, place, migrations=migrations)
    note_end(place)
    connection = connect(place, mode="rw")
    try:
        _migrate(connection, place, migrations=migrations)
    except BaseException:
        connection.close()
        raise
    return connection


def keep_blank() -> None:
    """Make new stores of this process, and of its forks, copies of one that is made now.

    For a process that makes many, as tests do: the steps take 20 ms. A gateway makes one, and would hold the memory.
    """
    _blank.clear()
    with closing(open_file(IN_MEMORY, migrations=MIGRATIONS)) as connection:
        _blank.append(connection.serialize())


def _fill_blank(connection: sqlite3.Connection, migrations: Sequence[Migration]) -> None:
    """Give a database that was never written to the tables of a store that is kept, if that is one of `migrations`."""
    if _blank and migrations is MIGRATIONS:
        with closing(sqlite3.connect(IN_MEMORY)) as blank:
            blank.deserialize(_blank[0])
            blank.backup(connection)


def connect(place: str, *, mode: str) -> sqlite3.Connection:
    if not Path(place).is_file():
        raise SqliteError(f"the store {place!r} is not a file: move it away, or change `store`")
    uri = f"{Path(place).absolute().as_uri()}?mode={mode}"
    connection = sqlite3.connect(uri, uri=True, timeout=BUSY_S, isolation_level=None)
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def _check_rights(place: str) -> None:
    """Raise SqliteError if the file or its folder cannot be written, with a clearer message than SQLite's.

    SQLite itself would only report that it cannot open the file, or nothing before the first write.
    """
    file = Path(place).resolve()
    for path in (file.parent, file):
        if path.exists() and not os.access(path, os.R_OK | os.W_OK):
            raise SqliteError(
                f"the store {place!r} cannot be used, because {str(path)!r} cannot be written: "
                "let the gateway's user write it, or change `store`"
            )
    for path in (Path(place), Path(f"{place}-wal"), Path(f"{place}-shm")):
        if path.is_file() and (refused := find_access_fault(path, path.stat().st_mode)) is not None:
            raise SqliteError(f"the store {place!r} cannot be used: {refused}")
    if (loose := find_loose_access(Path(place))) is not None:
        log.warning("the store: %s", loose)


def choose_reading_mode(place: str) -> str:
    """Return the mode of a connection that leaves the files as they are.

    One that may write plays the log beside the file into it at its end. Any other leaves an empty log.
    """
    return "ro" if _has_log(place) else "rw"


def _has_log(place: str) -> bool:
    """Return whether changes lie beside the file that are not in it."""
    log = Path(f"{place}-wal")
    return log.exists() and log.stat().st_size > 0


def _create(place: str, *, migrations: Sequence[Migration]) -> None:
    folder = Path(place).absolute().parent
    if not folder.is_dir():
        raise SqliteError(f"the store {place!r} has no folder: create {str(folder)!r}, or change `store`")
    if _has_log(place) and not Path(place).exists():
        raise SqliteError(
            f"the store {place!r} is gone, but its {place + '-wal'!r} is there: put both back, or move that away"
        )
    with _make_draft_file(place) as draft:
        with closing(sqlite3.connect(draft, isolation_level=None)) as connection:
            connection.execute(f"PRAGMA cache_size = {FEW_PAGES}")
            _fill_blank(connection, migrations)
            _migrate(connection, place, migrations=migrations)
        with suppress(FileExistsError):  # another process was faster
            os.link(draft, place)


@contextmanager
def _make_draft_file(place: str) -> Iterator[str]:
    """Yield a file of mode 0600 beside the store, and delete it afterwards unless it was renamed."""
    descriptor, draft = tempfile.mkstemp(prefix=f"{Path(place).name}.new-", dir=Path(place).absolute().parent)
    os.close(descriptor)
    try:
        yield draft
    finally:
        Path(draft).unlink(missing_ok=True)


def _check_file(connection: sqlite3.Connection, place: str, *, migrations: Sequence[Migration]) -> None:
    """Check the file, the whole of it only if it is small. A large one is checked while in use, if a check is due."""
    if Path(place).stat().st_size == 0:
        raise SqliteError(f"the store {place!r} is empty, which no store is: {REMEDY}")
    if found := read_finding(place):
        raise SqliteError(format_damage(place, found))
    application, version, found = 0, 0, None
    try:
        application, version = _read_pragma(connection, "application_id"), _read_pragma(connection, "user_version")
    except sqlite3.OperationalError:
        raise  # locked, unreadable: proves nothing about the content
    except sqlite3.DatabaseError as error:
        found = str(error)
    if found is None and is_small(place):
        found = find_defect(connection)
    if found is not None:
        raise SqliteError(f"the store {place!r} is damaged ({found}): {REMEDY}")
    if application != APPLICATION_ID:
        raise SqliteError(f"{place!r} is a database of another program: name another file under `store`")
    if version > len(migrations):
        raise SqliteError(
            f"the store {place!r} has version {version}, but this program knows only {len(migrations)}: "
            "start the newer program, or put back a copy from before it"
        )


def _read_pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def _migrate(connection: sqlite3.Connection, place: str, *, migrations: Sequence[Migration]) -> None:
    """Migrate the store: all steps or none, and never without a copy of a store that is in use."""
    connection.execute("BEGIN IMMEDIATE")
    version = _read_pragma(connection, "user_version")
    if version < len(migrations):
        if version:
            _copy_file(place, f"{place}.v{version}")
        execute_statements(migrations[version:], connection)
        connection.execute(f"PRAGMA user_version = {len(migrations)}")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute("COMMIT")
    connection.execute("PRAGMA journal_mode = WAL")  # a file that has it already needs no lock for this
    _read_pragma(connection, "user_version")  # the first read makes the log


def end_log(connection: sqlite3.Connection) -> None:
    """Play the log into the database and end the mode that has one: the file is whole without it.

    Raises sqlite3.Error where another connection has the file open.
    """
    connection.execute("PRAGMA journal_mode = DELETE").fetchone()


def _copy_file(place: str, name: str) -> None:
    with _make_draft_file(place) as draft:
        with closing(connect(place, mode="ro")) as source, closing(sqlite3.connect(draft)) as target:
            source.backup(target)
            end_log(target)
        Path(draft).replace(name)
