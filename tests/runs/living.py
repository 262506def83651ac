"""Work for live runs to carry out, and a reader of what they answer."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field

from gateway.contracts.caller import Caller
from gateway.contracts.exchange import Emit, Exchange, Reply
from gateway.contracts.storage.store import Json
from gateway.runs.idempotency_key import RequestKey
from gateway.runs.live import GRACE_S, LiveRuns
from gateway.runs.live_run import CALLS, EFFECTS, LiveRun
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

    async def wait_until_caught_up(self) -> None:
        await self.go.wait()


async def whole(run: LiveRun) -> list[Json]:
    reading = Reading()
    await run.transcript.read(reading)
    return reading.got


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
