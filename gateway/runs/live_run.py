"""One live run: the task that drives it, its answer so far, and the marks of its progress."""

import asyncio
import logging
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final
from weakref import WeakKeyDictionary

from gateway.contracts.errors import ExitError, GatewayError, contained
from gateway.contracts.exchange import AnsweredBy, CacheResult, Chunk, Exchange, Handler, Intent, Pause, Reply
from gateway.contracts.storage.store import Json, StoreError, UnwrittenError, build_unknown_outcome_error
from gateway.runs.idempotency_key import RequestKey, begins_with_record
from gateway.runs.lease import build_handover_error, build_interrupted_error, build_lost_error
from gateway.runs.transcript import Transcript

log = logging.getLogger("gateway")

#: Marks, which are never sent to a client. RECORDED: the run is in the store. EFFECTS: the same, and it may have an
#: effect from here on. CALLS: a model call begins. The value is a function that drops the call; None: the call is over.
#: After a drop the run emits CALLS again before anything else. It is held there until a client is back, and the chunks
#: of the dropped call are forgotten. WAITS: whether the run waits for a person. It needs no client for that: when the
#: client leaves, the run waits in the store. PARKED: the turn ends here, but not the run. Only the store has its state.
#: The value is the id of the run whose question the turn ends with, or None. ANSWERS: an upstream has accepted the
#: request, or a cache answers in its place. The value is the reply of that model call.
RECORDED, EFFECTS, CALLS, WAITS, PARKED, ANSWERS = "recorded", "effects", "calls", "waits", "parked", "answers"
#: Of several model calls of a run, the report is of the one whose result stands furthest behind.
_CACHE_RESULTS: Final = (None, "hit", "miss", "bypass")
#: How long a run may take to end once it is cancelled: longer than its tools may (`gateway.agent.call_execution`).
#: One whose stage takes its cancellation for a failure to get over never ends.
ENDS_S: Final = 15.0
#: The reason to cancel a run whose process stops. The run itself does not end.
STOPPING = "stopping"
_REASONS: Final[MutableMapping[asyncio.Task[None], str]] = WeakKeyDictionary()


def _build_set_event() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


@dataclass(slots=True)
class RunAnswerFacts:
    """The facts of a run's answer, besides its chunks."""

    intent: Intent | None = None
    cache: CacheResult | None = None  # so far, of all its model calls
    by: AnsweredBy | None = None  # the upstream that accepted its first call of a model
    decided: tuple[str, ...] = ()  # the approvals whose decisions, by its request, the answer follows
    asks: str | None = None  # the id of the run, this one or another, that its answer asks a person for
    is_apart: bool = False  # its answer is of no run: the run that it is about is another person's
    shown_to: Exchange | None = None  # the request of another person that gets its answer
    is_deleted: bool = False  # its answer belongs to no client any more
    over_limit: str | None = None  # a soft limit that it exceeds, for the answer's header


@dataclass(slots=True)
class RunMarks:
    """The state of a run, by the marks that it emitted."""

    recorded: bool = False
    effects: bool = False
    waits: bool = False
    parked: bool = False
    acted: Callable[[], None] | None = None  # is called before its first effect
    on_record: asyncio.Event = field(default_factory=asyncio.Event)  # set at the end of the run, too


@dataclass(slots=True)
class Attendance:
    """The clients of a run, and the model call that waits for one of them."""

    clients: int = 0
    cut: bool = False  # the last client left before the answer was whole
    untold: bool = False  # the client got an error in place of the answer, which the store did not take
    failure_told: bool = False
    kept_bytes: int = 0  # while it has no client
    alone_since_s: float = 0.0  # monotonic; of a run that failed, since it told so first
    is_attended: asyncio.Event = field(default_factory=_build_set_event)
    drop: Callable[[], None] | None = None  # while a model is called
    dropped: bool = False  # the model call was ended, and what it still says is forgotten


@dataclass(frozen=True, slots=True)
class _Cancellation:
    """The cancellation of a run, and the error that its clients get for it."""

    exception: asyncio.CancelledError
    error: GatewayError | None


