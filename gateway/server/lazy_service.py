"""Parts of a worker that are imported and made at their first use: starts and idle gateways do without."""

import asyncio
import gc
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, TypeVar

Made = TypeVar("Made")


class FirstUse(Generic[Made]):
    """A part that `make` makes for its first user. If that fails, the next user has it made again.

    `end` ends it when the worker ends.
    """

    def __init__(
        self, make: Callable[[], Coroutine[Any, Any, Made]], *, end: Callable[[Made], Awaitable[None]]
    ) -> None:
        self._make = make
        self._end = end
        self._making: asyncio.Task[Made] | None = None

    @property
    def part(self) -> Made | None:
        """Return the part, or None: it has no user yet, or it could not be made."""
        making = self._making
        if making is None or not making.done() or making.cancelled() or making.exception() is not None:
            return None
        return making.result()

    async def get(self) -> Made:
        """Return the part. Raises what `make` raises."""
        if (made := self.part) is not None:
            return made
        if self._making is None or self._making.done():
            self._making = asyncio.get_running_loop().create_task(self._make())
        return await asyncio.shield(self._making)

    async def close(self) -> None:
        """Stop making the part, and end one that is made."""
        if self._making is not None:
            self._making.cancel()
            await asyncio.wait({self._making})
        if (made := self.part) is not None:
            await self._end(made)


async def import_in_thread(load: Callable[[], Made]) -> Made:
    """Return what `load` imports. It runs in a thread, since an import would hold the event loop for too long."""
    return await asyncio.to_thread(_load_and_freeze, load)


def _load_and_freeze(load: Callable[[], Made]) -> Made:
    n_modules = len(sys.modules)
    loaded = load()
    # A worker has frozen what its start built. To count that, which only modules are worth, holds the loop for long.
    if len(sys.modules) > n_modules and gc.get_freeze_count():
        # Modules stay as long as the process: each look of the collector at them would hold the loop, too.
        gc.collect()
        gc.freeze()
    return loaded
