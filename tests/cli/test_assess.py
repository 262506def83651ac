"""`gateway assess`: every shape in which a call can be written, and what the gate says about it."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from verdicts import ASSESSORS, PROFILES, TOOLS, cases, expected

from gateway.cli.assess import assess_lines
from gateway.cli.scan import scan_lines
from gateway.contracts.risk import Verdict
from gateway.contracts.storage.store import Json
from gateway.contracts.tools import ToolSpec
from gateway.plugins.assessors.command import CommandAssessor
from gateway.plugins.assessors.file import FileAssessor
from gateway.tools.gate import Gate, Policy

DATA = Path(__file__).parent.parent / "data"


def tool(name: str, *required: str) -> ToolSpec:
    properties = {argument: {"type": "string"} for argument in required}
    return ToolSpec(
        name=name,
        description="",
        parameters={"type": "object", "properties": properties, "required": list(required)},
    )


SPECS = {
    spec.name: spec
    for spec in (
        tool("execute_sql", "sql"),
        tool("execute_command", "command"),
        tool("file_operations", "operation"),
        tool("http_request", "method", "url"),
        tool("now"),
    )
}


class OnlySelects:
    """Knows the one harmless statement of the cases."""

    def assess(self, arguments: Json) -> Verdict:
        harmless = arguments.get("sql") == "SELECT 1"
        return Verdict("auto", "whitelist", "s", "r") if harmless else Verdict("confirm", "default", "s", "r")


GATE = Gate(
    Policy(trust_llm="always", default="confirm"),
    {
        "execute_sql": OnlySelects(),
        "execute_command": CommandAssessor("standard"),
        "file_operations": FileAssessor("standard"),
    },
)


def answers(*lines: str, gate: Gate = GATE) -> tuple[list[dict[str, str]], int]:
    written: list[str] = []
    status = assess_lines(lines, written.append, gate=gate, specs=SPECS)
    assert all(line.endswith("\n") and line.count("\n") == 1 for line in written)
    return [json.loads(line) for line in written], status


def asked(line: Json) -> tuple[str, str]:
    (answer,), status = answers(json.dumps(line))
    assert status == 0
    assert set(answer) == {"verdict", "basis", "rule", "reason"}
    return answer["verdict"], answer["basis"]


def lines_of(name: str) -> list[Json]:
    cases = [json.loads(line) for line in (DATA / name).read_text().splitlines()]
    return [case for case in cases if not case.get("ambiguous")]


@pytest.mark.parametrize("case", lines_of("riskarg.jsonl"), ids=lambda case: case["why"])
def test_assess_verdicts_match_the_risk_argument_cases(case: Json) -> None:
    """Decision and basis are the case's."""
    assert asked(case) == (case["expect"], case["basis"])


@pytest.mark.parametrize("name", ["command.jsonl", "file.jsonl"])
def test_assess_infers_the_tool_from_bare_arguments(name: str) -> None:
    """`command` is execute_command's, `operation` file_operations'; arguments of no tool ask."""
    cases = [case for case in lines_of(name) if case["tier"] != "hardening"]
    got, status = answers(*(json.dumps(case) for case in cases))
    assert [answer["verdict"] for answer in got] == [case["expect"] for case in cases]
    assert status == 0


def test_assess_recognises_every_built_in_tool_by_its_arguments() -> None:
    """By the name of an argument that only this tool has."""
    assert asked({"arguments": {"sql": "SELECT 1"}}) == ("auto", "whitelist")
    assert asked({"arguments": {"method": "GET", "url": "https://example.com/"}}) == ("confirm", "default")
    assert asked({"arguments": {"url": "https://example.com/", "risk_level": "low"}}) == ("auto", "llm")
    assert asked({"arguments": {"cmd": "ls", "risk_level": "low"}}) == ("confirm", "default")


