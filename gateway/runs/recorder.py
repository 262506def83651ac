"""The recorder of one run. It writes no line before a call that matters is judged.

1. A call runs only behind its line `started`, and a question goes to a person only behind the line that records it.
2. Every line carries the fence of the run's lease: a worker that lost the run cannot write.
3. A line that could not be written is written with the next one; before an effect it must be.

Theory of operation. The recorder has a picture of the run in memory (`run`, `steps`) and the part of it that the store
does not have yet, in `_unwritten`: steps, moves of approvals, events and audit lines. Methods such as `record_calls`,
`judged` and `ended` change the picture only. A *line* is one `Change`: the run with its progress, and everything
unwritten, in one transaction of the store. So the store never has a step without its approval, event or audit line.

There are two ways to write a line:
- `_before` an effect: `store_run`, `record_approval`, `start`, `confirm`, `park`. It is durable. If the store refuses,
  GatewayError is raised and the effect must not happen. `record_approval`, `start` and `park` then restore the picture
  (`_undo_on_failure`), so that a later line cannot record an effect that never was.
- `_write_afterwards`, behind an effect: `write_outcome`, `refused`, `end_run`. The effect has happened, so a failure of
  the store is logged and the facts stay unwritten for the next line. An end has no next line: it is owed to `Leases`,
  which writes it once the store works.

The life of a step: planned, requested (if it needs approval), started, then finished, failed or unknown. A step that
does not run is refused, rejected, expired or cancelled. Its approval moves with it: approved, executing, then done,
failed or unknown. After a crash, `started` without an outcome is the one state that the store's lines cannot decide.

The lease. The first line creates the run and holds its lease from then on (`hold_lease`). Each line of a driven run
renews the lease. A line with any other state than `running`, or of a run that is left, ends the driving and drops it
(`_build_change`).

Failures of a write, from clear to unclear:
- ConflictError: another owner has the run. `lost` is raised, and nothing is written any more, except
  `write_late_report`: the report of a call that this worker ran, beside the step and not in it.
- StoreError: not written.
- UncertainError: perhaps written. `_is_doubtful` is set, and the next line states that it may repeat the earlier one.
- Cancellation: `_commit` shields the write and waits for its end first, however often it is cancelled. So the picture
  always fits the store before the cancellation goes on.

Dangers.
- An effect between `start` and the call. Nothing may be awaited there, except `confirm`: writing may have taken longer
  than the lease, and then the run may have another owner by now.
- `_written` removes only as many lines as the change had: more may be noted while the store writes.
- `withdraw` is for a call that certainly did not run. Where that is a guess, the outcome is unknown.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

import orjson

from gateway.aio.clock import wait_until_done
from gateway.contracts.calls import CallOutcome, PlannedCall
from gateway.contracts.canonical_json import call_sha256, write_canonical
from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import Exchange
from gateway.contracts.plugin import Clock
from gateway.contracts.storage.journal import (
    ENDED,
    Approval,
    ApprovalState,
    AskedAlreadyError,
    AuditLine,
    Change,
    ConflictError,
    Journal,
    KeyTakenError,
    Move,
    RunEvent,
    RunState,
    StepState,
    StoredRun,
    StoredStep,
)
from gateway.contracts.storage.store import Json, StoreError, UncertainError, build_unwritten_error
from gateway.runs.idempotency_key import build_key_in_use_error
from gateway.runs.lease import LEASE_S, Age, build_lost_error
from gateway.runs.leases import Leases
from gateway.runs.request_snapshot import LATE_CHARS, RESULT_CHARS, build_run_record, shorten_ended_request

log = logging.getLogger("gateway")


@dataclass(slots=True)
class _Unwritten:
    """The part of a run's picture that the store does not have yet."""

    steps: set[int] = field(default_factory=set)
    audit: list[AuditLine] = field(default_factory=list)
    events: list[RunEvent] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)


