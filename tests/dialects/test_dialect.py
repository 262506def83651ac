"""What a dialect hands on of a request."""

from gateway.contracts.chat_decisions import ChatDecision
from gateway.dialects.dialect import ParsedRequest


def test_parsed_request_has_no_decisions_by_default() -> None:
    """A dialect with a field for decisions sets it."""
    asked = ParsedRequest(body={"messages": []}, text="", streams=False)
    assert asked.decisions == ()
    decided = ParsedRequest(body={"messages": []}, text="", streams=False, decisions=(ChatDecision(True, ("ap_1",)),))
    assert [decision.ids for decision in decided.decisions] == [("ap_1",)]
