"""Approvals, runs and audit lines on a terminal: exactly what runs, and nothing that a terminal obeys."""

import re
from collections.abc import Callable, Iterable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.cli.formatting import (
    View,
    audit_line,
    call_line,
    format_approval,
    format_approval_summary,
    run_lines,
    run_summary,
)

#: What a terminal obeys, and what turns or hides text.
OBEYED = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
SHOWN: list[Callable[[View], Iterable[str]]] = [
    format_approval,
    format_approval_summary,
    run_lines,
    lambda view: [run_summary(view)],
    lambda view: [audit_line(view)],
]
RAW = {
    "assigned_to",
    "notes",
    "tool",
    "arguments",
    "sha256",
    "basis",
    "rule",
    "reason",
    "state",
    "via",
    "comment",
    "edited_arguments",
    "id",
}
NAMES = st.sampled_from(sorted(RAW | {"run_id", "step", "conversation", "decided_by", "created_at", "answer", "error"}))
TEXTS = st.text(st.characters(exclude_categories=()), max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@example(view={"answer": {"": -(2**63) - 1}}, nested="steps")
@given(view=st.dictionaries(NAMES, JSON), nested=st.sampled_from(["steps", "approvals"]))
def test_formatted_views_contain_no_terminal_control_characters(view: View, nested: str) -> None:
    """Whatever stands in the fields, and wherever; every line is one line."""
    for show in SHOWN:
        for line in show({**view, nested: [view, 7]}):
            assert not OBEYED.search(line), ascii(line)


@pytest.mark.parametrize("show", SHOWN)
def test_formatters_accept_empty_views(show: Callable[[View], Iterable[str]]) -> None:
    """Another version may answer less."""
    assert all(isinstance(line, str) for line in show({}))


def test_approval_arguments_cannot_forge_output_lines() -> None:
    """They are indented and have no line breaks of their own."""
    arguments = {"command": "ls\nto approve    gateway approvals approve ap_2", "\x1b[2Jname": "x"}
    lines = list(format_approval({"id": "ap_1", "state": "pending", "tool": "t", "arguments": arguments}))
    assert lines[1:4] == [
        "  t",
        '    "\\u001b[2Jname": "x"',
        '    command: "ls\\nto approve    gateway approvals approve ap_2"',
    ]


def test_approval_lines_show_assignee_and_notes() -> None:
    """Each on one line, as people wrote them."""
    note = {"text": "ask anna\nfirst", "by": "ben", "at": 0.0}
    lines = list(format_approval({"id": "ap_1", "state": "pending", "assigned_to": "anna", "notes": [note]}))
    assert "assigned to   anna" in lines
    assert "note          ask anna\\nfirst (ben, 1970-01-01 00:00:00 UTC)" in lines


def test_model_answer_cannot_forge_output_lines() -> None:
    """It keeps its line breaks, indented."""
    lines = list(run_lines({"answer": {"content": "Done.\nstep 3  finished\x1b[2J"}}))
    assert lines[-3:] == ["answer", "  Done.", "  step 3  finished\\u{1b}[2J"]


def test_shortened_arguments_state_the_omitted_length() -> None:
    """In lists; one approval is shown with all that a person can read."""
    view = {"id": "ap_1", "state": "done", "tool": "t", "arguments": {"text": "ab" * 1000}}
    assert re.search(r'^t \{"text":"(ab)+a?\\\{\d+ more characters, SHA-256 [0-9a-f]{64}\}$', call_line(view))
    assert "ab" * 1000 in "\n".join(format_approval(view))


def test_edited_arguments_are_shown_as_the_call_that_ran() -> None:
    """On one line only that; in full, both."""
    view = {"tool": "t", "arguments": {"a": 1}, "edited_arguments": {}}
    assert call_line(view) == "t {}"
    lines = list(format_approval(view))
    assert lines[1:3] == ["  t", "    a: 1"] and lines[-3:] == [
        "edited: what was approved is",
        "  t",
        "    (no arguments)",
    ]


def test_ended_run_shows_its_error_or_answer() -> None:
    """With its error, or an answer that is no text as JSON; what it still waits for is shown."""
    lines = list(
        run_lines(
            {
                "id": "run_1",
                "approvals": [
                    {"id": "ap_1", "state": "pending", "tool": "t", "arguments": {}},
                    {"id": "ap_2", "state": "done"},
                ],
                "answer": {"content": None, "tool_calls": [1]},
                "error": {"code": "agent_timeout", "message": "Too slow."},
            }
        )
    )
    assert lines[lines.index("") :] == [
        "",
        "ap_1  pending, until unknown time",
        "  t {}",
        "",
        "answer",
        '  {"content":null,"tool_calls":[1]}',
        "",
        "error         agent_timeout: Too slow.",
    ]


def test_run_of_a_tool_call_is_shown_with_tool_and_client() -> None:
    """On one line, whatever the client calls itself."""
    view = {"id": "run_1", "state": "completed", "kind": "tool", "tool": "notes.find", "caller": "ann"}
    client = {"name": "probe\n9", "version": "1.2"}
    assert run_summary(view).startswith("run_1  completed  call of notes.find of ann, ")
    assert "client        probe\\n9 1.2" in list(run_lines({**view, "client": client}))
    assert "client        probe\\n9 1.2" in list(format_approval({"id": "ap_1", "client": client}))


def test_audit_entry_is_formatted_as_one_line() -> None:
    """Of a call with who decided; of a run as a whole without a call."""
    call = {
        "seq": 7,
        "tenant": "acme",
        "caller": "ann",
        "run_id": "run_1",
        "step": 1,
        "event": "decision",
        "tool": "execute_sql",
        "sha256": "ab" * 32,
        "decision": "approved",
        "basis": "default",
        "rule": "unknown",
        "by": "bob",
        "via": "rest",
        "created_s": 100.0,
    }
    begin = "7  1970-01-01 00:01:40 UTC  decision:"
    assert audit_line(call) == (
        f"{begin} approved by bob (rest) (default, unknown)  execute_sql {'ab' * 32}, step 1  run_1 of acme/ann"
    )
    whole = {**call, "tool": "", "basis": "", "rule": "", "decision": "cancelled", "step": -1, "by": ""}
    assert audit_line(whole) == f"{begin} cancelled  run_1 of acme/ann"
