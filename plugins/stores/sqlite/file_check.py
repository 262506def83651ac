"""The check of a SQLite store's file: at each start if the file is small, else in the background.

1. A large file is checked only after an unclean end: when a log lies beside it that no process has open.
2. A file `FILE-check` marks that a check is due. It stays until a check has ended, however the gateway ends meanwhile.
   If the check found damage, the file contains the finding. Then the store accepts no more writes, in any worker, and
   does not start again.
3. One process checks: the one that has the lock on that file.
4. The last process that closes the store ends the mode in which it has a log. So a file in that mode without a log
   beside it was open when its process ended, or when it was copied, and the log has been lost (docs/decisions/0070). A
   file in the other mode has no log: one that lies beside it is of another state.
"""

import fcntl
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

log = logging.getLogger("gateway")

#: A file of this size is read in about 0.1 s.
SMALL_BYTES = 16 << 20
#: What a person does about a store that is damaged.
REMEDY = "put a copy back, or move it away to begin anew"
#: Pages that are held by a connection to check or create a store, which comes to each page once. The memory of more
#: pages (SQLite's own limit is 2 MB) would stay with the thread.
FEW_PAGES = 20
#: The versions of the format for writing and reading, in the head of a file, and the versions of one with a log.
#: https://www.sqlite.org/fileformat2.html#file_format_version_numbers
VERSIONS, HAS_LOG = slice(18, 20), b"\x02\x02"
_WHOLE = b"\x01\x01"
#: Where a file has the version of its store. Gateways of older ones leave the mode with a log behind at any end.
_STORE_VERSION, _ENDS_IN_ORDER = slice(60, 64), 26
#: A process that begins or ends the mode with a log is between two steps for a moment: looks for that, and pauses.
_LOOKS, _LOOK_S = 50, 0.02
#: How much the check gives way to others (see nice(2)).
_NICENESS = 10


def get_mark_path(place: str) -> Path:
    """Return the file that marks that a check of the store is due, with its finding."""
    return Path(f"{place}-check")


def is_small(place: str) -> bool:
    """Return whether the store is small enough to be checked at each start."""
    log = Path(f"{place}-wal")
    return Path(place).stat().st_size + (log.stat().st_size if log.exists() else 0) <= SMALL_BYTES


def note_end(place: str) -> None:
    """Mark a check as due if the last process that had a large store did not end in order."""
    if is_small(place):  # it was read just now
        get_mark_path(place).unlink(missing_ok=True)
        return
    try:
        log = os.open(f"{place}-wal", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)  # a process with the store open shares a lock (`SqliteWatch`)
        if os.fstat(log).st_size:
            get_mark_path(place).touch(mode=0o600)
    except BlockingIOError:
        pass
    finally:
        os.close(log)


def log_lost_log(place: str, *, pause: Callable[[float], object] = time.sleep) -> None:
    """Log it if the store was not closed in order and its log is gone. To be called before the file is opened.

    Of several processes that open such a store at once, the one that makes the new log logs it. How a store of an older
    version was closed is unknown.
    """
    if int.from_bytes(_read_head(place)[_STORE_VERSION]) < _ENDS_IN_ORDER:
        return
    for _ in range(_LOOKS):
        if not _lacks_log(place):
            return
        pause(_LOOK_S)
    log.error(
        "the store %r was not closed in order, and its log %r is not there: what was written last is missing, "
        "perhaps also decisions and results that were confirmed. If the log is elsewhere, stop the gateway and put "
        "both files back; copy a store that is in use with 'gateway backup' only",
        place,
        f"{place}-wal",
    )


def _lacks_log(place: str) -> bool:
    """Return whether a file is in the mode with a log now, and no log lies beside it."""
    return _read_versions(place) == HAS_LOG and not Path(f"{place}-wal").exists()


def has_foreign_log(place: str) -> bool:
    """Return whether a whole file lies beside a log with content: one of the two was put there by a person.

    SQLite would play the log into the file. To be called before the file is opened. A process that begins the mode with
    a log changes the file first, and one that ends it deletes the log first.
    """
    log = Path(f"{place}-wal")
    is_whole = _read_versions(place) == _WHOLE
    return is_whole and log.exists() and log.stat().st_size > 0 and _read_versions(place) == _WHOLE


