"""A repeated request joins its run: no tool runs twice, and nobody joins what is not theirs."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace

import pytest
from functional.through import breathe
from gateways import until

from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import Exchange, Reply
from gateway.contracts.storage.store import Json
from gateway.runs import live_run
from gateway.runs.live import KEPT, KEPT_BYTES, LiveRuns
from gateway.runs.live_run import PARKED, STOPPING, WAITS, rebuild_cancellation
from gateway.runs.undelivered_answers import JOINABLE_S
from gateway.testing.clock import ManualClock
from tests.agent.doubles import Clock
from tests.scripted_replies import reply_of

from .living import TEXT, Alarms, Talk, Work, begun, exchange, request_key, text, whole


async def test_joining_client_receives_the_answer_from_the_first_byte() -> None:
    """The handler runs once; the mark of an effect is no part of the answer."""
    work = Work()
    runs, run = begun(work, key="k")
    await run.wait_for_reply()
    assert runs.find(request_key(key="k")) is run
    runs.join(run)
    work.go.set()
    assert list(await asyncio.gather(whole(run), whole(run))) == [[TEXT, TEXT]] * 2
    await run.wait_until_ended()
    assert (work.calls, work.released) == (1, 1)
    runs.remove_client(run, whole=True)
    runs.remove_client(run, whole=True)
    assert runs.find(request_key(key="k")) is run and runs.find(request_key(repeats=True)) is run
    await runs.close()


async def test_a_run_without_effects_ends_with_its_client() -> None:
    """At once; the same request begins anew."""
    work = Work(effects=False)
    runs, run = begun(work)
    await run.wait_for_reply()
    runs.remove_client(run, whole=False)
    await asyncio.wait_for(run.wait_until_ended(), 120)
    assert work.released == 1
    assert runs.find(request_key(repeats=True)) is None


async def test_run_with_effects_can_be_rejoined_by_the_same_request() -> None:
    """And can be joined meanwhile, by the same request alone, with or without a word about repeating."""
    work, alarms = Work(), Alarms()
    runs, run = begun(work, alarms=alarms)
    await until(lambda: run.transcript.chunks)
    assert runs.find(request_key(repeats=True)) is None, "its client is connected"
    runs.remove_client(run, whole=False)
    assert runs.find(request_key("other", repeats=True)) is None
    assert runs.find(request_key()) is run
    runs.join(run)
    alarms.ring()
    work.go.set()
    assert await whole(run) == [TEXT, TEXT]
    await runs.close()


async def test_abandoned_run_is_stopped_and_reported_as_interrupted() -> None:
    """Who asks again later is told, and told not to try again."""
    work, alarms = Work(), Alarms()
    runs, run = begun(work, alarms=alarms)
    await until(lambda: run.transcript.chunks)
    runs.remove_client(run, whole=False)
    alarms.ring()
    await run.wait_until_ended()
    assert run.interrupted and work.released == 1
    joined = runs.find(request_key(repeats=True))
    assert joined is run
    with pytest.raises(GatewayError) as told:
        await whole(run)
    assert (told.value.code, told.value.facts.status, told.value.settled) == ("run_interrupted", 422, True)


async def test_failed_run_without_effects_is_not_rejoined() -> None:
    """After one it is told again, to whoever repeats the request."""
    for effects in (False, True):
        work = Work(effects=effects, error=GatewayError("upstream_error", "No."))
        runs, run = begun(work, key="k")
        work.go.set()
        with pytest.raises(GatewayError):
            await whole(run)
        await run.wait_until_ended()
        runs.remove_client(run, whole=True)
        assert (runs.find(request_key(key="k")) is run) is effects


async def test_failure_after_an_effect_is_repeated_to_the_same_request() -> None:
    """To the same request, whether or not it says that it repeats one: some clients repeat a 422 and do not say so."""
    work = Work(error=GatewayError("upstream_error", "No.").mark_after_effects())
    runs, run = begun(work)
    work.go.set()
    with pytest.raises(GatewayError) as first:
        await whole(run)
    runs.remove_client(run, whole=True)
    assert runs.find(request_key("other")) is None
    again = runs.find(request_key())
    assert again is run
    runs.join(again)
    with pytest.raises(GatewayError) as second:
        await whole(again)
    assert repr(second.value) == repr(first.value) and second.value.settled and work.calls == 1
    runs.remove_client(again, whole=True)
    assert runs.find(request_key()) is run, "for as long as it is kept"


async def test_waiting_run_is_found_by_fingerprint_after_disconnect() -> None:
    """Whoever asks the same repeats that run, and need not say so, whenever it is; this run is not joined."""

    class Asks(Work):
        async def _chunks(self) -> AsyncGenerator[Json, None]:
            yield {WAITS: True}
            await self.go.wait()

    time = ManualClock()
    for waited_s in (0.0, JOINABLE_S + 1):
        runs, run = begun(Asks(), time)
        await until(lambda run=run: run.marks.waits)
        runs.remove_client(run, whole=False)
        await run.wait_until_ended()
        time.advance(waited_s)
        assert runs.waiting.find(request_key("other").fingerprint) is None
        assert runs.waiting.find(request_key().fingerprint) == run.exchange.id
        assert runs.find(request_key(repeats=True)) is None


async def test_parked_run_is_found_by_its_request() -> None:
    """By its own run, or by the other one that waits for the same call; one that waits for something else is not."""
    for named in ("run_1", "run_9", None):

        class Parks(Work):
            mark = named

            async def _chunks(self) -> AsyncGenerator[Json, None]:
                yield {PARKED: self.mark}
                yield {"choices": []}

        runs, run = begun(Parks())
        await whole(run)
        runs.remove_client(run, whole=True)
        assert (runs.waiting.find(request_key().fingerprint), runs.find(request_key())) == (named, None)


async def test_failed_run_without_client_is_found_in_the_store() -> None:
    """It may wait there for what the client alone has; the answer before it is out of date."""
    work = Work()
    runs, before = begun(work)
    work.go.set()
    await whole(before)
    runs.remove_client(before, whole=True)
    refused = Work(error=GatewayError("upstream_refused", "No.").mark_after_effects())
    refused.go.set()
    failed = runs.begin(exchange("run_2"), request_key(), refused, detached=True, request_id="run_3")
    await failed.wait_until_ended()
    assert runs.mark_as_repeat(request_key()).repeats and runs.find(request_key(repeats=True)) is None
    done = runs.begin(exchange("run_2"), request_key(), work, detached=True, request_id="run_4")
    await done.wait_until_ended()
    assert not runs.mark_as_repeat(request_key()).repeats and runs.find(request_key(repeats=True)) is done


async def test_successful_run_is_rejoined_only_by_a_marked_repeat() -> None:
    """Asking the same thing twice is nobody's mistake."""
    work = Work()
    runs, run = begun(work)
    work.go.set()
    await whole(run)
    runs.remove_client(run, whole=True)
    assert runs.find(request_key()) is None and runs.find(request_key(repeats=True)) is run


