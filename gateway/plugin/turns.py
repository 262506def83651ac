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
    ends_s = perf_counter() + _TURN_S
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        if perf_counter() > ends_s:
            await asyncio.sleep(0)
            ends_s = perf_counter() + _TURN_S
