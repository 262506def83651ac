"""Fixtures of the tests of statements: the tables of the newest version, empty."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from gateway.plugins.stores.sqlite.migrations import MIGRATIONS, carry_out


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as connection:
        carry_out(MIGRATIONS, connection)
        yield connection
