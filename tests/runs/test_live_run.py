"""Clients of a live run come and go: the model is called only while somebody reads."""

import asyncio
from collections.abc import AsyncGenerator

import pytest
from functional.through import breathe
from gateways import until

from gateway.contracts.storage.store import Json
from gateway.runs.live_run import CALLS, EFFECTS
from gateway.runs.transcript import BEHIND_CHARS

from .living import Alarms, Reading, Talk, Work, begun, request_key, text, whole


@pytest.mark.parametrize("ends", [False, True])
async def test_dropped_model_call_is_repeated_for_the_next_client(*, ends: bool) -> None:
    """At once; what the dropped call said is in nobody's answer, what came before it in everybody's."""
    work, alarms = Talk(ends=ends), Alarms()
    runs, run = begun(work, alarms=alarms)
    await until(lambda: len(run.transcript.chunks) == 2)
    runs.remove_client(run, whole=False)
    assert work.drops == 1 and list(run.transcript.chunks) == [text("tool ")]
    await breathe(10)
    assert work.said == 1, "no further call for nobody"
    assert runs.find(request_key()) is run
    runs.join(run)
    alarms.ring()
    reading = asyncio.create_task(whole(run))
    await until(lambda: work.said == 2)
    work.go.set()
    assert await reading == [text("tool "), text("call2 "), text("end")]
    assert run.error is None and work.drops == 1
    await runs.close()


async def test_abandoned_run_ends_without_another_model_call() -> None:
    """The model is not asked again."""
    work, alarms = Talk(), Alarms()
    runs, run = begun(work, alarms=alarms)
    await until(lambda: len(run.transcript.chunks) == 2)
    runs.remove_client(run, whole=False)
    alarms.ring()
    await run.wait_until_ended()
    assert run.interrupted and work.said == 1 and work.released == 1


async def test_model_is_not_called_while_no_client_is_connected() -> None:
    """A tool that ends in the meantime is followed by nothing until somebody is back."""

    class Later(Talk):
        async def _chunks(self) -> AsyncGenerator[Json, None]:
            yield {EFFECTS: True}
            yield text("tool ")
            await self.go.wait()
            yield {CALLS: self._drop}
            self.said += 1
            yield text("said")
            yield {CALLS: None}

    work, alarms = Later(), Alarms()
    runs, run = begun(work, alarms=alarms)
    await until(lambda: run.transcript.chunks)
    runs.remove_client(run, whole=False)
    work.go.set()
    await breathe(10)
    assert work.said == 0 and work.drops == 0
    runs.join(run)
    assert await whole(run) == [text("tool "), text("said")]
    await runs.close()


async def test_handler_that_swallows_cancellation_stops_at_its_next_model_call() -> None:
    """A handler that swallows its cancellation goes no further than its next model call."""

    class Swallows(Talk):
        async def _chunks(self) -> AsyncGenerator[Json, None]:
            yield {EFFECTS: True}
            for _ in range(3):
                yield {CALLS: self._drop}
                self.said += 1
                try:
                    await self.go.wait()
                except asyncio.CancelledError:
                    continue

    work = Swallows()
    runs, run = begun(work)
    await until(lambda: work.said)
    await asyncio.wait_for(runs.close(), 120)
    assert run.interrupted and work.said == 1


async def test_slow_client_pauses_the_model() -> None:
    """When it is too far behind; nothing is lost."""

    class Floods(Work):
        async def _chunks(self) -> AsyncGenerator[Json, None]:
            await self.go.wait()
            for _ in range(100):
                self.calls += 1
                yield text("x" * (BEHIND_CHARS // 10))

    work, slow = Floods(), Reading(slow=True)
    runs, run = begun(work)
    reading = asyncio.create_task(run.transcript.read(slow))
    await asyncio.sleep(0)
    work.go.set()
    await until(lambda: work.calls > 5)
    await breathe(50)
    assert work.calls < 30
    slow.go.set()
    await reading
    assert len(slow.got) == 100
    await runs.close()


async def test_run_waiting_for_its_client_ends_when_the_client_leaves() -> None:
    """Its handler hears why, where it stands."""
    heard: list[BaseException] = []

    class Floods(Work):
        async def _chunks(self) -> AsyncGenerator[Json, None]:
            try:
                while True:
                    yield text("x" * BEHIND_CHARS)
                    await asyncio.sleep(0)
            except asyncio.CancelledError as error:
                heard.append(error)
                raise

    work, slow = Floods(), Reading(slow=True)
    runs, run = begun(work)
    reading = asyncio.create_task(run.transcript.read(slow))
    await until(lambda: len(run.transcript.chunks) > 1)
    reading.cancel()
    runs.remove_client(run, whole=False)
    await run.wait_until_ended()
    assert len(heard) == work.released == 1 and run.interrupted
