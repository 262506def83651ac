"""The files of a store that is open: what is lost, what only looks like it, and what may be closed."""

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gateway.plugins.stores.sqlite.file import SqliteError, open_file
from gateway.plugins.stores.sqlite.file_guard import SqliteWatch
from gateway.plugins.stores.sqlite.migrations import MIGRATIONS
from gateway.plugins.stores.sqlite.store_url import SqliteBeside

PUT = "INSERT INTO counters VALUES (?, 1)"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "gateway.db"


@pytest.fixture
def connection(place: Path) -> Iterator[sqlite3.Connection]:
    with closing(open_file(str(place), migrations=MIGRATIONS)) as connection:
        connection.execute(PUT, ("first",))
        yield connection


@pytest.fixture
def watch(place: Path, connection: sqlite3.Connection) -> Iterator[SqliteWatch]:
    del connection
    with closing(SqliteWatch(str(place))) as watch:
        yield watch


def log_of(place: Path) -> Path:
    return place.with_name(f"{place.name}-wal")


def gone(place: Path) -> None:
    place.unlink()


def replaced(place: Path) -> None:
    shutil.copyfile(place, f"{place}.copy")
    Path(f"{place}.copy").replace(place)


def cut(place: Path) -> None:
    with place.open("r+b") as file:
        file.truncate(place.stat().st_size // 2)


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
@pytest.mark.parametrize("loss", [gone, replaced, cut])
def test_watch_reports_a_lost_replaced_or_truncated_file(
    watch: SqliteWatch, place: Path, suffix: str, loss: Callable[[Path], None]
) -> None:
    """Each is named. The index has one length for all that it says, so a cut of it is not looked for."""
    file = place.with_name(f"{place.name}{suffix}")
    assert watch.find_loss_reason() is None and not watch.check_files() and watch.may_close
    loss(file)
    if (suffix, loss) == ("-shm", cut):
        return
    assert repr(str(file)) in (watch.find_loss_reason() or "")
    with pytest.raises(SqliteError, match="while the gateway runs"):
        watch.check_files()
    assert watch.may_close is ((suffix, loss) == ("-wal", gone))


def test_watch_detects_a_database_overwritten_by_a_copy(watch: SqliteWatch, place: Path, tmp_path: Path) -> None:
    """It has the size that it had, and is the file that was opened."""
    SqliteBeside(str(place)).write_copy(str(tmp_path / "copy.db"), progress=lambda *_: None)
    place.write_bytes((tmp_path / "copy.db").read_bytes().ljust(place.stat().st_size, b"\0"))
    assert f"{str(place)!r} was written over by a copy" in (watch.find_loss_reason() or "")
    assert not watch.may_close


def test_watch_accepts_a_restarted_wal(watch: SqliteWatch, place: Path, connection: sqlite3.Connection) -> None:
    """Emptied by a checkpoint and written again, however short it is then."""
    watch.check_files()
    with closing(sqlite3.connect(place)) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert watch.check_files() and not watch.check_files()
    connection.execute(PUT, ("second",))
    assert not watch.check_files() and watch.find_loss_reason() is None


def test_watch_detects_a_zeroed_wal_header(watch: SqliteWatch, place: Path) -> None:
    """Somebody emptied the log, and SQLite went on behind the place where it had been."""
    watch.check_files()
    log_of(place).write_bytes(bytes(4096))
    assert "was cut" in (watch.find_loss_reason() or "")


def test_rewritten_wal_is_identical(watch: SqliteWatch, place: Path) -> None:
    """Byte for byte."""
    before = log_of(place).read_bytes()
    watch.write_log_anew()
    assert log_of(place).read_bytes() == before and watch.has_log


class Slow(SqliteWatch):
    """A look of a thread that reads, in the middle of which the thread that writes writes."""

    meanwhile: Callable[[], object] | None = None

    def _read_head(self) -> bytes:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return super()._read_head()


def test_watch_accepts_a_wal_that_grows_during_the_check(place: Path, connection: sqlite3.Connection) -> None:
    """The thread that writes has seen more by the end of the look than the look itself."""
    with closing(Slow(str(place))) as watch:

        def write() -> None:
            before = log_of(place).stat().st_size
            connection.execute("UPDATE counters SET name = name || 'x' WHERE name = 'first'")
            assert log_of(place).stat().st_size > before
            watch.check_files()

        watch.meanwhile = write
        assert watch.find_loss_reason() is None
