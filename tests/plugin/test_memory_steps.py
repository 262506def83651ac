"""Steps of work on memories: how they end, and what a failure in the middle of them leaves."""

from collections.abc import Awaitable, Iterator

import pytest

from gateway.contracts.storage.store import PartialError, StoreError
from gateway.plugin.memory_steps import MemoryIndexing, drop_surplus, sum_forgotten


async def step(forgets: int | None) -> int:
    if forgets is None:
        raise StoreError("the disk is full")
    return forgets


def steps(*each: int | None) -> Iterator[Awaitable[int]]:
    return map(step, each)


async def test_forgotten_memories_are_summed_over_all_steps() -> None:
    assert await sum_forgotten(steps(2, 0, 3)) == 5
    assert await sum_forgotten(steps()) == 0


async def test_first_step_that_forgets_none_may_be_the_last() -> None:
    assert await sum_forgotten(steps(50, 7, 0, None), until_none=True) == 57


async def test_failure_behind_forgotten_memories_is_a_partial_error() -> None:
    with pytest.raises(PartialError, match="2 memories are gone, the others are not: the disk is full"):
        await sum_forgotten(steps(2, None))


async def test_failure_before_any_forgotten_memory_is_a_store_error() -> None:
    with pytest.raises(StoreError) as raised:
        await sum_forgotten(steps(0, None))
    assert not isinstance(raised.value, PartialError)


async def test_surplus_is_dropped_until_a_failure_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    answers = [True, True, None, True]

    async def drop() -> bool:
        answer = answers.pop(0)
        if answer is None:
            raise StoreError("the disk is full")
        return answer

    await drop_surplus(drop, limit=9)
    assert answers == [True] and "memories beyond the limit of 9 stay for now: the disk is full" in caplog.text


async def test_index_is_built_step_by_step_until_nothing_is_left() -> None:
    left = [True, True, False]

    async def index() -> bool:
        return left.pop(0)

    indexing = MemoryIndexing(index)
    indexing.start()
    assert indexing.task is not None
    await indexing.task
    indexing.stop()
    assert left == []
