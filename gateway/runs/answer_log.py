"""The log of an answer that no client reads from its run: its chunks in the store, in order, as they come.

1. A chunk is in the store before any reader gets it. So every reader sees the same answer, after a crash, too.
2. A worker that lost the run appends nothing: each append names the fence of the run, and the number of chunks before.
3. The last entry is the end (`ended`). A log without one belongs to a run that goes on, in this process or another.

Theory of operation. `record` follows the transcript of a live run in a separate task. The transcript passes all chunks
that came while the last append was under way, so a slow store makes larger entries and not more of them, and a very
slow one holds the run back. At the end of the transcript, `record` reads the run's end from the store: one that stopped
because its process stops, or because it lost the run, has no end here.

`read` yields what is in the store, and waits for more: for a signal where this worker records the answer, else it looks
again after `LOOK_S`.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import orjson

from gateway.aio.clock import wait_until_set
from gateway.contracts.errors import CODES, GatewayError
from gateway.contracts.exchange import Chunk
from gateway.contracts.plugin import Clock
from gateway.contracts.storage.journal import ConflictError, StoredRun
from gateway.contracts.storage.store import Json, Store, StoreError, UnwrittenError
from gateway.dialects import chat_chunks
from gateway.runs.live_run import LiveRun

log = logging.getLogger("gateway")

#: The pauses between two looks for entries of another worker, and after the store failed.
LOOK_S, STORE_PAUSE_S = 0.2, 2.0
#: Entries of one look.
BATCH: Final = 500
_ENDED: Final = "answer.ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedAnswer:
    """An answer that is recorded. `fence` is the one of its run; `start` counts the entries that are there already."""

    response_id: str
    tenant: str
    fence: int
    start: int = 0


@dataclass(slots=True)
class _News:
    """The signal to the readers of one answer in this worker."""

    readers: int = 0
    event: asyncio.Event = field(default_factory=asyncio.Event)


class AnswerLogs:
    """The logs of one worker."""

    def __init__(self, store: Store, *, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._news: dict[str, _News] = {}

    def record(
        self,
        answer: RecordedAnswer,
        run: LiveRun,
        *,
        over: Callable[[], Awaitable[None]],
        first: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Record the answer of a run until it ends. `over` is awaited once its end is in the store.

        `first` stores what the log belongs to, and is awaited before the first entry until the store takes it.

        If this worker still records an earlier part of the answer, the entries of this part follow it.
        """
        before = self._tasks.get(answer.response_id)
        recording = partial(self._record, first=first) if before is None else partial(self._continue_recording, before)
        task = asyncio.get_running_loop().create_task(recording(answer, run, over))
        self._tasks[answer.response_id] = task
        task.add_done_callback(partial(self._forget_recording, answer.response_id))

    def is_recording(self, response_id: str) -> bool:
        """Return whether this worker records the answer."""
        return response_id in self._tasks

    async def read(self, response_id: str, *, tenant: str, start: int = 0) -> AsyncIterator[Sequence[Chunk]]:
        """Yield the entries from number `start` on as they come, up to the end; () when none came for a while.

        Raises StoreError.
        """
        news = self._news.setdefault(response_id, _News())
        news.readers += 1
        try:
            while True:
                news.event.clear()
                found = await self._store.list_answer_chunks(response_id, tenant=tenant, start=start, limit=BATCH)
                start += len(found)
                chunks: list[Chunk] = [orjson.loads(entry) for entry in found]
                yield chunks
                if chunks and parse_end_entry(chunks[-1]) is not None:
                    return
                if len(found) < BATCH:
                    await wait_until_set(news.event, LOOK_S)
        finally:
            news.readers -= 1
            if not news.readers:
                self._news.pop(response_id, None)

    async def list_entries(self, response_id: str, *, tenant: str) -> list[Chunk]:
        """Return the entries that are there. Raises StoreError."""
        entries: list[Chunk] = []
        while True:
            found = await self._store.list_answer_chunks(response_id, tenant=tenant, start=len(entries), limit=BATCH)
            entries += map(orjson.loads, found)
            if len(found) < BATCH:
                return entries

    async def append(self, answer: RecordedAnswer, chunks: Sequence[Chunk]) -> None:
        """Append entries behind the present ones. Raises ConflictError, StoreError."""
        entries = [orjson.dumps(chunk) for chunk in chunks]
        await self._store.append_answer(
            answer.response_id, tenant=answer.tenant, fence=answer.fence, start=answer.start, chunks=entries
        )
        if (news := self._news.get(answer.response_id)) is not None:
            news.event.set()

    async def close(self) -> None:
        """Wait until the runs' answers are recorded. Call it once the runs of this worker have ended. Idempotent."""
        tasks = list(self._tasks.values())
        if tasks:
            await asyncio.wait(tasks, timeout=STORE_PAUSE_S)
        for task in tasks:
            task.cancel()

    def _forget_recording(self, response_id: str, task: "asyncio.Task[None]") -> None:
        if self._tasks.get(response_id) is task:
            del self._tasks[response_id]

    async def _continue_recording(
        self, before: "asyncio.Task[None]", answer: RecordedAnswer, run: LiveRun, over: Callable[[], Awaitable[None]]
    ) -> None:
        """Record the answer of a run behind what another recording leaves, unless that was the end."""
        await asyncio.wait({before})
        try:
            there = await self.list_entries(answer.response_id, tenant=answer.tenant)
        except StoreError as error:
            log.error("the store failed: %s; the answer %s is not recorded to its end", error, answer.response_id)
            return
        if not has_end(there):
            await self._record(replace(answer, start=len(there)), run, over)

    async def _record(
        self,
        answer: RecordedAnswer,
        run: LiveRun,
        over: Callable[[], Awaitable[None]],
        first: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Write the chunks of a run's answer to the store until it ends, then its end; log failures."""
        writer = _Writer(self, answer, run, first)
        failure: GatewayError | None = None
        try:
            try:
                await run.transcript.read(writer)
            except GatewayError as error:
                failure = error
            except ConflictError:
                raise
            except Exception:
                log.exception("the run %s failed, whose answer is recorded", run.exchange.id)
                failure = GatewayError("internal_error", "The gateway failed; its log has the id of the response.")
            if failure is not None and await self._is_continued(run, tenant=answer.tenant):
                return
            await writer.end(build_end_entry(self._clock.time(), failure))
            await over()
        except ConflictError:
            log.info("the run of %s is not this worker's any more, so it records no more of it", answer.response_id)
        except Exception:
            log.exception("the answer %s is not recorded to its end", answer.response_id)

    async def _is_continued(self, run: LiveRun, *, tenant: str) -> bool:
        """Return whether the run that stopped here continues elsewhere, or waits: it did not end with this failure."""
        found = await self._store.run(run.exchange.id, tenant=tenant)
        return found is not None and found.state in ("running", "unknown", "awaiting_approval")


class _Writer:
    """The reader of a transcript that appends what comes. It always owes something, so that it may wait.

    A question that ends a turn is appended with the end: an immediate decision moves the fence of the run on.
    """

    def __init__(
        self, logs: AnswerLogs, answer: RecordedAnswer, run: LiveRun, first: Callable[[], Awaitable[None]] | None
    ) -> None:
        self._logs = logs
        self._answer = answer
        self._run = run
        self._first = first
        self._owed: list[Chunk] = []
        self._count = answer.start

    def take(self, chunks: Sequence[Chunk]) -> bool:
        self._owed += chunks
        return False

    async def wait_until_caught_up(self) -> None:
        if not self._run.marks.parked:
            await self._append_chunks()

    async def end(self, chunk: Chunk) -> None:
        """Append the chunks not stored yet, with the end entry. Raises ConflictError."""
        self._owed.append(chunk)
        await self._append_chunks()

    async def _append_chunks(self) -> None:
        """Append the chunks not stored yet, and retry while the store fails. Raises ConflictError."""
        chunks, self._owed = self._owed, []
        at = replace(self._answer, start=self._count)
        while True:
            try:
                if self._first is not None:
                    await self._first()
                    self._first = None
                await self._logs.append(at, chunks)
            except (StoreError, UnwrittenError) as error:
                log.error("the store failed: %s; the answer %s waits for it", error, at.response_id)
                await asyncio.sleep(STORE_PAUSE_S)
            else:
                self._count += len(chunks)
                return


def build_end_entry(now_s: float, error: GatewayError | None) -> Json:
    """Return the last entry of a log."""
    told: Json | None = None
    if error is not None:
        told = {"code": error.code, "message": error.message, "param": error.param}
        if error.upstream_code is not None:
            told["upstream_code"] = error.upstream_code
    return {"choices": [], "context": {"type": _ENDED, "at": now_s, "error": told}}


def parse_end_entry(chunk: Chunk) -> tuple[float, GatewayError | None] | None:
    """Return the time and the error in the last entry of a log; None for any other entry."""
    told = None if isinstance(chunk, str) else chunk.get("context")
    if not isinstance(told, dict) or told.get("type") != _ENDED:
        return None
    error = told["error"]
    if error is None:
        return told["at"], None
    code = error["code"] if error["code"] in CODES else "internal_error"
    failure = GatewayError(code, error["message"], param=error["param"])
    failure.upstream_code = error.get("upstream_code")
    return told["at"], failure


def has_end(entries: Sequence[Chunk]) -> bool:
    """Return whether a log is whole."""
    return bool(entries) and parse_end_entry(entries[-1]) is not None


def begins_with_first_text(run: StoredRun, *, shows_calls: bool) -> bool:
    """Return whether the answer begins with the run's first text. A waiting run's may begin with the question."""
    return run.state != "unknown" and (run.state != "awaiting_approval" or shows_calls)


def find_missing_chunks(told: Sequence[Chunk], entries: Sequence[Chunk], *, is_whole: bool) -> Sequence[Chunk]:
    """Return the part of an answer that a log lacks. Readers know calls again by their ids."""
    if any(
        choice.get("finish_reason") for chunk in entries if not isinstance(chunk, str) for choice in _get_choices(chunk)
    ):
        return told[-1:]  # it may lack the tokens, which come last
    if not entries or not is_whole:
        return told
    said = "".join(chunk for chunk in told if isinstance(chunk, str))
    resumed = chat_chunks.build_event({"type": "run.resumed", "said": said})
    return [resumed, *(chunk for chunk in told if not isinstance(chunk, str))]


def _get_choices(chunk: Json) -> Sequence[Json]:
    return chunk.get("choices") or ()