async def test_close_cancels_an_idle_run_with_the_stop_reason() -> None:
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
    runs.remove_client(run, whole=False)
    await until(lambda: work.drops)
    await breathe(10)
    await runs.close()
    assert heard == [(STOPPING,)] and work.said == 1


async def test_detached_run_continues_without_a_client() -> None:
    """Its model is called whether or not anybody is there, and goes on when its client leaves."""
    work, alarms = Talk(), Alarms()
    runs = LiveRuns(clock=Clock(ManualClock()), later=alarms.later)
    run = runs.begin(exchange(), request_key(), work, detached=True)
    await until(lambda: work.said)
    runs.join(run)
    runs.remove_client(run, whole=False)
    assert not alarms.due and not work.drops
    work.go.set()
    assert await whole(run) == [text("tool "), text("call1 "), text("end")]
    await runs.close()


async def test_running_run_is_not_evicted() -> None:
    """Nor does it keep others from that."""
    clock = ManualClock()
    runs = LiveRuns(clock=Clock(clock))
    slow, quick = Work(), Work()
    going = runs.begin(exchange("run_1"), request_key("1"), slow, detached=True)
    over = runs.begin(exchange("run_2"), request_key("2"), quick, detached=True)
    quick.go.set()
    await over.wait_until_ended()
    clock.advance(JOINABLE_S + 1)
    assert runs.find(request_key("2", repeats=True)) is None
    assert runs.find(request_key("1", repeats=True)) is going
    await runs.close()
    assert going.interrupted


