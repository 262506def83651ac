"""The sources that decide how a request waits for a person."""

import pytest

from gateway.context.approval_mode import ApprovalModes


@pytest.mark.parametrize(
    ("modes", "wanted", "expected"),
    [
        (ApprovalModes(), None, "turn"),
        (ApprovalModes(), "hold", "hold"),
        (ApprovalModes(), "reject", "reject"),
        (ApprovalModes("hold"), None, "hold"),
        (ApprovalModes("hold"), "turn", "turn"),
        (ApprovalModes("reject"), None, "reject"),
        (ApprovalModes("reject"), "hold", "reject"),
        (ApprovalModes("reject", {"local": "turn"}, {"assistant": "hold"}), "turn", "reject"),
        (ApprovalModes("turn", {}, {"assistant": "hold"}), None, "hold"),
        (ApprovalModes("turn", {}, {"other": "hold"}), None, "turn"),
        (ApprovalModes("turn", {"local": "turn"}, {"assistant": "hold"}), None, "turn"),
        (ApprovalModes("turn", {"local": "hold"}, {"assistant": "turn"}), None, "hold"),
        (ApprovalModes("turn", {"local": "hold"}), "turn", "turn"),
        (ApprovalModes("hold", {"local": "reject"}), "hold", "reject"),
        (ApprovalModes("hold", {"local": "hold"}, {"assistant": "reject"}), "turn", "reject"),
    ],
)
def test_a_header_chooses_and_never_loosens_reject(modes: ApprovalModes, wanted: str | None, expected: str) -> None:
    """Else the key says so, else the chain, else the configuration."""
    assert modes.of(wanted, caller="local", chain="assistant") == expected
