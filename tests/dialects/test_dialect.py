"""What a dialect hands on of a request."""

from gateway.dialects.dialect import Asked, ChatDecision


def test_a_request_decides_nothing_by_itself() -> None:
    """A dialect with a field for decisions sets it."""
    asked = Asked(body={"messages": []}, text="", streams=False)
    assert asked.decision is None
    decided = Asked(body={"messages": []}, text="", streams=False, decision=ChatDecision(True, ("ap_1",)))
    assert decided.decision is not None and decided.decision.ids == ("ap_1",)
