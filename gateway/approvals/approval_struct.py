"""An approval as clients see it, as a struct.

Import this module only where a person is to decide, for it loads the library of structs.
"""

from typing import Annotated, Literal

import orjson
from msgspec import Meta, field

from gateway.contracts.storage.endorsements import get_check_word, hash_waiting_call, select_counted_endorsements
from gateway.contracts.storage.journal import APPROVED, Approval, ApprovalState, Via
from gateway.contracts.storage.store import Json
from gateway.contracts.views import UnixTime, View, dump_view, fill_view


class ApproverView(View, frozen=True):
    """A key that has approved a call, with its end user."""

    by: str
    user: str | None
    via: Via
    at_s: UnixTime = field(name="at")


class ApprovalView(View, frozen=True, kw_only=True):
    """A call that a person decides on."""

    id: str
    run_id: str
    step: int
    conversation: str | None
    caller: str = field(name="asked_by")
    user: str | None
    client: Json | None
    tool: str
    arguments: Json
    sha256: Annotated[str, Meta(description="Of the call that would run, with `edited_arguments` if there are some.")]
    check_word: str
    basis: str
    rule: str
    reason: str
    state: ApprovalState
    created_s: UnixTime = field(name="created_at")
    expires_s: UnixTime = field(name="expires_at")
    required: int = field(name="required_approvals")
    approved_by: list[ApproverView]
    decided_s: UnixTime | None = field(name="decided_at")
    decided_by: str | None
    via: Via | None
    comment: str | None
    edited_arguments: Json | None
    remember: Literal["once", "run", "conversation"]


class ApprovalNoteView(View, frozen=True):
    """A note that a person left on an approval."""

    by: str
    via: Via
    at_s: UnixTime = field(name="at")
    text: str


class NotedApprovalView(ApprovalView, frozen=True, kw_only=True):
    """An approval as its approvers see it, with its assignee and their notes."""

    assigned: str | None = field(name="assigned_to")
    notes: list[ApprovalNoteView]


def build_approval_view(approval: Approval) -> ApprovalView:
    return fill_view(ApprovalView, approval, **_read_call(approval))


def dump_approval(approval: Approval) -> Json:
    return dump_view(build_approval_view(approval))


def build_noted_view(approval: Approval) -> NotedApprovalView:
    notes = [ApprovalNoteView(one["by"], one["via"], one["at_s"], one["text"]) for one in orjson.loads(approval.notes)]
    return fill_view(NotedApprovalView, approval, notes=notes, **_read_call(approval))


def _read_call(approval: Approval) -> Json:
    """Return the fields that are no column of an approval."""
    return {
        "client": None if approval.client is None else orjson.loads(approval.client),
        "arguments": orjson.loads(approval.arguments),
        "sha256": hash_waiting_call(approval) if approval.state == "pending" else approval.sha256,
        "check_word": get_check_word(approval),
        "approved_by": _list_approvers(approval),
        "edited_arguments": None if approval.edited is None else orjson.loads(approval.edited),
    }


def _list_approvers(approval: Approval) -> list[ApproverView]:
    """Return the approvers so far, in their order."""
    if approval.required == 1:
        if approval.state not in APPROVED:
            return []
        return [fill_view(ApproverView, approval, by=approval.decided_by, user=None, at_s=approval.decided_s)]
    return [fill_view(ApproverView, one) for one in select_counted_endorsements(approval)]
