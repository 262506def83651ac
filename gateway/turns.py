"""Long work on the event loop in parts, so that everybody else waits for milliseconds only.

The work is a generator: where it yields, others may go on.
"""

import asyncio
from collections.abc import Generator
from time import perf_counter
from typing import Final, TypeAlias, TypeVar

T = TypeVar("T")
Work: TypeAlias = Generator[None, None, T]

#: So long work goes on before others do, in seconds.
_TURN_S: Final = 0.002


def at_once(work: Work[T]) -> T:
    """Return the result of work that is short."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


async def in_turns(work: Work[T]) -> T:
    """Return the result of work that may be long. Others go on every few milliseconds."""
    turn = Turn()
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        await turn.pause()


class Turn:
    """The time that a loop of ours may have on the event loop until others go on."""

    def __init__(self) -> None:
        self._ends_s = perf_counter() + _TURN_S

    async def pause(self) -> None:
        """Let others go on, if the turn is over."""
        if perf_counter() > self._ends_s:
            await asyncio.sleep(0)
            self._ends_s = perf_counter() + _TURN_S