@dataclass(slots=True)
class RunRecorder:
    """The recorder of one run. `progress` returns the state of the loop; `wrote` is called after every line."""

    store: Journal
    exchange: Exchange
    leases: Leases
    clock: Clock
    progress: Callable[[], Json]
    wrote: Callable[[], None]
    run: StoredRun | None = None
    steps: list[StoredStep] = field(default_factory=list)
    _task: "asyncio.Task[None] | None" = None  # that drives the run
    _unwritten: _Unwritten = field(default_factory=_Unwritten)
    _is_new: bool = True
    _is_doubtful: bool = False  # whether what a line wrote may be there though it failed
    _started: tuple[StoredStep, str | None] | None = None  # the last one as it was before, and its approval
    _last: tuple[int, str] | None = None  # a step whose outcome the next line brings, and its report
    _age: Age = field(init=False)

    def __post_init__(self) -> None:
        self._age = Age(self.clock)

    @property
    def is_stored(self) -> bool:
        """Return whether the run is in the store."""
        return not self._is_new

    def hold_lease(self) -> None:
        """Hold the lease of this stored run for the current task, which ends when another owner takes the run."""
        task = self._task = asyncio.current_task()
        assert task is not None
        self.leases.hold(self.exchange.id, task)

    def drop_run(self) -> None:
        """Drop the run: this driver does not drive it any more."""
        self.leases.drop(self.exchange.id, self._task)

    def resume(self, run: StoredRun, steps: Sequence[StoredStep]) -> None:
        """Continue a run that is in the store, and held."""
        self.run, self.steps, self._is_new = replace(run, error_code=None, error=None), list(steps), False

    async def store_run(self) -> None:
        """Store the run now, whatever it does later. Raises GatewayError."""
        await self._write_before_effect("running")

    def record_calls(self, planned: Sequence[PlannedCall], *, round_: int) -> list[int]:
        """Record calls that came together, and return their numbers."""
        numbers = []
        for p in planned:
            arguments = write_canonical(p.call.arguments)
            tool = p.call.tool if p.spec is None else p.spec.name
            step = StoredStep(
                run_id=self.exchange.id,
                tenant=self.exchange.caller.tenant,
                number=len(self.steps),
                round=round_,
                call_id=p.call.id,
                tool=tool,
                model_name=p.call.tool,
                arguments=arguments,
                sha256=call_sha256(tool, arguments),
                terminate=p.call.terminate,
                decision=p.verdict.decision,
                basis=p.verdict.basis,
                rule=p.verdict.rule,
                reason=p.verdict.reason,
                state="planned" if p.refusal is None else "refused",
                result=p.refusal,
                risk_level=p.risk_level,
            )
            numbers.append(step.number)
            self.steps.append(step)
            self._unwritten.steps.add(step.number)
            if p.spec is not None and p.verdict.basis != "malformed":
                self._queue_audit_line(step, "verdict")
        return numbers

    def record_verdict(self, number: int, planned: PlannedCall) -> None:
        """Record the new judgement of a call that was planned before."""
        verdict, refusal = planned.verdict, planned.refusal
        self._update_step(
            number, decision=verdict.decision, basis=verdict.basis, rule=verdict.rule, reason=verdict.reason
        )
        if refusal is not None:
            self._update_step(number, state="refused", result=refusal)
        self._queue_audit_line(self.steps[number], "verdict")

    async def record_refusals(self) -> None:
        """Write down the calls that policy refused, if there are any. A failure of the store changes nothing."""
        if self._unwritten.audit and self._last is None:
            await self._write_afterwards()

    async def record_approval(
        self,
        approvals: Sequence[Approval],
        shown: Sequence[Json],
        *,
        instead_of: Sequence[Approval] = (),
        once: bool = False,
    ) -> None:
        """Store approvals in place of `instead_of`. Raises GatewayError, AskedAlreadyError."""
        with self._undo_on_failure([approval.step for approval in approvals]):
            for approval in instead_of:
                self.cancel_approval(approval)
            for approval, facts in zip(approvals, shown, strict=True):
                self._update_step(approval.step, state="requested", approval_id=approval.id)
                self._queue_event("approval.required", facts)
            await self._write_before_effect("running", approvals=tuple(approvals), asks_once=once)

    def record_grant(self, number: int, grant_id: str, by: str) -> None:
        """Record that a grant clears the call."""
        self._update_step(number, reason=f"remembered approval {grant_id}")
        self._queue_audit_line(self.steps[number], "granted", by=by)

    def cancel_approval(self, approval: Approval) -> None:
        """Cancel an approval that is not needed, or does not hold any more."""
        self._unwritten.moves.append(Move(approval.id, approval.state, "cancelled"))
        self._queue_event("approval.resolved", {"approval_id": approval.id, "state": "cancelled"})
        self._queue_audit_line(self.steps[approval.step], "cancelled", decision="cancelled")

    def reset_call(self, number: int, approval_id: str | None, **facts: object) -> None:
        """Reset a started call that may run once more, and its approval. It keeps its start: it may have run."""
        self._update_step(number, state="planned" if approval_id is None else "requested", **facts)
        self._unwritten.moves += [] if approval_id is None else [Move(approval_id, "executing", "approved")]

    def withdraw(self, number: int) -> None:
        """Reset the last started call, which certainly did not run. Its approval stays valid."""
        assert self._started is not None
        was, approval_id = self._started
        self._queue_audit_line(self.steps[number], "withdrawn")
        self._queue_event("tool.withdrawn", {"step": number, "tool": was.tool})
        self.reset_call(number, approval_id, started_s=was.started_s)
        self._update_step(number, arguments=was.arguments, sha256=was.sha256, approval_id=was.approval_id)

    async def start(self, number: int, *, approval: Approval | None, tainted: bool = False) -> None:
        """Write that the call runs. `tainted`: its result is untrusted. Raises GatewayError: it must not run."""
        self._started = self.steps[number], None if approval is None else approval.id
        with self._undo_on_failure([number]):
            if approval is not None:
                self._unwritten.moves.append(Move(approval.id, "approved", "executing"))
                self._update_step(number, approval_id=approval.id)
                if approval.edited is not None:
                    self._update_step(
                        number, arguments=approval.edited, sha256=call_sha256(approval.tool, approval.edited)
                    )
            self._update_step(number, state="started", started_s=self.clock.time(), tainted=tainted)
            self._queue_audit_line(self.steps[number], "started")
            self._queue_event("tool.started", {"step": number, "tool": self.steps[number].tool})
            await self._write_before_effect("running", effects=True)

    async def confirm(self) -> None:
        """Renew the lease if writing took longer than it, so that this worker has the run now. Raises GatewayError."""
        while self._age.has_expired():
            await self._write_before_effect("running")

    async def write_outcome(self, number: int, outcome: CallOutcome | None, *, ok: bool, is_last: bool = False) -> None:
        """Write the outcome of a call; None: unknown. A failure of the store is logged: the next line carries it.

        `is_last`: the run ends right behind it, and both are one line, that of `end_run`.
        Raises GatewayError: another owner has the run. The outcome is then written as late.
        """
        step = self.steps[number]
        state: StepState = "unknown" if outcome is None else "finished" if ok else "failed"
        if outcome is None:
            self._update_step(number, state=state)
        else:
            whole = outcome.whole if len(outcome.whole) <= RESULT_CHARS else outcome.shown
            shown = None if outcome.shown == whole else outcome.shown
            now_s = self.clock.time()
            self._update_step(number, state=state, result=whole, shown=shown, answer=outcome.answer, finished_s=now_s)
        self._queue_event("tool.finished", {"step": number, "tool": step.tool, "state": state})
        if step.approval_id is not None:
            after: ApprovalState = "unknown" if outcome is None else "done" if ok else "failed"
            self._unwritten.moves.append(Move(step.approval_id, "executing", after))
        self._queue_audit_line(self.steps[number], "finished", decision=state)
        self._last = number, "It was stopped; how far it came is not known." if outcome is None else outcome.whole
        if not is_last:
            await self._write_afterwards()

    async def write_late_report(self, number: int, what: str) -> None:
        """Write this worker's report of a call beside its step, after the run has got another owner."""
        step, what = self.steps[number], what[:LATE_CHARS]
        log.error("run %s was lost: its step %d (%s) is late, as %s", step.run_id, number, step.tool, step.state)
        self._unwritten.events, self._unwritten.audit = [], []
        self._queue_event("tool.late", {"step": number, "tool": step.tool, "late": what})
        self._queue_audit_line(step, "late", decision=step.state)
        try:
            outcome = replace(step, late=f"{step.state}, after {self.leases.owner} had lost the run: {what}")
            await self.store.write_late_report(
                outcome, events=tuple(self._unwritten.events), audit=tuple(self._unwritten.audit)
            )
        except StoreError as error:
            log.error("run %s: what came late cannot be written down: %s", step.run_id, error)
        self.wrote()

    def record_skipped_call(self, number: int, state: StepState, result: str | None) -> None:
        """Record a call that will not run, and the result for the model, if any."""
        self._update_step(number, state=state, result=result)

    async def park(self, state: RunState, *, error: GatewayError | None = None) -> None:
        """Park the run, with this error if there is one: no worker drives it any more. Raises GatewayError."""
        if error is not None and self.run is not None:
            self.run = replace(self.run, error_code=error.code, error=error.message)
        with self._undo_on_failure(()):
            self._queue_event("run.parked", {"state": state})
            await self._write_before_effect(state)

    async def release_run(self, *, stopping: bool) -> None:
        """Release a run without readers, or one whose process stops. Raises GatewayError, StoreError."""
        if self._is_new and self._is_doubtful:  # what its first line was for did not happen
            await self.end_run("interrupted")
        if self.run is None or self._is_new or self.run.owner is None:
            return
        if stopping or self.run.state != "running":  # it was taken up, and nothing has come of that yet
            await self._commit(self._build_change(self.run.state, driven=False))
        elif any(step.state == "requested" for step in self.steps):  # the person may still answer
            await self.park("awaiting_approval")
        else:
            await self.end_run("interrupted")

    async def end_run(self, state: RunState, *, answer: bytes | None = None, error: GatewayError | None = None) -> None:
        """End the run, if it was ever begun, or may be in the store after an unclear write."""
        if self.run is None and not self._is_doubtful:
            return
        for step in (step for step in self.steps if step.state == "planned" and step.started_s is not None):
            self._update_step(step.number, state="unknown")  # it was to run once more, and does not
        run = self.run or build_run_record(self.exchange, now_s=self.clock.time())
        code, message = (run.error_code, run.error) if error is None else (error.code, error.message)
        self.run = replace(run, answer=answer, error_code=code, error=message)
        self._queue_event("run.finished", {"state": state})
        with suppress(*([GatewayError] if state == "cancelled" else [])):  # the cancellation came first
            await self._write_afterwards(state)

    def _update_step(self, number: int, **facts: object) -> None:
        self.steps[number] = replace(self.steps[number], **facts)  # type: ignore[arg-type]
        self._unwritten.steps.add(number)

    def _queue_audit_line(self, step: StoredStep, event: str, *, by: str = "", decision: str | None = None) -> None:
        """Add an audit line about a step to the next write."""
        self._unwritten.audit.append(
            AuditLine(
                tenant=self.exchange.caller.tenant,
                caller=self.exchange.caller.name,
                run_id=step.run_id,
                step=step.number,
                event=event,
                tool=step.tool,
                sha256=step.sha256,
                decision=step.decision if decision is None else decision,
                basis=step.basis,
                rule=step.rule,
                by=by,
                created_s=self.clock.time(),
            )
        )

    def _queue_event(self, kind: str, facts: Json) -> None:
        """Add an event of the run to the next write."""
        exchange, now_s = self.exchange, self.clock.time()
        data = orjson.dumps({"run_id": exchange.id, **facts})
        event = RunEvent(tenant=exchange.caller.tenant, run_id=exchange.id, type=kind, data=data, created_s=now_s)
        self._unwritten.events.append(event)

    @contextmanager
    def _undo_on_failure(self, numbers: Sequence[int]) -> Iterator[None]:
        """Undo the changes made inside if they cannot be written."""
        steps = [self.steps[number] for number in numbers]
        events, moves, audit = len(self._unwritten.events), len(self._unwritten.moves), len(self._unwritten.audit)
        try:
            yield
        except (GatewayError, AskedAlreadyError):
            for step in steps:
                self.steps[step.number] = step
            del self._unwritten.events[events:], self._unwritten.moves[moves:], self._unwritten.audit[audit:]
            raise

    async def _write_before_effect(
        self, state: RunState, *, approvals: tuple[Approval, ...] = (), asks_once: bool = False, effects: bool = False
    ) -> None:
        """Write before an effect."""
        try:
            change = self._build_change(state, effects=effects)
            await self._commit(replace(change, approvals=approvals, asks_once=asks_once) if approvals else change)
        except StoreError as error:
            log.error("run %s cannot be written down: %s", self.exchange.id, error)
            raise build_unwritten_error(
                error, "The gateway cannot write down what it does next, so it does nothing."
            ) from None

    async def _write_afterwards(self, state: RunState = "running") -> None:
        """Write behind an effect."""
        change = self._build_change(state, durable=False)
        last, self._last = self._last, None
        try:
            await self._commit(change)
        except GatewayError:
            if last is not None:
                await self.write_late_report(*last)
            raise
        except StoreError as error:
            log.error("run %s: what it did cannot be written down yet: %s", self.exchange.id, error)
            if state != "running":  # no next line will bring it
                self.leases.queue_end(change)

    async def _commit(self, change: Change) -> None:
        """Write the whole change, and pass a cancellation on afterwards. Raises GatewayError, StoreError."""
        writing = asyncio.ensure_future(self.store.write(change))
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            await wait_until_done(writing)
            failure = asyncio.CancelledError() if writing.cancelled() else writing.exception()
            if type(failure) is ConflictError:  # which is why it is cancelled, or will be
                raise build_lost_error(self.exchange.id) from None
            if failure is None:
                self._mark_written(change)
            raise
        except AskedAlreadyError:
            raise
        except KeyTakenError:
            raise build_key_in_use_error() from None
        except ConflictError:
            raise build_lost_error(self.exchange.id) from None
        finally:
            is_known = writing.done() and not writing.cancelled()
            self._is_doubtful |= is_known and isinstance(writing.exception(), UncertainError)
        self._mark_written(change)

    def _build_change(
        self, state: RunState, *, effects: bool = False, durable: bool = True, driven: bool = True
    ) -> Change:
        """Return everything not written yet as one change, and begin the lease anew or drop the run."""
        now_s, driven = self.clock.time(), driven and state == "running"
        if driven:
            self._age.begin()
        else:
            self.drop_run()
        before = self.run or build_run_record(self.exchange, now_s=now_s)
        run = replace(
            before,
            state=state,
            effects=effects or before.effects,
            updated_s=now_s,
            progress=orjson.dumps(self.progress()),
            owner=self.leases.owner if driven else None,
            lease_s=now_s + LEASE_S if driven else 0.0,
        )
        return Change(
            run=run,
            new=self._is_new,
            takes_key_of=self.exchange.origin.takes_key_of,
            repeats=self._is_doubtful,
            durable=durable,
            request=shorten_ended_request(self.exchange, before.request) if state in ENDED else None,
            steps=tuple(self.steps[number] for number in sorted(self._unwritten.steps)),
            moves=tuple(self._unwritten.moves),
            events=tuple(self._unwritten.events),
            audit=tuple(self._unwritten.audit),
        )

    def _mark_written(self, change: Change) -> None:
        """Clear what this change has written, and hold the lease of a run that is new in the store."""
        self.run, is_new, self._is_new, self._is_doubtful = change.run, self._is_new, False, False
        self._unwritten.steps.clear()
        del (
            self._unwritten.events[: len(change.events)],
            self._unwritten.moves[: len(change.moves)],
            self._unwritten.audit[: len(change.audit)],
        )
        if is_new:
            self.hold_lease()
        self.wrote()
