"""An approval as a struct: its fields have the types that the description of the API gives them."""

import orjson
import pytest
from msgspec import convert

from gateway.approvals.approval_struct import (
    ApprovalView,
    ApproverView,
    NotedApprovalView,
    build_approval_view,
    build_noted_view,
)
from gateway.contracts.canonical_json import call_sha256
from gateway.contracts.storage.endorsements import Endorsement, write_endorsements
from gateway.contracts.storage.journal import Approval
from gateway.contracts.views import dump_view
from tests.plugins.stores.records import approval

EDITED = '{"command":"make -n"}'
ENDORSEMENT = Endorsement(by="anna", user="eve", via="rest", at_s=5.0, sha256="a" * 64)
APPROVALS = [
    approval(),
    approval(state="done", decided_s=5.0, decided_by="anna", via="rest", comment="ok"),
    approval(edited=EDITED, client='{"name":"c","version":"1"}', user="eve"),
    approval(required=2, given=write_endorsements([ENDORSEMENT])),
]


@pytest.mark.parametrize("made", APPROVALS)
def test_approval_view_has_the_types_of_its_fields(made: Approval) -> None:
    view = build_approval_view(made)
    assert convert(dump_view(view), ApprovalView) == view
    assert made.secret not in str(view)


def test_pending_approval_shows_the_hash_of_the_call_that_would_run() -> None:
    """Once it is decided, that of the model's call."""
    tool = approval().tool
    assert build_approval_view(approval(edited=EDITED)).sha256 == call_sha256(tool, EDITED)
    assert build_approval_view(approval(edited=EDITED, state="done")).sha256 == approval().sha256


def test_approval_view_lists_its_approvers() -> None:
    """The one who decided, or of a call that needs several those so far."""
    assert [build_approval_view(one).approved_by for one in APPROVALS] == [
        [],
        [ApproverView("anna", None, "rest", 5.0)],
        [],
        [ApproverView("anna", "eve", "rest", 5.0)],
    ]


def test_noted_view_adds_assignee_and_notes() -> None:
    note = {"by": "anna", "via": "rest", "at_s": 7.0, "text": "Look."}
    view = build_noted_view(approval(assigned="ben", notes=orjson.dumps([note]).decode()))
    assert convert(dump_view(view), NotedApprovalView) == view
    facts = {"assigned_to": "ben", "notes": [{"by": "anna", "via": "rest", "at": 7.0, "text": "Look."}]}
    assert dump_view(view) == {**dump_view(build_approval_view(approval())), **facts}
