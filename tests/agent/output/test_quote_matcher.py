"""Calls that stand in other texts."""

import html
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.agent.output.quote_matcher import PIECE_CHARS, Quote
from gateway.contracts.calls import FoundCall

ARGUMENTS: dict[str, Any] = {
    "path": "C:\\new\\ä.txt",
    "content": 'say "hi"\n{x} 你好😀 & <b>',
    "mode": {"n": 3, "f": 1.5, "ok": True, "l": ["a b", "c"], "none": None},
}
CALL = FoundCall("write_file", {**ARGUMENTS, "risk_level": "low"}, terminate=False)
WRITTEN: list[Any] = [
    {"tool": "write_file", "parameters": ARGUMENTS, "terminate": True},
    {"terminate": False, "parameters": dict(reversed(ARGUMENTS.items())), "tool": "write_file", "risk_level": "high"},
    {"tool_call": {"arguments": {**ARGUMENTS, "risk_level": "medium"}, "name": "write_file"}},
    {"id": "call_1", "type": "function", "function": {"name": "write_file", "arguments": json.dumps(ARGUMENTS)}},
    [{"tool": "other", "parameters": {}}, {"name": "write_file", "input": ARGUMENTS}],
]
DISGUISES: dict[str, Callable[[str], str]] = {
    "plain": str,
    "in a block": lambda text: f"Look:\n```json\n{text}\n```\nDone.",
    "in a string": lambda text: json.dumps({"file": text}),
    "in a string in a string": lambda text: json.dumps(json.dumps(json.dumps(text, ensure_ascii=False))),
    "in HTML": html.escape,
    "in HTML in HTML": lambda text: html.escape(html.escape(text)),
    "with escapes for its characters": lambda text: "".join(f"\\u{ord(c):04x}" if c < "\x7f" else c for c in text),
    "with an escape in its name": lambda text: text.replace("write_file", "\\u0077rite_file"),
    "in Markdown": lambda text: text.replace("_", "\\_"),
    "with characters that do not show": lambda text: text.replace("e", "e\u200b\u2060"),
    "with other quotation marks": lambda text: text.replace('"', "\u201c"),
    "between long texts": lambda text: "é, " * PIECE_CHARS + text + "é, " * PIECE_CHARS,
    "at the edge of a piece": lambda text: "é" * (PIECE_CHARS - len(text) // 2) + text,
}


def quotes(text: str, call: FoundCall = CALL) -> bool:
    return Quote(call).has_match(text)


@pytest.mark.parametrize("disguise", DISGUISES)
@pytest.mark.parametrize("indent", [None, 4])
@pytest.mark.parametrize("escaped", [True, False])
def test_quoted_call_is_found_in_any_spelling(disguise: str, indent: int | None, *, escaped: bool) -> None:
    """Other white space, order of keys, format, level, nesting in other texts: it is the same call."""
    for value in WRITTEN:
        text = DISGUISES[disguise](json.dumps(value, indent=indent, ensure_ascii=escaped))
        assert quotes(f"before {text} behind"), value


def test_quoted_call_is_found_in_python_and_yaml() -> None:
    """`True` for true, apostrophes, and no quotation marks at all."""
    assert quotes(repr(WRITTEN[0]))
    call = FoundCall("read_file", {"path": "a.txt"}, terminate=False)
    assert quotes("tool: read_file\nparameters:\n  path: a.txt\nterminate: false\n", call)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Please write_file it.",
        json.dumps(ARGUMENTS),
        f"Call write_file with {json.dumps(ARGUMENTS)}",
        json.dumps({**WRITTEN[0], "tool": "other"}),
        json.dumps({**WRITTEN[0], "parameters": {**ARGUMENTS, "path": "other"}}),
        json.dumps({**WRITTEN[0], "parameters": {"path": ARGUMENTS["path"]}}),
        json.dumps({"tool": "write_file"}) + " " * 20 + "x" * 5000 + json.dumps({"parameters": ARGUMENTS}),
        json.dumps({"name": "write_file", "description": "Writes", "inputSchema": {"properties": {"path": {}}}}),
    ],
)
def test_unrelated_text_does_not_quote_the_call(text: str) -> None:
    """Its arguments alone, another tool, other arguments, a part of them, its parts far from each other, a schema."""
    assert not quotes(text)


def test_quoted_call_must_match_every_argument_value() -> None:
    """A call that differs in a single value is another call, wherever that stands; fractions are all alike."""
    written = json.dumps(WRITTEN[0])
    for change in ({"n": 4}, {"ok": False}, {"l": ["a b", "d"]}):
        changed = FoundCall("write_file", {**ARGUMENTS, "mode": {**ARGUMENTS["mode"], **change}}, terminate=False)
        assert not quotes(written, changed)
    fraction = FoundCall("write_file", {**ARGUMENTS, "mode": {**ARGUMENTS["mode"], "f": 1500e-3}}, terminate=False)
    assert quotes(written.replace("1.5", "0.15e1"), fraction)


def test_call_without_arguments_is_matched_in_quotes() -> None:
    """A call of a tool without arguments is quoted by one without arguments."""
    call = FoundCall("look", {}, terminate=False)
    assert quotes('{"tool": "look", "parameters": {}, "terminate": true}', call)
    assert not quotes('I may "look" at the parameters.', call)


#: The characters of escapes, entities and white space beside each other, and any others.
TEXT = st.text("\\nrtbfuNB\"\r\n\t'`&;#x0041 a{}:,é\u2019\u200b") | st.text()
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=300)
@given(arguments=st.dictionaries(TEXT, JSON, max_size=4), nested=st.integers(0, 3), before=st.text(max_size=20))
@example(arguments={"": "\rB"}, nested=1, before="")
def test_any_call_matches_its_own_serialised_text(arguments: dict[str, Any], nested: int, before: str) -> None:
    """However often its text was written as a string into another."""
    text = json.dumps({"tool": "t", "parameters": arguments, "terminate": False}, ensure_ascii=nested % 2 == 0)
    for _ in range(nested):
        text = json.dumps({"a": text}, ensure_ascii=nested % 2 == 0)
    # A backslash in front would be one of the text's own.
    assert quotes(before.rstrip("\\&") + " " + text, FoundCall("t", arguments, terminate=False))


@pytest.mark.parametrize(
    "pattern",
    [
        *("write_file ", '"tool": "write_file" ', json.dumps(WRITTEN[0])[:-20], "\\u0077", "\\", "&amp;", "&#119;"),
        *('{"parameters": {"path": "', json.dumps(ARGUMENTS), "\u200b", 'name":"write_file","parameters":'),
    ],
)
def test_quote_matching_takes_linear_time(pattern: str) -> None:
    """Twice as much of anything takes about twice as long."""

    def seconds(length: int) -> float:
        text = "write_file" + pattern * (length // len(pattern))
        begun = time.process_time()
        quotes(text)
        return time.process_time() - begun

    # More than once, and 30 ms on top: a busy machine does not decide.
    assert any(seconds(800_000) <= 3 * seconds(400_000) + 0.03 for _ in range(3))
