"""Memories in a file: what is known of them, and what comes of those of before the index."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gateway.contracts.storage.store import PartialError, StoreError, build_unwritten_error
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
    """The list of a text, and that of an owner without any, stay in the cache until any process writes."""
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


#: A disk that fails at one memory, and at what is written with it.
FAILS_AT = """CREATE TRIGGER no_room BEFORE DELETE ON memories WHEN OLD.id = '{}'
    BEGIN SELECT RAISE(ABORT, 'no room'); END"""


@pytest.mark.parametrize("everything", [True, False])
async def test_failure_during_forget_all_reports_partial_deletion(place: str, everything: bool) -> None:
    """One of the first step says that nothing has changed."""
    store = await opened(place)
    for number in range(90):
        await store.remember(memory(number), limit=500)

    async def forget() -> None:
        whose = {"tenant": "acme", "owner": "user:ann"}
        if everything:
            await store.forget_all(**whose, conversation=None, elsewhere=True)
        else:
            await store.forget([f"m{number}" for number in range(90)], **whose)

    for fails_at, left in (("m0", 90), ("m60", 40)):
        with closing(sqlite3.connect(place)) as connection:
            connection.execute("DROP TRIGGER IF EXISTS no_room")
            connection.execute(FAILS_AT.format(fails_at))
        with pytest.raises(StoreError, match="no room") as caught:
            await forget()
        assert isinstance(caught.value, PartialError) is (left < 90)
        assert ("a part of this is done" in build_unwritten_error(caught.value, "nothing").message) is (left < 90)
        assert len(await recalled(store)) == left
    await store.close()


async def test_memory_is_stored_although_deleting_older_ones_fails(place: str) -> None:
    """The limit has become smaller, and the second step of what it deletes fails; the next memory goes on with it."""
    store = await opened(place)
    for number in range(90):
        await store.remember(memory(number), limit=500)
    with closing(sqlite3.connect(place)) as connection:
        connection.execute(FAILS_AT.format("m60"))
    assert await store.remember(memory(90), limit=5)
    assert len(await recalled(store)) == 41
    with closing(sqlite3.connect(place)) as connection:
        connection.execute("DROP TRIGGER no_room")
    assert await store.remember(memory(91), limit=5)
    assert len(await recalled(store)) == 5
    await store.close()


async def test_memories_from_before_the_index_are_indexed_in_the_background(place: str) -> None:
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
