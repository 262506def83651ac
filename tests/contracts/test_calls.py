"""One call from the text in which it was found to what came of it."""

from dataclasses import replace

from gateway.contracts.calls import DOUBTS, FoundCall, PlannedCall
from gateway.contracts.risk import Verdict
from gateway.contracts.tools import ToolCall

AUTO = PlannedCall(ToolCall(id="1", tool="t", arguments={}), None, Verdict("auto", "whitelist", "r"))


def test_refused_call_does_not_need_approval() -> None:
    """A verdict of confirm asks; a call with a refusal runs for nobody."""
    asks = replace(AUTO, verdict=Verdict("confirm", "default", "r"))
    assert asks.needs_approval and not AUTO.needs_approval
    assert not replace(asks, refusal="no").needs_approval


def test_only_the_allow_list_makes_a_call_harmless() -> None:
    """An operator's rule or a model's word lets a call run and says nothing of its effects."""
    assert AUTO.is_harmless
    assert not replace(AUTO, verdict=Verdict("auto", "operator", "r")).is_harmless
    assert not replace(AUTO, verdict=Verdict("auto", "llm", "r")).is_harmless


def test_found_call_has_no_doubt_by_default() -> None:
    """Doubts are added by who knows the text around it."""
    assert FoundCall("t", {}, terminate=False).doubt is None and DOUBTS == ("quoted", "example")
