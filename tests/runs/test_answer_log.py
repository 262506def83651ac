"""The log of a background answer: in the store before a reader gets it, by one worker at a time, to its end."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from gateways import until

from gateway.contracts.errors import CODES, GatewayError
from gateway.contracts.exchange import Chunk, Emit, Exchange, Reply
from gateway.contracts.storage.journal import StoredRun
from gateway.contracts.storage.store import StoreError
from gateway.plugins.stores.sqlite import SqliteStore
from gateway.runs import answer_log
from gateway.runs.answer_log import AnswerLogs, RecordedAnswer, build_end_entry, parse_end_entry
from gateway.runs.live import LiveRuns
from gateway.runs.live_run import PARKED, STOPPING, LiveRun
from gateway.runs.transcript import BEHIND_CHARS
from gateway.testing.clock import ManualClock
from tests.agent.doubles import Clock
from tests.plugins.stores.contract_responses import opened
from tests.plugins.stores.records import claimed, moved, new
from tests.plugins.stores.records import run as stored_run

from .living import exchange, request_key

FACT: Chunk = {"choices": [], "usage": {"total_tokens": 5}}


class Slow(SqliteStore):
    """The real store. Appends wait for `takes`, and fail `fails` times; `appended` are their sizes."""

    def __init__(self) -> None:
        super().__init__(":memory:")
        self.takes = asyncio.Event()
        self.takes.set()
        self.fails = 0
        self.appended: list[int] = []

    async def append_answer(
        self, response_id: str, *, tenant: str, fence: int, start: int, chunks: Sequence[bytes]
    ) -> None:
        await self.takes.wait()
        if self.fails:
            self.fails -= 1
            raise StoreError("database or disk is full")
        await super().append_answer(response_id, tenant=tenant, fence=fence, start=start, chunks=chunks)
        self.appended.append(len(chunks))


@dataclass
class Office:
    """A store with the run `run_1` and its open response, and the worker that records it."""

    store: Slow
    runs: LiveRuns = field(default_factory=lambda: LiveRuns(clock=Clock(ManualClock())))
    said: asyncio.Queue[Chunk | Exception | None] = field(default_factory=asyncio.Queue)
    over: int = 0

    def __post_init__(self) -> None:
        self.logs = self.worker()

    def worker(self) -> AnswerLogs:
        """Another one, with the same store."""
        return AnswerLogs(self.store, clock=Clock(ManualClock()))

    def record(self, *, fence: int = 0, start: int = 0, logs: AnswerLogs | None = None) -> LiveRun:
        """Begin the run, which tells what is put into `said`, and record it."""
        run = self.runs.begin(exchange(), request_key(), self._answer, detached=True)
        answer = RecordedAnswer(response_id="resp_1", tenant="acme", fence=fence, start=start)
        (logs or self.logs).record(answer, run, over=self._over)
        return run

    def say(self, *chunks: Chunk | Exception | None) -> None:
        """`None` is the end of the run, an exception its failure."""
        for chunk in chunks:
            self.said.put_nowait(chunk)

    async def log(self) -> list[bytes]:
        return list(await self.store.list_answer_chunks("resp_1", tenant="acme", start=0, limit=1000))

    async def ends(self, state: str = "completed") -> None:
        """The run is over in the store."""
        there = await self.store.run("run_1", tenant="acme")
        assert there is not None
        await self.store.write(moved(StoredRun(**{**_facts(there), "state": state})))

    async def _over(self) -> None:
        self.over += 1

    async def _answer(self, _: Exchange) -> Reply:
        async def stream(emit: Emit) -> None:
            while (chunk := await self.said.get()) is not None:
                if isinstance(chunk, Exception):
                    raise chunk
                if (pause := emit(chunk)) is not None:
                    await pause()

        async def release() -> None:
            pass

        return Reply(stream, release)


def _facts(run: StoredRun) -> dict[str, object]:
    return {name: getattr(run, name) for name in StoredRun.__slots__}


@asynccontextmanager
async def office() -> AsyncIterator[Office]:
    store = Slow()
    await store.open()
    await store.write(new(stored_run()))
    await store.put_response(opened(background=True))
    made = Office(store)
    try:
        yield made
    finally:
        store.takes.set()
        await made.runs.close()
        await made.logs.close()
        await store.close()


async def read(logs: AnswerLogs, *, start: int = 0) -> list[Chunk]:
    """All entries to the end, which is left out."""
    found: list[Chunk] = []
    async for chunks in logs.read("resp_1", tenant="acme", start=start):
        found += chunks
    assert parse_end_entry(found[-1]) is not None
    return found[:-1]


async def recorded(logs: AnswerLogs) -> None:
    """Returns once nothing is recorded any more."""
    await until(lambda: not logs.is_recording("resp_1"))


async def test_recorded_answer_is_read_identically_by_every_reader() -> None:
    """By each reader, whenever it comes, from any entry on; the end is told once it is in the store."""
    async with office() as desk:
        desk.record()
        early = asyncio.create_task(read(desk.logs))
        desk.say("one ", FACT, "two", None)
        assert await early == ["one ", FACT, "two"] == await read(desk.logs)
        assert await read(desk.logs, start=1) == [FACT, "two"]
        await recorded(desk.logs)
        assert desk.over == 1


async def test_chunk_is_readable_only_once_stored() -> None:
    """A reader that saw a chunk sees it again after a crash."""
    async with office() as desk:
        desk.store.takes.clear()
        desk.record()
        seen: list[Chunk] = []

        async def follow() -> None:
            async for chunks in desk.logs.read("resp_1", tenant="acme"):
                assert await desk.log() or not chunks
                seen.extend(chunks)

        following = asyncio.create_task(follow())
        desk.say("one")
        await until(lambda: desk.said.empty())
        assert seen == []
        desk.store.takes.set()
        await until(lambda: seen)
        desk.say(None)
        await following


async def test_slow_store_gets_larger_appends_instead_of_more() -> None:
    """All that came meanwhile is one append."""
    async with office() as desk:
        desk.store.takes.clear()
        desk.record()
        desk.say("first")
        await until(lambda: desk.said.empty())
        desk.say(*map(str, range(100)), None)
        await until(lambda: desk.said.empty())
        desk.store.takes.set()
        assert len(await read(desk.logs)) == 101
        assert desk.store.appended[0] == 1 and max(desk.store.appended) >= 99 and len(desk.store.appended) <= 4


async def test_stalled_store_pauses_the_run() -> None:
    """The answer does not grow without end in memory."""
    async with office() as desk:
        run = desk.record()
        desk.say("")
        await until(lambda: desk.store.appended)
        desk.store.takes.clear()
        piece = "x" * (BEHIND_CHARS // 4)
        desk.say(*[piece] * 40, None)
        await until(lambda: len(run.transcript.chunks) >= 5)
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(run.transcript.chunks) < 20
        desk.store.takes.set()
        assert len(await read(desk.logs)) == 41


async def test_failed_append_is_retried_without_loss_or_duplicates(monkeypatch: pytest.MonkeyPatch) -> None:
    """No chunk is lost, none is there twice."""
    monkeypatch.setattr(answer_log, "STORE_PAUSE_S", 0.0)
    async with office() as desk:
        desk.store.fails = 3
        desk.record()
        desk.say("one ", "two", None)
        assert await read(desk.logs) == ["one ", "two"]
        await recorded(desk.logs)


async def test_another_worker_reads_the_recorded_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody tells it: it looks again after a while."""
    monkeypatch.setattr(answer_log, "LOOK_S", 0.01)
    async with office() as desk:
        desk.record()
        there = asyncio.create_task(read(desk.worker()))
        desk.say("one ", "two", None)
        assert await there == await read(desk.logs) == ["one ", "two"]


