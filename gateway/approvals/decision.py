"""A person's decision on an approval, and what it makes of it: the call that would run, who approved it, the record.

1. A decision is made on the approval as it was read. The store refuses it if others have approved or edited it since.
2. Several approvals count together only for the same call: approvals of other arguments count no more.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

import orjson

from gateway.approvals.view import build_approval_view
from gateway.contracts.caller import Caller
from gateway.contracts.canonical_json import call_sha256, write_canonical
from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.endorsements import (
    Endorsement,
    get_waiting_arguments,
    hash_waiting_call,
    list_endorsements,
    write_endorsements,
)
from gateway.contracts.storage.journal import APPROVED, Approval, AuditLine, DecisionWrite, Grant, RunEvent, Via
from gateway.contracts.storage.store import Json
from gateway.runs.decision_messages import ADDED
from gateway.tools.grants import Judges

Remember = Literal["once", "run", "conversation"]
#: The widest last: of several approvals that remember, the narrowest counts.
_WIDTHS: Final[tuple[Remember, ...]] = ("once", "run", "conversation")
#: The event of an approval that others must follow; its audit line decides the same.
PARTLY: Final = "partly_approved"
#: What became of a call that was approved, once it has begun.
_ENDS: Final[Mapping[str, str]] = {
    "executing": "it is running",
    "done": "it has run",
    "failed": "it has failed",
    "unknown": "its outcome is unknown",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A person's decision on an approval.

    `sha256`, where given, is the hash of the call that was shown to them. `user` is the end user whom the request
    names. `facts` go into its event. `adds` are messages for the model of the run, which come with it (`runs.added`).
    """

    approve: bool
    via: Via
    sha256: str | None = None
    arguments: Json | None = None
    comment: str | None = None
    remember: Remember = "once"
    user: str | None = None
    facts: Json = field(default_factory=dict)
    adds: Json | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionEffect:
    """The effect of a decision: the arguments that a person changed, and the approvals that the call has then.

    `remember` is the narrowest wish of them. `is_settled` False: more keys must approve the call.
    """

    edited: str | None
    endorsements: tuple[Endorsement, ...]
    is_settled: bool
    remember: Remember


def apply_edit(approval: Approval, wish: Decision, judges: Judges) -> str | None:
    """Return the arguments that would run as canonical JSON, None for the model's.

    Raises GatewayError (approval_stale, decision_conflict, edit_refused).
    """
    is_open = approval.state == "pending"
    known = (hash_waiting_call(approval),) if is_open else (approval.sha256, hash_waiting_call(approval))
    if wish.sha256 is not None and wish.sha256 not in known:
        raise GatewayError(
            "approval_stale",
            "The hash is of another call than the one that waits: look at the approval again.",
            param="sha256",
        )
    if is_open and wish.approve and wish.sha256 is None and wish.arguments is None and approval.edited is not None:
        raise GatewayError(
            "approval_stale",
            "A person who approved this call has changed its arguments: look at the approval again, and send its "
            "'sha256' with your decision.",
            param="sha256",
        )
    check_same_call(approval, wish)
    if not wish.approve or wish.arguments is None:
        return approval.edited
    edited = write_canonical(wish.arguments)
    if edited == get_waiting_arguments(approval):
        return approval.edited
    if edited == approval.arguments:
        return None
    verdict = judges.judge_edit(approval.tool, wish.arguments)
    if verdict.decision in ("deny", "error"):
        raise GatewayError("edit_refused", f"The edited call cannot run: {verdict.reason}.", param="arguments")
    return edited


def check_same_call(approval: Approval, wish: Decision) -> None:
    """Check that a repeated approval is of the call that was approved. Raises GatewayError."""
    if not wish.approve or approval.state not in APPROVED:
        return
    named = wish.sha256 if wish.arguments is None else call_sha256(approval.tool, write_canonical(wish.arguments))
    if named not in (None, hash_waiting_call(approval)):
        raise GatewayError(
            "decision_conflict",
            f"The approval {approval.id} is {approval.state} already, with other arguments than yours: look at it.",
        )


