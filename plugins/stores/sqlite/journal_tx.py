"""Transactions of the journal on a SQLite connection: each change with its events and audit lines.

1. The condition of a change stands in the statement that makes it. ConflictError where it is not met.
2. The values with which a run began stay as they were inserted, except for its request at its end. A change never
   shortens its lease, but may release it.
3. An approval that expires without a decision leaves an event and an audit line. Only this module sees that for sure.
4. Each line of the audit log is chained to the last one, in the same transaction as the change that it describes.
"""

import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import replace
from operator import attrgetter

from gateway.plugin import (
    APPROVED,
    AWAITED_S,
    ENDED,
    FIRST_HASH,
    Approval,
    AskBefore,
    AskedAlreadyError,
    AuditLine,
    Change,
    ConflictError,
    DecisionResult,
    DecisionWrite,
    Grant,
    KeyTakenError,
    NoteWrite,
    RunEvent,
    StoredRun,
    StoredStep,
    link,
)

from . import journal_statements as journal
from .rows import Rows
from .transactions import Lasts

RUNS, STEPS = Rows(StoredRun), Rows(StoredStep)
APPROVALS, GRANTS, EVENTS, AUDIT = Rows(Approval), Rows(Grant), Rows(RunEvent), Rows(AuditLine)
ASKS = Rows(AskBefore)
_ASKED = attrgetter(*journal.ASKED)
_NEW_RUN, _CHANGED_RUN = attrgetter(*journal.NEW_RUN), attrgetter(*journal.CHANGED_RUN)


def choose_durability(change: Change) -> Lasts:
    """Return how durable a change must be. A question or a person's word whose write failed must be undone for good.

    A step without an approval whose write failed is only examined again.
    """
    if not change.durable:
        return Lasts.AS_LONG_AS_THE_SYSTEM
    return Lasts.FOR_SURE if change.approvals or change.passes_on else Lasts.ON_DISK


def write(connection: sqlite3.Connection, *, change: Change) -> None:
    run = change.run
    if change.new and connection.execute(journal.ADD_RUN, _NEW_RUN(run)).rowcount:
        connection.execute(journal.ADD_REQUEST, (run.tenant, run.id, run.request))
        if run.idempotency_key is not None:
            _hold_key(connection, run, instead_of=change.takes_key_of)
    elif change.new and not change.repeats:
        raise ConflictError(f"the run {run.id!r} is there already")
    else:
        _put_run(connection, run)
    if change.request is not None:
        connection.execute(journal.PUT_REQUEST, (change.request, run.tenant, run.id))
    if change.passes_on:
        connection.execute(journal.NEXT_FENCE, (run.tenant, run.id))
    for move in change.moves:
        values = (move.to, run.tenant, move.approval_id, move.expected)
        if not connection.execute(journal.MOVE_AGAIN if change.repeats else journal.MOVE, values).rowcount:
            raise ConflictError(f"the approval {move.approval_id!r} is not {move.expected!r}")
    connection.executemany(journal.PUT_STEP, map(STEPS.values, change.steps))
    for approval in change.approvals:
        if change.asks_once and connection.execute(journal.ASKED_ALREADY, _ASKED(approval)).fetchone():
            raise AskedAlreadyError(f"another run waits for the call of the approval {approval.id!r}")
        _add_approval(connection, approval)
    if run.client is not None and (change.approvals or run.state == "unknown"):
        _record_undelivered(connection, run, is_asked=bool(change.approvals))
        if change.new and change.approvals:
            connection.execute(journal.AWAITS, (run.tenant, run.id, run.id, run.updated_s + AWAITED_S))
    if run.state in ENDED:
        _end_undecided(connection, journal.CANCEL_APPROVALS, (run.tenant, run.id), now_s=run.updated_s)
    _append(connection, change.events, change.audit)


def _hold_key(connection: sqlite3.Connection, run: StoredRun, *, instead_of: str | None) -> None:
    """Give a new run its Idempotency-Key, which another run may have. Raises KeyTakenError."""
    connection.execute(journal.FREE_KEY, (run.tenant, run.caller, run.idempotency_key, instead_of))
    if not connection.execute(journal.HOLD_KEY, (run.tenant, run.id)).rowcount:
        raise KeyTakenError(f"another run has the Idempotency-Key of the run {run.id!r}")


def _put_run(connection: sqlite3.Connection, run: StoredRun) -> None:
    values = _CHANGED_RUN(run)
    if run.state == "running" and connection.execute(journal.PUT_RUN_ON, values).rowcount:
        return
    if not connection.execute(journal.PUT_RUN, values).rowcount:
        raise ConflictError(f"the run {run.id!r} has ended, or another worker has it: its fence is not {run.fence}")