class LiveRun:
    """One run and its answer so far.

    `request_id` and `body` are of the request that it answers, which is not always the one that began the run. A
    `detached` run does not end for lack of a client.
    """

    def __init__(
        self,
        exchange: Exchange,
        request_key: RequestKey,
        *,
        now_s: float,
        detached: bool = False,
        body: Json | None = None,
        request_id: str | None = None,
    ) -> None:
        self.exchange = exchange
        self.request_key = request_key
        self.detached = detached
        self.body = exchange.body if body is None else body
        self.request_id = exchange.id if request_id is None else request_id
        self.created_s = now_s
        self.transcript = Transcript()
        self.answer = RunAnswerFacts()
        self.marks = RunMarks()
        self.attendance = Attendance()
        self.interrupted = False
        self._begun = asyncio.Event()
        self._cancellation: _Cancellation | None = None
        self._is_stuck = False
        self._task: asyncio.Task[None] | None = None

    @property
    def done(self) -> bool:
        return self.transcript.done

    @property
    def error(self) -> BaseException | None:
        return self.transcript.error

    @property
    def may_act(self) -> bool:
        """Return whether the run is stored, and so may have run tools or may run some later."""
        return self.marks.recorded or self.exchange.execution.resume is not None or self.exchange.id != self.request_id

    @contextmanager
    def convert_store_errors(self) -> Iterator[None]:
        """Convert a failure of the store behind the run to what its client may believe. Raises UntoldError.

        One behind a run that cannot have acted is raised as it is.
        """
        try:
            yield
        except (StoreError, UnwrittenError) as error:
            if not self.may_act:
                raise
            log.error("the store failed behind run %s: %s", self.exchange.id, error)
            self.attendance.untold = True
            raise build_unknown_outcome_error(self.exchange.id) from None

    def start(self, handler: Handler, *, over: Callable[["LiveRun"], None]) -> None:
        """Start the run; `over` is called once the run has ended."""
        self._task = self.transcript.loop.create_task(self._pump(handler))
        self._task.add_done_callback(lambda _: self._end_unstarted())
        self._task.add_done_callback(lambda _: over(self))

    def add_done_callback(self, done: Callable[[], object]) -> None:
        """Call `done` once the run has ended here, however it ends."""
        assert self._task is not None
        self._task.add_done_callback(lambda _: done())

    def replay(self, chunks: Sequence[Chunk]) -> None:
        """Fill the transcript with the answer of a run that is over."""
        for chunk in chunks:
            self.transcript.add(chunk)
        self.marks.recorded = self.marks.effects = True
        self._finish(None)

    async def wait_for_reply(self) -> None:
        """Wait until the chain has a reply. Raises the chain's error if it has none."""
        await self._begun.wait()
        if not self.transcript.chunks:
            self.transcript.reraise()

    async def on_record(self) -> None:
        """Wait until the run is in the store. Raises the run's error if it ended before."""
        await self.marks.on_record.wait()
        if not self.marks.recorded:
            self.transcript.reraise()

    def drop_model_call(self) -> None:
        """End the current model call, because the last client is gone."""
        self.attendance.is_attended.clear()
        if self.attendance.drop is not None:
            drop, self.attendance.drop = self.attendance.drop, None
            self.attendance.dropped = True
            self.transcript.drop_unsettled()
            drop()

    def mark_attended(self) -> None:
        """Record that a client is there."""
        self.attendance.is_attended.set()

    def cancel(self, reason: str | None = None, *, error: GatewayError | None = None) -> None:
        """Cancel the task of a live run; clients get `error`, else one that fits the reason."""
        if self._task is not None and not self.done:
            self._cancellation = _Cancellation(asyncio.CancelledError(reason), error)
            if reason is not None:
                _REASONS[self._task] = reason
            self._task.cancel(reason)

    async def end_unless_recorded(self, reason: str | None = None, *, error: GatewayError | None = None) -> None:
        """End a run that is not on record. Its first line may be under way: afterwards it is there, or it is not."""
        if not self.may_act:
            self.cancel(reason, error=error)
            await self.end_cancelled()

    async def end_cancelled(self) -> None:
        """Wait for the end of a cancelled run; end its answer if its task does not stop."""
        if self._task is None or self._is_stuck or (await asyncio.wait({self._task}, timeout=ENDS_S))[0]:
            return
        log.error(
            "run %s was cancelled and goes on, %s: the gateway ends without it",
            self.exchange.id,
            _describe_wait(self._task),
        )
        self._is_stuck = self.attendance.dropped = True
        self._finish(self._build_cancellation_error())

    async def wait_until_ended(self) -> None:
        if self._task is not None:
            await asyncio.wait({self._task})

    async def _pump(self, handler: Handler) -> None:
        """Run the chain and pass its reply on; whatever it raises ends the answer."""
        error: BaseException | None = None
        try:
            with contained(f"the run {self.exchange.id}"):
                reply = await handler(self.exchange)
                self.answer.intent = reply.intent
                self._note_reply(reply)
                self._begun.set()
                try:
                    await reply.stream(self._emit)
                finally:
                    await reply.release()
        except asyncio.CancelledError:
            error = self._build_cancellation_error()
        except Exception as failure:
            error = (
                build_unknown_outcome_error(self.exchange.id)
                if isinstance(failure, StoreError) and self.may_act
                else failure
            )
        except BaseException as failure:  # a task that waits for the answer must not pass it on
            error = ExitError(f"the run {self.exchange.id} raised {type(failure).__name__}")
            log.exception("a run failed with what is no Exception, request id %s", self.exchange.id)
        finally:
            self._finish(error)
            del error  # it knows this frame

    def _emit(self, chunk: Chunk) -> Pause | None:
        """Take a chunk of the answer or a mark (`gateway.contracts.exchange.Emit`)."""
        if not isinstance(chunk, str):
            if CALLS in chunk:
                return partial(self._record_model_call, chunk[CALLS])
            if ANSWERS in chunk:
                self._note_reply(chunk[ANSWERS])
                self.transcript.open()
                return None
            if EFFECTS in chunk or RECORDED in chunk:
                if EFFECTS in chunk or not begins_with_record(self.exchange):
                    self.transcript.open()
                if EFFECTS in chunk and not self.marks.effects and self.marks.acted is not None:
                    self.marks.acted()
                self.marks.recorded, self.marks.effects = True, self.marks.effects or EFFECTS in chunk
                self.marks.on_record.set()
                return None
            if PARKED in chunk:
                self.marks.parked, self.answer.asks = True, chunk[PARKED]
                return None
            if WAITS in chunk:
                self.marks.waits = chunk[WAITS]
                return None
        return None if self.attendance.dropped or self.transcript.add(chunk) else self.transcript.wait_for_room

    def _note_reply(self, reply: Reply) -> None:
        if reply.cache != self.answer.cache:
            self.answer.cache = max(self.answer.cache, reply.cache, key=_CACHE_RESULTS.index)
        self.answer.by = self.answer.by or reply.by

    async def _record_model_call(self, drop: Callable[[], None] | None) -> None:
        """Record that a model call begins or is over. A new call waits for a client first."""
        if drop is not None:
            await self.attendance.is_attended.wait()
        if self._cancellation is not None:  # a stage that took it for a drop has swallowed it
            raise self._cancellation.exception
        self.attendance.drop, self.attendance.dropped = drop, False
        self.transcript.mark_final()

    def _end_unstarted(self) -> None:
        """Finish a run whose task was cancelled before its first line ran."""
        if not self.done:
            self._finish(self._build_cancellation_error())

    def _finish(self, error: BaseException | None) -> None:
        """End the answer with this error, or with None, and wake the tasks that wait for it. Idempotent."""
        if self.done:
            return
        self.attendance.drop = None
        self.transcript.end(error)
        self._begun.set()
        self.marks.on_record.set()

    def _build_cancellation_error(self) -> GatewayError:
        """Return the error of a cancelled run: its client left, its process stops, or it has another owner."""
        self.interrupted = True
        if (cancellation := self._cancellation) is None:
            return build_lost_error(self.exchange.id)
        if self.marks.effects and STOPPING in cancellation.exception.args:
            return build_handover_error(self.exchange.id)  # it may have come on record since it was cancelled
        return cancellation.error or build_interrupted_error(self.exchange.id)


def rebuild_cancellation(task: "asyncio.Task[Any]") -> asyncio.CancelledError:
    """Return a new CancelledError with the reason of the one that a stage has swallowed."""
    return asyncio.CancelledError(*((_REASONS[task],) if task in _REASONS else ()))


def _describe_wait(task: asyncio.Task[None]) -> str:
    """Return the place where a task waits, in the code that calls asyncio."""
    place = "at an unknown place"
    waits: Any = task.get_coro()
    while (frame := getattr(waits, "cr_frame", None)) is not None:
        code = frame.f_code
        if "/asyncio/" in code.co_filename:
            break
        place, waits = f"in {code.co_qualname} ({code.co_filename}:{frame.f_lineno})", waits.cr_await
    return place