@pytest.mark.parametrize(
    "call",
    [
        {"tool": "execute_sql", "parameters": {"sql": "SELECT 1"}, "terminate": False},
        {"name": "execute_sql", "arguments": {"sql": "SELECT 1"}},
        {"id": "c", "type": "function", "function": {"name": "execute_sql", "arguments": '{"sql": "SELECT 1"}'}},
    ],
)
def test_assess_accepts_three_call_shapes(call: Json) -> None:
    """Ours, the bare one and OpenAI's; a level beside the arguments raises in each."""
    assert asked({"tool_call": call}) == ("auto", "whitelist")
    assert asked({"tool_call": {**call, "risk_level": "high"}}) == ("confirm", "llm")
    assert asked({"tool_call": {**call, "risk_level": "low"}}) == ("auto", "whitelist")


@pytest.mark.parametrize(
    "text", ["", " ", "x", "[]", "1", "null", '"{}"', '{"sql": NaN}', '{"sql": 1,}', "{'sql': 1}", "[" * 100_000,
     '{"a":' * 50_000, '{"sql": ' + "9" * 5000 + "}"],
    ids=lambda text: text[:12],
)  # fmt: skip
def test_arguments_that_are_not_a_json_object_are_malformed(text: str) -> None:
    """Malformed, too deep or too long a number: nothing runs, nobody is asked, not even for low or by the operator."""
    assert asked({"tool": "execute_sql", "raw_arguments": text}) == ("error", "malformed")
    assert asked({"tool": "no_such_tool", "raw_arguments": text}) == ("error", "unknown_tool")


def test_assess_accepts_empty_arguments_only_without_required_ones() -> None:
    """Only for a tool without required arguments."""
    assert asked({"tool": "now", "raw_arguments": ""}) == ("confirm", "default")


@pytest.mark.parametrize(
    "text",
    [
        '{"sql": "a", "sql": "b"}',
        '{"risk_level": "high", "sql": "a", "risk_\\u006cevel": "low"}',
        '{"a": {"b": 1, "b": 1}}',
    ],
)
def test_duplicate_argument_keys_require_confirmation(text: str) -> None:
    """At any depth, in a text of arguments as in the line itself."""
    assert asked({"tool": "execute_sql", "raw_arguments": text}) == ("confirm", "duplicate")
    (answer,), status = answers(f'{{"tool": "execute_sql", "arguments": {text}}}')
    assert (answer["verdict"], answer["basis"], status) == ("confirm", "duplicate", 0)


@pytest.mark.parametrize(
    "line",
    [
        {},
        {"tool": "execute_sql"},
        {"tool": "execute_sql", "arguments": None},
        {"tool": "execute_sql", "arguments": []},
        {"tool": 3, "arguments": {}},
        {"tool": ["execute_sql"], "arguments": {}},
        {"tool_call": {}},
        {"tool_call": "x"},
        {"tool_call": {"tool": "execute_sql", "terminate": True}},
        {"arguments": 1},
        {"tool_definition": 1, "arguments": {"cmd": "x"}},
    ],
    ids=repr,
)
def test_assess_answers_confirm_for_malformed_lines(line: Json) -> None:
    """What is no call is not judged harmless, and is no error either."""
    assert asked(line)[0] == "confirm"


def test_tool_definition_adds_operator_rules_and_ignores_tool_hints() -> None:
    """Approval, a floor and distrust count; what a tool says of itself does not lower its risk."""
    low = {"sql": "SELECT 1", "risk_level": "low"}

    def defined(**definition: object) -> tuple[str, str]:
        return asked({"tool_definition": {"name": "execute_sql", **definition}, "arguments": low})

    assert defined() == ("auto", "llm")
    assert defined(requires_approval=True) == ("confirm", "operator")
    assert defined(risk={"min_level": "high"}) == ("confirm", "operator")
    assert defined(risk={"min_level": "low"}) == ("auto", "llm")
    assert defined(risk={"trust_llm_low": False}) == ("auto", "whitelist")
    assert defined(risk=3, parameters=4) == ("auto", "llm")
    hints = {"annotations": {"readOnlyHint": True}, "inputSchema": {"type": "object"}}
    assert asked({"tool_definition": {"name": "mcp.x", **hints}, "arguments": {"a": 1}}) == ("confirm", "default")
    wrapped = {"type": "function", "function": {"name": "x", "parameters": {"properties": {"risk_level": {}}}}}
    assert asked({"tool_definition": wrapped, "arguments": {"risk_level": "low"}}) == ("confirm", "default")