def _record_undelivered(connection: sqlite3.Connection, run: StoredRun, *, is_asked: bool) -> None:
    """Record that the client of the run still wants its result. Only one run of a fingerprint may ask a person."""
    connection.execute(journal.ADD_UNDELIVERED, (run.tenant, run.fingerprint, run.id, run.created_s))
    ((run_id,),) = connection.execute(journal.UNDELIVERED, (run.tenant, run.fingerprint)).fetchall()
    if is_asked and run_id != run.id:
        raise AskedAlreadyError(f"the run {run_id!r} waits for the same call")


def note_waiting_request(connection: sqlite3.Connection, *, key: tuple[str, str, str], until_s: float) -> None:
    """Record until when the request of a key (tenant, run, request) waits for a run; 0: no longer."""
    if until_s:
        connection.execute(journal.AWAITS, (*key, until_s))
    else:
        connection.execute(journal.AWAITS_NO_LONGER, key)


def decide_approval(
    connection: sqlite3.Connection, *, writes: Sequence[DecisionWrite]
) -> Sequence[tuple[DecisionResult, Approval | None]]:
    found = [_check_decision(connection, write) for write in writes]
    if any(ruled not in ("decided", "same") for ruled, _ in found):
        return [("held" if ruled == "decided" else ruled, approval) for ruled, approval in found]
    ruled = [
        (how, _decide(connection, write) if how == "decided" else approval)
        for (how, approval), write in zip(found, writes, strict=True)
    ]
    for other in (other for write in writes for other in write.others):
        if _check_decision(connection, other)[0] == "decided":
            _decide(connection, other)
    return ruled


def _check_decision(connection: sqlite3.Connection, write: DecisionWrite) -> tuple[DecisionResult, Approval | None]:
    """Return the result that the decision would have on the approval as it is. Expire one whose time is over."""
    key = (write.tenant, write.approval_id)
    row = connection.execute(journal.ONE_APPROVAL, key).fetchone()
    if row is None:
        return "absent", None
    approval = APPROVALS.read_fact(row)
    if approval.state != "pending":
        return _repeat_decision(approval, write), approval
    if approval.expires_s <= write.now_s:
        _end_undecided(connection, journal.EXPIRE_ONE, (*key, write.now_s), now_s=write.now_s)
        return "expired", replace(approval, state="expired")
    return ("decided" if write.seen in (None, approval.given) else "moved"), approval


def _decide(connection: sqlite3.Connection, write: DecisionWrite) -> Approval:
    """Decide on a pending approval, or endorse it."""
    key = (write.tenant, write.approval_id)
    decision = (write.now_s, write.by, write.via, write.comment, write.edited, write.remember, write.given)
    state = "approved" if write.approve else "rejected"
    if write.settles:
        row = connection.execute(journal.DECIDE, (state, *decision, *key)).fetchone()
    else:
        row = connection.execute(journal.ENDORSE, (write.given, write.edited, *key)).fetchone()
    decided = APPROVALS.read_fact(row)
    if write.grant is not None:
        connection.execute(journal.ADD_GRANT, GRANTS.values(write.grant))
    _append(connection, write.events, write.audit)
    return decided


def _repeat_decision(approval: Approval, write: DecisionWrite) -> DecisionResult:
    """Return the result of a decision on an approval that is not pending any more."""
    if approval.state == "expired":
        return "expired"
    agreed = approval.state in APPROVED and write.edited in (None, approval.edited)
    return "same" if (agreed if write.approve else approval.state == "rejected") else "other"


def claim(
    connection: sqlite3.Connection, *, statement: str, values: Sequence[object], owner: str, until_s: float
) -> Sequence[StoredRun]:
    """Claim the runs that `statement` finds. Return them as they are once they are the owner's."""
    found = connection.execute(statement, values).fetchall()
    for key in found:
        connection.execute(journal.CLAIM, (owner, until_s, *key))
    return [RUNS.read_fact(row) for key in found for row in connection.execute(journal.RUN, key)]


def release(connection: sqlite3.Connection, *, owner: str, run_ids: Sequence[str] | None) -> int:
    named = None if run_ids is None else json.dumps(list(run_ids))
    return connection.execute(journal.RELEASE, (owner, named)).rowcount


def cancel(
    connection: sqlite3.Connection,
    *,
    tenant: str,
    run_id: str,
    now_s: float,
    events: Sequence[RunEvent],
    audit: Sequence[AuditLine],
    waiter: str | None = None,
) -> bool:
    if waiter is not None:
        connection.execute(journal.AWAITS_NO_LONGER, (tenant, run_id, waiter))
        if connection.execute(journal.IS_AWAITED, (tenant, run_id, waiter, now_s)).fetchone():
            return False
    if not connection.execute(journal.CANCEL_RUN, (now_s, tenant, run_id)).rowcount:
        return False
    _end_undecided(connection, journal.CANCEL_APPROVALS, (tenant, run_id), now_s=now_s)
    _append(connection, events, audit)
    return True


