"""Fixtures of the tests of statements: the tables of the newest version, empty."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from gateway.plugins.stores.sqlite.file import IN_MEMORY, open_file
from gateway.plugins.stores.sqlite.migrations import MIGRATIONS


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(open_file(IN_MEMORY, migrations=MIGRATIONS)) as connection:
        yield connection
