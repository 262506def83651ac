"""The cache of a file is never older than its last commit."""

import asyncio
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from gateway.plugins.stores.sqlite.memories import SqliteCache

#: Here, each change of a word changes it.
VERSION = "SELECT total(length(word) * rowid) FROM words"


class Reader:
    """Reads the words of a file, and counts how often."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.reads = 0

    async def words(self) -> Sequence[str]:
        self.reads += 1
        return [row[0] for row in self._connection.execute("SELECT word FROM words ORDER BY rowid")]


@pytest.fixture
def place(tmp_path: Path) -> str:
    place = str(tmp_path / "words.db")
    with closing(connected(place)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE words (word TEXT NOT NULL)")
        connection.execute("CREATE TABLE others (word TEXT NOT NULL)")
    return place


def connected(place: str) -> sqlite3.Connection:
    return sqlite3.connect(place, isolation_level=None)


@pytest.fixture
def writer(place: str) -> Iterator[sqlite3.Connection]:
    with closing(connected(place)) as connection:
        yield connection


@pytest.fixture
def cache(place: str, writer: sqlite3.Connection) -> Iterator[SqliteCache[str]]:
    del writer
    with closing(connected(place)) as looking:

        async def version() -> int:
            found: int = looking.execute(VERSION).fetchone()[0]
            return found

        yield SqliteCache(version=version, limit=2000, size_of=len)


def put(writer: sqlite3.Connection, word: str) -> None:
    writer.execute("INSERT INTO words VALUES (?)", (word,))


async def test_cache_is_invalidated_by_a_commit(cache: SqliteCache[str], writer: sqlite3.Connection) -> None:
    """Of any connection, and only then; each key for itself."""
    reader = Reader(writer)
    for word, reads in (("one", 1), ("two", 2), ("three", 3)):
        put(writer, word)
        for _ in range(3):
            assert (await cache.get("a", reader.words, nothing="nothing"))[-1] == word
        assert reader.reads == reads
    await cache.get("b", reader.words, nothing="nothing")
    await cache.get("a", reader.words, nothing="nothing")
    assert reader.reads == 4


async def test_unrelated_commit_keeps_the_cache(cache: SqliteCache[str], writer: sqlite3.Connection) -> None:
    """Such as a response that is stored, between two requests of a user with memories."""
    reader = Reader(writer)
    put(writer, "one")
    for _ in range(3):
        assert await cache.get("a", reader.words, nothing="nothing") == ["one"]
        writer.execute("INSERT INTO others VALUES ('other')")
    assert reader.reads == 1


async def test_uncommitted_change_keeps_the_cache(cache: SqliteCache[str], writer: sqlite3.Connection) -> None:
    """Nor does it stand in the way."""
    put(writer, "one")
    reader = Reader(writer)
    await cache.get("a", reader.words, nothing="nothing")
    writer.execute("BEGIN EXCLUSIVE")
    put(writer, "two")
    assert await cache.get("a", reader.words, nothing="nothing") == ["one"] and reader.reads == 1
    writer.execute("ROLLBACK")
    assert await cache.get("a", reader.words, nothing="nothing") == ["one"] and reader.reads == 1


async def test_commit_during_a_cached_read_invalidates_its_result(
    cache: SqliteCache[str], writer: sqlite3.Connection
) -> None:
    """What was read before it is given to who asked before it, and to nobody afterwards."""
    reader, go = Reader(writer), asyncio.Event()

    async def slow() -> Sequence[str]:
        words = await reader.words()
        await go.wait()
        return words

    early = asyncio.create_task(cache.get("a", slow, nothing="nothing"))
    await asyncio.sleep(0)
    put(writer, "new")
    go.set()
    assert await early == []
    assert await cache.get("a", reader.words, nothing="nothing") == ["new"]


async def test_oversized_value_is_not_cached(cache: SqliteCache[str], writer: sqlite3.Connection) -> None:
    """And of the others, those that were not asked for the longest go first."""
    reader = Reader(writer)
    put(writer, "x" * 2000)
    for _ in range(2):
        await cache.get("a", reader.words, nothing="nothing")
    assert reader.reads == 2
    writer.execute("UPDATE words SET word = 'small'")
    for key in ("a", "b", "c", "d", "d", "c", "a"):
        await cache.get(key, reader.words, nothing="nothing")
    assert reader.reads == 2 + 5


async def test_failed_read_is_not_cached(cache: SqliteCache[str]) -> None:
    """The next one may succeed."""

    async def fails() -> Sequence[str]:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await cache.get("a", fails, nothing="nothing")

    async def works() -> Sequence[str]:
        return ["fine"]

    assert await cache.get("a", works, nothing="nothing") == ["fine"]


async def test_empty_result_is_cached_for_all_keys_of_its_kind(
    cache: SqliteCache[str], writer: sqlite3.Connection
) -> None:
    """Whoever finds nothing under one of them would find nothing under the others; a commit ends that."""
    reader = Reader(writer)
    for key in ("a", "b"):
        assert await cache.get(key, reader.words, nothing="none") == []
    assert reader.reads == 1
    assert await cache.get("c", reader.words, nothing="others") == [] and reader.reads == 2
    put(writer, "one")
    assert await cache.get("b", reader.words, nothing="none") == ["one"]