def write_late_report(
    connection: sqlite3.Connection, *, step: StoredStep, events: Sequence[RunEvent], audit: Sequence[AuditLine]
) -> None:
    connection.execute(journal.LATE_STEP, (step.late, step.tenant, step.run_id, step.number))
    _append(connection, events, audit)


def execute_audited(
    connection: sqlite3.Connection, *, statement: str, values: Sequence[object], audit: Sequence[AuditLine]
) -> bool:
    """Execute a statement, and write `audit` only if it changed a row. Return whether it did."""
    is_changed = connection.execute(statement, values).rowcount > 0
    _append(connection, (), audit if is_changed else ())
    return is_changed


def note_approval(connection: sqlite3.Connection, *, write: NoteWrite) -> Approval | None:
    said = {"by": write.by, "via": write.via, "at_s": write.now_s, "text": write.text}
    values = (write.assigned, None if write.text is None else json.dumps(said), write.tenant, write.approval_id)
    row = connection.execute(journal.NOTE, values).fetchone()
    if row is None:
        return None
    approval = APPROVALS.read_fact(row)
    kind, word = ("assigned", write.assigned) if write.text is None else ("noted", write.text)
    facts = {"approval_id": approval.id, "by": write.by, "via": write.via}
    data = json.dumps({**facts, **({"to": approval.assigned} if kind == "assigned" else {"text": word})}).encode()
    event = RunEvent(
        tenant=write.tenant, run_id=approval.run_id, type=f"approval.{kind}", data=data, created_s=write.now_s
    )
    line = _build_line(approval, now_s=write.now_s)
    _append(connection, (event,), [replace(line, event=kind, decision=word or "", by=write.by, via=write.via)])
    return approval


def reissue(connection: sqlite3.Connection, *, old_id: str, approval: Approval, events: Sequence[RunEvent]) -> bool:
    tenant = approval.tenant
    if not connection.execute(journal.MOVE, ("cancelled", tenant, old_id, "pending")).rowcount:
        return False
    _add_approval(connection, approval)
    place = (tenant, approval.run_id, approval.step, old_id)
    connection.execute(journal.REPLACE_APPROVAL, (approval.id, *place))
    now_s = approval.created_s
    old = _build_resolved_event(tenant, approval.run_id, old_id, state="cancelled", now_s=now_s)
    _append(connection, (old, *events), [_build_line(replace(approval, state="cancelled"), now_s=now_s)])
    return True


def expire(connection: sqlite3.Connection, *, now_s: float, limit: int) -> Sequence[Approval]:
    return _end_undecided(connection, journal.EXPIRE, (now_s, limit), now_s=now_s)


def _end_undecided(
    connection: sqlite3.Connection, statement: str, values: Sequence[object], *, now_s: float
) -> Sequence[Approval]:
    """End undecided approvals, oldest first, with their events and audit lines. Return them."""
    rows = connection.execute(statement, values).fetchall()
    ended = sorted(map(APPROVALS.read_fact, rows), key=attrgetter("created_s", "id"))
    events = [_build_resolved_event(a.tenant, a.run_id, a.id, state=a.state, now_s=now_s) for a in ended]
    _append(connection, events, [_build_line(approval, now_s=now_s) for approval in ended])
    return ended


def _build_line(approval: Approval, *, now_s: float) -> AuditLine:
    """Return the audit line of an approval as it is: of one that ended without a person, for example."""
    return AuditLine(
        tenant=approval.tenant,
        caller=approval.caller,
        run_id=approval.run_id,
        step=approval.step,
        event=approval.state,
        tool=approval.tool,
        sha256=approval.sha256,
        decision=approval.state,
        basis=approval.basis,
        rule=approval.rule,
        created_s=now_s,
    )


def _add_approval(connection: sqlite3.Connection, approval: Approval) -> None:
    if not connection.execute(journal.ADD_APPROVAL, APPROVALS.values(approval)).rowcount:
        raise ConflictError(f"the approval {approval.id!r} is there already")


def _build_resolved_event(tenant: str, run_id: str, approval_id: str, *, state: str, now_s: float) -> RunEvent:
    data = json.dumps({"approval_id": approval_id, "state": state}).encode()
    return RunEvent(tenant=tenant, run_id=run_id, type="approval.resolved", data=data, created_s=now_s)


def _append(connection: sqlite3.Connection, events: Iterable[RunEvent], audit: Sequence[AuditLine]) -> None:
    connection.executemany(journal.ADD_EVENT, (EVENTS.values(event)[:-1] for event in events))
    if not audit:
        return
    seq, last_hash = connection.execute(journal.LAST_AUDIT).fetchone() or (0, FIRST_HASH)
    for number, line in enumerate(audit, seq + 1):
        values = AUDIT.values(line)
        last_hash = link(last_hash, dict(zip(AUDIT.names, values, strict=True)))
        connection.execute(journal.ADD_AUDIT, (number, *values, last_hash))
