"""The file of a store, read beside the gateways that write it."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gateway.contracts.store import StoreError
from gateway.plugins.stores.sqlite import SqliteStore
from gateway.plugins.stores.sqlite.beside import SqliteBeside
from tests.plugins.stores.records import audit_line, new, run


@pytest.fixture
async def place(tmp_path: Path) -> str:
    """A store with three audit lines, of a gateway that has stopped."""
    store = SqliteStore(str(tmp_path / "gateway.db"))
    await store.open()
    await store.write(new(run(), audit=tuple(audit_line(step=number) for number in range(1, 4))))
    await store.close()
    return str(tmp_path / "gateway.db")


async def test_the_log_comes_in_pieces(place: str) -> None:
    """From any line on; none of them is empty."""
    beside = SqliteBeside(place)
    assert [[seq for seq, _, _ in page] for page in beside.audit_log(after=0, size=2)] == [[1, 2], [3]]
    assert list(beside.audit_log(after=3, size=2)) == []


async def test_a_guard_that_is_missing_is_named(place: str) -> None:
    """None is, in a store that nobody touched."""
    assert SqliteBeside(place).audit_guards() == []
    with closing(sqlite3.connect(place)) as connection, connection:
        connection.execute("DROP TRIGGER audit_is_not_deleted")
    assert SqliteBeside(place).audit_guards() == ["audit_is_not_deleted"]


async def test_a_copy_has_the_same_log(place: str, tmp_path: Path) -> None:
    """And is whole."""
    draft = tmp_path / "copy.db"
    draft.touch()
    SqliteBeside(place).copy_to(str(draft), progress=lambda left, total: None)
    assert list(SqliteBeside(str(draft)).audit_log(after=0, size=9)) == list(
        SqliteBeside(place).audit_log(after=0, size=9)
    )


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    """A database of another program, and no database at all."""
    other, text = tmp_path / "other.db", tmp_path / "text.db"
    with closing(sqlite3.connect(other)) as connection, connection:
        connection.execute("CREATE TABLE t (a)")
    text.write_text("no database, but long enough to be taken for one" * 99)
    for file in (other, text):
        with pytest.raises(StoreError):
            SqliteBeside(str(file)).audit_guards()
        with pytest.raises(StoreError):
            SqliteBeside(str(file)).copy_to(str(tmp_path / "copy.db"), progress=lambda left, total: None)