def test_assess_distrusts_low_risk_on_tainted_lines() -> None:
    """`tainted: true` stands for a run that has read what strangers wrote."""
    gate = Gate(Policy(trust_llm="until_tainted", default="confirm"), GATE.assessors)
    line = {"tool": "execute_sql", "arguments": {"sql": "DROP TABLE a", "risk_level": "low"}}
    got, _ = answers(json.dumps(line), json.dumps({**line, "tainted": True}), gate=gate)
    assert [answer["basis"] for answer in got] == ["llm", "default"]


def test_unreadable_lines_require_confirmation_and_set_exit_status_1() -> None:
    """One answer a line, blank lines none; 1 says that a line could not be read."""
    got, status = answers("", "  \n", "x", "[]", '{"a"', "[" * 100_000, '{"tool": "no_such_tool", "arguments": {}}')
    assert [answer["verdict"] for answer in got] == ["confirm"] * 4 + ["error"]
    assert status == 1


def test_answers_are_plain_ascii_lines() -> None:
    """A surrogate or a control character of the model does not reach the terminal."""
    written: list[str] = []
    line = json.dumps({"tool": "file_operations", "arguments": {"operation": "\ud800\x1b[2K\u202e", "path": "a"}})
    assess_lines([line], written.append, gate=GATE, specs=SPECS)
    assert written[0].isascii()
    assert written[0].rstrip("\n").isprintable()


JSON: st.SearchStrategy[object] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


@pytest.mark.parametrize("doubt", ["quoted", "example"])
def test_assess_confirms_a_call_marked_as_doubted(doubt: str) -> None:
    """`doubt` stands for what the lane finds out by itself: the call asks, by that rule."""
    line = {"tool": "execute_command", "arguments": {"command": "ls", "risk_level": "low"}}
    (plain, doubted, other), _ = answers(
        json.dumps(line), json.dumps({**line, "doubt": doubt}), json.dumps({**line, "doubt": "x"})
    )
    assert (plain["verdict"], other["verdict"]) == ("auto", "auto")
    assert (doubted["verdict"], doubted["basis"], doubted["rule"]) == ("confirm", "default", doubt)


LOW = {"path": "a", "operation": "delete", "risk_level": "low"}


@pytest.mark.parametrize(
    ("answer", "verdicts"),
    [
        ({"tool": "execute_command", "parameters": {"command": "ls"}}, [("auto", "whitelist")]),
        ({"tool": "execute_command", "parameters": {"command": "ls"}, "risk_level": "high"}, [("confirm", "llm")]),
        ({"tool": "file_operations", "parameters": LOW}, [("auto", "llm")]),
        ({"tool": "no_such_tool", "parameters": {}}, [("error", "unknown_tool")]),
    ],
)
def test_assess_judges_scan_output(answer: Json, verdicts: list[tuple[str, str]]) -> None:
    """`gateway scan | gateway assess` says of each call of a model's answer what the lane would."""
    text = json.dumps({**answer, "terminate": False})
    scanned: list[str] = []
    assert scan_lines([json.dumps({"text": text}), json.dumps({"text": f"[{text}, {text}]"})], scanned.append) == 0
    (one, group), status = answers(*scanned)
    assert status == 0
    assert [(one["verdict"], one["basis"])] == verdicts
    assert [(each["verdict"], each["basis"]) for each in group["calls"]] == verdicts * 2  # type: ignore[index, union-attr]


