"""An approval as clients see it, and the check word of its call."""

import orjson

from gateway.contracts.canonical_json import call_sha256
from gateway.contracts.check_word import check_word
from gateway.contracts.storage.endorsements import counted_endorsements, waiting_arguments, waiting_sha256
from gateway.contracts.storage.journal import APPROVED, Approval
from gateway.contracts.storage.store import Json


def get_check_word(approval: Approval) -> str:
    """Return the check word that a decision in a chat brings: of the call that would run, then of the model's."""
    arguments = waiting_arguments(approval) if approval.state == "pending" else approval.arguments
    return check_word(approval.secret, approval.id, call_sha256(approval.tool, arguments))


def approval_view(approval: Approval) -> Json:
    """Return an approval as clients see it: in events, in answers, in notices.

    While it is pending, `sha256` is the hash of the call that would run: of `edited_arguments`, if there are some.
    """
    return {
        "id": approval.id,
        "run_id": approval.run_id,
        "step": approval.step,
        "conversation": approval.conversation,
        "asked_by": approval.caller,
        "user": approval.user,
        "client": None if approval.client is None else orjson.loads(approval.client),
        "tool": approval.tool,
        "arguments": orjson.loads(approval.arguments),
        "sha256": _sha256(approval),
        "check_word": get_check_word(approval),
        "basis": approval.basis,
        "rule": approval.rule,
        "reason": approval.reason,
        "state": approval.state,
        "created_at": approval.created_s,
        "expires_at": approval.expires_s,
        "required_approvals": approval.required,
        "approved_by": _list_approvers(approval),
        "decided_at": approval.decided_s,
        "decided_by": approval.decided_by,
        "via": approval.via,
        "comment": approval.comment,
        "edited_arguments": None if approval.edited is None else orjson.loads(approval.edited),
        "remember": approval.remember,
    }


def noted_view(approval: Approval) -> Json:
    """Return an approval as its approvers see it, with its assignee and their notes."""
    notes = [
        {"by": note["by"], "via": note["via"], "at": note["at_s"], "text": note["text"]}
        for note in orjson.loads(approval.notes)
    ]
    return {**approval_view(approval), "assigned_to": approval.assigned, "notes": notes}


def get_waiting_arguments(view: Json) -> Json:
    """Return the arguments that would run, of an approval as `approval_view` shows it."""
    edited: Json | None = view["edited_arguments"]
    arguments: Json = view["arguments"]
    return arguments if edited is None else edited


def _list_approvers(approval: Approval) -> list[Json]:
    """Return the approvers so far, in their order."""
    if approval.required == 1:
        if approval.state not in APPROVED:
            return []
        return [{"by": approval.decided_by, "user": None, "via": approval.via, "at": approval.decided_s}]
    return [{"by": one.by, "user": one.user, "via": one.via, "at": one.at_s} for one in counted_endorsements(approval)]


def _sha256(approval: Approval) -> str:
    return waiting_sha256(approval) if approval.state == "pending" else approval.sha256
