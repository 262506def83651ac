"""When the file of a store is read as a whole, by whom, and what comes of it."""

import fcntl
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gateway.plugins.stores.sqlite import file_check as sqlite_check
from gateway.plugins.stores.sqlite.file import SqliteError, connect, open_file
from gateway.plugins.stores.sqlite.file_check import SqliteCheck, find_defect, get_mark_path, note_end, read_finding
from gateway.plugins.stores.sqlite.file_guard import SqliteWatch
from gateway.plugins.stores.sqlite.migrations import MIGRATIONS

ROWS = 300


@pytest.fixture(autouse=True)
def _every_store_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_check, "SMALL_BYTES", 0)


@pytest.fixture
def place(tmp_path: Path) -> str:
    """A store whose last process closed it."""
    place = str(tmp_path / "gateway.db")
    with closing(open_file(place, migrations=MIGRATIONS)) as connection:
        put = "INSERT INTO prompts VALUES ('acme', ?, ?, 1, 1.0)"
        connection.executemany(put, [(f"p{number}", "x" * 2000) for number in range(ROWS)])
    return place


@pytest.fixture
def killed(place: str, tmp_path: Path) -> str:
    """The same, with the log of a process that was killed."""
    folder = tmp_path / "killed"
    folder.mkdir()
    with closing(connect(place, mode="rw")) as connection:
        connection.execute("UPDATE counters SET value = 7")
        for name in ("gateway.db", "gateway.db-wal"):
            shutil.copyfile(tmp_path / name, folder / name)
    return str(folder / "gateway.db")


@pytest.fixture
def open_elsewhere(killed: str) -> Iterator[str]:
    """Another worker has it open by now."""
    with closing(open_file(killed, migrations=MIGRATIONS)), closing(SqliteWatch(killed)):
        get_mark_path(killed).unlink()
        yield killed


def damage(place: str) -> None:
    """In the middle of the rows, where no start looks."""
    file_path = Path(place)
    with file_path.open("r+b") as file:
        file.seek(file_path.stat().st_size * 3 // 4 // 4096 * 4096)
        file.write(b"\xff" * 4096)


def check(place: str) -> None:
    """Check the store in a thread of its own, whose priority it lowers for good."""
    checking = threading.Thread(target=SqliteCheck(place, connect=lambda: connect(place, mode="ro")).run)
    checking.start()
    checking.join()


def test_orderly_shutdown_requires_no_file_check(place: str) -> None:
    """However large the file is."""
    with closing(open_file(place, migrations=MIGRATIONS)):
        assert read_finding(place) is None


def test_log_left_by_a_killed_process_requires_a_check(killed: str) -> None:
    """The start goes on, and the check stays due until it was made, whatever ends the process meanwhile."""
    for _ in range(2):
        with closing(open_file(killed, migrations=MIGRATIONS)):
            assert read_finding(killed) == ""


def test_log_of_a_live_process_requires_no_check(open_elsewhere: str) -> None:
    """One more worker, one that was started again, or the gateway that takes over in a rolling restart."""
    note_end(open_elsewhere)
    assert read_finding(open_elsewhere) is None


def test_intact_store_is_checked_once(killed: str) -> None:
    """A process that opened it while the check was due goes on."""
    with closing(open_file(killed, migrations=MIGRATIONS)), closing(SqliteWatch(killed)) as watch:
        assert watch.is_check_due
        check(killed)
        assert read_finding(killed) is None and watch.find_loss_reason() is None
        assert not watch.is_check_due
        check(killed)  # of another worker, which was about to begin
        assert read_finding(killed) is None


def test_only_one_process_runs_the_check(killed: str) -> None:
    """The one that has the lock on the mark."""
    with closing(open_file(killed, migrations=MIGRATIONS)):
        with get_mark_path(killed).open() as other:
            fcntl.flock(other, fcntl.LOCK_EX)
            check(killed)
            assert read_finding(killed) == ""
        check(killed)
        assert read_finding(killed) is None


def test_damage_found_by_the_check_blocks_the_store(killed: str) -> None:
    """Workers that have the store open take nothing more, and it does not start again until a person has seen to it."""
    damage(killed)
    with closing(open_file(killed, migrations=MIGRATIONS)), closing(SqliteWatch(killed)) as watch:
        check(killed)
        assert "is damaged" in str(watch.find_loss_reason()) and str(get_mark_path(killed)) in str(
            watch.find_loss_reason()
        )
        with pytest.raises(SqliteError, match="is damaged"):
            watch.check_files()
    with pytest.raises(SqliteError, match="then delete"):
        open_file(killed, migrations=MIGRATIONS)


def test_interrupted_check_remains_due(killed: str) -> None:
    """The next start begins anew."""
    with closing(open_file(killed, migrations=MIGRATIONS)):
        gate = threading.Event()

        def connecting() -> sqlite3.Connection:
            gate.wait(30)
            return connect(killed, mode="ro")

        stopped = SqliteCheck(killed, connect=connecting)
        stopped.start()
        stopped.close(wait_s=0)
        gate.set()
        stopped.close(wait_s=30)
        assert read_finding(killed) == ""


def test_small_store_is_checked_at_each_start(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then no check is due, whatever was said before."""
    monkeypatch.setattr(sqlite_check, "SMALL_BYTES", 16 << 20)
    get_mark_path(place).touch()
    open_file(place, migrations=MIGRATIONS).close()
    assert read_finding(place) is None
    damage(place)
    with pytest.raises(SqliteError, match="is damaged"):
        open_file(place, migrations=MIGRATIONS)


def test_each_table_can_be_checked_separately(place: str) -> None:
    """What is wrong with another one is not found there."""
    with closing(connect(place, mode="ro")) as connection:
        assert find_defect(connection) is None
    damage(place)
    with closing(connect(place, mode="ro")) as connection:
        assert find_defect(connection, table="counters") is None
        assert find_defect(connection, table="prompts") is not None
        assert connection.text_factory is str
