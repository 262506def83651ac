"""Memories in PostgreSQL: their ranking, which is that of SQLite, and several processes at once."""

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from gateway.contracts.storage.store import Memory
from gateway.plugins.stores.sqlite import SqliteStore
from gateway.plugins.stores.sqlite.file import IN_MEMORY
from tests.plugins.stores.postgresql.conftest import ClockedStore, execute, open_store
from tests.plugins.stores.records import memory, recalled

pytestmark = pytest.mark.postgres

WORDS = [f"word{number}" for number in range(60)]
COUNT = 560  # more than one look reads of a frequent word


@pytest.fixture
async def in_memory() -> AsyncIterator[SqliteStore]:
    store = SqliteStore(IN_MEMORY)
    await store.open()
    yield store
    await store.close()


def make_memories(chance: random.Random) -> list[Memory]:
    """Return memories of a few words; some of the words are in most of them."""
    made = []
    for number in range(COUNT):
        words = {WORDS[min(int(chance.expovariate(0.15)), len(WORDS) - 1)] for _ in range(6)}
        text = f"{' '.join(sorted(words))} common {number}"
        made.append(replace(memory(number, conversation=chance.choice([None, "c1", "c2"])), text=text))
    return made


async def test_memories_are_ranked_as_in_sqlite(store: ClockedStore, in_memory: SqliteStore) -> None:
    """The same memories, with the same shares, in the same order."""
    chance = random.Random(7)
    for made in make_memories(chance):
        for each in (store, in_memory):
            await each.remember(made, limit=COUNT)
    queries = [" ".join(chance.choices(WORDS, k=count)) for count in (1, 2, 5, 9)]
    for text in (*queries, "common", f"common {queries[2]}", "common word0 word1 word2", "nothing of these", ""):
        for conversation, limit in ((None, 5), ("c1", 40), ("none", 100)):
            which = {"tenant": "acme", "owner": "user:ann", "conversation": conversation, "limit": limit}
            found = await store.recall(text, **which)
            assert found == await in_memory.recall(text, **which), (text, conversation)


async def test_limit_of_an_owner_holds_for_processes_at_once(two_stores: tuple[ClockedStore, ClockedStore]) -> None:
    """While others forget: the counts of the index stay exact."""
    async with asyncio.TaskGroup() as tasks:
        for number in range(40):
            tasks.create_task(two_stores[number % 2].remember(memory(number), limit=10))
            tasks.create_task(two_stores[number % 2].forget([f"m{number - 9}"], tenant="acme", owner="user:ann"))
    one = two_stores[0]
    left = await recalled(one)
    assert len(left) <= 10
    rows = await one._read(
        """SELECT (SELECT memories FROM twolane.memory_owners), (SELECT count(*) FROM twolane.memory_words),
            (SELECT sum(memories) FROM twolane.memory_word_counts)"""
    )
    assert [tuple(row) for row in rows] == [(len(left), 2 * len(left), 2 * len(left))]
    await one.forget_all(tenant="acme", owner="user:ann", conversation=None, elsewhere=True)
    for table in ("memory_owners", "memory_words", "memory_word_counts"):
        assert [tuple(row) for row in await one._read(f"SELECT count(*) FROM twolane.{table}")] == [(0,)]


async def test_words_of_any_length_are_found(store: ClockedStore) -> None:
    """An entry of an index has less room than the longest word."""
    words = ["ก" * 480, "𝛼" * 490, "x" * 499]
    for number, word in enumerate(words):
        assert await store.remember(replace(memory(number, conversation="𝛼" * 256), text=word), limit=9)
    for number, word in enumerate(words):
        (best,) = await store.recall(word, tenant="acme", owner="user:ann", conversation="𝛼" * 256, limit=1)
        assert (best.memory.id, best.share) == (f"m{number}", 1.0)


async def test_memories_without_words_are_indexed_at_the_start(store: ClockedStore, database: str) -> None:
    """As after a change of what the words of a text are."""
    for number in range(3):
        await store.remember(memory(number), limit=9)
    await execute(database, "UPDATE twolane.memories SET words = NULL")
    assert [tuple(row) for row in await store._read("SELECT count(*) FROM twolane.memory_words")] == [(0,)]
    again = await open_store(database)
    try:
        assert again._indexing.task is not None
        await again._indexing.task
        (best,) = await again.recall("fact 1", tenant="acme", owner="user:ann", conversation=None, limit=1)
        assert (best.memory, best.share) == (memory(1), 1.0)
    finally:
        await again.close()
