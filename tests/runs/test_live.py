"""A repeated request joins its run: no tool runs twice, and nobody joins what is not theirs."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest

from gateway.contracts.caller import Caller
from gateway.contracts.exchange import Emit, Exchange, Reply
from gateway.contracts.store import Json
from gateway.errors import GatewayError
from gateway.runs.asking import RequestKey
from gateway.runs.live import (
    CALLS,
    EFFECTS,
    GRACE_S,
    JOINABLE_S,
    KEPT,
    KEPT_BYTES,
    PARKED,
    RECORDED,
    STOPPING,
    WAITS,
    LiveRun,
    LiveRuns,
)
from gateway.runs.transcript import BEHIND_CHARS
from gateway.testing.clock import ManualClock
from tests.agent.doubles import Clock

TEXT: Json = {"choices": [{"index": 0, "delta": {"content": "hi"}}]}


class Work:
    """A handler whose reply goes on step by step, and what became of it."""

    def __init__(self, *, effects: bool = True, error: Exception | None = None) -> None:
        self.effects, self.error = effects, error
        self.go = asyncio.Event()
        self.calls = self.released = 0

    async def __call__(self, exchange: Exchange) -> Reply:
        self.calls += 1
        return Reply(self._stream, self._release)

    async def _stream(self, emit: Emit) -> None:
        chunks = self._chunks()
        async for chunk in chunks:
            try:
                if (pause := emit(chunk)) is not None:
                    await pause()
            except BaseException as error:  # whoever told it hears of it
                await chunks.athrow(error)
                raise

    async def _chunks(self) -> AsyncGenerator[Json, None]:
        if self.effects:
            yield {EFFECTS: True}
        yield TEXT
        await self.go.wait()
        if self.error is not None:
            raise self.error
        yield TEXT

    async def _release(self) -> None:
        self.released += 1


def exchange(run_id: str = "run_1") -> Exchange:
    return Exchange(id=run_id, body={"messages": []}, caller=Caller("c", "t", frozenset()), chain="main")


def request_key(print_: str = "same", *, key: str | None = None, repeats: bool = False) -> RequestKey:
    return RequestKey(print_, None if key is None else ("t", "c", key), repeats)


@dataclass
class Alarms:
    """What is to be called after a while: a test says when that is over."""

    due: list[tuple[float, Callable[[], None]]] = field(default_factory=list)

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        self.due.append((seconds, call))

    def ring(self) -> None:
        due, self.due = self.due, []
        for seconds, call in due:
            assert seconds == GRACE_S
            call()


def begun(
    work: Work, clock: ManualClock | None = None, alarms: Alarms | None = None, **asked: object
) -> tuple[LiveRuns, LiveRun]:
    runs = LiveRuns(clock=Clock(clock or ManualClock()), later=(alarms or Alarms()).later)
    run = runs.begin(exchange(), request_key(**asked), work)  # type: ignore[arg-type]
    runs.join(run)
    return runs, run


class Reading:
    """A client that takes everything; `slow`: until it is told that it may go on, not a chunk more than the first."""

    def __init__(self, *, slow: bool = False) -> None:
        self.got: list[Json] = []
        self.slow = slow
        self.go = asyncio.Event()

    def take(self, chunks: Sequence[Json]) -> bool:
        self.got += chunks
        return not self.slow

    async def caught_up(self) -> None:
        await self.go.wait()


async def whole(run: LiveRun) -> list[Json]:
    reading = Reading()
    await run.transcript.read(reading)
    return reading.got


async def until(seen: Callable[[], object]) -> None:
    async with asyncio.timeout(120):
        while not seen():
            await asyncio.sleep(0)


async def test_whoever_joins_gets_the_answer_from_its_first_byte() -> None:
    """The handler runs once; the mark of an effect is no part of the answer."""
    work = Work()
    runs, run = begun(work, key="k")
    await run.begun()
    assert runs.find(request_key(key="k")) is run
    runs.join(run)
    work.go.set()
    assert list(await asyncio.gather(whole(run), whole(run))) == [[TEXT, TEXT]] * 2
    await run.ended()
    assert (work.calls, work.released) == (1, 1)
    runs.leave(run, whole=True)
    runs.leave(run, whole=True)
    assert runs.find(request_key(key="k")) is run and runs.find(request_key(repeats=True)) is run
    await runs.close()


async def test_a_run_without_effects_ends_with_its_client() -> None:
    """At once; the same request begins anew."""
    work = Work(effects=False)
    runs, run = begun(work)
    await run.begun()
    runs.leave(run, whole=False)
    await asyncio.wait_for(run.ended(), 120)
    assert work.released == 1
    assert runs.find(request_key(repeats=True)) is None


async def test_a_run_with_effects_waits_for_its_client() -> None:
    """And can be joined meanwhile, by the same request alone, with or without a word about repeating."""
    work, alarms = Work(), Alarms()
    runs, run = begun(work, alarms=alarms)
    await until(lambda: run.transcript.chunks)
    assert runs.find(request_key(repeats=True)) is None, "its client is connected"
    runs.leave(run, whole=False)
    assert runs.find(request_key("other", repeats=True)) is None
    assert runs.find(request_key()) is run
    runs.join(run)
    alarms.ring()
    work.go.set()
    assert await whole(run) == [TEXT, TEXT]
    await runs.close()


async def test_a_run_that_nobody_comes_back_for_is_stopped() -> None:
    """Who asks again later is told, and told not to try again."""
    work, alarms = Work(), Alarms()
    runs, run = begun(work, alarms=alarms)
    await until(lambda: run.transcript.chunks)
    runs.leave(run, whole=False)
    alarms.ring()
    await run.ended()
    assert run.interrupted and work.released == 1
    joined = runs.find(request_key(repeats=True))
    assert joined is run
    with pytest.raises(GatewayError) as told:
        await whole(run)
    assert (told.value.code, told.value.facts.status, told.value.settled) == ("run_interrupted", 422, True)


# A model that would talk to nobody.


class Talk(Work):
    """A tool, then a model call of two pieces with a gate between them, as the agent loop marks them."""

    def __init__(self, *, ends: bool = False) -> None:
        super().__init__()
        self.ends = ends  # a dropped call ends as if nothing had been
        self.said = 0
        self.drops = 0
        self._ended = asyncio.Event()

    async def _chunks(self) -> AsyncGenerator[Json, None]:
        yield {EFFECTS: True}
        yield text("tool ")
        while True:
            drops = self.drops
            self._ended.clear()
            yield {CALLS: self._drop}
            self.said += 1
            yield text(f"call{self.said} ")
            waits = [asyncio.create_task(event.wait()) for event in (self.go, self._ended)]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
            if self.ends or drops == self.drops:
                yield text("end")
            if drops == self.drops:
                break
        yield {CALLS: None}

    def _drop(self) -> None:
        self.drops += 1
        self._ended.set()


def text(content: str) -> Json:
    return {"choices": [{"index": 0, "delta": {"content": content}}]}


@pytest.mark.parametrize("ends", [False, True])
async def test_a_model_call_is_dropped_with_its_client_and_made_again_for_the_next(*, ends: bool) -> None:
    """At once; what the dropped call said is in nobody's answer, what came before it in everybody's."""
    work, alarms = Talk(ends=ends), Alarms()
    runs, run = begun(work, alarms=alarms)
    await until(lambda: len(run.transcript.chunks) == 2)
    runs.leave(run, whole=False)
    assert work.drops == 1 and list(run.transcript.chunks) == [text("tool ")]
    for _ in range(10):
        await asyncio.sleep(0)
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


async def test_a_dropped_call_that_nobody_comes_back_for_ends_the_run() -> None:
    """The model is not asked again."""
    work, alarms = Talk(), Alarms()
    runs, run = begun(work, alarms=alarms)
    await until(lambda: len(run.transcript.chunks) == 2)
    runs.leave(run, whole=False)
    alarms.ring()
    await run.ended()
    assert run.interrupted and work.said == 1 and work.released == 1


async def test_no_model_is_called_while_nobody_is_there() -> None:
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
    runs.leave(run, whole=False)
    work.go.set()
    for _ in range(10):
        await asyncio.sleep(0)
    assert work.said == 0 and work.drops == 0
    runs.join(run)
    assert await whole(run) == [text("tool "), text("said")]
    await runs.close()


async def test_a_stop_that_is_taken_for_a_drop_still_stops() -> None:
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


async def test_a_client_that_does_not_read_stops_the_model() -> None:
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
    for _ in range(50):
        await asyncio.sleep(0)
    assert work.calls < 30
    slow.go.set()
    await reading
    assert len(slow.got) == 100
    await runs.close()


async def test_a_run_that_waits_for_its_client_ends_with_it() -> None:
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
    runs.leave(run, whole=False)
    await run.ended()
    assert len(heard) == work.released == 1 and run.interrupted


async def test_a_failure_before_any_effect_begins_anew() -> None:
    """After one it is told again, to whoever repeats the request."""
    for effects in (False, True):
        work = Work(effects=effects, error=GatewayError("upstream_error", "No."))
        runs, run = begun(work, key="k")
        work.go.set()
        with pytest.raises(GatewayError):
            await whole(run)
        await run.ended()
        runs.leave(run, whole=True)
        assert (runs.find(request_key(key="k")) is run) is effects


async def test_a_failure_after_an_effect_is_told_again() -> None:
    """To the same request, whether or not it says that it repeats one: some clients repeat a 422 and do not say so."""
    work = Work(error=GatewayError("upstream_error", "No.").after_effects())
    runs, run = begun(work)
    work.go.set()
    with pytest.raises(GatewayError) as first:
        await whole(run)
    runs.leave(run, whole=True)
    assert runs.find(request_key("other")) is None
    again = runs.find(request_key())
    assert again is run
    runs.join(again)
    with pytest.raises(GatewayError) as second:
        await whole(again)
    assert repr(second.value) == repr(first.value) and second.value.settled and work.calls == 1
    runs.leave(again, whole=True)
    assert runs.find(request_key()) is run, "for as long as it is kept"


async def test_a_question_whose_client_left_is_found_on_record() -> None:
    """Whoever asks the same repeats that run, and need not say so, whenever it is; this run is not joined."""

    class Asks(Work):
        async def _chunks(self) -> AsyncGenerator[Json, None]:
            yield {WAITS: True}
            await self.go.wait()

    time = ManualClock()
    for waited_s in (0.0, JOINABLE_S + 1):
        runs, run = begun(Asks(), time)
        await until(lambda run=run: run.waits)
        runs.leave(run, whole=False)
        await run.ended()
        time.advance(waited_s)
        assert runs.waiting.find(request_key("other").fingerprint) is None
        assert runs.waiting.find(request_key().fingerprint) == run.exchange.id
        assert runs.find(request_key(repeats=True)) is None


async def test_a_turn_that_ends_with_a_question_is_found_on_record() -> None:
    """By its own run, or by the other one that waits for the same call; one that waits for something else is not."""
    for named in ("run_1", "run_9", None):

        class Parks(Work):
            mark = named

            async def _chunks(self) -> AsyncGenerator[Json, None]:
                yield {PARKED: self.mark}
                yield {"choices": []}

        runs, run = begun(Parks())
        await whole(run)
        runs.leave(run, whole=True)
        assert (runs.waiting.find(request_key().fingerprint), runs.find(request_key())) == (named, None)


async def test_a_run_that_failed_without_its_client_is_found_on_record() -> None:
    """It may wait there for what the client alone has; the answer before it is out of date."""
    work = Work()
    runs, before = begun(work)
    work.go.set()
    await whole(before)
    runs.leave(before, whole=True)
    refused = Work(error=GatewayError("upstream_refused", "No.").after_effects())
    refused.go.set()
    failed = runs.begin(exchange("run_2"), request_key(), refused, detached=True, request_id="run_3")
    await failed.ended()
    assert runs.as_repeat(request_key()).repeats and runs.find(request_key(repeats=True)) is None
    done = runs.begin(exchange("run_2"), request_key(), work, detached=True, request_id="run_4")
    await done.ended()
    assert not runs.as_repeat(request_key()).repeats and runs.find(request_key(repeats=True)) is done


async def test_a_success_begins_anew() -> None:
    """Asking the same thing twice is nobody's mistake."""
    work = Work()
    runs, run = begun(work)
    work.go.set()
    await whole(run)
    runs.leave(run, whole=True)
    assert runs.find(request_key()) is None and runs.find(request_key(repeats=True)) is run


