"""Fixtures of this folder: a SQLite database with a table, an index and a trigger."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest


@pytest.fixture
def place(tmp_path: Path) -> Path:
    place = tmp_path / "data.db"
    with closing(sqlite3.connect(place)) as connection:
        connection.executescript(
            """CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT); INSERT INTO t VALUES (1, 'x'), (2, 'y');
            CREATE INDEX i ON t (b); CREATE TRIGGER g AFTER INSERT ON t BEGIN SELECT 1; END;"""
        )
    return place
