"""Records for tests of stores: those of runs are whole, belong to `run_1` of ann in acme, and take changes by name."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from gateway.contracts.storage.audit_chain import verify
from gateway.contracts.storage.journal import (
    Approval,
    AuditLine,
    AuditRow,
    Change,
    DecisionWrite,
    Grant,
    Move,
    RunEvent,
    StoredRun,
    StoredStep,
)
from gateway.contracts.storage.store import Memory, Store

_RUN = StoredRun(
    id="run_1",
    tenant="acme",
    caller="ann",
    chain="assistant",
    fingerprint="f" * 64,
    state="running",
    effects=False,
    created_s=100.0,
    updated_s=100.0,
    request=b'{"messages":[]}',
)
_STEP = StoredStep(
    run_id="run_1",
    tenant="acme",
    number=1,
    round=1,
    call_id="call_1",
    tool="execute_command",
    model_name="execute_command",
    arguments='{"command":"make"}',
    sha256="a" * 64,
    terminate=False,
    decision="confirm",
    basis="default",
    rule="unknown_command",
    state="planned",
)
_APPROVAL = Approval(
    id="ap_1",
    tenant="acme",
    caller="ann",
    conversation="c1",
    run_id="run_1",
    step=1,
    tool="execute_command",
    arguments='{"command":"make"}',
    sha256="a" * 64,
    definition_sha256="d" * 64,
    policy_sha256="b" * 64,
    basis="default",
    rule="unknown_command",
    reason="make is not on the list.",
    state="pending",
    created_s=100.0,
    expires_s=1000.0,
    secret="5" * 32,
)
_GRANT = Grant(
    id="gr_1",
    tenant="acme",
    caller="ann",
    run_id="run_1",
    conversation=None,
    tool="execute_command",
    sha256="a" * 64,
    definition_sha256="d" * 64,
    policy_sha256="b" * 64,
    created_s=100.0,
    granted_by="bob",
)
_EVENT = RunEvent(tenant="acme", run_id="run_1", type="step.started", data=b'{"step":1}', created_s=100.0)
_AUDIT = AuditLine(
    tenant="acme",
    caller="ann",
    run_id="run_1",
    step=1,
    event="verdict",
    tool="execute_command",
    sha256="a" * 64,
    decision="confirm",
    basis="default",
    rule="unknown_command",
    created_s=100.0,
)
_RULING = DecisionWrite(approval_id="ap_1", tenant="acme", approve=True, by="bob", via="rest", now_s=200.0)


def run(run_id: str = "run_1", **changes: Any) -> StoredRun:
    return replace(_RUN, id=run_id, **changes)


def step(number: int = 1, **changes: Any) -> StoredStep:
    return replace(_STEP, number=number, **changes)


def approval(approval_id: str = "ap_1", **changes: Any) -> Approval:
    return replace(_APPROVAL, id=approval_id, **changes)


def grant(grant_id: str = "gr_1", **changes: Any) -> Grant:
    return replace(_GRANT, id=grant_id, **changes)


def event(kind: str = "step.started", **changes: Any) -> RunEvent:
    return replace(_EVENT, type=kind, **changes)


def audit_line(kind: str = "verdict", **changes: Any) -> AuditLine:
    return replace(_AUDIT, event=kind, **changes)


def write(approval_id: str = "ap_1", **changes: Any) -> DecisionWrite:
    return replace(_RULING, approval_id=approval_id, **changes)


def new(run: StoredRun = _RUN, **parts: Any) -> Change:
    """The first change of a run."""
    return Change(run=run, new=True, **parts)


def parked(run_id: str = "run_1", **changes: Any) -> Change:
    """The first change of a run that waits for the approval `ap_1`; `changes` are the approval's."""
    waiting = approval(**{"run_id": run_id, **changes})
    return new(
        run(run_id, tenant=waiting.tenant, state="awaiting_approval"),
        steps=(
            step(run_id=run_id, tenant=waiting.tenant, number=waiting.step, state="requested", approval_id=waiting.id),
        ),
        approvals=(waiting,),
    )


def moved(run: StoredRun, *moves: Move, **parts: Any) -> Change:
    return Change(run=run, moves=moves, **parts)


def broken(rows: Sequence[AuditRow]) -> int | None:
    return verify((row.seq, asdict(row.line), row.hash) for row in rows)


def resolved(approval_id: str, state: str, **changes: object) -> RunEvent:
    data = json.dumps({"approval_id": approval_id, "state": state}).encode()
    return event("approval.resolved", data=data, **changes)


def memory(number: int, *, conversation: str | None = None, tenant: str = "acme", owner: str = "user:ann") -> Memory:
    return Memory(f"m{number}", tenant, owner, conversation, f"fact {number}", 100.0 + number)


async def recalled(
    store: Store, text: str = "", *, tenant: str = "acme", owner: str = "user:ann", conversation: str | None = None
) -> list[Memory]:
    found = await store.recall(text, tenant=tenant, owner=owner, conversation=conversation, limit=100)
    return [each.memory for each in found]


async def claimed(store: Store, owner: str, **changes: object) -> list[tuple[str, int]]:
    """The ids and fences of the runs that this owner gets at 200 s."""
    asked: dict[str, object] = {"states": ["running"], "run_id": None, "limit": 10, "now_s": 200.0, "until_s": 230.0}
    runs = await store.claim(owner=owner, **{**asked, **changes})  # type: ignore[arg-type]
    assert all((r.owner, r.lease_s) == (owner, {**asked, **changes}["until_s"]) for r in runs)
    return [(r.id, r.fence) for r in runs]
