"""The servers as fixtures, each with something of its own to work on."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mcp_servers import servers
from tests.mcp_servers.servers import Program

NOTE = "Milk, eggs and a second lane.\n"


@pytest.fixture
def time_server() -> Program:
    return servers.time_server()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """With one commit, `First lane`."""
    return servers.make_repository(tmp_path / "repository")


@pytest.fixture
def git_server(repository: Path) -> Program:
    return servers.git_server(repository)


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """A folder with one file, `note.txt`."""
    folder = tmp_path / "notes"
    folder.mkdir()
    folder.joinpath("note.txt").write_text(NOTE, encoding="utf-8")
    return folder


@pytest.fixture
def filesystem_server(notes: Path) -> Program:
    return servers.filesystem_server(notes)


@pytest.fixture
def everything_server() -> Program:
    return servers.everything_server()


@pytest.fixture
def sqlite_server(tmp_path: Path) -> Program:
    return servers.sqlite_server(tmp_path / "shop.db")


@pytest.fixture(scope="session")
def everything_url() -> Iterator[str]:
    with servers.everything_over_http() as url:
        yield url
