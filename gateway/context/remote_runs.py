"""Stored runs that another request or another process drives, as the answer of one more request."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from gateway.aio.clock import wait_until_set
from gateway.approvals import chat_texts as spoken
from gateway.context.replay import AnswerReplay
from gateway.contracts.exchange import Chunk, Emit, Exchange, Handler, Pause, Reply
from gateway.contracts.plugin import Clock
from gateway.contracts.storage.journal import Journal, StoredRun
from gateway.runs.event_feed import EventFeed
from gateway.runs.live import LiveRuns
from gateway.runs.live_run import PARKED, LiveRun

#: How often this worker looks at a run that another process drives, besides reading its events.
LOOK_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsElsewhere:
    """The runs that a worker does not drive for the request at hand. Each ends within its own budget of time."""

    runs: LiveRuns
    feed: EventFeed
    store: Journal
    clock: Clock
    retelling: AnswerReplay

    async def is_active(self, run: StoredRun) -> bool:
        """Return whether a worker drives the run or will soon: it waits for no person. Claims keep the state."""
        if run.state == "running" or (run.owner is not None and run.lease_s > self.clock.time()):
            return True
        return run.state == "awaiting_approval" and not await self.retelling.list_pending(run)

    async def wait_until_idle(self, run: StoredRun) -> StoredRun:
        """Wait until no worker drives the run, and return it. Raises StoreError."""
        news = asyncio.Event()
        async with self.feed.subscribe(lambda _: news.set(), run_id=run.id):
            while True:
                found = await self.store.run(run.id, tenant=run.tenant)
                if found is None or not await self.is_active(found):
                    return found or run
                await wait_until_set(news, LOOK_S)
                news.clear()

    def build_follow_handler(self, run: StoredRun, exchange: Exchange, *, decided: Sequence[str]) -> Handler:
        """Return a handler that emits the answer of a run to a request which decides on these approvals.

        If a request of this worker with one of these decisions lets the run go on, the answer comes as that one gets
        it. Otherwise it comes once the run has ended.
        """
        live = self._find_live_run(run.id, decided, shows_calls=exchange.delivery.shows_calls)

        async def follow(emit: Emit) -> None:
            if live is not None:
                await _relay_live_run(live, emit)
                return
            told = await self.retelling.answer_request(await self.wait_until_idle(run), exchange, decided=decided)
            for chunk in told:
                emit(chunk)
            if (asks := find_question_run(told)) is not None:
                emit({PARKED: asks})

        async def handle(_exchange: Exchange) -> Reply:
            return Reply(follow)

        return handle

    def _find_live_run(self, run_id: str, decided: Sequence[str], *, shows_calls: bool) -> LiveRun | None:
        """Return the run that goes on here with one of these decisions, for a client that is or is not shown calls."""
        for live in self.runs.list_by_id(run_id):
            resume = live.exchange.execution.resume
            is_alike = live.exchange.delivery.shows_calls == shows_calls and not live.done
            if is_alike and resume is not None and not set(resume.decided).isdisjoint(decided):
                return live
        return None


@dataclass(slots=True)
class _RelayReader:
    """A reader of a run that emits what it reads (`gateway.runs.transcript.Reader`)."""

    emit: Emit
    pauses: list[Pause] = field(default_factory=list)

    def take(self, chunks: Sequence[Chunk]) -> bool:
        """Emit the next chunks, and return whether more may come at once."""
        self.pauses += filter(None, map(self.emit, chunks))
        return not self.pauses

    async def wait_until_caught_up(self) -> None:
        """Wait until more may be emitted."""
        pauses, self.pauses = self.pauses, []
        for pause in pauses:
            await pause()


async def _relay_live_run(live: LiveRun, emit: Emit) -> None:
    """Emit the answer of a live run as it comes. Raises its error."""
    await live.transcript.read(_RelayReader(emit))
    if live.answer.asks is not None:
        emit({PARKED: live.answer.asks})


def find_question_run(told: Sequence[Chunk]) -> str | None:
    """Return the id of the run whose question ends this answer, or None."""
    last = told[-1]
    return None if isinstance(last, str) else spoken.find_question_run(last.get("context") or {})
