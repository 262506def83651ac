"""The clock that everything but tests uses, and the waits for an event or a time."""

import asyncio
import time
from contextlib import suppress
from typing import Any


class SystemClock:
    """The clock that everything but tests uses. Requests ask it, so these are the functions themselves."""

    monotonic = staticmethod(time.monotonic)
    time = staticmethod(time.time)


async def wait_until_done(task: "asyncio.Future[Any]") -> None:
    """Wait until a task is over, through any number of cancellations of the caller. Its error is not raised."""
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait({task})


async def wait_until_set(event: asyncio.Event, limit_s: float) -> bool:
    """Wait until an event is set, for so long at most. Return whether it was set in time.

    `asyncio.wait_for` of Python 3.11 swallows cancellations, and costs a task.
    """
    try:
        async with asyncio.timeout(limit_s):
            await event.wait()
    except TimeoutError:
        return False
    return True
