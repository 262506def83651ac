"""Work that goes on whatever happens to it."""

import asyncio

import pytest
from gateways import until

from gateway.aio.supervise import supervise


async def test_supervised_work_restarts_after_an_error(caplog: pytest.LogCaptureFixture) -> None:
    """Each error is logged; it is over when it returns."""
    begun = 0

    async def fails_twice() -> None:
        nonlocal begun
        begun += 1
        if begun < 3:
            raise LookupError("nobody has thought of this")

    await supervise(fails_twice, pause_s=0)
    assert begun == 3
    assert caplog.text.count("LookupError: nobody has thought of this") == 2


async def test_supervised_work_ends_when_cancelled() -> None:
    begun = asyncio.Event()

    async def goes_on() -> None:
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(supervise(goes_on))
    await begun.wait()
    task.cancel()
    await until(task.done)
    assert task.cancelled()
