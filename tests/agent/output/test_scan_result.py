"""The calls found in one answer."""

from gateway.agent.output.scan_result import GROUP_CALLS, ScanResult
from gateway.agent.output.tool_calls import CallGroup, MalformedCall, Prose
from gateway.contracts.calls import FoundCall

A, B, C = (FoundCall(name, {}, terminate=False) for name in "abc")


def taken(*found: FoundCall, tagged: bool = False, before: str = "") -> ScanResult:
    made = ScanResult()
    for call in found:
        made.record_find(CallGroup((call,)), tagged=tagged, before=before)
    return made


def test_several_calls_form_a_group_only_when_tagged() -> None:
    """Without tags they are one too many; the same one twice is one."""
    assert taken().get_outcome(Prose(), before_native="") == Prose()
    assert taken(A, A).get_outcome(Prose(), before_native="") == CallGroup((A,))
    assert isinstance(taken(A, B).get_outcome(Prose(), before_native=""), MalformedCall)
    assert taken(A, B, A, tagged=True).get_outcome(Prose(), before_native="") == CallGroup((A, B))
    many = [FoundCall("a", {"x": n}, terminate=False) for n in range(GROUP_CALLS + 1)]
    assert isinstance(taken(*many, tagged=True).get_outcome(Prose(), before_native=""), MalformedCall)


def test_native_calls_take_precedence_over_text_calls() -> None:
    """Also where the text holds an attempt that cannot be read."""
    made = taken(A)
    made.record_find(MalformedCall("no"), tagged=False, before="")
    assert made.get_outcome(Prose(), before_native="") == MalformedCall("no")
    assert made.get_outcome(CallGroup((C,)), before_native="") == CallGroup((C,))
    assert made.get_outcome(MalformedCall("cut"), before_native="") == MalformedCall("cut")


def test_one_announcement_is_enough_for_a_group() -> None:
    """All of its calls are examples then."""
    made = taken(A, tagged=True, before="For example:")
    made.record_find(CallGroup((B,)), tagged=True, before="and")
    outcome = made.get_outcome(Prose(), before_native="")
    assert isinstance(outcome, CallGroup) and [call.doubt for call in outcome.calls] == ["example"] * 2
    native = taken().get_outcome(CallGroup((C,)), before_native="It would look like this:")
    assert isinstance(native, CallGroup) and native.calls[0].doubt == "example"
