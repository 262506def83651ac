"""The rules about who decides on calls."""

import pytest

from gateway.tools.decision_rules import ApprovalRequirement, DecisionRules
from tests.plugins.stores.records import approval

RULES = DecisionRules(
    requirements=(
        ApprovalRequirement(approvals=2, tools=("execute_*",)),
        ApprovalRequirement(approvals=3, tools=("execute_sql",), levels=("high",)),
        ApprovalRequirement(approvals=2, levels=("medium", "high")),
    )
)


@pytest.mark.parametrize(
    ("tool", "level", "required"),
    [
        ("execute_command", None, 2),
        ("execute_sql", "high", 3),
        ("execute_sql", " HIGH ", 3),
        ("execute_sql", "extreme", 3),
        ("execute_sql", "medium", 2),
        ("http_request", None, 1),
        ("http_request", "low", 1),
        ("http_request", "medium", 2),
    ],
)
def test_strictest_matching_rule_sets_required_approvals(tool: str, level: str | None, required: int) -> None:
    """A level in any spelling; one that is none counts as the highest."""
    assert RULES.count_required(tool, level) == required


def test_tool_policy_hash_includes_its_decision_rules() -> None:
    """So that an approval by other rules ends. Without rules it is nothing: stored approvals stay as they are."""
    assert DecisionRules().get_policy("execute_sql") == ""
    assert RULES.get_policy("http_request") == "+2:high,medium"
    assert RULES.get_policy("execute_command") != RULES.get_policy("http_request")
    assert DecisionRules(refuses_self=True).get_policy("http_request") == "+no_self"


@pytest.mark.parametrize(
    ("key", "user", "is_refused"),
    [("ann", None, True), ("bob", "eve", True), ("bob", None, False), ("bob", "x", False)],
)
def test_self_approval_is_refused_for_requesting_key_and_end_user(key: str, user: str | None, is_refused: bool) -> None:
    asked = approval(user="eve")
    assert DecisionRules(refuses_self=True).refuses(asked, key=key, user=user) is is_refused
    assert not DecisionRules().refuses(asked, key=key, user=user)
