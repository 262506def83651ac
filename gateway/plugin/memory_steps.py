"""Work on the memories of a store that is done in steps, each a transaction: their index, and their deletion."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from gateway.contracts.storage.store import PartialError, StoreError

log = logging.getLogger("gateway")


class MemoryIndexing:
    """The task that indexes the words of memories once after a migration. Until then they are found by age alone.

    `index_step` indexes some of them and returns whether there were any. It may raise StoreError.
    """

    def __init__(self, index_step: Callable[[], Awaitable[bool]]) -> None:
        self._index_step = index_step
        self.task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the task, once the tables have been made."""
        self.task = asyncio.create_task(self._index())

    def stop(self) -> None:
        """Stop the task. Idempotent."""
        if self.task is not None:
            self.task.cancel()

    async def _index(self) -> None:
        try:
            while await self._index_step():
                pass
        except StoreError as error:
            log.warning("memories of before this version are found by age alone until the next start: %s", error)


async def drop_surplus(drop_step: Callable[[], Awaitable[bool]], *, limit: int) -> None:
    """Drop the oldest memories beyond `limit`, step by step while `drop_step` returns True.

    The new memory is stored already, so a failure of the store is logged, and the next new memory goes on with this.
    """
    try:
        while await drop_step():
            pass
    except StoreError as error:
        log.warning("memories beyond the limit of %d stay for now: %s", limit, error)


async def sum_forgotten(steps: Iterable[Awaitable[int]], *, until_none: bool = False) -> int:
    """Return how many memories the steps forget in all. `until_none`: the first step that forgets none is the last.

    Raises StoreError if nothing is forgotten, and PartialError for a failure behind a step that has forgotten some.
    """
    forgotten = 0
    for step in steps:
        try:
            gone = await step
        except StoreError as error:
            if not forgotten:
                raise
            raise PartialError(f"{forgotten} memories are gone, the others are not: {error}") from error
        forgotten += gone
        if until_none and not gone:
            break
    return forgotten
