"""Memories in a file: what is known of them, and what comes of those of before the index."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gateway.plugins.stores.sqlite import SqliteStore
from gateway.plugins.stores.sqlite.memory_statements import MEMORIES_OF_USERS
from gateway.plugins.stores.sqlite.migrations import MIGRATIONS
from tests.plugins.stores.records import memory, recalled


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "gateway.db")


async def opened(place: str) -> SqliteStore:
    store = SqliteStore(place)
    await store.open()
    return store


async def test_memories_are_never_older_than_the_last_commit(place: str) -> None:
    """Those of a text, and that an owner has none, are known until anybody writes: this process or another."""
    ours, theirs = await opened(place), await opened(place)
    await theirs.remember(memory(1), limit=5)
    assert (await recalled(ours, "a"), await recalled(ours, "b", owner="user:bob")) == ([memory(1)], [])
    assert await recalled(ours, "a") == [memory(1)]
    assert await recalled(ours, "another text", owner="user:bob") == []
    for number, writer in enumerate((ours, theirs), 2):
        await writer.remember(memory(number), limit=5)
        assert (await recalled(ours))[0] == (await recalled(theirs))[0] == memory(number)
    await theirs.forget(["m1", "m2"], tenant="acme", owner="user:ann")
    assert await recalled(ours) == await recalled(theirs) == [memory(3)]
    for store in (ours, theirs):
        await store.close()


async def test_memories_of_before_the_index_are_read_in_the_background(place: str) -> None:
    """A start does not wait for it, and one that ends early leaves the rest to the next."""
    old = MIGRATIONS.index(MEMORIES_OF_USERS)
    place += ".old"
    store = SqliteStore(place, migrations=MIGRATIONS[:old])
    await store.open()
    await store.close()
    with closing(sqlite3.connect(place)) as connection, connection:
        rows = [("acme", "ann", f"m{i}", None, f"fact {i}", 1.0) for i in range(500)]
        connection.executemany("INSERT INTO memories VALUES (?, ?, ?, ?, ?, ?)", rows)
    await (await opened(place)).close()
    store = await opened(place)
    async with asyncio.timeout(120):
        while (await recalled(store, "fact 7", owner="key:ann"))[0].id != "m7":
            await asyncio.sleep(0)
    await store.close()
