"""What tests of statements share: the tables of the newest version, empty."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from gateway.wire.migrations import MIGRATIONS


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as connection:
        for migration in MIGRATIONS:
            for statement in migration:
                connection.execute(statement)
        yield connection
