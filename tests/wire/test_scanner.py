"""Answers as they stream: what is shown and what is found."""

import json
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.wire.scanner import AnswerScanner, Calls, FoundCall, Malformed, Outcome, Prose, read_message

DATA = Path(__file__).parent.parent / "data" / "toolcalls.jsonl"
CASES: list[dict[str, Any]] = [json.loads(line) for line in DATA.read_text().splitlines()]
CLEAR = [case for case in CASES if not case.get("ambiguous")]
TEXTS = [case["text"] for case in CASES if "message" not in case and len(case["text"]) < 2000]
KINDS = {Prose: "text", Calls: "tool_call", Malformed: "malformed"}

CALL = '{"tool": "a", "parameters": {"x": "`{}`"}, "terminate": false}'
OTHER = '{"tool": "b", "parameters": {}, "terminate": true}'
FOUND = Calls((FoundCall("a", {"x": "`{}`"}, terminate=False),))


def scan(*pieces: str, finish_reason: str | None = "stop", limit: int = 1 << 20) -> tuple[str, Outcome]:
    scanner = AnswerScanner(max_call_bytes=limit)
    shown = [scanner.feed(piece) for piece in pieces]
    rest, outcome = scanner.finish(finish_reason=finish_reason)
    return "".join(shown) + rest, outcome


def pieces_of(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


@pytest.mark.parametrize("case", CLEAR, ids=[case["why"] for case in CLEAR])
def test_each_case(case: dict[str, Any]) -> None:
    """Hand-made answers: the call with its parameters, an attempt, or the text unchanged."""
    shown, outcome = read_message(case.get("message") or {"content": case["text"]})
    assert KINDS[type(outcome)] == case["expect"]
    if isinstance(outcome, Calls):
        call = outcome.calls[0]
        assert (call.tool, call.parameters, call.terminate) == (case["tool"], case["parameters"], case["terminate"])
        assert '"terminate"' not in shown
    if isinstance(outcome, Prose):
        assert shown == case["text"]


def test_handle_text_response() -> None:
    """Text is shown as it is, at once."""
    scanner = AnswerScanner()
    for piece in ["H", "ello", " world", ", a < b", " and [x]", " {1, 2} ", "\n- *x*", " ~5 `c` ", "fin 你好"]:
        assert scanner.feed(piece) == piece
    assert scanner.finish(finish_reason="stop") == ("", Prose())


def test_nothing_is_held_longer_than_needed() -> None:
    """A brace, a tag, a run of backticks is shown as soon as it can be no call's."""
    scanner = AnswerScanner()
    assert scanner.feed("x {") == "x "
    assert scanner.feed("u") == "{u"
    assert scanner.feed(" <th") == " "
    assert scanner.feed("e>") == "<the>"
    assert scanner.feed("`") == ""
    assert scanner.feed("x") == "`x"


def test_extract_json_from_llm_response() -> None:
    """The call is found in prose and not shown; white space behind it goes with it."""
    assert scan(f"I will read it.\n{CALL}\n\n") == ("I will read it.\n", FOUND)
    assert scan(f"First.\n{CALL}\nThen.") == ("First.\n\nThen.", FOUND)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("A\n```json\n%s\n```\nB", "A\n\nB"),
        ("```\n%s\n```", ""),
        ("~~~json\n%s\n~~~", ""),
        ("Sure: ```json\n%s\n```", "Sure: "),
        ("```json %s ``` B", " B"),
        ("- ```json\n  %s\n  ```", "- "),
        ("<tool_call>\n%s\n</tool_call>", ""),
        ("<tool_call>\n```json\n%s\n```\n</tool_call>\n", ""),
        ("%s\n</tool_call>", ""),
        ("```json\nsee:\n%s\n```", "```json\nsee:\n\n```"),
        ("```json\n%s", ""),
        ("It`s here %s", "It`s here "),
        ("`\n%s`", "`\n`"),
        ("<think>a %s</think>%s".replace("%s", OTHER, 1), f"<think>a {OTHER}</think>"),
        ("<THINK>a</Think>%s", "<THINK>a</Think>"),
        ('use `<think>` or `{"tool": ` %s', 'use `<think>` or `{"tool": ` '),
        ("```python print(1)``` %s", "```python print(1)``` "),
        ("```py\nd = {'a'\n```\n%s", "```py\nd = {'a'\n```\n"),
        ("A { and {\"b and {'c'} %s", "A { and {\"b and {'c'} "),
        ('{"a": {"b": 1}} %s', '{"a": {"b": 1}} '),
        ('see {"tool": "x" hmm</think>%s', "see </think>"),
        ('see {"tool": x, "parameters": 1} hmm</think>%s', "see </think>"),
        ("%s hmm</think>%s".replace("%s", OTHER, 1), " hmm</think>"),
        ("> %s", "> "),
        ("“%s”", "“”"),
        ("\ufeff%s", ""),
    ],
)
@pytest.mark.parametrize("size", [1, 5, 10_000])
def test_a_call_in_its_surroundings(text: str, shown: str, size: int) -> None:
    """Fences and tags that hold nothing but a call go with it; everything else stays."""
    assert scan(*pieces_of(text.replace("%s", CALL), size)) == (shown, FOUND)


