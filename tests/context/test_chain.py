"""A chain is an onion: first listed outermost; a stage that fails fails loudly, unless its chain says otherwise."""

import asyncio
from dataclasses import replace

import pytest

from gateway.context.chain import Link, fold
from gateway.contracts.caller import Caller
from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import Chunk, Emit, Exchange, Handler, Reply
from gateway.telemetry.counters import ContextCounters
from gateway.testing.clock import ManualClock
from tests.agent.doubles import Clock, samples
from tests.scripted_replies import reply_of, told

ASKED = Exchange(id="run_1", body={"messages": []}, caller=Caller("c", "t", frozenset()), chain="main")


async def core(exchange: Exchange) -> Reply:
    return reply_of(*exchange.notes)


class Noting:
    """A stage that adds its name to what goes down."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def __call__(self, exchange: Exchange, call_next: Handler) -> Reply:
        return await call_next(replace(exchange, notes=(*exchange.notes, self.name)))


class Failing:
    def __init__(self, error: BaseException, *, after: bool = False) -> None:
        self.error, self.after = error, after

    async def __call__(self, exchange: Exchange, call_next: Handler) -> Reply:
        if self.after:
            await call_next(exchange)
        raise self.error


async def notes_of(handler: Handler) -> list[Chunk]:
    return await told(await handler(ASKED))


async def test_stages_run_in_the_order_of_the_file() -> None:
    """Outermost first; the exchange that came is not changed."""
    links = [Link(name, Noting(name)) for name in "abc"]
    chain = fold("main", links, core, counters=ContextCounters(), clock=Clock(ManualClock()))
    assert await notes_of(chain.handler) == ["a", "b", "c"]
    assert ASKED.notes == ()
    assert [link.name for link in chain.links] == ["a", "b", "c"]


async def test_a_failed_stage_fails_the_request() -> None:
    """Whatever it raised comes out."""
    links = [Link("a", Noting("a")), Link("b", Failing(KeyError("x")))]
    chain = fold("main", links, core, counters=ContextCounters(), clock=Clock(ManualClock()))
    with pytest.raises(KeyError):
        await chain.handler(ASKED)


async def test_failed_stage_is_skipped_when_configured() -> None:
    """The request goes on without it, the skip is counted."""
    counters = ContextCounters()
    links = [Link("a", Noting("a")), Link("b", Failing(KeyError("x")), "skip"), Link("c", Noting("c"))]
    chain = fold("main", links, core, counters=counters, clock=Clock(ManualClock()))
    assert await notes_of(chain.handler) == ["a", "c"]
    assert samples(counters)["gateway_stage_skips_total", ("b",)] == 1


@pytest.mark.parametrize(
    "error",
    [SystemExit(3), KeyboardInterrupt(), BaseException("panicked"), BaseExceptionGroup("all", [KeyboardInterrupt()])],
)
async def test_skipped_stage_that_raised_an_exit_exception_is_logged(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says who ends the process."""
    links = [Link("b", Failing(error), "skip")]
    chain = fold("main", links, core, counters=ContextCounters(), clock=Clock(ManualClock()))
    assert await notes_of(chain.handler) == []
    assert "the stage 'b' raised" in caplog.text and "only the gateway ends its process" in caplog.text


@pytest.mark.parametrize(
    "failing",
    [Failing(GatewayError("invalid_json", "No.")), Failing(KeyError("x"), after=True)],
    ids=["refusal", "late"],
)
async def test_refusals_and_failures_after_the_model_call_are_never_skipped(failing: Failing) -> None:
    """A refusal is an answer; and the model is not called twice."""
    calls = 0

    async def counted(exchange: Exchange) -> Reply:
        nonlocal calls
        calls += 1
        return await core(exchange)

    chain = fold("main", [Link("x", failing, "skip")], counted, counters=ContextCounters(), clock=Clock(ManualClock()))
    with pytest.raises(type(failing.error)):
        await chain.handler(ASKED)
    assert calls == failing.after


