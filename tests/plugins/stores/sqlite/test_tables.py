"""Whole SQLite stores, read and written table by table."""

import sqlite3
import stat
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from gateway.contracts.storage.store import StoreError
from gateway.contracts.storage.tables import TABLES, TableRow
from gateway.plugins.stores.sqlite import SqliteStore
from gateway.plugins.stores.sqlite.tables import SqliteTables
from tests.plugins.stores.filling import fill

#: What follows from the tables, or counts changes in this file alone; `sequences` stands for SQLite's own table.
FURTHER_TABLES = {
    *("memory_words", "memory_word_counts", "memory_changes", "sqlite_sequence"),
    *("quota_gateways", "quota_shares", "replica_leases"),  # no gateway is at work on a store that is copied
}
FURTHER_COLUMNS = {("memory_owners", "memories"), ("runs", "pending")}


@pytest.fixture
async def file(tmp_path: Path) -> Path:
    """A store with rows in every table."""
    store = SqliteStore(str(tmp_path / "a.db"))
    await store.open()
    await fill(store)
    await store.close()
    return tmp_path / "a.db"


def read_all(file: Path) -> dict[str, list[TableRow]]:
    with SqliteTables(file).open_source() as reader:
        return {table: [row for rows in reader.read_rows(table) for row in rows] for table in TABLES}


def copy_all(source: Path, target: Path) -> None:
    with SqliteTables(source).open_source() as reader, SqliteTables(target).open_target() as writer:
        for table in TABLES:
            for rows in reader.read_rows(table):
                writer.write_rows(table, rows)
        writer.finish()
        writer.commit()


def test_tables_of_the_schema_are_copied(connection: sqlite3.Connection) -> None:
    """Each table and each column: what is neither copied nor known to follow from the others is forgotten."""
    names = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    columns = {
        (name, column)
        for name in names
        if name not in FURTHER_TABLES
        for _, column, *_ in connection.execute(f"PRAGMA table_info({name})")
    }
    copied = {(table, column) for table, columns in TABLES.items() if table != "sequences" for column in columns}
    assert columns == copied | FURTHER_COLUMNS


def test_rows_of_all_tables_are_carried_over(file: Path) -> None:
    """Row by row, with what triggers derive from them; the new file has a mode of 0600."""
    target = file.with_name("b.db")
    copy_all(file, target)
    rows = read_all(target)
    assert rows == read_all(file) and all(rows.values())
    assert dump(target) == dump(file)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert sorted(path.name for path in file.parent.iterdir()) == ["a.db", "b.db"]


def dump(file: Path) -> dict[str, Sequence[object]]:
    with closing(sqlite3.connect(file)) as connection:
        derived = ("memory_words", "memory_word_counts", "memory_owners", "sqlite_sequence")
        return {name: connection.execute(f"SELECT * FROM {name} ORDER BY 1, 2, 3").fetchall() for name in derived[:3]}


async def test_store_of_a_running_gateway_is_refused(file: Path) -> None:
    """It can be copied once the gateway has ended, in whatever way."""
    store = SqliteStore(str(file))
    await store.open()
    try:
        with pytest.raises(StoreError, match=r"a gateway uses the store .*a\.db"):
            read_all(file)
    finally:
        await store.close()
    assert read_all(file)["prompts"]


def test_store_with_a_log_is_read_whole(file: Path) -> None:
    """As a process leaves it that was killed."""
    with closing(sqlite3.connect(file)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("UPDATE prompts SET text = 'late'")
        writer.commit()
        assert {row[2] for row in read_all(file)["prompts"]} == {"late"}


@pytest.mark.parametrize(("version", "way_out"), [(5, "start this version"), (99, "use the newer program")])
def test_store_of_another_version_is_refused(file: Path, version: int, way_out: str) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    with pytest.raises(StoreError, match=f"has version {version}, .*{way_out}"):
        read_all(file)


def test_target_that_fails_leaves_nothing_behind(file: Path) -> None:
    """Neither a file nor a draft of it; a file that is there stays as it is."""

    def write(target: Path) -> None:
        with SqliteTables(target).open_target() as writer:
            writer.write_rows("prompts", [("acme", "p", None, 1, 1.0)])

    with pytest.raises(StoreError, match=r"NOT NULL constraint failed: prompts\.text"):
        write(file.with_name("b.db"))
    before = file.read_bytes()
    with pytest.raises(StoreError, match="is there already"):
        write(file)
    with pytest.raises(StoreError, match="there is no folder"):
        write(file.parent / "none/b.db")
    assert file.read_bytes() == before and [path.name for path in file.parent.iterdir()] == ["a.db"]
