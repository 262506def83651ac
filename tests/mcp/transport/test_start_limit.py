"""The places of programs that start."""

import asyncio
import os
from contextlib import AsyncExitStack

from gateway.mcp.transport.start_limit import Starts, get_worker_starts


async def test_start_slot_is_released_once() -> None:
    """A program that leaves twice, or leaves early and ends later, gives one place back."""
    starts = Starts(2)
    async with AsyncExitStack() as others:
        async with starts.place() as leave, starts.place():
            third, fourth = (asyncio.create_task(others.enter_async_context(starts.place())) for _ in range(2))
            await asyncio.sleep(0)
            assert starts.waiting == 2
            leave()
            leave()
            await third
            assert starts.waiting == 1
        await fourth


async def test_worker_has_two_more_start_slots_than_cores() -> None:
    """All of its servers share them."""
    starts = get_worker_starts()
    assert get_worker_starts() is starts
    async with AsyncExitStack() as held:
        for _ in range(len(os.sched_getaffinity(0)) + 2):
            await held.enter_async_context(starts.place())
        one_more = asyncio.create_task(held.enter_async_context(starts.place()))
        await asyncio.sleep(0)
        assert starts.waiting == 1
        one_more.cancel()
        await asyncio.wait({one_more})
        assert starts.waiting == 0