def test_assess_keeps_example_error_and_text_verdicts_of_scan() -> None:
    """An example asks, what cannot be read is an error, a text is passed on; a line that was none sets the status."""
    example = "For example:\n" + json.dumps({"tool": "file_operations", "parameters": LOW, "terminate": False})
    texts = [example, "{'tool': 'a', 'parameters': {}}", "Hello"]
    scanned: list[str] = []
    assert scan_lines([*(json.dumps({"text": text}) for text in texts), "{"], scanned.append) == 1
    (doubted, malformed, text, wrong), status = answers(*scanned)
    assert (doubted["verdict"], doubted["rule"]) == ("confirm", "example")
    assert (malformed["verdict"], malformed["basis"]) == ("error", "malformed") and malformed["reason"]
    assert text == {"kind": "text"} and wrong["kind"] == "error" and status == 1


def test_assess_confirms_a_call_with_both_arguments_and_parameters() -> None:
    """Nobody knows which of them would run."""
    harmless, other = {"command": "ls"}, {"command": "rm a"}
    assert asked({"tool": "execute_command", "arguments": harmless, "parameters": other})[0] == "confirm"


NAMES = st.sampled_from(["tool", "arguments", "raw_arguments", "tool_call", "tool_definition", "tainted", "calls"])


@settings(max_examples=300)
@given(st.dictionaries(NAMES, JSON, max_size=5), st.sampled_from([None, "tool_call", "malformed"]))
def test_assess_answers_every_json_line(line: Json, kind: str | None) -> None:
    """Whatever JSON a line holds, there is an answer."""
    (got,), _ = answers(json.dumps(line if kind is None else {**line, "kind": kind}))
    told: list[dict[str, str]] = got.get("calls", [got])  # type: ignore[assignment]
    assert all(each["verdict"] in ("auto", "confirm", "error") for each in told)


@settings(max_examples=200)
@given(st.text())
def test_assess_answers_every_text_line(line: str) -> None:
    """Nor does a line that is no JSON."""
    answers(line)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("kind", TOOLS)
def test_assess_verdicts_match_all_cases_under_every_profile(kind: str, profile: str) -> None:
    """All cases of the corpora and over two thousand further ones, with the real assessors, named and unnamed tools."""
    gate = Gate(GATE.policy, ASSESSORS[profile])
    lines = cases(kind)
    for named in ({}, {"tool": TOOLS[kind]}):
        got, status = answers(*(json.dumps({**case, **named}) for case in lines), gate=gate)
        assert status == 0
        wrong = [
            (case["arguments"], answer)
            for case, answer in zip(lines, got, strict=True)
            if answer["verdict"] != expected(case, profile=profile)
        ]
        assert not wrong
        assert {answer["basis"] for answer in got} == {"whitelist", "default"}


ARGUMENTS = st.sampled_from(
    ["sql", "command", "operation", "path", "method", "url", "headers", "params", "body", "risk_level", "riskLevel"]
)
ANYTHING = JSON | st.sampled_from(["SELECT 1", "ls", "read", "GET", "https://example.com/", "low", "high", 10**400])


@settings(max_examples=300)
@given(st.dictionaries(ARGUMENTS | st.text(), ANYTHING, max_size=6), st.sampled_from([*TOOLS.values(), "x"]), JSON)
def test_assess_answers_every_call_of_a_built_in_tool(arguments: Json, tool: str, definition: object) -> None:
    """Whatever the arguments and the definition are, there is one answer, from the real assessors, too."""
    line = json.dumps({"tool": tool, "arguments": arguments, "tool_definition": definition})
    for profile in PROFILES:
        got, _ = answers(line, gate=Gate(GATE.policy, ASSESSORS[profile]))
        assert [answer["verdict"] in ("auto", "confirm", "error") for answer in got] == [True]


@pytest.mark.parametrize(
    ("tool", "decision"), [("git.log", "confirm"), ("git__log", "confirm"), ("github.log", "auto")]
)
def test_assess_confirms_calls_of_a_server_needing_approvals(tool: str, decision: str) -> None:
    """By either name; the definition comes with the line."""
    written: list[str] = []
    line = {"tool": tool, "arguments": {"risk_level": "low"}, "tool_definition": {"name": tool}}
    assess_lines([json.dumps(line)], written.append, gate=GATE, specs=SPECS, asking=("git",))
    assert json.loads(written[0])["verdict"] == decision
