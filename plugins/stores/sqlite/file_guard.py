"""The watch over the files of an open store (database, log, index of the log): they are the opened ones, and whole.

SQLite continues to write to a file that was deleted, replaced or cut, and reports success. Without the watch, the loss
would show at the next start only. The index is not opened here: closing it would drop the locks that SQLite has on it.
So would closing the database, which therefore stays open until SQLite has closed it.

A copy that is written over the database (`cp backup.db gateway.db`) leaves the same file. Its head shows it: a database
whose log is in use is in the mode with a log, and a whole copy is not (docs/decisions/0070).
"""

import asyncio
import fcntl
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .file import SqliteError
from .file_check import HAS_LOG, VERSIONS, format_damage, read_finding

#: What a log begins with, by the byte order of its checksums; and how long its head is.
_MAGIC, _HEAD_BYTES = (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83"), 32
_CHUNK_BYTES = 1 << 20
#: So long the event loop's callers wait for a look of a thread.
LOOK_S = 1.0


@dataclass(frozen=True, slots=True)
class _Look:
    """The state of the files at one time. A log that begins anew has another head."""

    database_bytes: int
    log_bytes: int
    head: bytes


class SqliteWatch:
    """The watch, made once the database is open for writing, so that its log is there. Raises OSError if it is not."""

    def __init__(self, place: str) -> None:
        self._database, self._log, self._index = Path(place), Path(f"{place}-wal"), Path(f"{place}-shm")
        files = (self._database, self._log, self._index)
        found = [file.stat() for file in files]
        self._files = [(file, stat.st_dev, stat.st_ino) for file, stat in zip(files, found, strict=True)]
        self._descriptor = os.open(self._log, os.O_RDONLY | os.O_CLOEXEC)
        self._open_database = os.open(self._database, os.O_RDONLY | os.O_CLOEXEC)
        self._seen = _Look(found[0].st_size, found[1].st_size, self._read_head())
        fcntl.flock(self._descriptor, fcntl.LOCK_SH)  # another process has the store open (`sqlite_check.note_end`)
        self.is_check_due = read_finding(place) is not None

    @property
    def has_log(self) -> bool:
        """Return whether there was anything in the log when it was last seen."""
        return self._seen.log_bytes > 0

    def find_loss_reason(self) -> str | None:
        """Return why data that is written now would be missing after a restart, and the next step.

        None: it would not.
        """
        try:
            self._read_state()
        except SqliteError as error:
            return str(error)
        return None

    def check_files(self) -> bool:
        """Raise SqliteError if anything is lost. Return True if the log is empty and was not.

        That is a checkpoint of another program, or a log that was cut. Only the next commit shows which: it begins the
        log with a head in the first case, and leaves a hole there in the other.
        """
        before, self._seen = self._seen, self._read_state()
        return self._seen.log_bytes == 0 < before.log_bytes

    def sync_log(self) -> None:
        """Write the log through to the disk. Raises OSError."""
        os.fdatasync(self._descriptor)

    def write_log_anew(self) -> None:
        """Write the log over itself and through to the disk. The caller must have the lock of writers.

        After a failed fsync the system takes the unwritten data for written. Only data that is written once more is
        tried once more. Raises OSError.
        """
        with _open_descriptor(self._log) as log:
            offset = 0
            while chunk := os.pread(log, _CHUNK_BYTES, offset):
                offset += os.pwrite(log, chunk, offset)
            os.fsync(log)

    @property
    def may_close(self) -> bool:
        """Return whether SQLite may close normally: it plays its log into the database and deletes the log by its name.

        It still has a log that was deleted, and saves its content. After any other loss, closing normally would do
        harm.
        """
        if self.find_loss_reason() is None:
            return True
        _, *identity = self._files[0]
        try:
            found = self._database.stat()
        except OSError:
            return False
        return [found.st_dev, found.st_ino] == identity and not os.path.lexists(self._log)

    def is_last(self) -> bool:
        """Return whether no other process has the store open for writing. Until `close`, none can open it.

        Of several that ask at the same time one is the last.
        """
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def close(self, *, is_in_use: bool = False) -> None:
        """Close the files. A database that SQLite has still open (`is_in_use`) stays open until the process ends."""
        os.close(self._descriptor)
        if not is_in_use:
            os.close(self._open_database)

    def _read_state(self) -> _Look:
        """Return the state as it is now.

        Raises SqliteError if the files are not the opened ones, or cannot be looked at.
        """
        try:
            return self._stat_files()
        except OSError as error:
            place = str(self._database)
            raise SqliteError(f"the store {place!r} takes nothing: its files cannot be read now: {error}") from None

    def _stat_files(self) -> _Look:
        seen = self._seen  # first: a thread that writes goes on seeing more meanwhile
        sizes = []
        for file, device, inode in self._files:
            try:
                found = file.stat()
            except OSError as error:
                raise self._build_lost_error(file, f"is gone ({error.strerror})") from None
            if (found.st_ino, found.st_dev) != (inode, device):
                raise self._build_lost_error(file, "was replaced")
            sizes.append(found.st_size)
        if self.is_check_due:
            finding = read_finding(str(self._database))
            if finding:
                raise SqliteError(format_damage(str(self._database), finding))
            self.is_check_due = finding is not None
        look = _Look(sizes[0], sizes[1], self._read_head())
        if look.database_bytes < seen.database_bytes:
            raise self._build_lost_error(self._database, "was cut")
        if os.pread(self._open_database, VERSIONS.stop, 0)[VERSIONS] != HAS_LOG:
            raise self._build_lost_error(self._database, "was written over by a copy")
        is_cut = 0 < look.log_bytes < seen.log_bytes and look.head == seen.head
        if is_cut or (look.log_bytes and not look.head.startswith(_MAGIC)):
            raise self._build_lost_error(self._log, "was cut")
        return look

    def _build_lost_error(self, file: Path, what: str) -> SqliteError:
        return SqliteError(
            f"the store {str(self._database)!r} takes nothing: {str(file)!r} {what} while the gateway runs: "
            "stop the gateway, put back what belongs there, and start it again"
        )

    def _read_head(self) -> bytes:
        return os.pread(self._descriptor, _HEAD_BYTES, 0)


class SqliteLooks:
    """The looks of a thread at the files, for callers on the event loop. At most one is under way.

    A file system may hang: it holds up the thread then, and no caller for longer than `LOOK_S`.
    """

    def __init__(self, look: Callable[[], Awaitable[str | None]]) -> None:
        self._look = look
        self._under_way: asyncio.Future[str | None] | None = None
        self._last: str | None = None

    async def find_loss_reason(self) -> str | None:
        """Return the result of a look that is made now, or of the last one that ended."""
        if self._under_way is None or self._under_way.done():
            self._under_way = asyncio.ensure_future(self._look())
        under_way = self._under_way
        await asyncio.wait((under_way,), timeout=LOOK_S)
        if under_way.done():
            self._last = under_way.result()
        return self._last


@contextmanager
def _open_descriptor(file: Path) -> Iterator[int]:
    descriptor = os.open(file, os.O_RDWR | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
