"""The URL of a SQLite store: its file is beside the configuration; what could not be opened is reported, unopened."""

from pathlib import Path

import pytest

from gateway.plugin import StoreError
from gateway.plugins.stores.sqlite.address import SqliteAddress


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
def test_a_database_file_is_beside_the_configuration(url: str, found: str, file: str | None) -> None:
    """Unless it is an absolute path, or no file."""
    address = SqliteAddress(url, Path("/srv/gw"))
    assert (address.url, address.shown) == (found, url)
    assert address.file == (None if file is None else Path(file))


def test_nothing_is_made_to_see_whether_it_can_be_opened(tmp_path: Path) -> None:
    """The way out names the file or its folder."""
    address = SqliteAddress("sqlite:///gateway.db", tmp_path)
    assert address.problem() is None and list(tmp_path.iterdir()) == []
    assert "make its folder writable" in str(SqliteAddress("sqlite:///no/gateway.db", tmp_path).problem())
    (tmp_path / "gateway.db").mkdir()
    assert "cannot be opened for writing" in str(address.problem())


def test_a_store_in_memory_is_read_by_nobody_else() -> None:
    """It has no file, and nothing can keep it from being opened."""
    address = SqliteAddress("sqlite:///:memory:", Path())
    assert address.problem() is None
    with pytest.raises(StoreError):
        address.beside()
