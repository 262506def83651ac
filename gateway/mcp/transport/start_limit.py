"""The starts of programs in one worker: a few at a time, as many starts at once take each other's time.

A program has its place until it is ready, `PLACE_S` at most: a slow one keeps no other one waiting for long.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final
from weakref import WeakKeyDictionary

PLACE_S: Final = 5.0
#: Places beside one for each core, as programs also wait for their files.
_BESIDE_CORES: Final = 2


class Starts:
    """The places of programs that start. `waiting` is the number of programs that have none yet."""

    def __init__(self, places: int, *, place_s: float = PLACE_S) -> None:
        self._places = asyncio.Semaphore(places)
        self._place_s = place_s
        self.waiting = 0

    @asynccontextmanager
    async def place(self) -> AsyncIterator[Callable[[], None]]:
        """Wait for a place, and hold it until the function that this returns is called, or the context ends."""
        self.waiting += 1
        try:
            await self._places.acquire()
        finally:
            self.waiting -= 1
        is_held = True

        def leave() -> None:
            nonlocal is_held
            if is_held:
                is_held = False
                self._places.release()

        late = asyncio.get_running_loop().call_later(self._place_s, leave)
        try:
            yield leave
        finally:
            late.cancel()
            leave()


_STARTS: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, Starts]] = WeakKeyDictionary()


def get_worker_starts() -> Starts:
    """Return the starts of this worker, which has one event loop."""
    loop = asyncio.get_running_loop()
    if (starts := _STARTS.get(loop)) is None:
        starts = _STARTS[loop] = Starts(len(os.sched_getaffinity(0)) + _BESIDE_CORES)
    return starts