@pytest.mark.parametrize(
    "text",
    [
        "```python\nd = %s\n```\nDone.",
        "- ```js\n  f(%s)\n  ```\n",
        "```markdown\n```json\n%s\n```\n",
        "Here: ```python\nd = %s\n```\n",
        "Write `%s` to call it.",
        "Write ``x` %s`` to call it.",
        "~~~py\n%s\n~~~",
        "<think>%s</think>Done.",
        "<reasoning>\n```json\n%s\n```\n",
        '{"example": %s, "more": [1, 2]}',
        '[{"a": 1}, {"b": %s}]',
        '{"a": "x", \'b\': 1} and {"never closed": 1',
        "Use the <tool_call> tag, </tool_call> ends it.",
        '```json\n{"a": 1,\n```\nand ```\n{x}\n```',
        "``` opens a block, and so does ~~~.\n\n```",
        "{tool} and {tool: hammer} and <thing> </thin",
    ],
)
@pytest.mark.parametrize("size", [1, 5, 10_000])
def test_what_only_looks_like_a_call(text: str, size: int) -> None:
    """Samples, thought, data and broken markup are text, unchanged."""
    text = text.replace("%s", CALL.replace("`", "'"))
    assert scan(*pieces_of(text, size)) == (text, Prose())


@pytest.mark.parametrize(
    "text",
    [
        "%s,}",
        '{"tool": "a", "parameters": {"x": "1}, "terminate": false}\nThat is it.',
        "{'tool': 'a', 'parameters': {}, 'terminate': False}",
        "{“tool”: “a”, “parameters”: {}}",
        '{\\"tool\\": \\"a\\", \\"parameters\\": {}, \\"terminate\\": false}',
        '"{\\"tool\\": \\"a\\", \\"parameters\\": {}}"',
        '```json\n{"tool": "a",\n```\nDone.',
        '<tool_call>{"name": "a", "arguments": {}}</tool_call>',
        '<tool_call>{"name": "a", "argum',
        '{"tool": "write", "parameters": {"c": ' + OTHER + ' "d": 1}, "terminate": false}',
        f"[{OTHER}, {CALL[:30]}",
    ],
)
@pytest.mark.parametrize("size", [1, 5, 10_000])
def test_handle_malformed_json(text: str, size: int) -> None:
    """An attempt is neither shown nor repaired, and nothing within it runs."""
    shown, outcome = scan(*pieces_of(text.replace("%s", CALL[:-1]), size))
    assert isinstance(outcome, Malformed)
    assert shown in ("", '"')


def test_several_calls() -> None:
    """An array is a group; two different objects are one too many; the same one twice is one."""
    assert scan(f"[{CALL}, {OTHER}]")[1] == Calls((*FOUND.calls, FoundCall("b", {}, terminate=True)))
    assert "array" in getattr(scan(f"{CALL}\n{OTHER}")[1], "reason", "")
    assert scan(f"```json\n{CALL}\n```\nThat is:\n{CALL}")[1] == FOUND
    alike = [f'{{"tool": "a", "parameters": {{"x": {x}}}, "terminate": false}}' for x in ("1", "true")]
    assert isinstance(scan(" ".join(alike))[1], Malformed)


def test_an_attempt_that_was_cut() -> None:
    """With `length` the model is told so; a call that is whole counts all the same."""
    assert "cut off" in getattr(scan(CALL[:30], finish_reason="length")[1], "reason", "")
    assert "cut off" not in getattr(scan(CALL[:30])[1], "reason", "")
    assert scan(CALL, finish_reason="length")[1] == FOUND
    assert scan('{"name": "x', finish_reason="length") == ('{"name": "x', Prose())


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_a_call_is_bounded(size: int) -> None:
    """One longer than the limit is malformed; other JSON is shown; the limit itself is allowed."""
    text = CALL.replace("{}", "y" * 500)
    assert isinstance(scan(*pieces_of(text, size), limit=len(text))[1], Calls)
    shown, outcome = scan(*pieces_of(text, size), limit=len(text) - 1)
    assert (shown, outcome) == ("", Malformed(f"The tool call is longer than {len(text) - 1} characters."))
    other = '{"name": "' + "y" * 500 + '"}'
    assert scan(*pieces_of(other, size), limit=100) == (other, Prose())