async def test_running_large_run_does_not_evict_ended_runs() -> None:
    """It cannot be forgotten: whoever repeats the request of one that has ended must not run its tools again for it."""
    runs = LiveRuns(clock=Clock(ManualClock()))
    large, small = Work(), Work()
    small.go.set()
    going = runs.begin(exchange("run_1"), replace(request_key("1"), size_bytes=2 * KEPT_BYTES), large, detached=True)
    over = runs.begin(exchange("run_2"), request_key("2"), small)
    runs.join(over)
    await over.wait_until_ended()
    runs.remove_client(over, whole=False)
    assert runs.find(request_key("1", repeats=True)) is going
    assert runs.find(request_key("2", repeats=True)) is over
    large.go.set()
    await going.wait_until_ended()
    assert runs.find(request_key("1", repeats=True)) is None, "it counts from its end on"
    assert runs.find(request_key("2", repeats=True)) is over
    await runs.close()


async def test_idempotency_key_with_another_body_is_refused() -> None:
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
    await run.wait_until_ended()
    runs.remove_client(run, whole=True)
    clock.advance(JOINABLE_S - 1)
    assert runs.find(request_key(repeats=True)) is run
    clock.advance(2)
    assert runs.find(request_key(repeats=True)) is None


async def test_oldest_runs_are_evicted_first_beyond_the_limit() -> None:
    """The oldest go first; whoever is still read stays."""
    runs = LiveRuns(clock=Clock(ManualClock()))
    made = []
    for n in range(KEPT + 3):
        work = Work()
        work.go.set()
        run = runs.begin(exchange(f"run_{n}"), request_key(str(n)), work)
        runs.join(run)
        made.append(run)
    await asyncio.gather(*(run.wait_until_ended() for run in made))
    for run in made[1:]:
        runs.remove_client(run, whole=True)
    assert [runs.find(request_key(str(n), repeats=True)) for n in range(5)] == [None, None, None, made[3], made[4]]
    runs.remove_client(made[0], whole=True)
    assert runs.find(request_key("0", repeats=True)) is made[0]
    await runs.close()


async def test_memory_of_finished_runs_is_bounded() -> None:
    """Of requests and answers together; the oldest go first, and the last one stays however large it is."""
    runs = LiveRuns(clock=Clock(ManualClock()))
    sizes = [KEPT_BYTES // 2, KEPT_BYTES // 4, KEPT_BYTES // 4, KEPT_BYTES // 2, 2 * KEPT_BYTES]
    found: list[list[bool]] = []
    for n, size in enumerate(sizes):
        work = Work()
        work.go.set()
        run = runs.begin(exchange(f"run_{n}"), replace(request_key(str(n)), size_bytes=size), work)
        runs.join(run)
        await run.wait_until_ended()
        runs.remove_client(run, whole=True)
        found.append([runs.find(request_key(str(m), repeats=True)) is not None for m in range(n + 1)])
    assert found == [
        [True],
        [True, True],
        [False, True, True],  # what they said counts, too
        [False, False, True, True],
        [False, False, False, False, True],
    ]
    await runs.close()


async def test_run_that_ignores_cancellation_is_abandoned_and_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A plugin may take its cancellation for a failure to get over. Its client hears the end, and the log its place."""
    monkeypatch.setattr(live_run, "ENDS_S", 0.01)
    runs, there, may = LiveRuns(clock=Clock(ManualClock())), asyncio.Event(), asyncio.Event()
    reasons: list[tuple[object, ...]] = []

    async def stubborn(_exchange: Exchange) -> Reply:
        try:
            there.set()
            await may.wait()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None
            reasons.append(rebuild_cancellation(task).args)
            await may.wait()
        return reply_of("too late")

    run = runs.begin(exchange("run_1"), request_key("run_1"), stubborn)
    runs.join(run)
    await there.wait()
    assert await runs.end_answers() and run.done and isinstance(run.error, GatewayError)
    await runs.close()  # which does not wait for it once more
    assert (
        caplog.text.count("was cancelled and goes on, in test_run_that_ignores_cancellation_is_abandoned_and_logged")
        == 1
    )
    may.set()
    await run.wait_until_ended()
    assert run.transcript.chunks == [] and reasons == [(STOPPING,)]