@pytest.mark.parametrize("error", [GatewayError("content_blocked", "No."), KeyError("x"), asyncio.CancelledError()])
async def test_stage_failing_after_the_model_call_releases_the_reply(error: BaseException) -> None:
    """Else its connection would stay open, and its tokens would count nowhere."""
    released: list[bool] = []

    async def release() -> None:
        released.append(True)

    async def answered(_: Exchange) -> Reply:
        return reply_of("Hi", release=release)

    links = [Link("out", Noting("out")), Link("in", Failing(error, after=True))]
    chain = fold("main", links, answered, counters=ContextCounters(), clock=Clock(ManualClock()))
    with pytest.raises(type(error)):
        await chain.handler(ASKED)
    assert released == [True]


async def test_stage_duration_excludes_the_stages_below() -> None:
    """Without that of what is below it."""
    clock = ManualClock()

    class Slow:
        async def __call__(self, exchange: Exchange, call_next: Handler) -> Reply:
            clock.advance(0.02)
            return await call_next(exchange)

    counters = ContextCounters()
    chain = fold("main", [Link("out", Slow()), Link("in", Slow())], core, counters=counters, clock=Clock(clock))
    await chain.handler(ASKED)
    sums = {stage: total for (name, (stage,)), total in samples(counters).items() if name.endswith("_sum")}
    assert sums == {"out": pytest.approx(0.02), "in": pytest.approx(0.02)}


def test_chain_reports_the_first_stage_a_resumed_run_would_bypass() -> None:
    """Of these, the first is named that may do more than add; those below see each call of the model."""

    def above(*links: Link) -> str | None:
        every = [*links, Link("loop", Noting("loop"), runs_tools=True), Link("below", Noting("below"))]
        return fold("main", every, core, counters=ContextCounters(), clock=Clock(ManualClock())).find_unpassed_stage()

    adds = Link("adds", Noting("adds"), only_adds=True)
    assert above() is above(adds) is None
    assert above(adds, Link("stops", Noting("stops")), Link("more", Noting("more"))) == "stops"
    alone = fold("main", [Link("a", Noting("a"))], core, counters=ContextCounters(), clock=Clock(ManualClock()))
    assert alone.find_unpassed_stage() is None


class Swallowing:
    """A stage that takes its cancellation for a failure to get over, before it has a reply or in its answer."""

    def __init__(self, *, early: bool) -> None:
        self.early = early

    async def __call__(self, exchange: Exchange, call_next: Handler) -> Reply:
        async def fallback(emit: Emit) -> None:
            emit("as if it were whole")

        try:
            reply = await call_next(exchange)
        except BaseException:
            if not self.early:
                raise
            return replace(reply_of(), stream=fallback)

        async def stream(emit: Emit) -> None:
            try:
                await reply.stream(emit)
            except BaseException:
                await fallback(emit)

        return replace(reply, stream=stream)


@pytest.mark.parametrize("early", [False, True])
async def test_no_stage_keeps_a_cancelled_run_alive(early: bool) -> None:
    """Its client would get what looks like a whole answer."""
    waits = asyncio.Event()

    async def wait(_: object = None) -> Reply:
        waits.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def hanging(_exchange: Exchange) -> Reply:
        return await wait() if early else replace(reply_of(), stream=wait)

    chain = fold(
        "main",
        [Link("a", Noting("a")), Link("b", Swallowing(early=early))],
        hanging,
        counters=ContextCounters(),
        clock=Clock(ManualClock()),
    )
    task = asyncio.create_task(notes_of(chain.handler))
    await waits.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_resumed_run_passes_the_guard_stages_above_its_loop() -> None:
    """Not inside those that only add to requests, nor above one that is below the loop."""
    links = [
        Link("a", Noting("a")),
        Link("b", Noting("b"), guards_answers=True),
        Link("c", Noting("c")),
        Link("loop", Noting("loop"), runs_tools=True),
        Link("d", Noting("d"), guards_answers=True),
    ]
    chain = fold("main", links, core, counters=ContextCounters(), clock=Clock(ManualClock()))
    resumed, looping = chain.find_resume_handler(), chain.find_loop_handler()
    assert resumed is not None and looping is not None and chain.guarded is not None
    assert await notes_of(resumed) == ["b", "loop", "d"]
    assert await notes_of(looping) == ["loop", "d"]
    assert await notes_of(chain.guarded(core)) == ["b"]
    plain = fold("main", links[2:], core, counters=ContextCounters(), clock=Clock(ManualClock()))
    assert plain.guarded is None and plain.find_resume_handler() is plain.handlers[1]
