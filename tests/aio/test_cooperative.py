"""Long work: its result, and that others go on meanwhile."""

import asyncio
import threading

import pytest

from gateway.aio.cooperative import LARGE_BYTES, Work, run_aside, run_at_once, run_cooperatively
from gateway.contracts.errors import GatewayError


def counted(most: int) -> Work[int]:
    total = 0
    for number in range(most):
        total += number
        yield
    return total


def test_short_work_returns_its_result_at_once() -> None:
    assert run_at_once(counted(4)) == 6


async def test_long_work_yields_to_other_tasks() -> None:
    """The work ends only once somebody else has had a turn, however fast the machine is."""
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def patient() -> Work[str]:
        while turns < 3:
            yield
        return "done"

    beside = asyncio.create_task(other())
    assert await asyncio.wait_for(run_cooperatively(patient()), 30) == "done"
    beside.cancel()


@pytest.mark.parametrize(("size", "is_here"), [(LARGE_BYTES - 1, True), (LARGE_BYTES, False)])
async def test_work_on_a_large_body_runs_in_another_thread(size: int, *, is_here: bool) -> None:
    """On a small one it is done at once; errors come back in both."""
    content = b"x" * size
    assert (await run_aside(threading.get_ident, content=content) == threading.get_ident()) is is_here

    def fails() -> None:
        raise GatewayError("invalid_json", "no")

    with pytest.raises(GatewayError):
        await run_aside(fails, content=content)
