"""The driver of agent loops: it calls the model, reads its answers as they stream, runs the calls, and calls it again.

Text goes on to the client as it comes; tool calls never do. The state machine is `gateway.agent.loop`. Calls run in
`gateway.agent.round`. This module contains the model calls, the clock, and the client's side of the stream.

Theory of operation. The state machine returns an action and does nothing itself: `Ask` (call the model), `Execute` (run
these calls) or `Finish`. The driver carries out `_action` and gives the result back, until the action is Finish.

1. `remember` reads the store before the first byte is sent: hidden turns of the conversation and, for a run that
   goes on, its steps and its progress. A failure here is still an ordinary error answer.
2. `stream` starts the time budget and sends the text that a returning client must see again.
3. `_call_model` calls the model. The answer's text goes to the client while it arrives. At its end, the scanner returns
   calls, a malformed attempt, or prose, and `loop.answered` returns the next action.
4. `_execute` runs one round. A round stays open (`progress.is_open`) until all its calls have results. If the store
   fails or the process dies in between, the same round is reopened from the record, and results that exist are not made
   again.
5. `_ending` writes the end of the run, then returns the last chunks: calls for the client, the finish reason, usage.

Marks. Some chunks are not for the client but for `gateway.runs.live`, which stands between the two. Among them, CALLS
lends it the function that drops a model call, EFFECTS means that there may be an effect from here on, and RECORDED and
PARKED report what the store has.

Four things can interrupt a run, each in its own way:
- *The time is over.* `_expire` releases the model's reply. Its reader gets an error, and `_failed` replaces that error
  by the timeout because `_expired` is set. Waits for a person pause the budget.
- *The client leaves during a model call.* `_drop` ends that call. The loop in `_call_model` then deletes what
  the dropped answer said, and calls the model again as soon as `_emit` returns, that is, once a client reads.
- *The task is cancelled*: the lease is lost, nobody reads, or the process stops. `RunRecorder.leave` decides
  what the store says of the run, and the cancellation goes on.
- *The store fails.* If a person was asked about a call of the run, Patience repeats the round for a while. After that
  the outcome is `left`: the run stays in the store as it is, and any worker that can write takes it up.

Dangers.
- A retry after an effect. `_failed` gives every error behind an effect a status on which clients do not try again.
- Text that is said twice. `progress.said` is the text of the whole turn. Before you repeat a call of the model, cut it
  back to its length before that call.
- A cycle of references: the objects made in `__init__` get functions of each other, but none of the driver, so that a
  finished run is freed at once.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial

import orjson

from gateway.agent.agent_services import AgentParts
from gateway.agent.answer import Further, build_reader
from gateway.agent.budget import TimeBudget, timeout
from gateway.agent.call_execution import Effects
from gateway.agent.client_notifications import Questions, Reports
from gateway.agent.hidden.turns import HiddenTurns
from gateway.agent.loop import Action, AskAction, Execute, Finish
from gateway.agent.loop_factory import NarrowedRun, new_machine
from gateway.agent.output.scanner import CallGroup, MalformedCall
from gateway.agent.progress import PARKED, RunProgress, lacks_credential, reopen, report_unknown
from gateway.agent.round import Round
from gateway.agent.run_metrics import (
    LEFT,
    defused_end,
    get_run_outcome,
    keep_cut_turn,
    last_chunks,
    note_end,
    stored_answer,
)
from gateway.agent.store_retry import Patience, build_left_run_error
from gateway.agent.upstream_recovery import EARLY_S, build_parked_error, is_resumable, pause_s, tell_waiting
from gateway.agent.workflow_loop import WorkflowLoop
from gateway.approvals.chat_texts import run_of_question
from gateway.contracts.calls import CallOutcome, PlannedCall
from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import AnswerEnded, Chunk, Emit, Exchange, Handler, Reply
from gateway.contracts.plugin import LoopLimits
from gateway.contracts.records import replace
from gateway.contracts.storage.journal import ENDED, RunState
from gateway.contracts.storage.store import Json, StoreError
from gateway.dialects import chat_chunks as chunks
from gateway.dialects.usage import TurnUsage
from gateway.runs.call_events import begins_on_record, build_opening
from gateway.runs.live_run import ANSWERS, CALLS, EFFECTS, RECORDED, STOPPING
from gateway.runs.live_run import PARKED as PARKED_MARK
from gateway.runs.recorder import RunRecorder

log = logging.getLogger("gateway")

ASK_BEFORE = "hitl:ask_before"


class RunDriver:
    """One run of a loop."""

    def __init__(self, parts: AgentParts, limits: LoopLimits, exchange: Exchange, call_next: Handler) -> None:
        self._parts = parts
        self._limits = limits
        self._exchange = exchange
        self._call_next = call_next
        self._state: RunState = "completed"
        self._outcome = "error"  # for the metric
        self._action: Action = AskAction(())
        self._step = 0
        self._reply: Reply | None = None
        self._messages: list[Json] = exchange.body["messages"]
        self._tell: Emit  # from `stream` on
        self._quiet = True  # nothing was said in this round
        self._before_question: int | None = None  # so many texts came before the question of an open answer
        self._expired = self._dropped = self._is_lost = False
        self._closing: asyncio.Task[None] | None = None
        self._context: Json = {}
        self._consent = parts.settings.resolve_for_run(exchange)
        # None of these refers to the driver: it is freed with its last reference, without the garbage collector.
        self._progress = RunProgress(TurnUsage())
        store, clock, counters = parts.store, parts.clock, parts.counters
        self._hidden = HiddenTurns(exchange, self._progress, store=store, clock=clock, counters=counters)
        self._reader = partial(build_reader, exchange, usage=self._progress.usage, further=Further())
        self._loop = new_machine(parts, limits, exchange, self._progress)
        self._narrowed = NarrowedRun(parts, limits, exchange, self._progress, self._loop)
        limit_s = min(limits.timeout_s, exchange.budget_s)
        self._budget = TimeBudget(limit_s, clock=clock, expiry=partial(timeout, limit_s, exchange.id))
        self._record = RunRecorder(
            store=store,
            exchange=exchange,
            leases=parts.leases,
            clock=clock,
            progress=partial(self._progress.snapshot, self._loop, self._budget),
            wrote=parts.feed.nudge,
        )
        self._questions = Questions(parts, exchange, self._record)
        self._reports = Reports(exchange, self._record, self._progress, parts, self._hidden.marks.mark_calls)
        self._patience = Patience(self._record, self._budget, clock=clock, counters=counters)

    async def remember(self) -> None:
        """Read from the store: hidden turns of the conversation, and this run's progress. Raises StoreError."""
        exchange, store = self._exchange, self._parts.store
        if (resume := exchange.resume) is not None:
            self._record.hold()
            steps = await store.steps(resume.run.id, tenant=resume.run.tenant)
            self._record.resume(resume.run, steps)
            snapshot = orjson.loads(resume.run.progress)
            self._progress.restore(snapshot, self._loop, steps, self._parts.in_use.judge, exchange)
            self._narrowed.restore()
            self._budget.restore(snapshot["spent_s"])
            if exchange.shows_calls:
                await self._hidden.marks.mark_calls(self._progress.strangers, steps)
        elif exchange.intent is not None and exchange.intent.rule == ASK_BEFORE and not exchange.dry:
            self._progress.asked_for = True
            await self._parts.approvals.remembered.store_ask(exchange)
        self._messages = await self._hidden.conversation()

    async def stream(self, emit: Emit) -> None:
        """Send the client its answer: text, events, one finish reason, and the usage of the whole turn."""
        self._tell = self._hidden.marks.told.wrap_emit(emit)
        self._budget.start(self._expire)
        try:
            run = self._exchange
            if run.events or run.shows_calls or run.resume is not None:
                said, progress, catalog = self._hidden.retold(), self._progress, self._parts.in_use.judge.catalog
                for chunk in build_opening(run, said, self._record.steps[progress.shown :], catalog):
                    await self._emit(chunk)
            if run.brings:
                await self._emit(self._spoken(run.brings))
            await self._begin()
            self._action = Execute(()) if self._progress.is_open else defused_end(self._loop.begin())
            while not isinstance(self._action, Finish):
                if isinstance(self._action, Execute):
                    await self._patience.until(partial(self._execute, self._action))
                else:
                    await self._call_model()
            for chunk in await self._end_turn(self._action):
                await self._emit(chunk)
            self._outcome = self._state
        except Exception as failure:
            raise await self._handle_failure(failure) from None
        except asyncio.CancelledError as left:
            self._outcome = "cancelled"
            with suppress(GatewayError, StoreError):
                await self._record.leave(stopping=STOPPING in left.args)
            if STOPPING in left.args and (stored := self._record.run) is not None and stored.state not in ENDED:
                self._send_effects_mark()  # perhaps on record since a moment ago only: its first line was being written
            await keep_cut_turn(self._loop, self._progress, self._record, self._parts, self._hidden)
            raise
        finally:
            self._budget.stop()
            await self._hidden.marks.mark_told()
            await self.release()
            self.drop()
            if not self._exchange.dry:
                stored, counters, trace = self._record.run, self._parts.counters, self._exchange.trace
                note_end(self._loop, self._outcome, counters, trace=trace, run=stored, is_lost=self._is_lost)

    async def _begin(self) -> None:
        """Store a turn that begins on record before its first step. Read whether each step of a workflow asks."""
        workflow = self._loop.workflow if isinstance(self._loop, WorkflowLoop) else None
        if workflow is not None or begins_on_record(self._exchange):
            if workflow is None or not self._record.is_stored:
                await self._patience.until(self._record.begin)
            await self._emit({RECORDED: True})
        if workflow is not None:
            await self._progress.load_ask_before_flag(self._parts.approvals.remembered, self._exchange)
            await self._budget.within(self._parts.in_use.until_started(workflow.tools))

    async def _emit(self, chunk: Chunk) -> None:
        if (pause := self._tell(chunk)) is not None:
            await pause()

    async def _call_model(self) -> None:
        """Call the model once, and set the action that follows from its answer."""
        self._step += 1
        if self._exchange.events:
            await self._emit(chunks.event({"type": "step.started", "step": self._step}))
        n_said, answer, tries = len(self._progress.said), None, 0
        while answer is None or self._dropped:
            await self._emit({CALLS: self._drop})
            del self._progress.said[n_said:]
            self._hidden.marks.told.begin(again=self._dropped)
            self._dropped, self._quiet = False, True
            answer = self._reader(
                spoken=self._spoken,
                has_tool=self._narrowed.has_tool,
                holds_back=self._loop.holds_back,
                hides_text=self._loop.hides_text,
            )
            try:
                with self._progress.time_call(model=self._exchange.body.get("model"), clock=self._parts.clock):
                    reply = await self._call(again=tries)
                    self._tell({ANSWERS: reply})
                    await answer.read(reply, self._tell)
            except asyncio.CancelledError:
                del self._progress.said[n_said:]  # a run that goes on later says it anew
                raise
            except GatewayError as error:
                if not (self._dropped or await self._may_retry(error, n_said, tries)):
                    raise
                answer, tries = None, tries + (not self._dropped)
            await self.release()
        await self._emit({CALLS: None})
        if self._exchange.events:
            await self._emit(self._progress.calls.build_finish_event(self._step))
        if answer.has_sources:
            await self._hidden.marks.read_sources()
        rest, found = answer.finish()
        if rest:
            await self._emit(rest)
        if isinstance(found, MalformedCall):
            self._narrowed.report_malformed(found)
        elif isinstance(found, CallGroup):
            found = await self._narrowed.doubt(found, self._messages)
        self._action = defused_end(self._loop.handle_answer(answer.content, found, finish_reason=answer.reason))

    async def _may_retry(self, error: GatewayError, n_said: int, tries: int) -> bool:
        """Return whether the model may be called again, after the pause that comes first."""
        said, left_s = self._progress.said, self._budget.left_s
        may = self._progress.rounds and len(said) == n_said and not self._expired
        del said[n_said:]  # a run that goes on later says it anew
        if not may or (wait_s := pause_s(error, tries=tries, left_s=left_s)) is None:
            return False
        self._parts.counters.count("model_retries")
        await self.release()
        with suppress(GatewayError):  # its time is over, or its client is gone: the next step sees that
            await self._budget.within(asyncio.sleep(wait_s + EARLY_S))
        return True

    def _drop(self) -> None:
        """End the current model call because its client is gone. The call is made again once a client is back."""
        self._dropped = True
        self._budget.interrupt()
        self._closing = asyncio.get_running_loop().create_task(self.release())

    async def release(self) -> None:
        reply, self._reply = self._reply, None
        if reply is not None:
            await reply.release()

    # The model.

    async def _call(self, *, again: int) -> Reply:
        """Call the model with the whole conversation, including hidden turns. `again`: see `Exchange`."""
        body = self._narrowed.request(self._messages)
        asked = replace(self._narrowed.exchange, body=body, budget_s=self._budget.left_s, again=again)
        if asked.dry:
            asked = replace(asked, remarks=(*asked.remarks, *self._hidden.remarks))
        self._reply = reply = await self._budget.within(self._call_next(asked))
        self._progress.usage.begin_call(body)
        self._progress.calls.by = reply.by
        return reply

    def _spoken(self, text: str) -> str:
        """Return text for the client. The model's text of a later round begins with a new paragraph."""
        said = self._progress.said
        if self._quiet and said and not said[-1][-1:].isspace():
            text = f"\n\n{text}"
        self._quiet = False
        said.append(text)
        return text

    async def _execute(self, action: Execute) -> None:
        """Run a round of calls. A round that is still open, such as after a failure of the store, is continued."""
        round_ = await self._reopen_round() if self._progress.is_open else self._next_round(action)
        if isinstance(round_, Finish):
            self._action = round_
            return
        await round_.run()
        await self._hidden.marks.mark()
        if round_.finish is not None:
            self._state, self._context, self._action = round_.state, round_.context, round_.finish
            return
        self._progress.is_open = False
        self._action = defused_end(self._loop.handle_results(round_.planned, round_.outcome))

    def _next_round(self, action: Execute) -> Round:
        numbers = self._record.plan(action.planned, round_=len(self._progress.rounds))
        self._progress.rounds.append((self._loop.content, numbers, self._loop.extra_fields))
        self._progress.is_open = True
        self._reports.note_refused(action.planned)
        return self._new_round(action.planned, numbers, {}, reopened=False)

    async def _reopen_round(self) -> Round | Finish:
        exchange, parts = self._exchange, self._parts
        approvals = await parts.approvals.of_run(exchange.id, tenant=exchange.caller.tenant)
        await self._narrowed.read(approvals)
        opened = reopen(self._progress, self._record, approvals, parts.in_use.judge, exchange)
        if opened.unknown:
            self._state = "unknown"
            return Finish(await report_unknown(opened.unknown, self._record, exchange, parts.counters), "stop")
        return self._new_round(opened.planned, opened.numbers, opened.done, reopened=True)

    def _new_round(
        self, planned: Sequence[PlannedCall], numbers: Sequence[int], done: Mapping[int, CallOutcome], *, reopened: bool
    ) -> Round:
        parts = self._parts
        effects = Effects(
            counters=parts.counters,
            exchange=self._exchange,
            recorder=self._record,
            budget=self._budget,
            progress=self._progress,
            limit_chars=self._limits.result_chars,
        )
        return Round(
            in_use=parts.in_use,
            approvals=parts.approvals,
            settings=self._consent,
            exchange=self._exchange,
            narrowed=self._narrowed,
            recorder=self._record,
            budget=self._budget,
            effects=effects,
            planned=planned,
            numbers=numbers,
            done=done,
            progress=self._progress,
            say=self._emit_round,
            begun=self._send_effects_mark,
            questions=self._questions,
            reports=self._reports,
            left=self._left_in_question,
            reopened=reopened,
        )

    async def _emit_round(self, chunk: Chunk) -> None:
        """Send a chunk of a round to the client. A text in it becomes a paragraph of the answer."""
        if isinstance(chunk, str):
            self._quiet, self._before_question = True, len(self._progress.said)
            chunk = self._spoken(chunk)
        await self._emit(chunk)

    async def _left_in_question(self) -> None:
        """Park the hidden turns of an answer that its user stops: a chat program goes on from the text it has."""
        if self._before_question is not None:
            before = "".join(self._progress.said[: self._before_question])
            await self._hidden.park(self._loop.hidden, steps=self._record.steps, replayed_text=before)

    def _send_effects_mark(self) -> None:
        """Send the mark of the first effect without waiting for the client."""
        self._tell({EFFECTS: True})

    # The end of a turn.

    async def _end_turn(self, finish: Finish) -> list[Chunk]:
        """Write the end to the store, and return the last chunks of the turn."""
        last: list[Chunk] = []
        if finish.text:
            self._quiet = True
            last.append(self._spoken(finish.text))
            self._hidden.marks.told.add(last[0])
        usage = self._progress.usage.chunk()
        if self._state in PARKED:
            await self._hidden.park(self._loop.hidden, steps=self._record.steps)
            await self._patience.until(partial(self._record.park, self._state))
            await self._emit({PARKED_MARK: run_of_question(self._context)})
        else:
            if (asks := run_of_question(self._context)) is not None:
                await self._emit({PARKED_MARK: asks})
            await self._hidden.store(self._loop.hidden, finish.tool_calls)
            await self._record.end(self._state, answer=stored_answer(finish, said=self._progress.said, usage=usage))
        asked = self._questions.asked
        return last + last_chunks(finish, self._exchange, self._state, usage=usage, context=self._context, asked=asked)

    async def _handle_failure(self, failure: Exception) -> Exception:
        """Return the error for the run's client. After an effect it must not make the client try again."""
        if isinstance(failure, AnswerEnded):
            self._outcome = "completed"
            await keep_cut_turn(self._loop, self._progress, self._record, self._parts, self._hidden, is_completed=True)
            return failure
        if self._patience.is_recoverable(failure) and self._record.run is not None:
            self._outcome = LEFT
            self._parts.leases.give_back(self._record.run)
            return build_left_run_error(self._exchange.id)
        if isinstance(failure, GatewayError):
            error = self._budget.expiry() if self._expired else failure
        elif self._record.is_stored:
            log.error("run %s failed after a tool had run", self._exchange.id, exc_info=failure)
            error = GatewayError("internal_error", "The gateway failed; its log has this request id.")
        else:
            return failure
        if isinstance(self._loop, WorkflowLoop):
            error = self._loop.at_step(error)
        self._outcome = get_run_outcome(error)
        if self._outcome != "error":
            log.warning("run %s ended: %s", self._exchange.id, error.message)
        has_client = not self._exchange.background and self._exchange.call is None  # else nobody would continue it
        try:
            if has_client and error.code == "upstream_refused" and lacks_credential(self._exchange):
                await self._record.park("awaiting_client")
                error = tell_waiting(error)
            elif has_client and not self._expired and is_resumable(error, self._progress, self._loop):
                await self._record.park("awaiting_client", error=error)
                self._tell({PARKED_MARK: self._exchange.id})
                self._outcome = "awaiting_client"
                return build_parked_error(error, self._exchange)
            else:
                await self._record.end("failed", error=error)
        except GatewayError:  # it is not ours any more, or goes on once our lease is over
            self._is_lost = True
        await keep_cut_turn(self._loop, self._progress, self._record, self._parts, self._hidden)
        return error.after_effects() if self._record.run is not None and self._record.run.effects else error

    def drop(self) -> None:
        """Drop the run: this driver does not drive it any more."""
        self._record.drop()

    def _expire(self) -> None:
        """End the current model call. Its reader gets an error, which becomes the run's timeout."""
        self._expired = True
        self._closing = asyncio.get_running_loop().create_task(self.release())
