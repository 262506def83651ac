"""Runs that are kept for a client that may come back: their memory is bounded whatever they say meanwhile."""

import gc
import weakref
from collections.abc import AsyncGenerator

import orjson
import pytest

from gateway.contracts.exchange import PARSED_BYTES
from gateway.contracts.storage.store import Json
from gateway.runs.live import KEPT_BYTES, LiveRuns
from gateway.runs.live_run import EFFECTS, LiveRun
from gateway.runs.transcript import Transcript
from gateway.testing.clock import ManualClock
from tests.agent.doubles import Clock

from .living import TEXT, Alarms, Work, exchange, request_key

CHUNK = b"""{"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1700000000, "model": "m", "choices":
    [{"index": 0, "delta": {"content": "word"}, "logprobs": null, "finish_reason": null}]}"""


class Speech(Work):
    """Says so many chunks of one token each."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    async def _chunks(self) -> AsyncGenerator[Json, None]:
        yield {EFFECTS: True}
        await self.go.wait()
        for _ in range(self.count):
            yield TEXT


@pytest.mark.parametrize("detached", [True, False])
async def test_detached_run_output_counts_towards_the_memory_limit(*, detached: bool) -> None:
    """With the memory of its parsed chunks, which is far more than their text; it goes though nobody asks for a run."""
    alarms = Alarms()
    runs = LiveRuns(clock=Clock(ManualClock()), later=alarms.later)
    made: list[weakref.ref[LiveRun]] = []
    for n in range(3):
        work = Speech(KEPT_BYTES // 2 // PARSED_BYTES)
        run = runs.begin(exchange(f"run_{n}"), request_key(str(n)), work, detached=detached)
        await run.on_record()
        if not detached:
            runs.join(run)
            runs.remove_client(run, whole=False)
            run.mark_attended()  # its model may talk
        work.go.set()
        await run.wait_until_ended()
        alarms.ring()  # its timer knows it
        made.append(weakref.ref(run))
        del run, work
    gc.collect()
    assert [one() is not None for one in made] == [False, False, True]
    assert runs.find(request_key("2", repeats=True)) is made[-1]()
    await runs.close()


async def test_transcript_size_reflects_its_memory_use() -> None:
    """Of parsed chunks and of lines; what is forgotten weighs nothing."""
    transcript = Transcript()
    transcript.add("data: line\n\n")
    kept_bytes = transcript.size_bytes
    transcript.mark_final()
    transcript.add("data: more\n\n")
    for _ in range(9):
        transcript.add(orjson.loads(CHUNK))
    assert transcript.size_bytes > kept_bytes + 9 * PARSED_BYTES
    transcript.drop_unsettled()
    assert transcript.size_bytes == kept_bytes
