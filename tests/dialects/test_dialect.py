"""What a dialect hands on of a request."""

from gateway.dialects.dialect import ChatDecision, ParsedRequest


def test_a_request_decides_nothing_by_itself() -> None:
    """A dialect with a field for decisions sets it."""
    asked = ParsedRequest(body={"messages": []}, text="", streams=False)
    assert asked.decisions == ()
    decided = ParsedRequest(body={"messages": []}, text="", streams=False, decisions=(ChatDecision(True, ("ap_1",)),))
    assert [decision.ids for decision in decided.decisions] == [("ap_1",)]
