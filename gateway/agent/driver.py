"""The driver of agent loops: it calls the model, reads its answers as they stream, runs the calls, and calls it again.

Text goes on to the client as it comes; tool calls never do. The state machine is `gateway.agent.loop`. Calls run in
`gateway.agent.round`. This module contains the model calls, the clock, and the client's side of the stream.

Theory of operation. The state machine returns an action and does nothing itself: `Ask` (call the model), `Execute` (run
these calls) or `Finish`. The driver carries out `_action` and gives the result back, until the action is Finish.

1. `load_state` reads the store before the first byte is sent: hidden turns of the conversation and, for a run that
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
- *The time is over.* `OpenReply.expire` releases the model's reply. Its reader gets an error, which `_failed` replaces
  by the timeout because `has_expired` is set. Waits for a person pause the budget.
- *The client leaves during a model call.* `OpenReply.drop` ends that call. The loop in `_call_model` then deletes what
  the dropped answer said, and calls the model again as soon as `emit` returns, that is, once a client reads.
- *The task is cancelled*: the lease is lost, no client reads, or the process stops. `RunRecorder.release_run` decides
  what the store says of the run, and the cancellation goes on.
- *The store fails.* If a person was asked about a call of the run, Patience repeats the round for a while. After that
  the outcome is `left`: the run stays in the store as it is, and any worker that can write takes it up.

Dangers.
- A retry after an effect. `_failed` gives every error behind an effect a status on which clients do not try again.
- Text that is sent twice. `progress.said` is the text of the whole turn. Before you repeat a call of the model, cut it
  back to its length before that call.
- A cycle of references: the parts of a run get functions of each other, but none of the driver, so that a finished run
  is freed at once.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial

import orjson

from gateway.agent.agent_services import AgentParts
from gateway.agent.answer import Further, OpenReply, build_reader
from gateway.agent.call_execution import Effects
from gateway.agent.client_notifications import Speech
from gateway.agent.loop import Action, AskAction, Execute, Finish
from gateway.agent.output.scanner import CallGroup, MalformedCall
from gateway.agent.progress import PARKED, lacks_credential, reopen, report_unknown
from gateway.agent.round import Round
from gateway.agent.run_context import build_run_context
from gateway.agent.run_metrics import (
    LEFT,
    build_last_chunks,
    build_stored_answer,
    defuse_end,
    get_run_outcome,
    record_run_end,
    store_unfinished_turn,
)
from gateway.agent.store_retry import build_left_run_error
from gateway.agent.upstream_recovery import (
    EARLY_S,
    build_parked_error,
    build_waiting_error,
    get_retry_pause_s,
    is_resumable,
)
from gateway.agent.workflow_loop import WorkflowLoop
from gateway.approvals.chat_texts import find_question_run
from gateway.contracts.calls import CallOutcome, PlannedCall
from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import AnswerEnded, Chunk, Emit, Exchange, Handler, Reply
from gateway.contracts.plugin import LoopLimits
from gateway.contracts.records import replace
from gateway.contracts.storage.journal import ENDED, RunState
from gateway.contracts.storage.store import Json, StoreError
from gateway.dialects import chat_chunks as chunks
from gateway.runs.call_events import begins_on_record, build_opening
from gateway.runs.live_run import ANSWERS, CALLS, RECORDED, STOPPING
from gateway.runs.live_run import PARKED as PARKED_MARK

log = logging.getLogger("gateway")

ASK_BEFORE = "hitl:ask_before"


class RunDriver:
    """One run of a loop."""

    def __init__(self, parts: AgentParts, limits: LoopLimits, exchange: Exchange, call_next: Handler) -> None:
        self._run = run = build_run_context(parts, limits, exchange)
        self._call_next = call_next
        self._reader = partial(build_reader, exchange, usage=run.progress.usage, further=Further())
        self._speech = Speech(run.progress)
        self._open = OpenReply(run.budget)
        self._messages: list[Json] = exchange.body["messages"]
        self._step = 0
        self._action: Action = AskAction(())
        self._state: RunState = "completed"
        self._context: Json = {}
        self._outcome = "error"  # for the metric
        self._is_lost = False

    async def load_state(self) -> None:
        """Read from the store: hidden turns of the conversation, and this run's progress. Raises StoreError."""
        run = self._run
        exchange, store = run.exchange, run.parts.store
        if (resume := exchange.execution.resume) is not None:
            run.record.hold_lease()
            steps = await store.list_steps(resume.run.id, tenant=resume.run.tenant)
            run.record.resume(resume.run, steps)
            snapshot = orjson.loads(resume.run.progress)
            run.progress.restore(snapshot, run.loop, steps, run.parts.in_use.judge, exchange)
            run.narrowed.restore()
            run.budget.restore(snapshot["spent_s"])
            if exchange.delivery.shows_calls:
                await run.hidden.marks.mark_calls(run.progress.untrusted_steps, steps)
        elif exchange.intent is not None and exchange.intent.rule == ASK_BEFORE and not exchange.dry:
            run.progress.asked_for = True
            await run.parts.approvals.remembered.store_ask(exchange)
        self._messages = await run.hidden.build_conversation()

    async def stream(self, emit: Emit) -> None:
        """Send the client its answer: text, events, one finish reason, and the usage of the whole turn."""
        run = self._run
        self._speech.tell = run.hidden.marks.told.wrap_emit(emit)
        run.budget.start(self._open.expire)
        try:
            delivery = run.exchange.delivery
            if delivery.events or delivery.shows_calls or run.exchange.execution.resume is not None:
                said, progress, catalog = run.hidden.find_replay_text(), run.progress, run.parts.in_use.judge.catalog
                for chunk in build_opening(run.exchange, said, run.record.steps[progress.shown :], catalog):
                    await self._speech.emit(chunk)
            if delivery.brings:
                await self._speech.emit(self._speech.format_text(delivery.brings))
            await self._begin()
            self._action = Execute(()) if run.progress.is_open else defuse_end(run.loop.begin())
            while not isinstance(self._action, Finish):
                if isinstance(self._action, Execute):
                    await run.patience.retry_until_done(partial(self._execute, self._action))
                else:
                    await self._call_model()
            for chunk in await self._end_turn(self._action):
                await self._speech.emit(chunk)
            self._outcome = self._state
        except Exception as failure:
            raise await self._handle_failure(failure) from None
        except asyncio.CancelledError as left:
            self._outcome = "cancelled"
            with suppress(GatewayError, StoreError):
                await run.record.release_run(stopping=STOPPING in left.args)
            if STOPPING in left.args and (stored := run.record.run) is not None and stored.state not in ENDED:
                # It may have come on record only a moment ago: its first line was being written.
                self._speech.mark_effects()
            await store_unfinished_turn(self._run)
            raise
        finally:
            run.budget.stop()
            await run.hidden.marks.mark_received_texts()
            await self.release()
            self.drop_run()
            if not run.exchange.dry:
                stored, counters, trace = run.record.run, run.parts.counters, run.exchange.execution.trace
                record_run_end(run.loop, self._outcome, counters, trace=trace, run=stored, is_lost=self._is_lost)

    async def _begin(self) -> None:
        """Store a turn that begins on record before its first step. Read whether each step of a workflow asks."""
        run = self._run
        workflow = run.loop.workflow if isinstance(run.loop, WorkflowLoop) else None
        if workflow is not None or begins_on_record(run.exchange):
            if workflow is None or not run.record.is_stored:
                await run.patience.retry_until_done(run.record.store_run)
            await self._speech.emit({RECORDED: True})
        if workflow is not None:
            await run.progress.load_ask_before_flag(run.parts.approvals.remembered, run.exchange)
            await run.budget.run_within(run.parts.in_use.wait_until_started(workflow.tools))

    async def _call_model(self) -> None:
        """Call the model once, and set the action that follows from its answer."""
        run = self._run
        self._step += 1
        if run.exchange.delivery.events:
            await self._speech.emit(chunks.build_event({"type": "step.started", "step": self._step}))
        n_said, answer, tries = len(run.progress.said), None, 0
        while answer is None or self._open.is_dropped:
            await self._speech.emit({CALLS: self._open.drop_call})
            del run.progress.said[n_said:]
            run.hidden.marks.told.begin_call(again=self._open.is_dropped)
            self._open.is_dropped, self._speech.is_quiet = False, True
            answer = self._reader(
                spoken=self._speech.format_text,
                has_tool=run.narrowed.has_tool,
                holds_back=run.loop.holds_back,
                hides_text=run.loop.hides_text,
            )
            try:
                with run.progress.time_call(model=run.exchange.body.get("model"), clock=run.parts.clock):
                    reply = await self._request_model(again=tries)
                    self._speech.tell({ANSWERS: reply})
                    await answer.read(reply, self._speech.tell)
            except asyncio.CancelledError:
                del run.progress.said[n_said:]  # a run that goes on later says it anew
                raise
            except GatewayError as error:
                if not (self._open.is_dropped or await self._may_retry(error, n_said, tries)):
                    raise
                answer, tries = None, tries + (not self._open.is_dropped)
            await self.release()
        await self._speech.emit({CALLS: None})
        if run.exchange.delivery.events:
            await self._speech.emit(run.progress.calls.build_finish_event(self._step))
        if answer.has_sources:
            await run.hidden.marks.mark_server_sources()
        rest, found = answer.finish()
        if rest:
            await self._speech.emit(rest)
        if isinstance(found, MalformedCall):
            run.narrowed.report_malformed(found)
        elif isinstance(found, CallGroup):
            found = await run.narrowed.mark_doubtful_calls(found, self._messages)
        self._action = defuse_end(run.loop.handle_answer(answer.content, found, finish_reason=answer.reason))

    async def _may_retry(self, error: GatewayError, n_said: int, tries: int) -> bool:
        """Return whether the model may be called again, after the pause that comes first."""
        run = self._run
        said, left_s = run.progress.said, run.budget.left_s
        may = run.progress.rounds and len(said) == n_said and not self._open.has_expired
        del said[n_said:]  # a run that goes on later says it anew
        if not may or (wait_s := get_retry_pause_s(error, tries=tries, left_s=left_s)) is None:
            return False
        run.parts.counters.count("model_retries")
        await self.release()
        with suppress(GatewayError):  # its time is over, or its client is gone: the next step sees that
            await run.budget.run_within(asyncio.sleep(wait_s + EARLY_S))
        return True

    async def release(self) -> None:
        """Release the reply of the model. Idempotent."""
        await self._open.release()

    # The model.

    async def _request_model(self, *, again: int) -> Reply:
        """Call the model with the whole conversation, including hidden turns. `again`: see `Execution`."""
        run = self._run
        body = run.narrowed.build_request(self._messages)
        narrowed = run.narrowed.exchange
        execution = replace(narrowed.execution, budget_s=run.budget.left_s, again=again)
        asked = replace(narrowed, body=body, execution=execution)
        if asked.dry:
            asked = asked.with_remarks(*run.hidden.remarks)
        self._open.reply = reply = await run.budget.run_within(self._call_next(asked))
        run.progress.usage.begin_call(body)
        run.progress.calls.by = reply.by
        return reply

    async def _execute(self, action: Execute) -> None:
        """Run a round of calls. A round that is still open, such as after a failure of the store, is continued."""
        run = self._run
        round_ = await self._reopen_round() if run.progress.is_open else self._begin_next_round(action)
        if isinstance(round_, Finish):
            self._action = round_
            return
        await round_.carry_out()
        await run.hidden.marks.mark()
        if round_.finish is not None:
            self._state, self._context, self._action = round_.state, round_.context, round_.finish
            return
        run.progress.is_open = False
        self._action = defuse_end(run.loop.handle_results(round_.planned, round_.outcome))

    def _begin_next_round(self, action: Execute) -> Round:
        """Record these calls as the next group of the run, and return it ready to be carried out."""
        run = self._run
        numbers = run.record.record_calls(action.planned, round_=len(run.progress.rounds))
        run.progress.rounds.append((run.loop.content, numbers, run.loop.extra_fields))
        run.progress.is_open = True
        run.reports.note_refused(action.planned)
        return self._build_round(action.planned, numbers, {}, reopened=False)

    async def _reopen_round(self) -> Round | Finish:
        """Return the unfinished group of a resumed run, or the end of its turn if a call's outcome is unknown."""
        run = self._run
        exchange, parts = run.exchange, run.parts
        approvals = await parts.approvals.index_by_step(exchange.id, tenant=exchange.caller.tenant)
        await run.narrowed.read(approvals)
        opened = reopen(run.progress, run.record, approvals, parts.in_use.judge, exchange)
        if opened.unknown:
            self._state = "unknown"
            return Finish(await report_unknown(opened.unknown, run.record, exchange, parts.counters), "stop")
        return self._build_round(opened.planned, opened.numbers, opened.done, reopened=True)

    def _build_round(
        self, planned: Sequence[PlannedCall], numbers: Sequence[int], done: Mapping[int, CallOutcome], *, reopened: bool
    ) -> Round:
        """Return a group of calls; `done` are the results that the record already has."""
        run = self._run
        effects = Effects(
            counters=run.parts.counters,
            exchange=run.exchange,
            recorder=run.record,
            budget=run.budget,
            progress=run.progress,
            limit_chars=run.limits.result_chars,
        )
        return Round(
            run=run,
            effects=effects,
            speech=self._speech,
            planned=planned,
            numbers=numbers,
            done=done,
            reopened=reopened,
        )

    # The end of a turn.

    async def _end_turn(self, finish: Finish) -> list[Chunk]:
        """Write the end to the store, and return the last chunks of the turn."""
        run = self._run
        last: list[Chunk] = []
        if finish.text:
            self._speech.is_quiet = True
            last.append(self._speech.format_text(finish.text))
            run.hidden.marks.told.add(last[0])
        usage = run.progress.usage.build_chunk()
        if self._state in PARKED:
            await run.hidden.park(run.loop.hidden, steps=run.record.steps)
            await run.patience.retry_until_done(partial(run.record.park, self._state))
            await self._speech.emit({PARKED_MARK: find_question_run(self._context)})
        else:
            if (asks := find_question_run(self._context)) is not None:
                await self._speech.emit({PARKED_MARK: asks})
            await run.hidden.store(run.loop.hidden, finish.tool_calls)
            await run.record.end_run(
                self._state, answer=build_stored_answer(finish, said=run.progress.said, usage=usage)
            )
        asked = run.questions.asked
        return last + build_last_chunks(
            finish, run.exchange, self._state, usage=usage, context=self._context, asked=asked
        )

    async def _handle_failure(self, failure: Exception) -> Exception:
        """Return the error for the run's client. After an effect it must not make the client try again."""
        run = self._run
        if isinstance(failure, AnswerEnded):
            self._outcome = "completed"
            await store_unfinished_turn(self._run, is_completed=True)
            return failure
        if run.patience.is_recoverable(failure) and run.record.run is not None:
            self._outcome = LEFT
            run.parts.leases.give_back(run.record.run)
            return build_left_run_error(run.exchange.id)
        if isinstance(failure, GatewayError):
            error = run.budget.expiry() if self._open.has_expired else failure
        elif run.record.is_stored:
            log.error("run %s failed after a tool had run", run.exchange.id, exc_info=failure)
            error = GatewayError("internal_error", "The gateway failed; its log has this request id.")
        else:
            return failure
        if isinstance(run.loop, WorkflowLoop):
            error = run.loop.add_step_to_error(error)
        self._outcome = get_run_outcome(error)
        if self._outcome != "error":
            log.warning("run %s ended: %s", run.exchange.id, error.message)
        # A run in the background and a single call have no client that would continue them.
        has_client = not run.exchange.delivery.background and run.exchange.job.call is None
        try:
            if has_client and error.code == "upstream_refused" and lacks_credential(run.exchange):
                await run.record.park("awaiting_client")
                error = build_waiting_error(error)
            elif has_client and not self._open.has_expired and is_resumable(error, run.progress, run.loop):
                await run.record.park("awaiting_client", error=error)
                self._speech.tell({PARKED_MARK: run.exchange.id})
                self._outcome = "awaiting_client"
                return build_parked_error(error, run.exchange)
            else:
                await run.record.end_run("failed", error=error)
        except GatewayError:  # it is not ours any more, or goes on once our lease is over
            self._is_lost = True
        await store_unfinished_turn(self._run)
        return error.mark_after_effects() if run.record.run is not None and run.record.run.effects else error

    def drop_run(self) -> None:
        """Drop the run: this driver does not drive it any more."""
        self._run.record.drop_run()
