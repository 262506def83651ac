"""Whole answers: what they are, and what of them is shown."""

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.agent.output.tool_calls import CallGroup, MalformedCall, Prose
from gateway.agent.output.whole_message import read_message
from gateway.contracts.calls import FoundCall

DATA = Path(__file__).parent.parent.parent / "data" / "toolcalls.jsonl"
CASES: list[dict[str, Any]] = [json.loads(line) for line in DATA.read_text().splitlines()]
CLEAR = [case for case in CASES if not case.get("ambiguous")]
KINDS = {Prose: "text", CallGroup: "tool_call", MalformedCall: "malformed"}
CALL = '{"tool": "a", "parameters": {"x": 1}, "terminate": false}'
FOUND = CallGroup((FoundCall("a", {"x": 1}, terminate=False),))


@pytest.mark.parametrize("case", CLEAR, ids=[case["why"] for case in CLEAR])
def test_whole_messages_are_read_as_the_fixtures_expect(case: dict[str, Any]) -> None:
    """Hand-made answers: the call with its parameters, an attempt, or the text unchanged."""
    shown, outcome = read_message(case.get("message") or {"content": case["text"]})
    assert KINDS[type(outcome)] == case["expect"]
    if isinstance(outcome, CallGroup):
        call = outcome.calls[0]
        assert (call.tool, call.parameters, call.terminate) == (case["tool"], case["parameters"], case["terminate"])
        assert '"terminate"' not in shown
    if isinstance(outcome, Prose):
        assert shown == case["text"]


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"content": None},
        {"content": 3, "tool_calls": 3},
        {"content": [], "tool_calls": [None, 3]},
        {"tool_calls": {}},
    ],
)
def test_malformed_messages_are_read_as_empty_text(message: dict[str, Any]) -> None:
    """Nothing is found in what holds nothing."""
    assert read_message(message) == ("", Prose())


def test_content_parts_are_read_as_one_answer() -> None:
    """The texts of the parts are one answer."""
    parts = [{"type": "text", "text": "A "}, {"type": "image_url"}, {"type": "text", "text": CALL}]
    assert read_message({"content": parts}) == ("A ", FOUND)


def test_legacy_function_call_is_read() -> None:
    """The field that calls had before `tool_calls`, with arguments as a text or an object."""
    for arguments in ('{"x": 1}', {"x": 1}):
        message = {"role": "assistant", "content": None, "function_call": {"name": "a", "arguments": arguments}}
        assert read_message(message) == ("", FOUND)