async def test_a_stop_is_told_to_a_run_that_stands_still() -> None:
    """With its reason: a run that was waiting for a client to read, or to come back, can tell why it ends."""
    heard: list[tuple[object, ...]] = []

    class Hears(Talk):
        async def _chunks(self) -> AsyncGenerator[Json, None]:
            try:
                async for chunk in super()._chunks():
                    yield chunk
            except asyncio.CancelledError as error:
                heard.append(error.args)
                raise

    work = Hears()
    runs, run = begun(work)
    await until(lambda: len(run.transcript.chunks) == 2)
    runs.leave(run, whole=False)
    await until(lambda: work.drops)
    for _ in range(10):
        await asyncio.sleep(0)
    await runs.close()
    assert heard == [(STOPPING,)] and work.said == 1


async def test_a_detached_run_needs_no_client() -> None:
    """Its model is called whether or not anybody is there, and goes on when its client leaves."""
    work, alarms = Talk(), Alarms()
    runs = LiveRuns(clock=Clock(ManualClock()), later=alarms.later)
    run = runs.begin(exchange(), request_key(), work, detached=True)
    await until(lambda: work.said)
    runs.join(run)
    runs.leave(run, whole=False)
    assert not alarms.due and not work.drops
    work.go.set()
    assert await whole(run) == [text("tool "), text("call1 "), text("end")]
    await runs.close()


