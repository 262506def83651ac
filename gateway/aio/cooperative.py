"""Long work in parts on the event loop, or in a thread, so that other tasks wait for milliseconds only.

Work in parts is a generator: where it yields, others may go on.
"""

import asyncio
from collections.abc import Callable, Generator
from time import perf_counter
from typing import Final, TypeAlias, TypeVar

T = TypeVar("T")
Work: TypeAlias = Generator[None, None, T]

#: So long work goes on before others do, in seconds.
_TURN_S: Final = 0.002
#: A body of this size takes 1 to 3 ms to parse; a thread costs 0.1 ms.
LARGE_BYTES: Final = 256 << 10


def run_at_once(work: Work[T]) -> T:
    """Return the result of work that is short."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


async def run_cooperatively(work: Work[T]) -> T:
    """Return the result of work that may be long. Others go on every few milliseconds."""
    turn = TimeSlice()
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        await turn.pause()


async def run_aside(work: Callable[[], T], *, content: bytes = b"", more_bytes: int = 0) -> T:
    """Return the result of `work` on a body. A thread does work that takes milliseconds, so that other tasks go on.

    `more_bytes` is the size of what else it is done on.
    """
    return work() if len(content) + more_bytes < LARGE_BYTES else await asyncio.to_thread(work)


class TimeSlice:
    """The time that a long loop may run on the event loop until other tasks go on."""

    def __init__(self) -> None:
        self._ends_s = perf_counter() + _TURN_S

    async def pause(self) -> None:
        """Let others go on, if the turn is over."""
        if perf_counter() > self._ends_s:
            await asyncio.sleep(0)
            self._ends_s = perf_counter() + _TURN_S
