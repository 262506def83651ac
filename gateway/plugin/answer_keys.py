"""Keys of answers without hidden turns, which a store writes together.

Most answers have no hidden part, and each of them is recorded. A write by itself would cost a request a tenth of its
time. So the keys of 50 milliseconds are written together, and a search for one of them writes them at once.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from gateway.contracts.storage.store import StoreError

log = logging.getLogger("gateway")

#: So long an answer waits for others, so many keys wait at most, and so many times as many until the store goes on.
TOGETHER_S: Final = 0.05
_KEYS_AT_ONCE, _BATCHES = 512, 8


class AnswerKey(NamedTuple):
    """A key that means an answer, in the order of the columns of a store."""

    tenant: str
    key: str
    turn_id: str
    created_s: float


class _KeyBatch:
    """Keys that are written together. `is_due` ends their wait."""

    def __init__(self) -> None:
        self.rows: list[AnswerKey] = []
        self.keys: set[tuple[str, str]] = set()
        self.is_due = asyncio.Event()
        self.writing: asyncio.Task[None] | None = None


class AnswerKeyBatch:
    """The keys of a store that wait to be written by `write`, which may raise StoreError."""

    def __init__(self, write: Callable[[Sequence[AnswerKey]], Awaitable[object]]) -> None:
        self._write = write
        self._filling: _KeyBatch | None = None
        self._batches: list[_KeyBatch] = []  # that are not written, in their order

    async def add(self, turn_id: str, *, keys: Sequence[str], tenant: str, now_s: float) -> None:
        """Add the keys of an answer. Wait while the store is too far behind."""
        batch = self._filling
        if batch is None:
            if len(self._batches) >= _BATCHES:
                await self._write_batches(self._batches[:1])
            batch = self._filling = _KeyBatch()
            self._batches.append(batch)
            batch.writing = asyncio.create_task(self._write_when_due(batch))
        for key in keys:
            batch.rows.append(AnswerKey(tenant, key, turn_id, now_s))
            batch.keys.add((tenant, key))
        if len(batch.rows) >= _KEYS_AT_ONCE:
            batch.is_due.set()

    async def write_any(self, keys: Sequence[str], *, tenant: str) -> None:
        """Write the batches that have one of these keys."""
        if self._batches:
            wanted = {(tenant, key) for key in keys}
            await self._write_batches([batch for batch in self._batches if not wanted.isdisjoint(batch.keys)])

    async def write_all(self) -> None:
        """Write the keys that wait."""
        await self._write_batches(self._batches)

    async def _write_batches(self, batches: Sequence[_KeyBatch]) -> None:
        writing = [batch.writing for batch in batches if batch.writing is not None]
        for batch in batches:
            batch.is_due.set()
        if writing:
            await asyncio.wait(writing)

    async def _write_when_due(self, batch: _KeyBatch) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(TOGETHER_S):
                await batch.is_due.wait()
        if self._filling is batch:
            self._filling = None
        try:
            await self._write(batch.rows)
        except StoreError as error:
            log.warning("%d keys of answers without hidden turns are not kept: %s", len(batch.rows), error)
        finally:
            self._batches.remove(batch)
