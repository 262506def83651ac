"""The file of a store, as it is opened by whoever needs no more than it (tests of the store go through the rest)."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gateway.plugins.stores.sqlite.file import IN_MEMORY, SqliteError, connect, keep_blank, open_file
from gateway.plugins.stores.sqlite.migrations import APPLICATION_ID, MIGRATIONS, execute_statements

FIRST = ("CREATE TABLE words (word TEXT)",)
SECOND = ("ALTER TABLE words ADD COLUMN note TEXT",)


def version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


@pytest.mark.parametrize("in_memory", [True, False])
def test_new_database_has_its_tables_and_application_id(tmp_path: Path, in_memory: bool) -> None:
    """In a file and in memory."""
    place = IN_MEMORY if in_memory else str(tmp_path / "x.db")
    with closing(open_file(place, migrations=(FIRST, SECOND))) as connection:
        connection.execute("INSERT INTO words VALUES ('a', 'b')")
        assert version(connection) == 2
        assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
    assert [path.name for path in tmp_path.iterdir()] == ([] if in_memory else ["x.db"])


@pytest.mark.parametrize("in_memory", [True, False])
def test_copy_of_blank_database_equals_a_fully_migrated_one(tmp_path: Path, in_memory: bool) -> None:
    """And knows nothing of what happened in another copy."""
    keep_blank()
    for number in range(2):
        place = IN_MEMORY if in_memory else str(tmp_path / f"{number}.db")
        with (
            closing(open_file(place, migrations=MIGRATIONS)) as copy,
            closing(sqlite3.connect(IN_MEMORY, isolation_level=None)) as made,
        ):
            execute_statements(MIGRATIONS, made)
            assert list(copy.iterdump()) == list(made.iterdump())
            assert version(copy) == len(MIGRATIONS)
            assert copy.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
            assert copy.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            copy.execute("UPDATE counters SET value = 7")
            copy.execute("DROP TABLE duties")


def test_older_database_runs_only_its_missing_migrations(tmp_path: Path) -> None:
    """Its rows stay, a copy of it as it was lies beside it, and opening it again changes nothing."""
    place = str(tmp_path / "x.db")
    with closing(open_file(place, migrations=(FIRST,))) as connection:
        connection.execute("INSERT INTO words VALUES ('a')")
    for _ in range(2):
        with closing(open_file(place, migrations=(FIRST, SECOND))) as connection:
            assert connection.execute("SELECT * FROM words").fetchall() == [("a", None)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.db", "x.db.v1"]
    with closing(connect(f"{place}.v1", mode="ro")) as before:
        assert version(before) == 1


def test_read_only_connection_neither_writes_nor_creates_a_file(tmp_path: Path) -> None:
    """Neither in a file nor by making one."""
    place = str(tmp_path / "x.db")
    with pytest.raises(SqliteError, match="is not a file"):
        connect(place, mode="ro")
    open_file(place, migrations=(FIRST,)).close()
    with closing(connect(place, mode="ro")) as reader, pytest.raises(sqlite3.OperationalError, match="readonly"):
        reader.execute("INSERT INTO words VALUES ('a')")


def test_newer_database_is_refused_with_advice(tmp_path: Path) -> None:
    """And left as it is."""
    place = str(tmp_path / "x.db")
    open_file(place, migrations=(FIRST, SECOND)).close()
    before = Path(place).read_bytes()
    with pytest.raises(SqliteError, match="has version 2, but this program knows only 1: start the newer program"):
        open_file(place, migrations=(FIRST,))
    assert Path(place).read_bytes() == before


def test_refused_database_keeps_its_wal(tmp_path: Path) -> None:
    """What a process left that was killed is evidence, and is not played into a file that is refused."""
    place = str(tmp_path / "gateway.db")
    open_file(place, migrations=(FIRST,)).close()
    with closing(connect(place, mode="rw")) as writer:
        writer.execute("PRAGMA user_version = 7")
        killed = tmp_path / "killed"
        killed.mkdir()
        for name in ("gateway.db", "gateway.db-wal"):
            (killed / name).write_bytes((tmp_path / name).read_bytes())
    before = {path.name: path.read_bytes() for path in killed.iterdir()}
    with pytest.raises(SqliteError, match="version 7"):
        open_file(str(killed / "gateway.db"), migrations=(FIRST,))
    assert before == {path.name: path.read_bytes() for path in killed.iterdir() if path.suffix != ".db-shm"}


def test_store_opens_beside_an_empty_leftover_log(tmp_path: Path) -> None:
    """The file that it was beside was moved away to begin anew."""
    (tmp_path / "gateway.db-wal").touch()
    with closing(open_file(str(tmp_path / "gateway.db"), migrations=(FIRST,))) as opened:
        assert opened.execute("PRAGMA user_version").fetchone() == (1,)
