"""The URL of a SQLite store, and its file beside the gateways that write it. What cannot be opened is reported."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gateway.contracts.storage.store import StoreError
from gateway.plugins.stores.sqlite import SqliteStore
from gateway.plugins.stores.sqlite.store_url import SqliteAddress, SqliteBeside
from tests.plugins.stores.records import audit_line, new, run


@pytest.mark.parametrize(
    ("url", "found", "file"),
    [
        ("sqlite:///gateway.db", "sqlite:////srv/gw/gateway.db", "/srv/gw/gateway.db"),
        ("sqlite:///data/x.db", "sqlite:////srv/gw/data/x.db", "/srv/gw/data/x.db"),
        ("sqlite:////var/x.db", "sqlite:////var/x.db", "/var/x.db"),
        ("sqlite:///:memory:", "sqlite:///:memory:", None),
        ("sqlite:///", "sqlite:///", None),
    ],
)
def test_relative_database_path_starts_at_the_configuration_folder(url: str, found: str, file: str | None) -> None:
    """Unless it is an absolute path, or no file."""
    address = SqliteAddress(url, Path("/srv/gw"))
    assert (address.url, address.redacted_url) == (found, url)
    assert address.file == (None if file is None else Path(file))


def test_access_check_creates_no_file(tmp_path: Path) -> None:
    """The way out names the file or its folder."""
    address = SqliteAddress("sqlite:///gateway.db", tmp_path)
    assert address.problem() is None and list(tmp_path.iterdir()) == []
    assert "make its folder writable" in str(SqliteAddress("sqlite:///no/gateway.db", tmp_path).problem())
    (tmp_path / "gateway.db").mkdir()
    assert "cannot be opened for writing" in str(address.problem())


def test_in_memory_store_refuses_a_separate_reader() -> None:
    """It has no file, and nothing can keep it from being opened."""
    address = SqliteAddress("sqlite:///:memory:", Path())
    assert address.problem() is None
    with pytest.raises(StoreError):
        address.get_reader()


@pytest.fixture
async def place(tmp_path: Path) -> str:
    """A store with three audit lines, of a gateway that has stopped."""
    store = SqliteStore(str(tmp_path / "gateway.db"))
    await store.open()
    await store.write(new(run(), audit=tuple(audit_line(step=number) for number in range(1, 4))))
    await store.close()
    return str(tmp_path / "gateway.db")


async def test_audit_log_is_read_in_pages(place: str) -> None:
    """From any line on; none of them is empty."""
    beside = SqliteBeside(place)
    assert [[seq for seq, _, _ in page] for page in beside.audit_log(after=0, size=2)] == [[1, 2], [3]]
    assert list(beside.audit_log(after=3, size=2)) == []


async def test_missing_audit_trigger_is_named(place: str) -> None:
    """None is, in a store that nobody touched."""
    assert SqliteBeside(place).audit_guards() == []
    with closing(sqlite3.connect(place)) as connection, connection:
        connection.execute("DROP TRIGGER audit_is_not_deleted")
    assert SqliteBeside(place).audit_guards() == ["audit_is_not_deleted"]


async def test_database_copy_has_the_same_audit_log(place: str, tmp_path: Path) -> None:
    """And is whole."""
    draft = tmp_path / "copy.db"
    draft.touch()
    SqliteBeside(place).write_copy(str(draft), progress=lambda left, total: None)
    assert list(SqliteBeside(str(draft)).audit_log(after=0, size=9)) == list(
        SqliteBeside(place).audit_log(after=0, size=9)
    )


def test_admin_commands_refuse_files_that_are_not_stores(tmp_path: Path) -> None:
    """A database of another program, and no database at all."""
    other, text = tmp_path / "other.db", tmp_path / "text.db"
    with closing(sqlite3.connect(other)) as connection, connection:
        connection.execute("CREATE TABLE t (a)")
    text.write_text("no database, but long enough to be taken for one" * 99)
    for file in (other, text):
        with pytest.raises(StoreError):
            SqliteBeside(str(file)).audit_guards()
        with pytest.raises(StoreError):
            SqliteBeside(str(file)).write_copy(str(tmp_path / "copy.db"), progress=lambda left, total: None)
