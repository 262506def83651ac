"""`gateway scan`."""

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.scan import scan_lines

CASES = [
    json.loads(line) for line in (Path(__file__).parent.parent / "data" / "toolcalls.jsonl").read_text().splitlines()
]
CALL = '{"tool": "a", "parameters": {"x": 1}, "terminate": true}'


def scan(*lines: object) -> tuple[int, list[dict[str, Any]]]:
    written: list[str] = []
    status = scan_lines([line if isinstance(line, str) else json.dumps(line) for line in lines], written.append)
    assert all(line.endswith("\n") and line.count("\n") == 1 for line in written)
    return status, [json.loads(line) for line in written]


def test_scan_reports_one_verdict_per_case_in_order() -> None:
    """Every line of the cases has one line of answer, in order."""
    status, answers = scan(*CASES)
    assert status == 0
    clear = [(case, answer) for case, answer in zip(CASES, answers, strict=True) if not case.get("ambiguous")]
    for case, answer in clear:
        wanted = {key: case[key] for key in ("tool", "parameters", "terminate") if key in case}
        assert answer["kind"] == case["expect"], case["why"]
        assert {key: answer[key] for key in wanted} == wanted, case["why"]


def test_scan_answer_has_only_applicable_fields() -> None:
    """A text has its kind alone, an attempt its reason, a call what it asks for."""
    _, answers = scan({"text": "Hello"}, {"text": CALL}, {"text": "{'tool': 'a', 'parameters': {}}"})
    assert answers[0] == {"kind": "text"}
    assert answers[1] == {"kind": "tool_call", "tool": "a", "parameters": {"x": 1}, "terminate": True}
    assert answers[2].keys() == {"kind", "reason"}


def test_scan_reports_example_rule_and_reads_function_call_field() -> None:
    """With the rule by which the gate asks; the older field is read as well."""
    (told,) = scan({"text": f"For example:\n{CALL}"})[1]
    assert (told["kind"], told["rule"]) == ("tool_call", "example")
    (told,) = scan({"message": {"content": None, "function_call": {"name": "a", "arguments": {"x": 1}}}})[1]
    assert told == {"kind": "tool_call", "tool": "a", "parameters": {"x": 1}, "terminate": False}


def test_scan_reports_several_calls_as_a_list() -> None:
    """A group is told as `calls`."""
    native = [{"id": str(n), "function": {"name": f"f{n}", "arguments": "{}"}} for n in range(2)]
    _, answers = scan({"text": f"[{CALL}, {CALL}]"}, {"message": {"content": None, "tool_calls": native}})
    one = {"tool": "a", "parameters": {"x": 1}, "terminate": True}
    assert answers[0] == {"kind": "tool_call", "calls": [one, one]}
    assert [call["tool"] for call in answers[1]["calls"]] == ["f0", "f1"]


def test_scan_prefers_message_over_text() -> None:
    """Where a line holds both, the message is the answer."""
    assert scan({"text": CALL, "message": {"content": "Hello"}})[1] == [{"kind": "text"}]


def test_scan_reports_calls_cut_off_by_the_length_limit() -> None:
    """With `finish_reason` length a cut call is told to be cut."""
    cut = CALL[:30]
    assert "cut off" in scan({"text": cut, "finish_reason": "length"})[1][0]["reason"]
    assert "cut off" not in scan({"text": cut})[1][0]["reason"]


@pytest.mark.parametrize(
    "line", ["{", "[" * 100_000, "[]", "{}", '{"text": 1}', '{"message": []}', '{"text": "", "finish_reason": 1}']
)
def test_scan_reports_broken_line_and_reads_the_next_ones(line: str) -> None:
    """A line that holds no answer is an error with its number, blank lines counted; the exit code is 1."""
    status, answers = scan("", line, {"text": "Hello"})
    assert status == 1
    assert answers[0]["kind"] == "error"
    assert answers[0]["line"] == 2
    assert answers[0]["reason"]
    assert answers[1] == {"kind": "text"}