async def test_a_run_that_still_goes_on_is_not_forgotten() -> None:
    """Nor does it keep others from that."""
    clock = ManualClock()
    runs = LiveRuns(clock=Clock(clock))
    slow, quick = Work(), Work()
    going = runs.begin(exchange("run_1"), request_key("1"), slow, detached=True)
    over = runs.begin(exchange("run_2"), request_key("2"), quick, detached=True)
    quick.go.set()
    await over.ended()
    clock.advance(JOINABLE_S + 1)
    assert runs.find(request_key("2", repeats=True)) is None
    assert runs.find(request_key("1", repeats=True)) is going
    await runs.close()
    assert going.interrupted


async def test_a_large_run_that_still_goes_on_takes_nobodys_place() -> None:
    """It cannot be forgotten: whoever repeats the request of one that has ended must not run its tools again for it."""
    runs = LiveRuns(clock=Clock(ManualClock()))
    large, small = Work(), Work()
    small.go.set()
    going = runs.begin(exchange("run_1"), replace(request_key("1"), size_bytes=2 * KEPT_BYTES), large, detached=True)
    over = runs.begin(exchange("run_2"), request_key("2"), small)
    runs.join(over)
    await over.ended()
    runs.leave(over, whole=False)
    assert runs.find(request_key("1", repeats=True)) is going
    assert runs.find(request_key("2", repeats=True)) is over
    large.go.set()
    await going.ended()
    assert runs.find(request_key("1", repeats=True)) is None, "it counts from its end on"
    assert runs.find(request_key("2", repeats=True)) is over
    await runs.close()


