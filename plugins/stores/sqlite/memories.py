"""The memories of the SQLite store: the methods of `Store` for them, on threads that the store owns.

A list that has not changed since it was read needs neither thread.
"""

import asyncio
import logging
from collections.abc import Sequence
from functools import partial

from gateway.plugin import Memory, MemoryPage, Recalled, StoreError
from gateway.plugin.text import COMPARED_CHARS

from . import memory_statements as sql
from .cache import SqliteCache
from .rows import Rows
from .thread import SqliteWork

log = logging.getLogger("gateway")

MEMORIES = Rows(Memory)
KEPT_CHARS = 4 << 20  # of memories that were read


class SqliteMemories(SqliteWork):
    """The part of a store for memories, in the file `place`."""

    def __init__(self, place: str) -> None:
        self._memories = SqliteCache[Recalled](
            place, version=sql.VERSION, limit=KEPT_CHARS, size_of=lambda found: 200 + len(found.memory.text)
        )
        self._indexing: asyncio.Task[None] | None = None

    def open_memories(self) -> None:
        """Open the cache and start the index, once the file has been made."""
        self._memories.open()
        self._indexing = asyncio.create_task(self._index())

    def close_memories(self) -> None:
        """Close the memories. Idempotent."""
        self._memories.close()
        if self._indexing is not None:
            self._indexing.cancel()

    async def _index(self) -> None:
        """Index the words of memories once after a migration. Until then they are found by their age alone."""
        try:
            while await self._read(sql.is_unread):
                await self._write(sql.read_words)
        except StoreError as error:
            log.warning("memories of before this version are found by age alone until the next start: %s", error)

    async def remember(self, memory: Memory, *, limit: int) -> bool:
        row, whose = MEMORIES.values(memory), {"tenant": memory.tenant, "owner": memory.owner}
        is_new, more = await self._write(lambda c: sql.remember(c, row, limit=limit))
        while more:
            more = await self._write(lambda c: sql.drop_oldest(c, **whose, limit=limit))
        return is_new

    async def recall(
        self, text: str, *, tenant: str, owner: str, conversation: str | None, limit: int
    ) -> Sequence[Recalled]:
        text, whose = text[:COMPARED_CHARS], (tenant, owner, conversation)
        look = partial(sql.recall, text=text, tenant=tenant, owner=owner, conversation=conversation, limit=limit)

        async def read() -> Sequence[Recalled]:
            return [Recalled(MEMORIES.fact(row), share) for row, share in await self._read(look)]

        return await self._memories.get((*whose, text, limit), read, nothing=whose)

    async def memories(self, *, tenant: str, owner: str, before: int | None, limit: int) -> MemoryPage:
        look = partial(sql.page, tenant=tenant, owner=owner, before=before, limit=limit + 1)
        rows = await self._read(look)
        more = rows[limit - 1][-1] if len(rows) > limit else None
        return MemoryPage([MEMORIES.fact(row[:-1]) for row in rows[:limit]], more)

    async def forget(self, memory_ids: Sequence[str], *, tenant: str, owner: str | None) -> int:
        forgotten = 0
        for i in range(0, len(memory_ids), sql.STEP):
            ids = memory_ids[i : i + sql.STEP]
            forgotten += await self._write(partial(sql.forget, ids=ids, tenant=tenant, owner=owner))
        return forgotten

    async def forget_all(self, *, tenant: str, owner: str, conversation: str | None, elsewhere: bool) -> int:
        places = None if elsewhere else ("", conversation or "")
        step = partial(sql.forget_step, tenant=tenant, owner=owner, places=places)
        forgotten = 0
        while gone := await self._write(step):
            forgotten += gone
        return forgotten