def _read_versions(place: str) -> bytes:
    return _read_head(place)[VERSIONS]


def _read_head(place: str) -> bytes:
    with Path(place).open("rb") as file:
        return file.read(_STORE_VERSION.stop)


def read_finding(place: str) -> str | None:
    """Return the finding of a check in the background. "": nothing so far. None: no check is due."""
    try:
        return get_mark_path(place).read_text(errors="replace").strip()
    except FileNotFoundError:
        return None


def format_damage(place: str, finding: str) -> str:
    """Return the message about a store that a check in the background has found damaged."""
    mark = str(get_mark_path(place))
    return f"the store {place!r} is damaged ({finding}): stop the gateway and {REMEDY}; then delete {mark!r}"


def find_defect(connection: sqlite3.Connection, *, table: str | None = None) -> str | None:
    """Return the defect that SQLite finds in the database, or in one table and its indexes. None: nothing.

    Raises sqlite3.OperationalError where the file cannot be read now, which proves nothing about its content.
    """
    connection.text_factory = _decode_text  # its error about a damaged row quotes that row
    statement = "PRAGMA quick_check(1)" if table is None else f"""PRAGMA quick_check("{table}")"""
    try:
        connection.execute(f"PRAGMA cache_size = {FEW_PAGES}")
        found = " ".join(str(connection.execute(statement).fetchone()[0]).split())
    except sqlite3.OperationalError:
        raise
    except sqlite3.DatabaseError as error:
        found = str(error)
    finally:
        connection.text_factory = str
    return None if found == "ok" else found


class SqliteCheck:
    """One check in a separate thread. Each table has its own read transaction, so that the log can begin anew."""

    def __init__(self, place: str, *, connect: Callable[[], sqlite3.Connection]) -> None:
        self._place = place
        self._connect = connect
        self._connection: sqlite3.Connection | None = None
        self._is_stopping = threading.Event()
        # A daemon: one table of many gigabytes must not hold up the end of the process.
        self._thread = threading.Thread(target=self.run, name="store check", daemon=True)

    def start(self) -> None:
        """Start the check in the background."""
        self._thread.start()

    def close(self, *, wait_s: float) -> None:
        """Stop the check if SQLite allows it within `wait_s`. An unfinished check stays due. Idempotent."""
        self._is_stopping.set()
        if (connection := self._connection) is not None:
            with suppress(sqlite3.ProgrammingError):  # it is through
                connection.interrupt()
        self._thread.join(wait_s)

    def run(self) -> None:
        """Run until the check has ended. Return at once if another process is checking."""
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
        mark = get_mark_path(self._place)
        try:
            with _lock_mark(mark) as is_ours:
                if is_ours:
                    self._check_in_background(mark)
        except FileNotFoundError:
            pass  # another process was through with it just now
        except (sqlite3.Error, OSError) as error:
            if not self._is_stopping.is_set():
                log.error("the store %r could not be checked (%s); the next start tries again", self._place, error)

    def _check_in_background(self, mark: Path) -> None:
        log.warning("the store %r was not closed in order: it is checked now, and used meanwhile", self._place)
        with closing(self._connect()) as connection:
            self._connection = connection
            tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
            for table in tables:
                if self._is_stopping.is_set():
                    return
                if (found := find_defect(connection, table=table)) is not None:
                    mark.write_text(found)
                    log.error("%s", format_damage(self._place, found))
                    return
        mark.unlink(missing_ok=True)
        log.info("the store %r is whole", self._place)


@contextmanager
def _lock_mark(mark: Path) -> Iterator[bool]:
    """Yield whether this process has the lock on the file now, and not another one. Raises FileNotFoundError."""
    descriptor = os.open(mark, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield mark.exists()
    finally:
        os.close(descriptor)


def _decode_text(text: bytes) -> str:
    return text.decode(errors="replace")
