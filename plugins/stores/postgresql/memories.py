"""Memories in the PostgreSQL store (`sql/memories.sql`). The words that a memory is found by are read here."""

import json
from collections.abc import Sequence
from itertools import count
from typing import Final

from gateway.plugin import Memory, MemoryPage, RecalledMemory
from gateway.plugin.memory_steps import MemoryIndexing, drop_surplus, sum_forgotten
from gateway.plugin.text import COMPARED_CHARS, extract_keywords

from .base import PostgresqlBase
from .rows import PostgresqlRows
from .text_codec import restore_values

MEMORIES = PostgresqlRows(Memory)
#: Memories that one transaction deletes, or reads the words of.
STEP: Final = 200
#: Entries of the index that one look reads, and the best of what it finds, of which all words are compared.
READ, COMPARED = 512, 64
#: Behind the last number.
_LAST: Final = (1 << 63) - 1

_PAGE: Final = """SELECT memory.id, owner.tenant, owner.owner, nullif(memory.conversation, ''), memory.text,
        memory.created_s, memory.number
    FROM twolane.memory_owners AS owner JOIN twolane.memories AS memory ON memory.owner_id = owner.id
    WHERE owner.tenant = $1 AND owner.owner = $2 AND memory.number < $3 ORDER BY memory.number DESC LIMIT $4"""
_UNREAD: Final = "SELECT number, text FROM twolane.memories WHERE words IS NULL LIMIT $1"
_RECALL: Final = """SELECT id, conversation, text, created_s, share
    FROM twolane.recall($1, $2, $3, $4, $5, $6, $7)"""


class PostgresqlMemories(PostgresqlBase):
    """The part of a store for memories."""

    def __init__(self, place: str) -> None:
        super().__init__(place)
        self._indexing = MemoryIndexing(self._index_some)

    def open_memories(self) -> None:
        """Start the index, once the tables have been made."""
        self._indexing.start()

    def close_memories(self) -> None:
        """Close the memories. Idempotent."""
        self._indexing.stop()

    async def _index_some(self) -> bool:
        unread = await self._read(_UNREAD, STEP)
        if unread:
            numbers, texts = zip(*map(restore_values, unread), strict=True)
            await self._call("put_words", list(numbers), [_list_json_words(text) for text in texts])
        return bool(unread)

    async def remember(self, memory: Memory, *, limit: int) -> bool:
        facts = (memory.id, memory.tenant, memory.owner, memory.conversation or "", memory.text, memory.created_s)
        ((is_new, more),) = await self._call("remember", *facts, _list_json_words(memory.text), limit, STEP)
        if more:
            await drop_surplus(
                lambda: self._call_value("drop_oldest", memory.tenant, memory.owner, limit, STEP), limit=limit
            )
        return bool(is_new)

    async def recall(
        self, text: str, *, tenant: str, owner: str, conversation: str | None, limit: int
    ) -> Sequence[RecalledMemory]:
        words = sorted(extract_keywords(text[:COMPARED_CHARS]))
        found = await self._read(_RECALL, words, tenant, owner, conversation, limit, READ, COMPARED)
        return [
            RecalledMemory(Memory(memory_id, tenant, owner, its_conversation, its_text, created_s), share)
            for memory_id, its_conversation, its_text, created_s, share in map(restore_values, found)
        ]

    async def list_memories(self, *, tenant: str, owner: str, before: int | None, limit: int) -> MemoryPage:
        rows = await self._read(_PAGE, tenant, owner, _LAST if before is None else before, limit + 1)
        more = rows[limit - 1][-1] if len(rows) > limit else None
        return MemoryPage([MEMORIES.from_row(row[:-1]) for row in rows[:limit]], more)

    async def forget(self, memory_ids: Sequence[str], *, tenant: str, owner: str | None) -> int:
        steps = (list(memory_ids[i : i + STEP]) for i in range(0, len(memory_ids), STEP))
        return await sum_forgotten(self._call_value("forget", ids, tenant, owner) for ids in steps)

    async def forget_all(self, *, tenant: str, owner: str, conversation: str | None, elsewhere: bool) -> int:
        places = None if elsewhere else ["", conversation or ""]
        steps = (self._call_value("forget_step", tenant, owner, places, STEP) for _ in count())
        return await sum_forgotten(steps, until_none=True)


def _list_json_words(text: str) -> str:
    return json.dumps(sorted(extract_keywords(text)), ensure_ascii=False)
