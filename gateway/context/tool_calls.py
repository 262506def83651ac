"""Calls of MCP clients: each is a separate run, on record, behind the same gate as the calls of models.

1. A call that needs an approval waits in the store and holds nothing here. The same call again joins its run, in any
   worker, until the client has the result. Then the same call is a new one.
2. A run whose outcome is unknown is reported as such to the same call, once, before that call may run anew.
3. A call that needs no approval is never joined: two equal calls at the same time are two calls.
4. A client that leaves cancels its call, unless another one waits for the same run, in any worker. What may have run is
   reported to the same call before that runs anew.
5. The result of a run is read from memory or, after a restart or in another worker, from the record: it is the same.
6. A workflow that is called as a tool is a run of that workflow. These rules for a call hold for the whole of it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

import orjson

from gateway.aio.clock import wait_until_set
from gateway.approvals import texts
from gateway.approvals.approvals import Decision
from gateway.context.call_runs import CallRun, Done, WaitingCall, WantedCall, build_idempotency_key, fingerprint_call
from gateway.context.lane import ContextLane
from gateway.contracts.caller import Caller
from gateway.contracts.canonical_json import write_canonical
from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import CallProgress, Exchange, Job, Origin, ToolSteering
from gateway.contracts.plugin import Clock
from gateway.contracts.storage.journal import AWAITED_S, ENDED, Approval, Journal, RunState, StoredRun, StoredStep
from gateway.contracts.storage.store import Json, StoreError, build_unknown_outcome_error, build_unwritten_error
from gateway.contracts.tools import ToolResult
from gateway.contracts.tracing.tracer import Tracer
from gateway.runs import run_resolution
from gateway.runs.event_feed import EventFeed
from gateway.runs.idempotency_key import RequestKey
from gateway.runs.lease import LOST, build_interrupted_error, is_lost
from gateway.runs.live_run import LiveRun
from gateway.runs.run_id import generate_run_id
from gateway.tools.call_answer import load_result
from gateway.tools.results import clean
from gateway.workflows.invocation import build_workflow_usage, check_parameters

log = logging.getLogger("gateway")

#: How often a worker reads the record of a run, besides its events, and how often a waiting client gets progress.
LOOK_S: Final = 5.0
#: How long a result waits for its client after its run has ended. The same call is a new one afterwards.
KEPT_S: Final = 24 * 3600.0
#: How long a client counts as one that waits while its user has the question.
ANSWER_S: Final = 600.0
#: Ends of a run after which its key begins a new one, if the run had no effect.
_CAME_TO_NOTHING: Final = frozenset(("failed", "interrupted", "cancelled"))
#: A service may be running by then.
_STARTS_S: Final = 5
_STORE_FAILED: Final = "The gateway's store failed, so it runs no call; its log says why."


@dataclass(slots=True, kw_only=True)
class ToolCalls:
    """The calls of one worker.

    `lane` returns the context lane of the configuration in use. `admit` raises when the gateway is full, and
    `check_model` when a caller may not use a model. `resume` continues a run that waits for no person any more, and
    `tracer` sends the spans of cancelled ones.
    """

    lane: Callable[[], ContextLane]
    store: Journal
    feed: EventFeed
    clock: Clock
    admit: Callable[[], None]
    check_model: Callable[[Caller], object]
    resume: Callable[[str], Awaitable[None]]
    tracer: Tracer | None = None
    _delivered: set[str] = field(default_factory=set)  # runs of which the store does not have it yet
    _tasks: "set[asyncio.Task[None]]" = field(default_factory=set)

    async def begin(self, wanted: WantedCall) -> CallRun:
        """Begin the run of a call, or return the run that the same call is to join. Raises GatewayError."""
        self.admit()
        lane = self.lane()
        exchange = _build_exchange(lane, wanted)
        is_keyed, size_bytes = wanted.idempotency_key is not None, len(write_canonical(wanted.arguments))
        request_key = RequestKey(
            exchange.origin.fingerprint if is_keyed else exchange.id,  # only calls with a key are compared in memory
            (exchange.caller.tenant, exchange.caller.name, exchange.origin.idempotency_key or "") if is_keyed else None,
            repeats=False,
            size_bytes=size_bytes,
        )
        try:
            earlier = (
                await self._find_keyed_run(lane, exchange, request_key)
                if is_keyed
                else await self._find_joinable_run(exchange)
            )
        except StoreError as error:
            log.error("the store failed: %s", error)
            raise build_unwritten_error(error, _STORE_FAILED) from None
        if earlier is not None:
            return earlier
        if wanted.workflow is None:
            _require_tool(lane, wanted.tool)
        else:
            parameters = check_parameters(wanted.workflow, wanted.arguments)
            self.check_model(exchange.caller)
            job = replace(exchange.job, workflow=build_workflow_usage(wanted.workflow, parameters))
            exchange = replace(exchange, job=job)
        if is_keyed and (live := lane.runs.find(request_key)) is not None:  # begun meanwhile
            return replace(_build_call_run(exchange, live.exchange.id), live=live)
        run = _build_call_run(exchange, exchange.id)
        run.live = await lane.begin(exchange, request_key, detached=True)
        return run

    def rejoin(self, wanted: WantedCall, run_id: str, waiter: str) -> CallRun:
        """Return the run of this id for a client that repeats its call; no run begins."""
        tenant = wanted.identity.caller.tenant
        is_workflow = wanted.workflow is not None
        return CallRun(
            run_id, tenant, fingerprint_call(wanted), waiter, is_shared=True, is_owed=True, is_workflow=is_workflow
        )

    async def wait_for_outcome(
        self,
        run: CallRun,
        *,
        wait_s: float,
        shown: str | None = None,
        progressed: Callable[[CallProgress], None] | None = None,
    ) -> Done | WaitingCall:
        """Wait for the result of a run, but for a person at most `wait_s`. Raises GatewayError: the run's own error.

        With `shown`, the id of an approval that its client's user has seen, this does not wait for another approval.
        `progressed` is called with reports of the tool, and now and then while a person is waited for.
        """
        run.tell = progressed
        waiting = self.lane().runs.waiting
        try:
            if (live := run.live) is not None:
                if run.is_shared:
                    await self._record_waiter(run)
                with waiting.get_watchers(run.id).attach(run):
                    await self._wait_for_turn_end(live)
                run.live, step, run.step = None, run.step, None
                is_ours = not is_lost(live.error)
                if not (live.marks.recorded and (run.is_workflow or not is_ours)):  # else its end is on record
                    live.transcript.reraise()
                if step is not None and is_ours and not run.is_workflow:
                    return _build_step_result(step, run.id, "completed")
                if live.answer.asks is not None:
                    run.id, run.is_owed, run.said_s = live.answer.asks, True, None
            with waiting.get_watchers(run.id).attach(run):
                return await self._follow_run(run, wait_s, shown)
        except StoreError as error:
            log.error("the store failed: %s", error)
            raise build_unknown_outcome_error(run.id) from None
        finally:
            run.tell = run.step = None

    def mark_delivered(self, run: CallRun) -> None:
        """Record that the client has the result, so that an equal call begins a new run."""
        if run.is_owed:
            self._delivered.add(run.id)
            self._write_in_background(self._record_delivery(run))

    def stop_waiting(self, run: CallRun, *, is_asked: bool = False) -> None:
        """Record that a request waits for a run no longer; `is_asked`: that its client's user answers a question."""
        if run.said_s is not None:
            self._write_in_background(self._record_departure(run, self.clock.time() + ANSWER_S if is_asked else 0.0))

    async def decide(self, approval_id: str, wish: Decision, *, caller: Caller) -> Approval:
        """Decide on a held call, let its run go on, and return the approval. Raises GatewayError, StoreError."""
        approval = await self.lane().approvals.decide(approval_id, wish, caller=caller)
        try:
            await self.resume(approval.run_id)
        except Exception:  # the decision stands, and another worker or a later look takes the run up
            log.exception("run %s does not go on yet", approval.run_id)
        return approval

    async def cancel(self, run: CallRun, caller: Caller) -> None:
        """Cancel a call: its question is withdrawn, and a tool that runs is cancelled in its source.

        While another request waits for the same run, nothing happens to it. Raises GatewayError, StoreError.
        """
        if caller.tenant != run.tenant:
            raise run_resolution.build_not_found_error()
        if run.live is not None and run.live.attendance.clients:  # of this worker
            return
        if run.live is not None:
            await run.live.end_unless_recorded(LOST)
        with suppress(GatewayError):  # it has ended, or is not on record: then nothing is withdrawn
            stored = await run_resolution.cancel(
                self.store, run.id, caller=caller, via="mcp", clock=self.clock, tracer=self.tracer, waiter=run.waiter
            )
            if stored.state not in ENDED:
                return
            if not stored.effects:
                self.mark_delivered(run)
        if run.live is not None:
            run.live.cancel(LOST)
        self.feed.nudge()

    async def close(self) -> None:
        """Wait until all writes in the background have ended."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _write_in_background(self, writes: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(writes)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _record_waiter(self, run: CallRun) -> None:
        """Record in the store that this request waits, unless it did so a short while ago. Raises StoreError."""
        now_s = asyncio.get_running_loop().time()
        if run.said_s is None or now_s >= run.said_s + AWAITED_S / 4:
            until_s = self.clock.time() + AWAITED_S
            await self.store.note_waiting_request(run.id, tenant=run.tenant, waiter=run.waiter, until_s=until_s)
            run.said_s = now_s

    async def _wait_for_turn_end(self, live: LiveRun) -> None:
        """Wait until the run ends or asks a person, counted as one of its clients."""
        runs = self.lane().runs
        runs.join(live)
        try:
            await live.wait_until_ended()
        finally:
            runs.remove_client(live, whole=live.done)

    async def _find_keyed_run(self, lane: ContextLane, exchange: Exchange, request_key: RequestKey) -> CallRun | None:
        """Return the run of an earlier call with the same key, unless it ended without effect or result."""
        stored = await lane.earlier(request_key, exchange.caller)
        if stored is None or (stored.state in _CAME_TO_NOTHING and not stored.effects):
            return None
        return _build_call_run(exchange, stored.id)

    async def _find_joinable_run(self, exchange: Exchange) -> CallRun | None:
        """Return the run that waits for this very call, or whose client has not got its result yet."""
        tenant, key = exchange.caller.tenant, exchange.origin.fingerprint
        stored = await self.store.find_undelivered_run(key, tenant=tenant)
        if stored is None:
            return None
        run = replace(_build_call_run(exchange, stored.id), is_owed=True)
        if stored.state not in ENDED:
            await self._record_waiter(run)  # from here on no client that leaves cancels the run; before, one may have
            stored = await self.store.run(stored.id, tenant=tenant) or stored
        is_old = stored.state in ENDED and stored.updated_s < self.clock.time() - KEPT_S
        is_void = stored.state == "cancelled" and not stored.effects
        if stored.id in self._delivered or is_void or is_old:
            await self.store.mark_delivered(key, tenant=tenant, run_id=stored.id)
            return None
        return run

    async def _follow_run(self, run: CallRun, wait_s: float, shown: str | None) -> Done | WaitingCall:
        """Follow a run by its record to its end, or until it has waited for a person for so long."""
        news, loop = asyncio.Event(), asyncio.get_running_loop()
        until_s = loop.time() + wait_s
        async with self.feed.subscribe(lambda _: news.set(), run_id=run.id, parting=news.set):
            while True:
                news.clear()
                await self._record_waiter(run)
                stored = await self.store.run(run.id, tenant=run.tenant)
                if stored is None:
                    raise run_resolution.build_not_found_error()
                if stored.state in ENDED or stored.state == "unknown":
                    return await self._load_result(stored, run)
                pending = await self._list_pending(stored)
                left_s = LOOK_S
                if pending:
                    is_new = shown is not None and pending[0].id != shown
                    if is_new or self.feed.leaving or loop.time() >= until_s:
                        return WaitingCall(pending, run.id, await self.lane().approvals.find_obstacle(pending[0]))
                    waits = f"The call of {pending[0].tool} waits for the approval of a person ({pending[0].id})."
                    run.report_progress(CallProgress(waits))
                    left_s = min(LOOK_S, until_s - loop.time())
                elif stored.state == "awaiting_approval":
                    await self.resume(run.id)  # the worker that took the decision may have died behind it
                await wait_until_set(news, left_s)

    async def _list_pending(self, stored: StoredRun) -> Sequence[Approval]:
        """Return the approvals that a run waits for, without the ones whose time is over."""
        desk = self.lane().approvals
        found = await desk.index_by_step(stored.id, tenant=stored.tenant)
        pending = [approval for approval in found.values() if approval.state == "pending"]
        if not any(approval.expires_s <= self.clock.time() for approval in pending):
            return pending
        await desk.expire()
        return [approval for approval in pending if approval.expires_s > self.clock.time()]

    async def _load_result(self, stored: StoredRun, run: CallRun) -> Done:
        """Return the result of a run that ended or is stuck, from its record. Raises GatewayError."""
        run.is_owed = run.is_owed or stored.state == "unknown"
        steps = await self.store.list_steps(stored.id, tenant=stored.tenant)
        if stored.kind == "workflow":
            return Done(_build_workflow_result(stored, steps), stored.id, stored.state)
        if not steps:
            raise run_resolution.build_not_found_error() if stored.error is None else _build_run_error(stored)
        step = steps[-1]
        if stored.state == "unknown":
            text = texts.format_unknown_text(step.tool, run_id=stored.id, step=step.number)
            return Done(ToolResult(text, ok=False), stored.id, stored.state)
        if step.result is not None and step.state in ("finished", "failed", "refused"):
            return _build_step_result(step, stored.id, "completed")
        if stored.state in ("failed", "interrupted"):
            if run.is_owed:  # reported once, as a result is: the same call begins anew
                return Done(ToolResult(_build_run_error(stored).message, ok=False), stored.id, stored.state)
            raise _build_run_error(stored)
        if step.state in ("started", "unknown"):
            return Done(
                ToolResult(texts.format_stopped_text(step.tool, run_id=stored.id), ok=False), stored.id, stored.state
            )
        text = _get_answer_text(stored) or texts.format_cancelled_text(step.tool)
        return Done(ToolResult(text, ok=False), stored.id, stored.state)

    async def _record_departure(self, run: CallRun, until_s: float) -> None:
        try:
            await self.store.note_waiting_request(run.id, tenant=run.tenant, waiter=run.waiter, until_s=until_s)
        except StoreError as error:  # it counts as one that waits for some time yet
            log.error("run %s: that a client has left cannot be written down: %s", run.id, error)

    async def _record_delivery(self, run: CallRun) -> None:
        """Store that the client has the result; log a failure of the store."""
        try:
            await self.store.mark_delivered(run.fingerprint, tenant=run.tenant, run_id=run.id)
        except StoreError as error:
            log.error("run %s: that its client has the result cannot be written down: %s", run.id, error)
        else:
            self._delivered.discard(run.id)


def _build_exchange(lane: ContextLane, wanted: WantedCall) -> Exchange:
    """Return the exchange of a call, of a workflow with its parameters as they came."""
    caller, chain, workflow = wanted.identity.caller, lane.rules.chain, wanted.workflow
    run_id = generate_run_id()
    return Exchange(
        id=run_id,
        body={"messages": []},
        caller=caller,
        chain=chain,
        user=wanted.user,
        steering=ToolSteering(
            only_tools=wanted.only_tools or (wanted.tool,),
            approvals="reject"
            if lane.rules.approval_modes.get_mode(None, caller=caller, chain=chain) == "reject"
            else "turn",
        ),
        origin=Origin(
            fingerprint=fingerprint_call(wanted),
            idempotency_key=build_idempotency_key(wanted),
            client=wanted.client,
        ),
        job=Job(
            call={"tool": wanted.tool, "arguments": wanted.arguments},
            workflow=None if workflow is None else build_workflow_usage(workflow, wanted.arguments),
            watcher=lane.runs.waiting.get_watchers(run_id),
        ),
    )


def _require_tool(lane: ContextLane, tool: str) -> None:
    """Raise GatewayError (service_not_running, tool_not_found) unless a tool of this inside name can be called now."""
    if lane.catalog.find_by_name(tool) is not None:
        return
    if (service := lane.catalog.find_stopped_service(tool)) is None:
        raise GatewayError(
            "tool_not_found", "There is no tool of this name for this key: list the tools, and call one of them."
        )
    does = "is starting" if lane.catalog.is_starting(tool) else "is not running"
    raise GatewayError(
        "service_not_running",
        f"The service {service!r} of this tool {does}, so nothing has run: call it again later. The operator sees with "
        "`gateway mcp list` why it does not run.",
        retry_after_s=_STARTS_S,
    )


def _build_call_run(exchange: Exchange, run_id: str) -> CallRun:
    is_keyed = exchange.origin.idempotency_key is not None
    is_workflow = exchange.job.workflow is not None
    tenant, key = exchange.caller.tenant, exchange.origin.fingerprint
    return CallRun(run_id, tenant, key, exchange.id, is_shared=is_keyed, is_workflow=is_workflow)


def _build_step_result(step: StoredStep, run_id: str, state: RunState) -> Done:
    """Return the result of a call whose step has one."""
    ok, text = step.state == "finished", step.shown or step.result or ""
    return Done(load_result(step.answer, text if ok else text.removeprefix("Error: "), ok=ok), run_id, state)


def _build_workflow_result(stored: StoredRun, steps: Sequence[StoredStep]) -> ToolResult:
    """Return the client's result of a workflow run that has ended, or that waits for a person to settle it."""
    open_step = next((step for step in steps if step.state in ("started", "unknown")), None)
    if stored.state == "completed":
        return ToolResult(clean(_get_answer_text(stored)))
    if stored.state == "unknown" and open_step is not None:
        text = texts.format_unknown_text(open_step.tool, run_id=stored.id, step=open_step.number)
    elif stored.state in ("failed", "interrupted"):
        text = _build_run_error(stored).message
    elif open_step is not None:
        text = texts.format_stopped_text(open_step.tool, run_id=stored.id)
    else:
        ran = sum(step.state in ("finished", "failed") for step in steps)
        text = _get_answer_text(stored) or texts.format_cancelled_text(steps[-1].tool if steps else "", ran_before=ran)
    return ToolResult(clean(text), ok=False)


def _get_answer_text(stored: StoredRun) -> str:
    """Return the text of the answer that a run ended with; "": it has none."""
    answer: Json = {} if stored.answer is None else orjson.loads(stored.answer)
    return answer.get("content") or ""


def _build_run_error(stored: StoredRun) -> GatewayError:
    """Return the error that a run ended with."""
    if stored.error_code is None or stored.error is None:
        return build_interrupted_error(stored.id)
    return GatewayError(stored.error_code, stored.error).mark_after_effects()
