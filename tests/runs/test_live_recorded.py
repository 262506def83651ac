"""Runs that are on record before they do anything."""

import asyncio
from collections.abc import AsyncGenerator

import pytest
from gateways import until

from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.store import Json
from gateway.runs.live_run import EFFECTS, RECORDED, LiveRun
from gateway.runs.undelivered_answers import JOINABLE_S
from gateway.testing.clock import ManualClock

from .living import TEXT, Work, begun, exchange, request_key, whole


class Recorded(Work):
    """A handler whose run is in the store before it says a word; `fails` before that, if at all."""

    def __init__(self, *, fails: Exception | None = None, error: Exception | None = None, mark: str = RECORDED) -> None:
        super().__init__(effects=False, error=error)
        self.fails = fails
        self.mark = mark
        self.writes = asyncio.Event()

    async def _chunks(self) -> AsyncGenerator[Json, None]:
        await self.writes.wait()
        if self.fails is not None:
            raise self.fails
        yield {self.mark: True}
        async for chunk in super()._chunks():
            yield chunk


@pytest.mark.parametrize("mark", [RECORDED, EFFECTS])
async def test_on_record_wait_ends_when_the_run_is_recorded(mark: str) -> None:
    """Not before, and not only at the end of the run; the mark is no part of the answer."""
    work = Recorded(mark=mark)
    runs, run = begun(work)
    waiting = asyncio.create_task(run.on_record())
    await run.wait_for_reply()
    await asyncio.sleep(0)
    assert not waiting.done()
    work.writes.set()
    await waiting
    assert not run.done and run.marks.effects == (mark == EFFECTS)
    work.go.set()
    assert await whole(run) == [TEXT, TEXT]
    await run.on_record()
    await runs.close()


async def test_on_record_wait_raises_the_error_of_an_unrecorded_run() -> None:
    """Whoever waits for the record gets the error; one that failed afterwards is looked up there."""
    for fails, error in ((GatewayError("store_full", "No."), None), (None, GatewayError("upstream_error", "No."))):
        work = Recorded(fails=fails, error=error)
        runs, run = begun(work)
        work.writes.set()
        work.go.set()
        if fails is None:
            await run.on_record()
            await run.wait_until_ended()
            await run.on_record()
        else:
            with pytest.raises(GatewayError, match="No"):
                await run.on_record()
        await runs.close()


async def test_recorded_run_without_effects_ends_with_its_client() -> None:
    """It has done nothing yet, so the same request begins anew: at once, and after a failure."""
    work = Recorded()
    runs, run = begun(work)
    work.writes.set()
    await run.on_record()
    runs.remove_client(run, whole=False)
    await asyncio.wait_for(run.wait_until_ended(), 120)
    assert runs.find(request_key(repeats=True)) is None
    failing = Recorded(error=GatewayError("upstream_error", "No."))
    runs, run = begun(failing)
    failing.writes.set()
    failing.go.set()
    await run.wait_until_ended()
    runs.remove_client(run, whole=True)
    assert runs.find(request_key(repeats=True)) is None


async def test_replayed_answer_marks_its_run_as_recorded() -> None:
    """Nobody waits for a run that is over."""
    run = LiveRun(exchange(), request_key(), now_s=0.0)
    run.replay([TEXT])
    await run.on_record()
    assert run.marks.recorded


async def test_run_taken_by_another_process_ends_as_cancelled() -> None:
    """Not its client has left, and no process stops: it was cancelled, or another worker has it."""
    work = Work()
    runs, run = begun(work)
    await until(lambda: run.transcript.chunks)
    assert run._task is not None
    run._task.cancel()
    await run.wait_until_ended()
    with pytest.raises(GatewayError, match="was cancelled or is driven by another process") as told:
        await whole(run)
    assert (told.value.code, told.value.facts.status) == ("run_cancelled", 422)
    await runs.close()


async def test_join_window_of_a_failed_run_starts_at_the_failure() -> None:
    """Each repeat is told the same error, and none of them makes it last longer."""
    clock = ManualClock()
    work = Work(error=GatewayError("upstream_error", "No.").mark_after_effects())
    runs, run = begun(work, clock)
    work.go.set()
    with pytest.raises(GatewayError):
        await whole(run)
    runs.remove_client(run, whole=True)
    for _ in range(2):
        clock.advance(JOINABLE_S * 0.45)
        again = runs.find(request_key())
        assert again is run
        runs.join(again)
        runs.remove_client(again, whole=True)
    clock.advance(JOINABLE_S * 0.2)
    assert runs.find(request_key()) is None
