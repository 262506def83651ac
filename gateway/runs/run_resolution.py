"""The two ways in which people settle runs: they decide the outcome of an unknown call, or they cancel a run.

1. A settlement moves the run's fence on. If two people settle the same call, the second changes nothing.
2. The settlement is stored with the name of its author. Only then does the run go on.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import orjson

from gateway.contracts.caller import Caller
from gateway.contracts.errors import GatewayError
from gateway.contracts.plugin import Clock
from gateway.contracts.storage.journal import (
    ENDED,
    Approval,
    ApprovalState,
    AuditLine,
    Change,
    ConflictError,
    Journal,
    Move,
    RunEvent,
    StepState,
    StoredRun,
    StoredStep,
    Via,
)
from gateway.contracts.storage.store import Json, StoreError
from gateway.contracts.tracing.tracer import Tracer
from gateway.runs.run_span import send_cancelled_spans
from gateway.tools.decision_rules import DecisionRules

log = logging.getLogger("gateway")

Outcome = Literal["done", "retry", "failed"]
DONE = "A person says that this call was done."
FAILED = "Error: a person says that this call failed."

#: The new states of the step, and of its approval.
_STEP: Mapping[Outcome, StepState] = {"done": "finished", "retry": "planned", "failed": "failed"}
_APPROVAL: Mapping[Outcome, ApprovalState] = {"done": "done", "retry": "approved", "failed": "failed"}
_OPEN = frozenset(("started", "unknown"))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettlement:
    """A person's settlement of a step. `result` is the result for the model of a call that was done.

    It counts as untrusted, unless the person declares it `trusted`. `user` is the end user whom the request names.
    """

    step: int
    outcome: Outcome
    via: Via
    result: str | None = None
    trusted: bool = False
    user: str | None = None


async def resolve(
    store: Journal, run_id: str, settlement: RunSettlement, *, caller: Caller, rules: DecisionRules, clock: Clock
) -> StoredRun:
    """Settle a call and return the run afterwards. It can be claimed once all of its calls are settled.

    Raises GatewayError (run_not_found, scope_missing, own_call, run_not_waiting, invalid_field) and StoreError.
    """
    run = await store.run(run_id, tenant=caller.tenant)
    if run is None:
        raise build_not_found_error()
    if "approve" not in caller.scopes:
        raise GatewayError("scope_missing", "Your key may not settle calls: it needs the scope 'approve'.")
    if run.state != "unknown":
        raise _build_not_waiting_error(f"is {run.state}")
    change = await _build_change(store, run, settlement, caller=caller, rules=rules, now_s=clock.time())
    try:
        await store.write(change)
    except ConflictError:
        raise _build_not_waiting_error("was changed meanwhile: look at it again") from None
    return change.run


async def cancel(
    store: Journal,
    run_id: str,
    *,
    caller: Caller,
    via: Via,
    clock: Clock,
    tracer: Tracer | None,
    waiter: str | None = None,
) -> StoredRun:
    """Cancel a run and return it afterwards. A run that was cancelled before is returned unchanged.

    `waiter` is the request that waits for it no longer: while another one does, the run is returned unchanged, too.
    `tracer` sends the spans of the run and of its approvals. Raises GatewayError (run_not_found, run_ended) and
    StoreError.
    """
    run = await store.run(run_id, tenant=caller.tenant)
    if run is None:
        raise build_not_found_error()
    now_s = clock.time()
    line = AuditLine(
        tenant=run.tenant,
        caller=run.caller,
        run_id=run.id,
        event="decision",
        decision="cancelled",
        rule="run_cancelled",
        by=caller.name,
        via=via,
        created_s=now_s,
    )
    event = _build_event(run, "run.finished", {"state": "cancelled"}, now_s=now_s)
    cancelled = await store.cancel(run.id, tenant=run.tenant, now_s=now_s, events=[event], audit=[line], waiter=waiter)
    after: StoredRun | None = replace(run, state="cancelled", updated_s=now_s, owner=None, lease_s=0.0)
    try:
        if cancelled:
            await send_cancelled_spans(run, tracer, store=store, by=caller.name, via=via, now_s=now_s)
        after = await store.run(run.id, tenant=run.tenant)
    except StoreError as error:
        if not cancelled:
            raise
        log.error("the store failed behind the end of run %s, which is cancelled: %s", run.id, error)
    if after is None:
        raise build_not_found_error()
    is_spared = waiter is not None and after.state not in ENDED
    if not cancelled and after.state != "cancelled" and not is_spared:
        raise GatewayError("run_ended", f"This run is {after.state} already: there is nothing to cancel.")
    return after


def build_not_found_error() -> GatewayError:
    """Return the error of a missing run. A run of another tenant gets the same answer."""
    return GatewayError("run_not_found", "There is no such run.")


async def _build_change(
    store: Journal, run: StoredRun, settlement: RunSettlement, *, caller: Caller, rules: DecisionRules, now_s: float
) -> Change:
    """Return the change to be written. Raises GatewayError."""
    steps = await store.list_steps(run.id, tenant=run.tenant)
    step = _get_step(steps, settlement.step)
    left = any(other.state in _OPEN for other in steps if other.number != step.number)
    moves: tuple[Move, ...] = ()
    if step.approval_id is not None:
        approval = await store.get_approval(step.approval_id, tenant=run.tenant)
        if approval is not None:
            _check_settler(approval, settlement, caller, rules)
        if approval is not None and approval.state in ("executing", "unknown"):
            moves = (Move(approval.id, approval.state, _APPROVAL[settlement.outcome]),)
    after = _settle_step(step, settlement, now_s=now_s)
    facts = {"step": step.number, "tool": step.tool, "as": settlement.outcome, "state": after.state}
    line = AuditLine(
        tenant=run.tenant,
        caller=run.caller,
        run_id=run.id,
        step=step.number,
        event="resolved",
        tool=step.tool,
        sha256=step.sha256,
        decision=settlement.outcome,
        basis=step.basis,
        rule=step.rule,
        by=caller.name,
        via=settlement.via,
        created_s=now_s,
    )
    return Change(
        run=replace(run, state="unknown" if left else "running", updated_s=now_s, owner=None, lease_s=0.0),
        steps=(after,),
        moves=moves,
        passes_on=True,
        events=(_build_event(run, "step.resolved", facts, now_s=now_s),),
        audit=(line,),
    )


def _check_settler(approval: Approval, settlement: RunSettlement, caller: Caller, rules: DecisionRules) -> None:
    """Check that the word of one person is enough, and this person's. Raises GatewayError (own_call, run_not_waiting).

    To let a call run again, or to vouch for its result, is to approve it. To give it up is to withdraw it.
    """
    outcome = settlement.outcome
    if outcome != "failed" and rules.refuses(approval, key=caller.name, user=settlement.user):
        raise GatewayError(
            "own_call",
            f"You began the run of this call, and `approvals.self` is `refuse`: another person must settle it as "
            f"{outcome!r}. You may settle it as 'failed'.",
            param="as",
        )
    if outcome == "retry" and approval.required > 1:
        raise GatewayError(
            "run_not_waiting",
            f"{approval.required} keys must approve this call each time, and one cannot let it run again: settle it as "
            "'done' or 'failed'; the model may ask for it anew.",
            param="as",
        )


def _get_step(steps: Sequence[StoredStep], number: int) -> StoredStep:
    """Return the step that waits for this settlement. Raises GatewayError."""
    waiting = ", ".join(str(step.number) for step in steps if step.state in _OPEN) or "none"
    step = next((step for step in steps if step.number == number), None)
    if step is None:
        raise GatewayError(
            "invalid_field", f"The run has no step of that number; to be settled: {waiting}.", param="step"
        )
    if step.state not in _OPEN:
        raise GatewayError("run_not_waiting", f"Step {number} is {step.state}; to be settled: {waiting}.", param="step")
    return step


def _settle_step(step: StoredStep, settlement: RunSettlement, *, now_s: float) -> StoredStep:
    """Return the step with the state and the result that a person stated for it."""
    state = _STEP[settlement.outcome]
    if settlement.outcome == "retry":
        return replace(step, state=state, result=None, shown=None, started_s=None, finished_s=None)
    result = FAILED
    if settlement.outcome == "done":
        result = DONE if settlement.result is None else settlement.result
    elif settlement.result is not None:
        result = f"{FAILED} {settlement.result}"
    tainted = not settlement.trusted and (step.tainted or settlement.result is not None)
    return replace(step, state=state, result=result, shown=None, finished_s=now_s, tainted=tainted)


def _build_not_waiting_error(what: str) -> GatewayError:
    return GatewayError(
        "run_not_waiting", f"The run {what}; only a run in the state 'unknown' waits for a word about its calls."
    )


def _build_event(run: StoredRun, kind: str, facts: Json, *, now_s: float) -> RunEvent:
    data = orjson.dumps({"run_id": run.id, **facts})
    return RunEvent(tenant=run.tenant, run_id=run.id, type=kind, data=data, created_s=now_s)
