"""Fixtures of this folder: a SQLite database, and a PostgreSQL server with a tool that writes there."""

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gateway.plugins.tools.execute_sql import Config, ExecuteSql
from tests.postgres import postgres_server


@pytest.fixture
def place(tmp_path: Path) -> Path:
    place = tmp_path / "data.db"
    with closing(sqlite3.connect(place)) as connection:
        connection.executescript(
            """CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT); INSERT INTO t VALUES (1, 'x'), (2, 'y');
            CREATE INDEX i ON t (b); CREATE TRIGGER g AFTER INSERT ON t BEGIN SELECT 1; END;"""
        )
    return place


@pytest.fixture(scope="module", params=[False, True], ids=["system's", "newest"])
def server(request: pytest.FixtureRequest) -> Iterator[str]:
    """A server on which the module's `PREPARED` has run."""
    with postgres_server(request.module.PREPARED, newest=request.param) as place:
        yield place


@pytest.fixture
async def tool(server: str) -> AsyncIterator[ExecuteSql]:
    tool = ExecuteSql(Config(url=f"postgresql://writer@{server}", read_only=False, timeout=5.0))
    yield tool
    await tool.close()