async def test_a_key_belongs_to_one_request() -> None:
    """Another body with it is refused; without a key nothing is refused."""
    runs, run = begun(Work(), key="k")
    with pytest.raises(GatewayError) as refused:
        runs.find(request_key("other", key="k"))
    assert refused.value.code == "idempotency_mismatch"
    assert runs.find(request_key("other")) is None
    await runs.close()
    assert run.done


async def test_finished_runs_are_forgotten_after_a_while() -> None:
    """A minute after their last client."""
    clock = ManualClock()
    work = Work()
    runs, run = begun(work, clock)
    work.go.set()
    await whole(run)
    await run.ended()
    runs.leave(run, whole=True)
    clock.advance(JOINABLE_S - 1)
    assert runs.find(request_key(repeats=True)) is run
    clock.advance(2)
    assert runs.find(request_key(repeats=True)) is None


async def test_only_so_many_runs_are_kept() -> None:
    """The oldest go first; whoever is still read stays."""
    runs = LiveRuns(clock=Clock(ManualClock()))
    made = []
    for n in range(KEPT + 3):
        work = Work()
        work.go.set()
        run = runs.begin(exchange(f"run_{n}"), request_key(str(n)), work)
        runs.join(run)
        made.append(run)
    await asyncio.gather(*(run.ended() for run in made))
    for run in made[1:]:
        runs.leave(run, whole=True)
    assert [runs.find(request_key(str(n), repeats=True)) for n in range(5)] == [None, None, None, made[3], made[4]]
    runs.leave(made[0], whole=True)
    assert runs.find(request_key("0", repeats=True)) is made[0]
    await runs.close()


