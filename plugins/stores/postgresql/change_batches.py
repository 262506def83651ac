"""Changes of runs that wait together for the database: one call, and one commit, for all of them.

Each of them is done or refused by itself. A commit waits for the disk of the server, and that bounds a worker with many
runs. A change that finds no other one waiting goes alone, at once.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from gateway.plugin import ConflictError, StoreError

from .failures import build_error
from .pool import Row

#: Calls at the same time, which leave connections for everything else; changes in one of them.
BATCHES: Final = 2
MOST_CHANGES: Final = 64
WRITE_CHANGES: Final = (
    "SELECT code, message FROM twolane.write_changes($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)"
)


@dataclass(frozen=True, slots=True)
class _WaitingChange:
    """A change that waits for its turn. `key` is that of its run."""

    key: tuple[str, str]
    values: Sequence[object]
    done: "asyncio.Future[None]"


class ChangeBatches:
    """The changes of one store; `write` sends a statement with its values, as `PostgresqlPool.write` does."""

    def __init__(self, write: Callable[..., Awaitable[Sequence[Row]]]) -> None:
        self._write = write
        self._waiting: list[_WaitingChange] = []
        self._senders: set[asyncio.Task[None]] = set()

    async def write_change(self, key: tuple[str, str], values: Sequence[object]) -> None:
        """Write a change, whose values are those of `write_changes`. Raises as `PostgresqlPool.write`."""
        done = asyncio.get_running_loop().create_future()
        self._waiting.append(_WaitingChange(key, values, done))
        if len(self._senders) < BATCHES:
            sender = asyncio.create_task(self._send_all())
            self._senders.add(sender)
            sender.add_done_callback(self._senders.discard)
        await asyncio.shield(done)

    async def close(self) -> None:
        """Wait until nothing waits any more."""
        while self._senders:
            await asyncio.wait(self._senders)

    async def _send_all(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:MOST_CHANGES], self._waiting[MOST_CHANGES:]
            # Everybody locks runs in this order. Changes of one run stay in theirs.
            batch.sort(key=lambda change: change.key)
            await self._send(batch)

    async def _send(self, batch: Sequence[_WaitingChange]) -> None:
        columns = [list(column) for column in zip(*(change.values for change in batch), strict=True)]
        try:
            rows = await self._write(WRITE_CHANGES, *columns)
        except (StoreError, ConflictError) as error:
            results: Sequence[Exception | None] = [type(error)(*error.args) for _ in batch]
        else:
            results = [None if code is None else build_error(code, message) for code, message in rows]
        for change, result in zip(batch, results, strict=True):
            if result is None:
                change.done.set_result(None)
            else:
                change.done.set_exception(result)
                change.done.exception()  # of a change whose caller is gone
