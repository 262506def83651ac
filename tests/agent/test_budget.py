"""The time of a run: what it spends, what a person's thinking costs, and what happens when it is over."""

import asyncio

import pytest
from functional.through import breathe
from gateways import until

from gateway.agent.budget import TimeBudget
from gateway.contracts.errors import GatewayError
from gateway.testing.clock import ManualClock
from tests.agent.doubles import Clock


def over() -> GatewayError:
    return GatewayError("agent_timeout", "Too long.")


def budget(limit_s: float, *, spent_s: float = 0.0, clock: ManualClock | None = None) -> TimeBudget:
    made = TimeBudget(limit_s, clock=Clock(clock or ManualClock()), expiry=over)
    made.restore(spent_s)
    return made


def test_time_budget_counts_spent_time() -> None:
    """Also what was spent by another process."""
    clock = ManualClock()
    time = budget(100.0, spent_s=30.0, clock=clock)
    assert (time.left_s, time.spent_s) == (70, 30)
    clock.advance(50)
    assert (time.left_s, time.spent_s) == (20, 80)
    clock.advance(50)
    assert (time.left_s, time.spent_s) == (-30, 130)


async def test_budget_end_callback_fires_once() -> None:
    """At once where nothing was left to begin with."""
    calls: list[str] = []
    time = budget(10.0, spent_s=10.0)
    time.start(lambda: calls.append("over"))
    await until(lambda: bool(calls))
    await breathe(10)
    assert calls == ["over"]


async def test_stopped_time_budget_does_not_fire() -> None:
    """Twice is once, and before the start it is nothing."""
    calls: list[str] = []
    time = budget(0.0)
    time.stop()
    time.start(lambda: calls.append("over"))
    time.stop()
    time.stop()
    await breathe(10)
    assert calls == []


async def test_paused_time_budget_does_not_run() -> None:
    """Nor does it end the run; afterwards the time goes on as before."""
    clock, calls, later = ManualClock(), list[str](), asyncio.Event()
    time = budget(0.02, clock=clock)
    time.start(lambda: calls.append("over"))
    with time.pause():
        budget(0.04).start(later.set)
        clock.advance(1000)
        assert time.left_s == pytest.approx(0.02)
        await asyncio.wait_for(later.wait(), 120)  # a budget that began later, is longer, and does not pause
        assert calls == []
    assert time.left_s == pytest.approx(0.02) and time.spent_s == pytest.approx(0)
    await until(lambda: calls == ["over"])
    time.stop()


async def test_time_budget_resumes_after_an_exception_in_a_pause() -> None:
    """Whatever was raised in it, the time goes on; several pauses add up."""
    clock = ManualClock()
    time = budget(100.0, clock=clock)
    time.start(lambda: None)

    def thinks_and_fails() -> None:
        with time.pause():
            clock.advance(30)
            raise KeyError

    for _ in range(2):
        with pytest.raises(KeyError):
            thinks_and_fails()
    clock.advance(1)
    assert time.left_s == 99
    time.stop()


async def test_work_within_budget_keeps_its_result_and_error() -> None:
    """Its result, and its own error, even a timeout of its own."""
    time = budget(10.0)

    async def works() -> int:
        return 7

    async def fails() -> int:
        raise TimeoutError("its own")

    assert await time.run_within(works()) == 7
    with pytest.raises(TimeoutError, match="its own"):
        await time.run_within(fails())


async def test_work_that_takes_longer_is_cancelled() -> None:
    """And the error says that the time is over."""
    ended = asyncio.Event()

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with pytest.raises(GatewayError) as failed:
        await budget(0.01).run_within(endless())
    assert failed.value.code == "agent_timeout" and ended.is_set()


async def test_cancelled_work_raises_cancelled_error_not_timeout() -> None:
    """Whoever cancelled it hears just that."""
    work = asyncio.create_task(budget(10.0).run_within(asyncio.Event().wait()))
    await asyncio.sleep(0)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work


async def test_work_within_a_time_budget_can_be_interrupted() -> None:
    """It ends as if the time were over, which it is not; nothing is interrupted where nothing is awaited."""
    time = budget(10.0)
    time.interrupt()
    work = asyncio.create_task(time.run_within(asyncio.Event().wait()))
    await asyncio.sleep(0)
    time.interrupt()
    time.interrupt()
    with pytest.raises(GatewayError):
        await work
    time.interrupt()
    assert time.left_s == 10


async def test_interruption_at_the_timeout_is_harmless() -> None:
    """Both may come in one turn of the event loop."""
    time = budget(0.0)

    async def slow_to_end() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            time.interrupt()
            raise

    with pytest.raises(GatewayError):
        await time.run_within(slow_to_end())


async def test_single_timer_ends_all_work_in_progress() -> None:
    """Its end is told once."""
    calls: list[str] = []
    time = budget(0.01)
    time.start(lambda: calls.append("over"))
    ended = await asyncio.gather(*(time.run_within(asyncio.Event().wait()) for _ in range(3)), return_exceptions=True)
    assert [getattr(error, "code", None) for error in ended] == ["agent_timeout"] * 3
    assert calls == ["over"]


async def test_pause_does_not_consume_the_time_of_running_work() -> None:
    """It goes on beside the pause, and has its whole time behind it."""
    begun, later, clock = asyncio.Event(), asyncio.Event(), ManualClock()
    time = budget(0.02, clock=clock)
    time.start(lambda: None)

    async def endless() -> None:
        begun.set()
        await asyncio.Event().wait()

    work = asyncio.create_task(time.run_within(endless()))
    await begun.wait()
    with time.pause():
        budget(0.04).start(later.set)
        await asyncio.wait_for(later.wait(), 120)
        assert not work.done()
    with pytest.raises(GatewayError):
        await work
