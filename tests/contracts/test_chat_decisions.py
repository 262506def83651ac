"""Decisions that a request brings with it."""

import pytest

from gateway.contracts.chat_decisions import ChatDecision, ShownCall


def test_typed_decision_carries_no_shown_calls_by_default() -> None:
    decision = ChatDecision(True, ("ap_1", "ap_2"))
    assert (decision.comment, decision.words, decision.shown, decision.in_field) == (None, (), (), False)


def test_decision_does_not_change_after_it_is_made() -> None:
    decision = ChatDecision(True, ("ap_1",), shown=(ShownCall("ap_1", "write", "{}"),))
    with pytest.raises(AttributeError):
        decision.approve = False  # type: ignore[misc]
    assert decision.shown[0].approval_id in decision.ids