async def test_silent_log_yields_empty_batches_to_its_reader() -> None:
    """`()` when nothing came for a while, so that it can keep its client's connection alive."""
    async with office() as desk:
        reading = desk.logs.read("resp_1", tenant="acme")
        assert [list(await anext(reading)) for _ in range(2)] == [[], []]
        await reading.aclose()  # type: ignore[attr-defined]
        assert desk.logs._news == {}


async def test_worker_that_lost_a_run_appends_nothing_to_its_answer() -> None:
    """Its chunks are those of a call that another one repeats."""
    async with office() as desk:
        run = desk.record()
        desk.say("one ")
        await until(lambda: desk.store.appended)
        assert await claimed(desk.store, "other") == [("run_1", 1)]
        desk.say("lost", None)
        await recorded(desk.logs)
        assert await desk.log() == [b'"one "'] and desk.over == 0 and run.done

        other = desk.worker()
        desk.record(fence=1, start=1, logs=other)
        desk.say("two", None)
        assert await read(other) == ["one ", "two"]
        await recorded(other)


async def test_reclaimed_run_is_recorded_after_its_first_part() -> None:
    """Once what it told before is recorded; behind an end nothing comes."""
    async with office() as desk:
        first = desk.record()
        desk.say("one ")
        await until(lambda: desk.store.appended)
        assert await claimed(desk.store, "again") == [("run_1", 1)]
        desk.runs = LiveRuns(clock=Clock(ManualClock()))
        desk.said, before = asyncio.Queue(), desk.said
        desk.record(fence=1, start=0)
        desk.say("two", None)
        before.put_nowait("lost")
        assert await read(desk.logs) == ["one ", "two"]
        first.cancel("lost")
        await recorded(desk.logs)
        desk.record(fence=1)
        desk.record(fence=1)
        desk.say("three", None)
        await recorded(desk.logs)
        assert await read(desk.logs) == ["one ", "two"]