def compute_decision_effect(
    approval: Approval, wish: Decision, edited: str | None, caller: Caller, *, now_s: float
) -> DecisionEffect:
    """Return what an approve makes of an approval. Raises GatewayError (approved_already).

    `edited` are the arguments that would run, None for the model's.
    """
    if approval.required == 1 or not wish.approve or approval.state != "pending":
        return DecisionEffect(edited=edited, endorsements=(), is_settled=True, remember=wish.remember)
    sha256 = approval.sha256 if edited is None else call_sha256(approval.tool, edited)
    given = list_endorsements(approval)
    earlier = tuple(one for one in given if one.sha256 == sha256)
    if found := next((one for one in earlier if one.has_endorser(caller.name, wish.user)), None):
        who = "Your key" if found.by == caller.name else f"The user {found.user!r}"
        raise GatewayError(
            "approved_already",
            f"{who} has approved this call already ({len(earlier)} of {approval.required}): another key and another "
            "person must approve it, too.",
        )
    own = Endorsement(by=caller.name, user=wish.user, via=wish.via, at_s=now_s, sha256=sha256, remember=wish.remember)
    return DecisionEffect(
        edited=edited,
        endorsements=(*(one for one in given if one.by != own.by), own),
        is_settled=len(earlier) + 1 >= approval.required,
        remember=min((one.remember for one in (*earlier, own)), key=_WIDTHS.index),
    )


def build_decision_write(
    approval: Approval, wish: Decision, outcome: DecisionEffect, caller: Caller, *, now_s: float, grant: Grant | None
) -> DecisionWrite:
    """Return the record of a decision, with its event and its audit line."""
    given = write_endorsements(outcome.endorsements) if outcome.endorsements else None
    state = ("approved" if wish.approve else "rejected") if outcome.is_settled else PARTLY
    facts: Json = {"run_id": approval.run_id, "approval_id": approval.id, "state": state, "via": wish.via, **wish.facts}
    if not outcome.is_settled:
        after = replace(approval, edited=outcome.edited, given=given or approval.given)
        facts = {**build_approval_view(after), **facts, "state": "pending"}
    kind = "approval.resolved" if outcome.is_settled else f"approval.{PARTLY}"
    events = [build_event(approval, kind, facts, now_s=now_s)]
    if wish.adds is not None:
        events.insert(0, build_event(approval, ADDED, wish.adds, now_s=now_s))
    return DecisionWrite(
        approval_id=approval.id,
        tenant=approval.tenant,
        approve=wish.approve,
        by=caller.name,
        via=wish.via,
        now_s=now_s,
        comment=wish.comment,
        edited=outcome.edited,
        remember=outcome.remember,
        grant=grant,
        events=tuple(events),
        audit=(_build_audit_line(approval, wish, outcome, caller, state=state, now_s=now_s),),
        seen=approval.given if wish.approve else None,
        given=given,
        settles=outcome.is_settled,
    )


def _build_audit_line(
    approval: Approval, wish: Decision, outcome: DecisionEffect, caller: Caller, *, state: str, now_s: float
) -> AuditLine:
    """Return the audit line of a decision."""
    edited = outcome.edited
    return AuditLine(
        tenant=approval.tenant,
        caller=approval.caller,
        run_id=approval.run_id,
        step=approval.step,
        event="decision",
        tool=approval.tool,
        sha256=approval.sha256 if edited is None else call_sha256(approval.tool, edited),
        decision=state,
        basis=approval.basis,
        rule=approval.rule,
        by=caller.name,
        via=wish.via,
        created_s=now_s,
    )


def build_event(approval: Approval, kind: str, facts: Json, *, now_s: float) -> RunEvent:
    """Return an event of the approval's run."""
    data = orjson.dumps(facts)
    return RunEvent(tenant=approval.tenant, run_id=approval.run_id, type=kind, data=data, created_s=now_s)


def join_other_names(names: Sequence[str], *, besides: str) -> str:
    """Return all names but one, joined for an error message."""
    return ", ".join(repr(name) for name in names if name != besides) or "none so far"


def describe_decision(approval: Approval) -> str:
    """Return a sentence on the decision, the key that made it, and the outcome of the call."""
    by = f" by {approval.decided_by!r}" if approval.decided_by is not None else ""
    if approval.state not in APPROVED:
        return f"was {approval.state}{by} already"
    end = _ENDS.get(approval.state)
    return f"was approved{by} already" + (f", and {end}" if end is not None else "")


def build_not_found_error() -> GatewayError:
    """Return the error of a missing approval. An approval of another tenant gets the same answer."""
    return GatewayError("approval_not_found", "There is no such approval.")
