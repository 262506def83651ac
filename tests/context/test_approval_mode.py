"""The sources that decide how a request waits for a person."""

import pytest

from gateway.context.approval_mode import ApprovalMode, ApprovalModes
from gateway.contracts.caller import Caller


@pytest.mark.parametrize(
    ("modes", "of_key", "wanted", "expected"),
    [
        (ApprovalModes(), None, None, "turn"),
        (ApprovalModes(), None, "hold", "hold"),
        (ApprovalModes(), None, "reject", "reject"),
        (ApprovalModes("hold"), None, None, "hold"),
        (ApprovalModes("hold"), None, "turn", "turn"),
        (ApprovalModes("reject"), None, None, "reject"),
        (ApprovalModes("reject"), None, "hold", "reject"),
        (ApprovalModes("reject", {"assistant": "hold"}), "turn", "turn", "reject"),
        (ApprovalModes("turn", {"assistant": "hold"}), None, None, "hold"),
        (ApprovalModes("turn", {"other": "hold"}), None, None, "turn"),
        (ApprovalModes("turn", {"assistant": "hold"}), "turn", None, "turn"),
        (ApprovalModes("turn", {"assistant": "turn"}), "hold", None, "hold"),
        (ApprovalModes("turn"), "hold", "turn", "turn"),
        (ApprovalModes("hold"), "reject", "hold", "reject"),
        (ApprovalModes("hold", {"assistant": "reject"}), "hold", "turn", "reject"),
    ],
)
def test_approvals_header_cannot_loosen_reject(
    modes: ApprovalModes, of_key: ApprovalMode | None, wanted: str | None, expected: str
) -> None:
    """Else the key says so, else the chain, else the configuration."""
    caller = Caller("local", "local", frozenset(), approvals=of_key)
    assert modes.get_mode(wanted, caller=caller, chain="assistant") == expected
