"""The memories of the SQLite store: the methods of `Store` for them, on threads that the store owns.

A list that has not changed since it was read is not read again. The thread that reads looks for a change, which is one
number: the event loop would wait for a disk that does not answer, and everything else with it. Requests share looks.
"""

from collections.abc import Awaitable, Callable, Hashable, Sequence
from functools import partial
from itertools import count
from typing import Generic, NamedTuple, TypeVar

from cachetools import LRUCache

from gateway.plugin import Memory, MemoryPage, RecalledMemory
from gateway.plugin.memory_steps import MemoryIndexing, drop_surplus, sum_forgotten
from gateway.plugin.text import COMPARED_CHARS

from . import memory_statements as sql
from .connection_thread import SharedLooks, SqliteWork
from .file import IN_MEMORY
from .rows import Rows
from .transactions import Lasts

MEMORIES = Rows(Memory)
KEPT_CHARS = 4 << 20  # of memories that were read

T = TypeVar("T")
#: What each list costs besides what is in it, roughly, in bytes.
_OVERHEAD = 500


class _CachedList(NamedTuple, Generic[T]):
    version: int
    found: Sequence[T]
    size: int


class SqliteCache(Generic[T]):
    """The cached lists of one file.

    `version` reads a number that each commit changes that changes a list. A returned list is therefore never older than
    the last commit, of this process or of any other. `limit` is for the sum of `size_of` of each.
    """

    def __init__(self, *, version: Callable[[], Awaitable[int]], limit: int, size_of: Callable[[T], int]) -> None:
        self._version = version
        self._limit = limit
        self._kept: LRUCache[Hashable, _CachedList[T]] = LRUCache(limit, getsizeof=lambda kept: kept.size)
        self._size_of = size_of

    async def get(self, key: Hashable, read: Callable[[], Awaitable[Sequence[T]]], *, nothing: Hashable) -> Sequence[T]:
        """Return the result of `read`, from the cache if nothing has changed since.

        `nothing` is common to all keys for which `read` returns an empty list as soon as it does so for one.
        """
        version = await self._version()
        for known in (nothing, key):
            kept = self._kept.get(known)
            if kept is not None and kept.version == version:
                return kept.found
        found = await read()  # what is committed meanwhile changes the version once more
        size = _OVERHEAD + sum(map(self._size_of, found))
        if size <= self._limit:
            self._kept[key if found else nothing] = _CachedList(version, found, size)
        return found


class SqliteMemories(SqliteWork):
    """The part of a store for memories, in the file `place`."""

    def __init__(self, place: str) -> None:
        super().__init__()
        self._memories: SqliteCache[RecalledMemory] | None = None
        if place != IN_MEMORY:  # there the thread that writes reads, and what it read may be rolled back
            looks = SharedLooks(self._read, sql.count_versions)
            self._memories = SqliteCache(
                version=partial(looks.read_shared, None),
                limit=KEPT_CHARS,
                size_of=lambda found: 200 + len(found.memory.text),
            )
        self._indexing = MemoryIndexing(self._index_some)

    def open_memories(self) -> None:
        """Start the index, once the file has been made."""
        self._indexing.start()

    def close_memories(self) -> None:
        """Close the memories. Idempotent."""
        self._indexing.stop()

    async def _index_some(self) -> bool:
        return await self._read(sql.is_unread) and await self._write(sql.read_words) > 0

    async def remember(self, memory: Memory, *, limit: int) -> bool:
        row, whose = MEMORIES.values(memory), {"tenant": memory.tenant, "owner": memory.owner}
        is_new, more = await self._write(lambda c: sql.remember(c, row, limit=limit), lasts=Lasts.FOR_SURE)
        if more:
            await drop_surplus(lambda: self._write(lambda c: sql.drop_oldest(c, **whose, limit=limit)), limit=limit)
        return is_new

    async def recall(
        self, text: str, *, tenant: str, owner: str, conversation: str | None, limit: int
    ) -> Sequence[RecalledMemory]:
        text, whose = text[:COMPARED_CHARS], (tenant, owner, conversation)

        async def read() -> Sequence[RecalledMemory]:
            look = partial(sql.recall, text=text, tenant=tenant, owner=owner, conversation=conversation, limit=limit)
            return [RecalledMemory(MEMORIES.read_fact(row), share) for row, share in await self._read(look)]

        if self._memories is None:
            return await read()
        return await self._memories.get((*whose, text, limit), read, nothing=whose)

    async def list_memories(self, *, tenant: str, owner: str, before: int | None, limit: int) -> MemoryPage:
        look = partial(sql.list_page, tenant=tenant, owner=owner, before=before, limit=limit + 1)
        rows = await self._read(look)
        more = rows[limit - 1][-1] if len(rows) > limit else None
        return MemoryPage([MEMORIES.read_fact(row[:-1]) for row in rows[:limit]], more)

    async def forget(self, memory_ids: Sequence[str], *, tenant: str, owner: str | None) -> int:
        steps = (memory_ids[i : i + sql.STEP] for i in range(0, len(memory_ids), sql.STEP))
        return await sum_forgotten(
            self._write(partial(sql.forget, ids=ids, tenant=tenant, owner=owner), lasts=Lasts.FOR_SURE) for ids in steps
        )

    async def forget_all(self, *, tenant: str, owner: str, conversation: str | None, elsewhere: bool) -> int:
        places = None if elsewhere else ("", conversation or "")
        step = partial(sql.forget_step, tenant=tenant, owner=owner, places=places)
        steps = (self._write(step, lasts=Lasts.FOR_SURE) for _ in count())
        return await sum_forgotten(steps, until_none=True)
