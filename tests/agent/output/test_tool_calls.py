"""Pieces of an answer: calls, malformed attempts, prose."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.agent.output.tool_calls import (
    CallGroup,
    MalformedCall,
    Prose,
    find_truncated_tool,
    looks_like_call,
    parse_calls,
)
from gateway.contracts.calls import FoundCall

CALL = '{"tool": "a", "parameters": {"x": 1}, "terminate": true}'
FOUND = FoundCall("a", {"x": 1}, terminate=True)


def test_valid_json_tool_call_is_recognised() -> None:
    """The three fields make a call; others beside them are no part of it."""
    assert parse_calls(CALL) == CallGroup((FOUND,))
    assert parse_calls(CALL[:-1] + ', "risk_level": "low"}') == CallGroup((FOUND,))


def test_mcp_tool_call_format_is_recognised() -> None:
    """`tool_call` with name and arguments; it never terminates, and null is none."""
    assert parse_calls('{"tool_call": {"name": "t", "arguments": {"a": 1}}}') == CallGroup(
        (FoundCall("t", {"a": 1}, False),)
    )
    assert parse_calls('{"response": "hi", "tool_call": {"name": "t", "arguments": {}}}') == CallGroup(
        (FoundCall("t", {}, False),)
    )
    assert parse_calls('{"response": "hi", "tool_call": null}') == Prose()


@pytest.mark.parametrize(
    "text",
    [
        '{"tool": "a", "parameters": {}, "terminate": false, "tool_call": {"name": "b", "arguments": {}}}',
        '{"tool_call": {"name": "b", "arguments": {}}, "terminate": true}',
        '{"tool": "a", "parameters": {}, "terminate": false, "name": "b", "arguments": {}}',
        '{"tool_call": {"name": "b", "arguments": {}, "parameters": {}}}',
        '{"tool_call": {"tool": "a", "parameters": {}, "terminate": false}}',
        '{"name": "a", "arguments": {}, "parameters": {}}',
        '{"name": "a", "arguments": {}, "tool_call": {"name": "b", "arguments": {}}}',
    ],
)
def test_call_mixing_keys_of_two_formats_is_malformed(text: str) -> None:
    """Two readings are none, and the model is told so; null is no key."""
    outcome = parse_calls(text, named=True)
    assert isinstance(outcome, MalformedCall) and "two formats" in outcome.reason
    assert parse_calls(CALL[:-1] + ', "tool_call": null}') == CallGroup((FOUND,))


def test_array_of_tool_calls_is_parsed_as_a_group() -> None:
    """All of it are calls, or it is malformed, or none is."""
    assert parse_calls(f"[{CALL}, {CALL}]") == CallGroup((FOUND, FOUND))
    assert parse_calls(f"[{CALL}]") == CallGroup((FOUND,))
    assert isinstance(parse_calls(f'[{CALL}, {{"a": 1}}]'), MalformedCall)
    assert isinstance(parse_calls(f'[{CALL}, {{"tool": "b", "parameters": {{}}}}]'), MalformedCall)
    assert parse_calls('[{"a": 1}, 2]') == Prose()


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
def test_non_call_json_is_judged_as_prose(text: str) -> None:
    """Other JSON, and what is neither JSON nor has two keys of a call."""
    assert parse_calls(text) == Prose()


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
def test_malformed_call_reports_its_reason(text: str, reason: str) -> None:
    """An attempt says what is wrong with it."""
    outcome = parse_calls(text)
    assert isinstance(outcome, MalformedCall)
    assert reason in outcome.reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"tool": "a"}', "'parameters'"),
        ('{"tool": "a", "risk_level": "low"}', "'parameters'"),
        ('{"tool": "a", "arguments": {"x": 1}}', "two formats"),
        ('{"arguments": {"x": 1}, "tool": "a"}', "two formats"),
        ('[{"tool": "a"}, {"tool": "a"}]', "'parameters'"),
    ],
)
def test_tool_name_alone_is_a_malformed_call(text: str, reason: str) -> None:
    """If the tool exists; with other data it is other data."""
    outcome = parse_calls(text, has_tool={"a"}.__contains__)
    assert isinstance(outcome, MalformedCall) and reason in outcome.reason
    assert parse_calls(text, has_tool={"b"}.__contains__) == parse_calls(text) == Prose()
    assert parse_calls('{"tool": "a", "price": 10}', has_tool={"a"}.__contains__) == Prose()
    assert parse_calls('{"tool": 1}', has_tool={"a"}.__contains__) == Prose()


@pytest.mark.parametrize(
    "text", ['{"tool": "a', '{"tool"', "{'parameters': ", "[ {tool: x", '{"why": 1, "tool": "a", "parameters": {"']
)
def test_truncated_call_attempt_looks_like_a_call(text: str) -> None:
    """Its first key, or two of its keys, tell."""
    assert looks_like_call(text)


@pytest.mark.parametrize(
    "text", ['{"name": "x', '{"a": 1, "tool": "x', "{tools: ", '{"toolbox": [', '{"a": "the tool: x']
)
def test_other_truncated_text_does_not_look_like_a_call(text: str) -> None:
    """A similar word is none."""
    assert not looks_like_call(text)


@given(st.text("{}[]\",:\\'tol_cparmeni \n", max_size=80))
def test_judging_any_text_raises_nothing(text: str) -> None:
    """No exception; only JSON is ever a call."""
    assert not isinstance(parse_calls(text), CallGroup) or json.loads(text)


@pytest.mark.parametrize(
    ("text", "named", "tool"),
    [
        ('{"tool": "a", "parameters": {"tool": "b", "x": "\\u00', False, "a"),
        ('[{"tool": "a", "parameters": {}, "terminate": false}, {"tool": "b", "p', False, "b"),
        ('{"tool_call": {"name": "a", "arguments": {"name": "b"', False, "a"),
        ('{"name": "a", "arguments": {', True, "a"),
        ('{"name": "a", "arguments": {', False, None),
        ('{"parameters": {"tool": "b"}, "tool": "a', False, None),
        ('{"tool": 1, "parameters": {', False, None),
        ("{'tool': 'a', 'parameters': {", False, None),
        ("[", False, None),
        ("[" * 100_000, False, None),
    ],
)
def test_tool_name_of_a_truncated_call_is_found(text: str, named: bool, tool: str | None) -> None:
    """It is known as soon as its name is whole, and is never a name within the arguments."""
    assert find_truncated_tool(text, named=named) == tool
