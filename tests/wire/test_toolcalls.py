"""What pieces of an answer are."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.toolcalls import Calls, FoundCall, Malformed, NativeCalls, Prose, judge, looks_like_call

CALL = '{"tool": "a", "parameters": {"x": 1}, "terminate": true}'
FOUND = FoundCall("a", {"x": 1}, terminate=True)


def native(*deltas: object, limit: int = 1 << 20, finish_reason: str | None = "tool_calls") -> Any:
    calls = NativeCalls(limit=limit)
    for delta in deltas:
        calls.feed(delta)
    return calls.outcome(finish_reason=finish_reason)


def piece(arguments: object = None, name: object = None, **keys: object) -> dict[str, object]:
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    return {**keys, "function": function}


def found(outcome: Any) -> list[tuple[str, dict[str, Any], str | None]]:
    assert isinstance(outcome, Calls), outcome
    return [(call.tool, call.parameters, call.id) for call in outcome.calls]


def test_valid_json_tool_call() -> None:
    """The three fields make a call; others beside them are no part of it."""
    assert judge(CALL) == Calls((FOUND,))
    assert judge(CALL[:-1] + ', "risk_level": "low"}') == Calls((FOUND,))


def test_the_format_of_mcp() -> None:
    """`tool_call` with name and arguments; it never terminates, and null is none."""
    assert judge('{"tool_call": {"name": "t", "arguments": {"a": 1}}}') == Calls((FoundCall("t", {"a": 1}, False),))
    assert judge('{"response": "hi", "tool_call": {"name": "t", "arguments": {}}}') == Calls(
        (FoundCall("t", {}, False),)
    )
    assert judge('{"response": "hi", "tool_call": null}') == Prose()


def test_an_array_of_calls_is_a_group() -> None:
    """All of it are calls, or it is malformed, or none is."""
    assert judge(f"[{CALL}, {CALL}]") == Calls((FOUND, FOUND))
    assert judge(f"[{CALL}]") == Calls((FOUND,))
    assert isinstance(judge(f'[{CALL}, {{"a": 1}}]'), Malformed)
    assert isinstance(judge(f'[{CALL}, {{"tool": "b", "parameters": {{}}}}]'), Malformed)
    assert judge('[{"a": 1}, 2]') == Prose()


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1}',
        "[]",
        '{"tool": "hammer", "price": 10}',
        '{"terminate": true}',
        '{"schema": {"tool": "a", "parameters": {}, "terminate": false}}',
        '{"a": 1,}',
        "{tool: hammer}",
        "{'tool': 'hammer'}",
        '{"text": "its keys are tool: and parameters: ", oops}',
    ],
)
def test_what_is_no_call(text: str) -> None:
    """Other JSON, and what is neither JSON nor has two keys of a call."""
    assert judge(text) == Prose()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"tool": "a", "parameters": {}, "terminate": 1}', "'terminate'"),
        ('{"tool": "a", "parameters": {}}', "'terminate'"),
        ('{"tool": "a", "parameters": [], "terminate": true}', "'parameters'"),
        ('{"tool": " ", "parameters": {}, "terminate": true}', "'tool'"),
        ('{"tool_call": {"name": "t"}}', "'arguments'"),
        ('{"tool_call": []}', "'name'"),
        ('{"tool": "a", "parameters": {}, "terminate": false,}', "JSON"),
        ("{'tool': 'a', 'parameters': {}, 'terminate': False}", "JSON"),
        ('{tool: "a", parameters: {}, terminate: false}', "JSON"),
        ("{“tool”: “a”, “parameters”: {}, “terminate”: false}", "JSON"),
        ('{"tool"："a"，"parameters"：{}，"terminate"：false}', "JSON"),
        ('{\\"tool\\": \\"a\\", \\"parameters\\": {}}', "JSON"),
        ('{"thought": "one\ntwo", "tool": "a", "parameters": {}, "terminate": false}', "JSON"),
        ('{"tool": "a", "parameters": {"x": 1, "x": 2}, "terminate": false}', "'x' is there twice"),
        ('{"tool": "a", "parameters": {"x": ' + "[" * 200 + "]" * 200 + '}, "terminate": false}', "deep"),
        ('[{"tool": "a", "parameters": {}, "terminate": false},]', "JSON"),
    ],
)
def test_handle_malformed_json(text: str, reason: str) -> None:
    """An attempt says what is wrong with it."""
    outcome = judge(text)
    assert isinstance(outcome, Malformed)
    assert reason in outcome.reason


@pytest.mark.parametrize(
    "text", ['{"tool": "a', '{"tool"', "{'parameters': ", "[ {tool: x", '{"why": 1, "tool": "a", "parameters": {"']
)
def test_a_cut_attempt_looks_like_a_call(text: str) -> None:
    """Its first key, or two of its keys, tell."""
    assert looks_like_call(text)


@pytest.mark.parametrize(
    "text", ['{"name": "x', '{"a": 1, "tool": "x', "{tools: ", '{"toolbox": [', '{"a": "the tool: x']
)
def test_other_cut_texts_do_not(text: str) -> None:
    """A similar word is none."""
    assert not looks_like_call(text)


def test_native_calls_are_put_together_by_index() -> None:
    """Pieces of parallel calls may be mixed; the order is that of the index."""
    outcome = native(
        piece("", "b", index=1, id="2"),
        piece('{"x"', "a", index=0, id="1"),
        piece("{}", index=1),
        piece(":1}", index=0),
    )
    assert found(outcome) == [("a", {"x": 1}, "1"), ("b", {}, "2")]


def test_native_calls_without_an_index() -> None:
    """Whole calls each, or continued by id or by order."""
    assert found(native(piece("{}", "a", id="1"), piece("{}", "b", id="2"))) == [("a", {}, "1"), ("b", {}, "2")]
    assert found(native(piece("{", "a", id="1"), piece("}", id="1"))) == [("a", {}, "1")]
    assert found(native(piece("{", "a", id="1"), piece("}"))) == [("a", {}, "1")]
    assert found(native(piece("{}", "a"), piece("{}", "b"))) == [("a", {}, None), ("b", {}, None)]


def test_native_calls_that_share_an_index() -> None:
    """Some upstreams give 0 to all: a new id with a name is a new call."""
    both = native(piece("{}", "a", index=0, id="1"), piece('{"x":1}', "b", index=0, id="2"))
    assert found(both) == [("a", {}, "1"), ("b", {"x": 1}, "2")]


def test_an_id_or_name_with_every_piece() -> None:
    """A repeated name is one name; another id without a name is no other call."""
    pieces = [piece("{", "get", index=0, id="1"), piece("", "get", index=0, id="1"), piece("}", index=0, id="9")]
    assert found(native(*pieces)) == [("get", {}, "1")]


@pytest.mark.parametrize("arguments", ["", " ", None, "{}", {}])
def test_native_calls_without_arguments(arguments: object) -> None:
    """No arguments are none."""
    assert found(native(piece(arguments, "a", index=0, id="1"))) == [("a", {}, "1")]


def test_native_arguments_as_an_object() -> None:
    """Some upstreams send the object itself."""
    assert found(native(piece({"x": [1]}, "a", index=0))) == [("a", {"x": [1]}, None)]


@pytest.mark.parametrize(
    "arguments", ['{"path":"a.t', "[]", "null", '"{}"', '{"a":1,"a":2}', "{} {}", [], 0, False, "x"]
)
def test_bad_native_arguments_are_never_none(arguments: object) -> None:
    """What is not an object runs nothing."""
    outcome = native(piece(arguments, "a", index=0, id="1"))
    assert isinstance(outcome, Malformed)
    assert "'a'" in outcome.reason


def test_a_native_call_that_was_cut() -> None:
    """The model is told that its answer was cut."""
    outcome = native(piece('{"path":"a.t', "a", index=0), finish_reason="length")
    assert isinstance(outcome, Malformed)
    assert "cut off" in outcome.reason


@pytest.mark.parametrize("name", [None, "", "  ", 3])
def test_a_native_call_needs_a_name(name: object) -> None:
    """Without one it is malformed."""
    assert native(piece("{}", name, index=0)) == Malformed("A tool call has no name.")


def test_native_calls_are_bounded() -> None:
    """More than the limit is malformed and not kept."""
    outcome = native(*[piece("x" * 50, "a", index=0) for _ in range(100)], limit=1000)
    assert outcome == Malformed("The tool calls are longer than 1000 characters.")
    assert isinstance(native(*[piece("", "a", index=n) for n in range(100)], limit=1000), Malformed)
    assert len(found(native(*[piece("", "a", index=n) for n in range(10)], limit=1000))) == 10


def test_no_native_calls() -> None:
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
def test_any_native_pieces_are_taken(deltas: list[object]) -> None:
    """No exception, whatever an upstream sends."""
    assert isinstance(native(*deltas), Calls | Malformed | Prose)


@given(st.text("{}[]\",:\\'tol_cparmeni \n", max_size=80))
def test_any_text_is_judged(text: str) -> None:
    """No exception; only JSON is ever a call."""
    assert not isinstance(judge(text), Calls) or json.loads(text)
