"""The calls found in one answer."""

from gateway.agent.output.taken import GROUP_CALLS, Taken
from gateway.agent.output.tool_calls import Calls, Malformed, Prose
from gateway.contracts.calls import FoundCall

A, B, C = (FoundCall(name, {}, terminate=False) for name in "abc")


def taken(*found: FoundCall, tagged: bool = False, before: str = "") -> Taken:
    made = Taken()
    for call in found:
        made.take(Calls((call,)), tagged=tagged, before=before)
    return made


def test_calls_with_tags_of_their_own_are_a_group() -> None:
    """Without tags they are one too many; the same one twice is one."""
    assert taken().outcome(Prose(), before_native="") == Prose()
    assert taken(A, A).outcome(Prose(), before_native="") == Calls((A,))
    assert isinstance(taken(A, B).outcome(Prose(), before_native=""), Malformed)
    assert taken(A, B, A, tagged=True).outcome(Prose(), before_native="") == Calls((A, B))
    many = [FoundCall("a", {"x": n}, terminate=False) for n in range(GROUP_CALLS + 1)]
    assert isinstance(taken(*many, tagged=True).outcome(Prose(), before_native=""), Malformed)


def test_native_calls_count_first() -> None:
    """Also where the text holds an attempt that cannot be read."""
    made = taken(A)
    made.take(Malformed("no"), tagged=False, before="")
    assert made.outcome(Prose(), before_native="") == Malformed("no")
    assert made.outcome(Calls((C,)), before_native="") == Calls((C,))
    assert made.outcome(Malformed("cut"), before_native="") == Malformed("cut")


def test_one_announcement_is_enough_for_a_group() -> None:
    """All of its calls are examples then."""
    made = taken(A, tagged=True, before="For example:")
    made.take(Calls((B,)), tagged=True, before="and")
    outcome = made.outcome(Prose(), before_native="")
    assert isinstance(outcome, Calls) and [call.doubt for call in outcome.calls] == ["example"] * 2
    native = taken().outcome(Calls((C,)), before_native="It would look like this:")
    assert isinstance(native, Calls) and native.calls[0].doubt == "example"