async def test_question_and_turn_end_are_appended_together() -> None:
    """Who decides at once moves the fence on: then both are there, or none."""
    async with office() as desk:
        desk.record()
        desk.say("one ")
        await until(lambda: desk.store.appended)
        desk.say({PARKED: "run_1"}, "May I?", FACT)
        await until(lambda: desk.said.empty())
        for _ in range(100):
            await asyncio.sleep(0)
        assert desk.store.appended == [1]
        desk.say(None)
        assert await read(desk.logs) == ["one ", "May I?", FACT] and desk.store.appended == [1, 3]


async def test_append_by_an_outdated_worker_is_refused() -> None:
    """The one whose count is behind stops."""
    async with office() as desk:
        desk.record()
        desk.say("one ")
        await until(lambda: desk.store.appended)
        late = desk.worker()
        with pytest.raises(answer_log.ConflictError):
            await late.append(RecordedAnswer(response_id="resp_1", tenant="acme", fence=0), ["late"])
        desk.say(None)
        assert await read(desk.logs) == ["one "]


async def test_nothing_is_appended_to_a_deleted_response() -> None:
    """Nor does it come back."""
    async with office() as desk:
        desk.record()
        desk.say("one ")
        await until(lambda: desk.store.appended)
        await desk.store.delete_response("resp_1", tenant="acme")
        desk.say("two", None)
        await recorded(desk.logs)
        assert await desk.log() == [] and desk.over == 0


async def test_failure_is_recorded_as_the_end_of_the_log() -> None:
    """With its code, its text and its place."""
    async with office() as desk:
        desk.record()
        await desk.ends("failed")
        desk.say("one", GatewayError("upstream_limited", "Later.", param="model"))
        assert await read(desk.logs) == ["one"]
        error = _end(await _last(desk))
        assert error is not None
        assert (error.code, error.message, error.param) == ("upstream_limited", "Later.", "model")


async def test_internal_fault_is_reported_without_its_details(caplog: pytest.LogCaptureFixture) -> None:
    """The log has it, the reader does not."""
    async with office() as desk:
        desk.record()
        await desk.ends("failed")
        desk.say(RuntimeError("a secret of the plugin"))
        await read(desk.logs)
        error = _end(await _last(desk))
        assert error is not None and error.code == "internal_error" and "secret" not in error.message
        assert "a secret of the plugin" in caplog.text


