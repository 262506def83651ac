"""`gateway backup`: a whole copy of one moment, with nothing in its place where there can be none."""

import os
import resource
import sqlite3
import stat
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gateway.cli.main import main
from gateway.plugins.stores.sqlite import SqliteStore
from tests.plugins.stores.records import audit_line, new, run

LINES = 5


@pytest.fixture
async def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SqliteStore:
    """In use, in the folder where the commands run."""
    monkeypatch.chdir(tmp_path)
    store = SqliteStore(str(tmp_path / "gateway.db"))
    await store.open()
    await store.write(new(run(), audit=tuple(audit_line(step=number) for number in range(1, LINES + 1))))
    return store


@pytest.fixture
def writer(store: SqliteStore, tmp_path: Path) -> Iterator[threading.Event]:
    """Another process's writes, one after the other; set once the first one is done."""
    began, ends = threading.Event(), threading.Event()

    def write() -> None:
        with closing(sqlite3.connect(tmp_path / "gateway.db", timeout=30)) as connection:
            connection.execute("PRAGMA wal_autocheckpoint = 0")
            number = 0
            while not ends.is_set():
                with connection:
                    connection.execute("INSERT OR REPLACE INTO workers VALUES (?, ?)", (f"w{number % 50}", number))
                number += 1
                began.set()

    thread = threading.Thread(target=write)
    with closing(sqlite3.connect(tmp_path / "gateway.db")) as connection, connection:
        connection.execute("CREATE TABLE workers (name TEXT PRIMARY KEY, number INTEGER)")
        connection.execute("CREATE TABLE much (data BLOB)")
        connection.executemany("INSERT INTO much VALUES (?)", [(os.urandom(1 << 20),) for _ in range(80)])
    thread.start()
    yield began
    ends.set()
    thread.join()


async def test_backup_copies_the_whole_store_including_its_wal(
    store: SqliteStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also what is in the log beside it only; and a gateway starts on it."""
    assert (tmp_path / "gateway.db-wal").stat().st_size > 0
    assert main(["backup", "copy.db"]) == 0
    size = (tmp_path / "copy.db").stat().st_size
    assert capsys.readouterr().out == f"wrote copy.db: {size} bytes, read again and whole\n"
    assert stat.S_IMODE((tmp_path / "copy.db").stat().st_mode) == 0o600
    await store.close()
    copy = SqliteStore(str(tmp_path / "copy.db"))
    await copy.open()
    assert len(await copy.audit(after=0, limit=10)) == LINES
    await copy.close()
    assert sorted(path.name for path in tmp_path.iterdir() if "new-" in path.name) == []


async def test_backup_completes_during_concurrent_writes(
    writer: threading.Event, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And is of one moment: of several pieces, between which they wrote."""
    assert writer.wait(30)
    for number in range(3):
        assert main(["backup", f"copy{number}.db"]) == 0
    with closing(sqlite3.connect(tmp_path / "copy2.db")) as connection:
        numbers = sorted(row[0] for row in connection.execute("SELECT number FROM workers"))
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))  # none was copied before, none after
    assert "whole" in capsys.readouterr().out


async def test_backup_never_overwrites_existing_files(
    store: SqliteStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither a file nor a link that leads nowhere."""
    (tmp_path / "copy.db").write_text("mine")
    (tmp_path / "link.db").symlink_to("nowhere.db")
    for name in ("copy.db", "link.db", "gateway.db"):
        assert main(["backup", name]) == 1
        assert f"'{name}' is there already: it stays as it is" in capsys.readouterr().err
    assert (tmp_path / "copy.db").read_text() == "mine" and not (tmp_path / "nowhere.db").exists()
    await store.close()


async def test_a_damaged_store_is_not_copied(
    store: SqliteStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What would be put back later has to be whole."""
    await store.close()
    with (tmp_path / "gateway.db").open("r+b") as file:
        file.seek(4096 * 3)
        file.write(os.urandom(4096 * 2))
    assert main(["backup", "copy.db"]) == 1
    assert "'copy.db': the store is damaged" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gateway.db"]


@pytest.mark.parametrize(
    ("config", "arguments", "message"),
    [
        ("store: sqlite:///none.db\n", ["copy.db"], "there is no store"),
        ("store: 'sqlite:///:memory:'\n", ["copy.db"], "such as pg_dump"),
        ("store: sqlite:///other.db\n", ["copy.db"], "it is a database of another program"),
        ("store: sqlite:///gateway.db\n", ["nowhere/copy.db"], "cannot be written: No such file or directory"),
    ],
)
async def test_failed_backup_reports_one_line_and_leaves_no_files(
    config: str,
    arguments: list[str],
    message: str,
    store: SqliteStore,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One line, exit code 1, and nothing is left behind."""
    (tmp_path / "gateway.yaml").write_text(config)
    with closing(sqlite3.connect(tmp_path / "other.db")) as connection, connection:
        connection.execute("CREATE TABLE theirs (x)")
    before = sorted(tmp_path.iterdir())
    assert main(["backup", *arguments]) == 1
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before
    await store.close()


async def test_backup_on_a_full_disk_leaves_no_file(
    store: SqliteStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As far as the file may grow; the store stays in use."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, hard))
    try:
        assert main(["backup", "copy.db"]) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "cannot be copied to 'copy.db'" in capsys.readouterr().err
    assert not (tmp_path / "copy.db").exists()
    await store.close()
