"""The clock of the system, and the waits for an event or a time, and for the end of a task."""

import asyncio
import time

import pytest

from gateway.aio.clock import SystemClock, wait_until_done, wait_until_set


def test_system_clock_returns_unix_and_monotonic_time() -> None:
    """Unix time, and one that never goes back."""
    clock = SystemClock()
    before = (time.monotonic(), time.time())
    assert before[0] <= clock.monotonic() <= time.monotonic()
    assert before[1] <= clock.time() <= time.time()


async def test_until_set_reports_the_event_or_the_timeout() -> None:
    """And says which came first."""
    event = asyncio.Event()
    assert await wait_until_set(event, 0.0) is False
    waits = asyncio.create_task(wait_until_set(event, 3600.0))
    await asyncio.sleep(0)
    event.set()
    assert await waits is True


async def test_cancelled_wait_raises_even_if_its_event_is_set() -> None:
    """Also while its event is set at the same moment: `asyncio.wait_for` would return."""
    event = asyncio.Event()
    waits = asyncio.create_task(wait_until_set(event, 3600.0))
    await asyncio.sleep(0)
    event.set()
    waits.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waits


async def test_wait_until_done_continues_through_cancellations() -> None:
    """Any number of them; an error of the task is left to who reads its result."""
    goes_on = asyncio.Event()

    async def fails() -> None:
        await goes_on.wait()
        raise ZeroDivisionError

    task = asyncio.create_task(fails())
    waits = asyncio.create_task(wait_until_done(task))
    for _ in range(3):
        await asyncio.sleep(0)
        waits.cancel()
    await asyncio.sleep(0)
    assert not waits.done()
    goes_on.set()
    await waits
    with pytest.raises(ZeroDivisionError):
        task.result()
