"""A repeated request joins its run: no tool runs twice, and nobody joins what is not theirs."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from gateway.caller import Caller
from gateway.contracts import Exchange, Json, Reply
from gateway.errors import GatewayError
from gateway.runs.live import EFFECTS, GRACE_S, JOINABLE_S, Asking, LiveRun, LiveRuns, fingerprint
from gateway.testing.clock import ManualClock
from tests.pipeline.doubles import Clock

TEXT: Json = {"choices": [{"index": 0, "delta": {"content": "hi"}}]}


class Work:
    """A handler whose reply goes on step by step, and what became of it."""

    def __init__(self, *, effects: bool = True, error: Exception | None = None) -> None:
        self.effects, self.error = effects, error
        self.go = asyncio.Event()
        self.calls = self.released = 0
        self.noted: list[str] = []

    async def __call__(self, exchange: Exchange) -> Reply:
        self.calls += 1
        return Reply(self._chunks(), self._release)

    async def note(self, run: LiveRun) -> None:
        self.noted.append(run.state)

    async def _chunks(self) -> AsyncIterator[Json]:
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


def asking(print_: str = "same", *, key: str | None = None, repeats: bool = False) -> Asking:
    return Asking(print_, None if key is None else ("t", "c", key), repeats)


def begun(work: Work, clock: ManualClock | None = None, **asked: object) -> tuple[LiveRuns, LiveRun]:
    runs = LiveRuns(clock=Clock(clock or ManualClock()))
    run = runs.begin(exchange(), asking(**asked), work, work.note)  # type: ignore[arg-type]
    runs.join(run)
    return runs, run


async def whole(run: LiveRun) -> list[Json]:
    return [chunk async for news in run.read() for chunk in news]


async def test_whoever_joins_gets_the_answer_from_its_first_byte() -> None:
    """The handler runs once; the mark of an effect is no part of the answer, but written down before and after."""
    work = Work()
    runs, run = begun(work, key="k")
    await run.begun()
    assert runs.find(asking(key="k")) is run
    runs.join(run)
    work.go.set()
    assert await asyncio.gather(whole(run), whole(run)) == [[TEXT, TEXT]] * 2
    await run.ended()
    assert (work.calls, work.released, work.noted) == (1, 1, ["running", "completed"])
    runs.leave(run, whole=True)
    runs.leave(run, whole=True)
    assert runs.find(asking(key="k")) is run and runs.find(asking(repeats=True)) is run
    await runs.close()


async def test_a_run_without_effects_ends_with_its_client() -> None:
    """At once; the same request begins anew."""
    work = Work(effects=False)
    runs, run = begun(work)
    await run.begun()
    runs.leave(run, whole=False)
    await asyncio.wait_for(run.ended(), 1)
    assert work.released == 1 and work.noted == []
    assert runs.find(asking(repeats=True)) is None


async def test_a_run_with_effects_waits_for_its_client() -> None:
    """And can be joined meanwhile, by the same request alone, with or without a word about repeating."""
    work = Work()
    runs, run = begun(work)
    await run.begun()
    while not run.chunks:
        await asyncio.sleep(0)
    assert runs.find(asking(repeats=True)) is None, "its client is connected"
    runs.leave(run, whole=False)
    assert runs.find(asking("other", repeats=True)) is None
    assert runs.find(asking()) is run
    runs.join(run)
    await asyncio.sleep(GRACE_S * 1.2)
    work.go.set()
    assert await whole(run) == [TEXT, TEXT]
    await runs.close()


async def test_a_run_that_nobody_comes_back_for_is_stopped() -> None:
    """Who asks again later is told, and told not to try again."""
    work = Work()
    runs, run = begun(work)
    while not run.chunks:
        await asyncio.sleep(0)
    runs.leave(run, whole=False)
    await asyncio.wait_for(run.ended(), GRACE_S * 3)
    assert work.noted == ["running", "interrupted"] and work.released == 1
    joined = runs.find(asking(repeats=True))
    assert joined is run
    with pytest.raises(GatewayError) as told:
        await whole(run)
    assert (told.value.code, told.value.facts.status, told.value.settled) == ("run_interrupted", 422, True)


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
        assert (runs.find(asking(key="k")) is run) is effects


async def test_a_key_belongs_to_one_request() -> None:
    """Another body with it is refused; without a key nothing is refused."""
    runs, run = begun(Work(), key="k")
    with pytest.raises(GatewayError) as refused:
        runs.find(asking("other", key="k"))
    assert refused.value.code == "idempotency_mismatch"
    assert runs.find(asking("other")) is None
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
    assert runs.find(asking(repeats=True)) is run
    clock.advance(2)
    assert runs.find(asking(repeats=True)) is None


def test_what_makes_two_requests_the_same() -> None:
    """Caller, path, steering headers and the raw body; nothing can be shifted from one to another."""
    base = {"tenant": "t", "caller": "c", "path": "/p", "steering": {"chain": "a"}, "content": b"{}"}
    others = [
        {"tenant": "tc", "caller": ""},
        {"caller": "d"},
        {"path": "/q"},
        {"steering": {"chain": "b"}},
        {"steering": {}},
        {"content": b"{ }"},
        {"path": "/pchain=a", "steering": {}},
    ]
    prints = [fingerprint(**{**base, **other}) for other in others]  # type: ignore[arg-type]
    assert len({fingerprint(**base), *prints}) == len(others) + 1  # type: ignore[arg-type]