def test_native_calls_go_before_text() -> None:
    """The API's own field counts first, and text flows on."""
    scanner = AnswerScanner()
    assert scanner.feed("I call.") == "I call."
    scanner.feed_native([{"index": 0, "id": "1", "function": {"name": "n", "arguments": ""}}, None, "x"])
    assert scanner.feed(OTHER) == ""
    assert scanner.finish(finish_reason="tool_calls") == ("", Calls((FoundCall("n", {}, terminate=False, id="1"),)))


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
def test_odd_messages_are_text(message: dict[str, Any]) -> None:
    """Nothing is found in what holds nothing."""
    assert read_message(message) == ("", Prose())


def test_content_in_parts() -> None:
    """The texts of the parts are one answer."""
    parts = [{"type": "text", "text": "A "}, {"type": "image_url"}, {"type": "text", "text": CALL}]
    assert read_message({"content": parts}) == ("A ", FOUND)


ATOMS = [
    *'{}[]"`\n <>~x:,tp\\',
    *("```", "~~~", "json", "python", "<think>", "</think>", "</reasoning>", "<tool_call>", "</tool_call>"),
    *('"tool":', '"parameters":', '"terminate":', '{"a": 1}', '{"a":', "{'tool':", "{tool:", "tool_call", "null"),
    *("- ", "> ", "1. ", "\r\n", "\t", "“", "İ", "\u212a", "`" * 70, " " * 100, " " * 4096, '\\"', CALL, OTHER),
]
HOSTILE = st.lists(st.sampled_from(ATOMS), max_size=25).map("".join)
TALK = st.lists(st.sampled_from(TEXTS) | st.text("abc .\n你", max_size=20), max_size=4).map("".join)


@settings(max_examples=400, deadline=None)
@given(
    text=TALK | HOSTILE,
    cuts=st.lists(st.integers(0, 400), max_size=8),
    size=st.integers(1, 9),
    limit=st.sampled_from([1 << 20, 60, 1]),
    reason=st.sampled_from(["stop", "length"]),
)
def test_any_cut_gives_the_same(text: str, cuts: Sequence[int], size: int, limit: int, reason: str) -> None:
    """What is shown and found does not depend on the pieces."""
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    uneven = [text[start:end] for start, end in pairwise(edges)]
    whole = scan(text, finish_reason=reason, limit=limit)
    assert scan(*uneven, finish_reason=reason, limit=limit) == whole
    assert scan(*pieces_of(text, size), finish_reason=reason, limit=limit) == whole
    if whole[1] == Prose() and "</" not in text and CALL not in text and OTHER not in text and '"t' not in text:
        assert whole[0] == text


@settings(max_examples=200, deadline=None)
@given(before=st.text("abc .,!?\n你{}()*_-", max_size=30), after=st.text("abc .,!?\n你)*_-", max_size=30))
def test_a_call_between_prose(before: str, after: str) -> None:
    """Found, not shown, and every visible character around it kept."""
    shown, outcome = scan(*pieces_of(f"{before}\n{CALL}\n{after}", 7))
    assert outcome == FOUND
    assert "".join(shown.split()) == "".join((before + after).split())


PATTERNS = [
    *("{", "[{", '{"a', '{"a":', '{"a": 1 ', '{"a":{}', '[{"a":', '{"a": 1}\n', "{tool: ", "{'tool': 1}\n", "{    "),
    *("```\n", "```json\n", '```json\n{"a": 1,\n', "```py\nx", "`", "` ", '`{"a":1 ', '`{"a":1\n', "~", "- "),
    *("<think>", "<think>a</think>", "</think>", "<tool_call>", "<", " ", "\n", '"', CALL + "\n", "tool: "),
]


@pytest.mark.parametrize("begin", ["", "```json\n", '{"a": ', "`", CALL])
@pytest.mark.parametrize("size", [7, 1 << 20])
def test_time_is_linear(begin: str, size: int) -> None:
    """Twice as much of anything takes about twice as long."""

    def seconds(pattern: str, length: int) -> float:
        pieces = pieces_of(begin + pattern * (length // len(pattern)), size)
        begun = time.process_time()
        scan(*pieces)
        return time.process_time() - begun

    for pattern in PATTERNS:
        # More than once, and 30 ms on top: a busy machine does not decide.
        assert any(seconds(pattern, 40_000) <= 3 * seconds(pattern, 20_000) + 0.03 for _ in range(3)), pattern
