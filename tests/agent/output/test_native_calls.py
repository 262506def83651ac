"""Native tool calls, put together from their pieces."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.agent.output.native_calls import NativeCalls
from gateway.agent.output.tool_calls import CallGroup, MalformedCall, Prose
from gateway.contracts.calls import FoundCall


def native(*deltas: object, limit: int = 1 << 20, finish_reason: str | None = "tool_calls") -> Any:
    calls = NativeCalls(limit=limit)
    for delta in deltas:
        calls.feed(delta)
    return calls.get_outcome(finish_reason=finish_reason)


def piece(arguments: object = None, name: object = None, **keys: object) -> dict[str, object]:
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    return {**keys, "function": function}


def found(outcome: Any) -> list[tuple[str, dict[str, Any], str | None]]:
    assert isinstance(outcome, CallGroup), outcome
    return [(call.tool, call.parameters, call.id) for call in outcome.calls]


def test_native_calls_are_put_together_by_index() -> None:
    """Pieces of parallel calls may be mixed; the order is that of the index."""
    outcome = native(
        piece("", "b", index=1, id="2"),
        piece('{"x"', "a", index=0, id="1"),
        piece("{}", index=1),
        piece(":1}", index=0),
    )
    assert found(outcome) == [("a", {"x": 1}, "1"), ("b", {}, "2")]


def test_native_calls_without_an_index_are_joined_by_id_or_order() -> None:
    """Whole calls each, or continued by id or by order."""
    assert found(native(piece("{}", "a", id="1"), piece("{}", "b", id="2"))) == [("a", {}, "1"), ("b", {}, "2")]
    assert found(native(piece("{", "a", id="1"), piece("}", id="1"))) == [("a", {}, "1")]
    assert found(native(piece("{", "a", id="1"), piece("}"))) == [("a", {}, "1")]
    assert found(native(piece("{}", "a"), piece("{}", "b"))) == [("a", {}, None), ("b", {}, None)]


def test_native_calls_sharing_an_index_are_split_by_id() -> None:
    """Some upstreams give 0 to all: a new id with a name is a new call."""
    both = native(piece("{}", "a", index=0, id="1"), piece('{"x":1}', "b", index=0, id="2"))
    assert found(both) == [("a", {}, "1"), ("b", {"x": 1}, "2")]


def test_second_native_call_with_the_same_id_loses_the_id() -> None:
    """Some model servers give it to all calls of an answer: it names the first."""
    both = native(piece("{}", "a", index=0, id="1"), piece('{"x":1}', "a", index=1, id="1"))
    assert found(both) == [("a", {}, "1"), ("a", {"x": 1}, None)]


def test_native_id_or_name_repeated_in_pieces_is_one_call() -> None:
    """A repeated name is one name; another id without a name is no other call."""
    pieces = [piece("{", "get", index=0, id="1"), piece("", "get", index=0, id="1"), piece("}", index=0, id="9")]
    assert found(native(*pieces)) == [("get", {}, "1")]


@pytest.mark.parametrize("arguments", ["", " ", None, "{}", {}])
def test_native_calls_without_arguments_have_empty_arguments(arguments: object) -> None:
    """No arguments are none."""
    assert found(native(piece(arguments, "a", index=0, id="1"))) == [("a", {}, "1")]


def test_native_arguments_are_accepted_as_an_object() -> None:
    """Some upstreams send the object itself."""
    assert found(native(piece({"x": [1]}, "a", index=0))) == [("a", {"x": [1]}, None)]


@pytest.mark.parametrize(
    "arguments", ['{"path":"a.t', "[]", "null", '"{}"', '{"a":1,"a":2}', "{} {}", [], 0, False, "x"]
)
def test_invalid_native_arguments_make_the_call_malformed(arguments: object) -> None:
    """Arguments that are not an object run nothing."""
    outcome = native(piece(arguments, "a", index=0, id="1"))
    assert isinstance(outcome, MalformedCall)
    assert "'a'" in outcome.reason


@pytest.mark.parametrize("reason", ["length", "content_filter"])
@pytest.mark.parametrize("arguments", ['{"path":"a.t', "", " ", None])
def test_truncated_native_call_is_malformed(arguments: object, reason: str) -> None:
    """The model is told. Where the cut came behind the name, the call is not one without arguments."""
    whole = piece('{"path":"a.txt"}', "b", index=0, id="1")
    outcome = native(whole, piece(arguments, "a", index=1, id="2"), finish_reason=reason)
    assert isinstance(outcome, MalformedCall)
    assert "cut off" in outcome.reason
    assert found(native(whole, finish_reason=reason)) == [("b", {"path": "a.txt"}, "1")]


@pytest.mark.parametrize("name", [None, "", "  ", 3])
def test_a_native_call_needs_a_name(name: object) -> None:
    """Without one it is malformed."""
    assert native(piece("{}", name, index=0)) == MalformedCall("A tool call has no name.")


def test_native_calls_over_the_limit_are_malformed() -> None:
    """More than the limit is malformed and not kept."""
    outcome = native(*[piece("x" * 50, "a", index=0) for _ in range(100)], limit=1000)
    assert outcome == MalformedCall("The tool calls are longer than 1000 characters.")
    assert isinstance(native(*[piece("", "a", index=n) for n in range(100)], limit=1000), MalformedCall)
    assert len(found(native(*[piece("", "a", index=n) for n in range(10)], limit=1000))) == 10


def test_deltas_without_native_calls_are_text() -> None:
    """Nothing, and what is no call at all, is text."""
    assert native() == Prose()
    assert native(None, "x", 3, []) == Prose()


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["index", "id", "function", "name", "arguments"]), inner, max_size=5)
    ),
    max_leaves=12,
)


@given(st.lists(JUNK, max_size=6))
def test_any_native_pieces_raise_no_exception(deltas: list[object]) -> None:
    """No exception, whatever an upstream sends."""
    assert isinstance(native(*deltas), CallGroup | MalformedCall | Prose)


def test_legacy_function_call_pieces_are_joined() -> None:
    """One call in pieces, without an id; where `tool_calls` are there as well, they count."""
    calls = NativeCalls(limit=1000)
    for piece_ in ({"name": "a", "arguments": ""}, {"arguments": '{"x"'}, {"arguments": ": 1}"}, None, 3):
        calls.feed_legacy_call(piece_)
    assert calls.get_outcome(finish_reason="function_call") == CallGroup((FoundCall("a", {"x": 1}, terminate=False),))
    calls.feed(piece("{}", "b", id="1"))
    assert found(calls.get_outcome(finish_reason="tool_calls")) == [("b", {}, "1")]
    calls.feed_legacy_call({"arguments": "x" * 1000})
    assert isinstance(calls.get_outcome(finish_reason="stop"), MalformedCall)


def test_legacy_function_call_keeps_its_risk_level() -> None:
    """It may raise the risk, as beside any other call."""
    calls = NativeCalls(limit=1000)
    calls.feed_legacy_call({"name": "a", "arguments": "{}", "risk_level": "high"})
    outcome = calls.get_outcome(finish_reason="stop")
    assert isinstance(outcome, CallGroup) and outcome.calls[0].beside == "high"