@pytest.mark.parametrize("state", ["running", "unknown", "awaiting_approval"])
async def test_process_stop_leaves_the_answer_log_open(state: str) -> None:
    """Its run goes on in the next one, and so does the log; or it waits for a person."""
    async with office() as desk:
        run = desk.record()
        desk.say("one ")
        await until(lambda: desk.store.appended)
        await desk.ends(state)
        run.cancel(STOPPING)
        await recorded(desk.logs)
        assert await desk.log() == [b'"one "'] and desk.over == 0


async def test_cancelled_run_ends_its_answer_log() -> None:
    """Whoever did it."""
    async with office() as desk:
        run = desk.record()
        desk.say("one ")
        await until(lambda: desk.store.appended)
        await desk.ends("cancelled")
        run.cancel("lost")
        assert await read(desk.logs) == ["one "]
        assert _end(await _last(desk)) is not None


async def test_failure_after_the_end_of_the_log_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The answer is whole; it is stored when somebody asks for it."""
    async with office() as desk:

        async def fails() -> None:
            raise StoreError("database or disk is full")

        desk._over = fails  # type: ignore[method-assign]
        desk.record()
        desk.say("one", None)
        assert await read(desk.logs) == ["one"]
        await recorded(desk.logs)
        assert "resp_1 is not recorded to its end" in caplog.text


async def test_close_writes_pending_chunks_and_is_idempotent() -> None:
    """Up to a pause; it is idempotent."""
    async with office() as desk:
        desk.record()
        desk.say("one", None)
        await until(lambda: desk.said.empty())
        await desk.logs.close()
        await desk.logs.close()
        assert not desk.logs.is_recording("resp_1")
        assert [parse_end_entry(answer_log.orjson.loads(entry)) is None for entry in await desk.log()] == [True, False]


async def test_long_log_is_read_in_batches() -> None:
    """Each of so many entries."""
    async with office() as desk:
        answer = RecordedAnswer(response_id="resp_1", tenant="acme", fence=0)
        await desk.logs.append(answer, [*map(str, range(1200)), build_end_entry(5.0, None)])
        sizes = [len(chunks) async for chunks in desk.logs.read("resp_1", tenant="acme")]
        assert sizes == [500, 500, 201]


async def test_log_of_another_tenant_reads_as_empty() -> None:
    """As if there were no log."""
    async with office() as desk:
        answer = RecordedAnswer(response_id="resp_1", tenant="acme", fence=0)
        await desk.logs.append(answer, ["one", build_end_entry(5.0, None)])
        reading = desk.logs.read("resp_1", tenant="other")
        assert await anext(reading) == []
        await reading.aclose()  # type: ignore[attr-defined]


def test_end_entry_is_distinguished_from_a_chunk() -> None:
    """With its time and its error; a code that is not known any more is a fault of the gateway."""
    assert parse_end_entry(build_end_entry(5.0, None)) == (5.0, None)
    for chunk in ("text", {}, {"choices": []}, {"context": None}, {"context": {"type": "tool.started"}}):
        assert parse_end_entry(chunk) is None
    for code in CODES:
        found = parse_end_entry(build_end_entry(5.0, GatewayError(code, "why", param="x")))
        assert found is not None and found[1] is not None and found[1].code == code
    entry = build_end_entry(5.0, GatewayError("upstream_error", "why"))
    entry["context"]["error"]["code"] = "of_a_later_version"
    found = parse_end_entry(entry)
    assert found is not None and found[1] is not None and found[1].code == "internal_error"


async def _last(desk: Office) -> Chunk:
    chunk: Chunk = answer_log.orjson.loads((await desk.log())[-1])
    return chunk


def _end(chunk: Chunk) -> GatewayError | None:
    found = parse_end_entry(chunk)
    assert found is not None
    return found[1]