async def test_so_many_bytes_are_kept() -> None:
    """Of requests and answers together; the oldest go first, and the last one stays however large it is."""
    runs = LiveRuns(clock=Clock(ManualClock()))
    sizes = [KEPT_BYTES // 2, KEPT_BYTES // 4, KEPT_BYTES // 4, KEPT_BYTES // 2, 2 * KEPT_BYTES]
    found: list[list[bool]] = []
    for n, size in enumerate(sizes):
        work = Work()
        work.go.set()
        run = runs.begin(exchange(f"run_{n}"), replace(request_key(str(n)), size_bytes=size), work)
        runs.join(run)
        await run.ended()
        runs.leave(run, whole=True)
        found.append([runs.find(request_key(str(m), repeats=True)) is not None for m in range(n + 1)])
    assert found == [
        [True],
        [True, True],
        [False, True, True],  # what they said counts, too
        [False, False, True, True],
        [False, False, False, False, True],
    ]
    await runs.close()


# Runs that are on record before they do anything.


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
async def test_whoever_waits_for_the_record_hears_when_it_is_there(mark: str) -> None:
    """Not before, and not only at the end of the run; the mark is no part of the answer."""
    work = Recorded(mark=mark)
    runs, run = begun(work)
    waiting = asyncio.create_task(run.on_record())
    await run.begun()
    await asyncio.sleep(0)
    assert not waiting.done()
    work.writes.set()
    await waiting
    assert not run.done and run.effects == (mark == EFFECTS)
    work.go.set()
    assert await whole(run) == [TEXT, TEXT]
    await run.on_record()
    await runs.close()


async def test_a_run_that_ends_before_it_is_on_record_tells_what_with() -> None:
    """Whoever waits for the record gets the error; one that failed afterwards is looked up there."""
    for fails, error in ((GatewayError("store_full", "No."), None), (None, GatewayError("upstream_error", "No."))):
        work = Recorded(fails=fails, error=error)
        runs, run = begun(work)
        work.writes.set()
        work.go.set()
        if fails is None:
            await run.on_record()
            await run.ended()
            await run.on_record()
        else:
            with pytest.raises(GatewayError, match="No"):
                await run.on_record()
        await runs.close()


async def test_a_run_that_is_only_on_record_ends_with_its_client() -> None:
    """It has done nothing yet, so the same request begins anew: at once, and after a failure."""
    work = Recorded()
    runs, run = begun(work)
    work.writes.set()
    await run.on_record()
    runs.leave(run, whole=False)
    await asyncio.wait_for(run.ended(), 120)
    assert runs.find(request_key(repeats=True)) is None
    failing = Recorded(error=GatewayError("upstream_error", "No."))
    runs, run = begun(failing)
    failing.writes.set()
    failing.go.set()
    await run.ended()
    runs.leave(run, whole=True)
    assert runs.find(request_key(repeats=True)) is None


async def test_an_answer_that_is_known_already_is_on_record() -> None:
    """Nobody waits for a run that is over."""
    run = LiveRun(exchange(), request_key(), now_s=0.0)
    run.replay([TEXT])
    await run.on_record()
    assert run.recorded


async def test_a_run_that_somebody_else_took_says_so() -> None:
    """Not its client has left, and no process stops: it was cancelled, or another worker has it."""
    work = Work()
    runs, run = begun(work)
    await until(lambda: run.transcript.chunks)
    assert run._task is not None
    run._task.cancel()
    await run.ended()
    with pytest.raises(GatewayError, match="was cancelled or is driven by another process") as told:
        await whole(run)
    assert (told.value.code, told.value.facts.status) == ("run_cancelled", 422)
    await runs.close()


async def test_the_window_of_a_failure_counts_from_the_failure() -> None:
    """Each repeat is told the same error, and none of them makes it last longer."""
    clock = ManualClock()
    work = Work(error=GatewayError("upstream_error", "No.").after_effects())
    runs, run = begun(work, clock)
    work.go.set()
    with pytest.raises(GatewayError):
        await whole(run)
    runs.leave(run, whole=True)
    for _ in range(2):
        clock.advance(JOINABLE_S * 0.45)
        again = runs.find(request_key())
        assert again is run
        runs.join(again)
        runs.leave(again, whole=True)
    clock.advance(JOINABLE_S * 0.2)
    assert runs.find(request_key()) is None
