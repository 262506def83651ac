"""Answers as they stream: what is shown and what is found."""

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.agent.output.scan_result import GROUP_CALLS
from gateway.agent.output.scanner import AnswerScanner, CallGroup, MalformedCall, Outcome, Prose
from gateway.contracts.calls import FoundCall

DATA = Path(__file__).parent.parent.parent / "data" / "toolcalls.jsonl"
CASES: list[dict[str, Any]] = [json.loads(line) for line in DATA.read_text().splitlines()]
TEXTS = [case["text"] for case in CASES if "message" not in case and len(case["text"]) < 2000]

CALL = '{"tool": "a", "parameters": {"x": "`{}`"}, "terminate": false}'
OTHER = '{"tool": "b", "parameters": {}, "terminate": true}'
FOUND = CallGroup((FoundCall("a", {"x": "`{}`"}, terminate=False),))


def scan(*pieces: str, finish_reason: str | None = "stop", limit: int = 1 << 20) -> tuple[str, Outcome]:
    scanner = AnswerScanner(max_call_bytes=limit)
    shown = [scanner.feed(piece) for piece in pieces]
    rest, outcome = scanner.finish(finish_reason=finish_reason)
    return "".join(shown) + rest, outcome


def pieces_of(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


def test_plain_text_is_shown_immediately() -> None:
    """Text is shown as it is, at once."""
    scanner = AnswerScanner()
    for piece in ["H", "ello", " world", ", a < b", " and [x]", " {1, 2} ", "\n- *x*", " ~5 `c` ", "fin 你好"]:
        assert scanner.feed(piece) == piece
    assert scanner.finish(finish_reason="stop") == ("", Prose())


def test_undecided_characters_are_shown_as_soon_as_possible() -> None:
    """A brace, a tag, a run of backticks is shown as soon as it can be no call's."""
    scanner = AnswerScanner()
    assert scanner.feed("x {") == "x "
    assert scanner.feed("u") == "{u"
    assert scanner.feed(" <th") == " "
    assert scanner.feed("e>") == "<the>"
    assert scanner.feed("`") == ""
    assert scanner.feed("x") == "`x"


def test_call_is_extracted_from_surrounding_prose() -> None:
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
def test_call_is_removed_with_its_fences_and_tags(text: str, shown: str, size: int) -> None:
    """Fences and tags that hold nothing but a call go with it; everything else stays."""
    assert scan(*pieces_of(text.replace("%s", CALL), size)) == (shown, FOUND)


@pytest.mark.parametrize("label", ["tool_call", "json5", "jsonc", "text", "python", "xml", "{.json}", "你好", "TEXT"])
@pytest.mark.parametrize("size", [1, 5, 10_000])
def test_fenced_block_of_any_language_with_one_call_is_a_call(label: str, size: int) -> None:
    """Models label their blocks as they like; what stands behind the block flows on."""
    for text, shown in (
        ("A\n```%l\n%s\n```\nB", "A\n\nB"),
        ("```%l\n\n  %s  \n\n```", ""),
        ("~~~~%l\n%s\n~~~~~\nB", "B"),
        ("```%l\n%s", ""),
        ("- ```%l\n  %s\n  ```", "- "),
        ("<tool_call>\n```%l\n%s\n```\n</tool_call>", ""),
    ):
        scanned, outcome = scan(*pieces_of(text.replace("%l", label).replace("%s", CALL), size))
        assert (scanned.strip(), outcome) == (shown.strip(), FOUND), text


@pytest.mark.parametrize("label", ["python", "text", "js"])
@pytest.mark.parametrize("size", [1, 5, 10_000])
def test_code_block_with_more_than_a_call_is_shown_as_text(label: str, size: int) -> None:
    """It is shown as it is: a second value, a line of code, an object of that language, or none that ends."""
    for inside in (
        f"{CALL}\n{OTHER}",
        f"{CALL}\nprint()",
        f"# a call\n{CALL}",
        f"{CALL};",
        "{'tool': 'a', 'parameters': {}, 'terminate': False}",
        '{"tool": "a", // why\n "parameters": {}, "terminate": false}',
        '{"tool": "a", "parameters": {',
        '{"name": "a", "version": "1"}',
        "{tool}",
        "",
    ):
        text = f"See:\n```{label}\n{inside}\n```\nDone."
        assert scan(*pieces_of(text, size)) == (text, Prose()), inside


@pytest.mark.parametrize("size", [1, 5, 10_000])
def test_tool_call_tags_with_name_and_arguments_are_calls(size: int) -> None:
    """Hermes and Qwen write `<tool_call>` with name and arguments, one tag for each call of a group."""
    one = '<tool_call>\n{"name": "a", "arguments": {"x": 1}}\n</tool_call>'
    two = one.replace('"a"', '"b"')
    found = [FoundCall(name, {"x": 1}, terminate=False) for name in "ab"]
    assert scan(*pieces_of(f"I look.\n{one}\n", size)) == ("I look.\n", CallGroup((found[0],)))
    assert scan(*pieces_of(f"{one}\n{two}", size)) == ("", CallGroup(tuple(found)))
    assert scan(*pieces_of(f"{one}\n{one}", size)) == ("", CallGroup((found[0],)))
    assert scan(*pieces_of(one.replace("<tool_call>", "```tool_call").replace("</tool_call>", "```"), size)) == (
        "",
        CallGroup((found[0],)),
    )
    plain = '{"name": "a", "arguments": {"x": 1}}'
    assert scan(*pieces_of(plain, size)) == (plain, Prose())
    assert isinstance(scan(*pieces_of(f"{one}\n{CALL}", size))[1], MalformedCall)
    assert isinstance(scan(*pieces_of(one.replace('{"x": 1}', '"{}"'), size))[1], MalformedCall)
    shown, outcome = scan(*pieces_of(one.replace('"name"', '"label"'), size))
    assert shown == "" and "'arguments'" in getattr(outcome, "reason", "")


@pytest.mark.parametrize("size", [1, 5, 10_000])
def test_multiline_inline_code_is_not_parsed_as_a_call(size: int) -> None:
    """A pretty-printed object between backticks is shown like one on a line, however long it is."""
    spread = json.dumps(json.loads(OTHER), indent=2)
    for text in (f"Call `{spread}` then.", f"Call ``{spread}``\nthen.", f"`see {spread} there`", f"`{spread}`"):
        assert scan(*pieces_of(text, size)) == (text, Prose())
    long = OTHER.replace("{}", '{"x": "' + "y" * 3000 + '"}')
    assert scan(*pieces_of(f"Call `{long}` then.", size)) == (f"Call `{long}` then.", Prose())
    found = CallGroup((FoundCall("b", {}, terminate=True),))
    assert scan(*pieces_of(f"It`s {spread}\nsee `x`", size)) == ("It`s \nsee `x`", found)


@pytest.mark.parametrize("size", [1, 5, 10_000])
def test_call_announced_as_an_example_is_doubted(size: int) -> None:
    """By the sentence before it, whatever stands between the two; a call of the API's own field, too."""
    for text in (
        "It would look like this:\n%s",
        "I can do that. Here is an example:\n\n```json\n%s\n```\nShall I?",
        "例如：%s",
        "示例：\n```text\n%s\n```",
        "Example:\n<tool_call>%s</tool_call>",
        "<think>I show it.</think>For example:\n\n%s",
    ):
        outcome = scan(*pieces_of(text.replace("%s", CALL), size))[1]
        assert isinstance(outcome, CallGroup) and [call.doubt for call in outcome.calls] == ["example"], text
    for text in ("I read the example file:\n%s", "%s\nThat was an example.", "<think>An example:</think>%s"):
        assert scan(*pieces_of(text.replace("%s", CALL), size))[1] == FOUND, text
    scanner = AnswerScanner()
    scanner.feed("A call would look like this:")
    scanner.feed_native([{"index": 0, "id": "1", "function": {"name": "n", "arguments": ""}}])
    found = scanner.finish(finish_reason="tool_calls")[1]
    assert isinstance(found, CallGroup) and found.calls[0].doubt == "example"


def test_number_of_tagged_calls_in_a_group_is_limited() -> None:
    """So many tags are a group, more are none."""
    tags = [f'<tool_call>{{"name": "a", "arguments": {{"x": {n}}}}}</tool_call>' for n in range(GROUP_CALLS + 1)]
    found = scan(*tags[:-1])[1]
    assert isinstance(found, CallGroup) and len(found.calls) == GROUP_CALLS
    assert isinstance(scan(*tags)[1], MalformedCall)


@pytest.mark.parametrize(
    "text",
    [
        "```python\nd = %s\n```\nDone.",
        "- ```js\n  f(%s)\n  ```\n",
        "```markdown\n```json\n%s\n```\n",
        "Here: ```python\nd = %s\n```\n",
        "Write `%s` to call it.",
        "Write ``x` %s`` to call it.",
        "~~~py\nd = %s\n~~~",
        "<think>%s</think>Done.",
        "<reasoning>\n```json\n%s\n```\n",
        "<thought>\n```json\n%s\n```\n",
        "[THINK]I could try %s, or not.[/THINK]Done.",
        "◁think▷%s◁/think▷Done.",
        "<|channel|>analysis<|message|>\n```json\n%s\n```\n<|end|>Done.",
        "<|START_THINKING|><tool_call>%s</tool_call><|END_THINKING|>Done.",
        "<scratchpad>%s and %s</scratchpad> Done.",
        "<seed:think>" + "It is a long thought. " * 40 + "%s",
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
def test_text_resembling_a_call_is_shown_unchanged(text: str, size: int) -> None:
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
        '<tool_call>{"name": "a", "argum',
        '{"tool": "write", "parameters": {"c": ' + OTHER + ' "d": 1}, "terminate": false}',
        f"[{OTHER}, {CALL[:30]}",
    ],
)
@pytest.mark.parametrize("size", [1, 5, 10_000])
def test_malformed_call_is_neither_shown_nor_repaired(text: str, size: int) -> None:
    """An attempt is neither shown nor repaired, and nothing within it runs."""
    shown, outcome = scan(*pieces_of(text.replace("%s", CALL[:-1]), size))
    assert isinstance(outcome, MalformedCall)
    assert shown in ("", '"')


@pytest.mark.parametrize("thought", ["[THINK]%s[/THINK]", "<|channel|>analysis%s<|end|>", "<thoughts>%s</thoughts>"])
@pytest.mark.parametrize("size", [1, 5, 10_000])
def test_call_after_reasoning_is_found(thought: str, size: int) -> None:
    """It counts, whatever the thought held."""
    shown, outcome = scan(*pieces_of(thought % OTHER + CALL, size))
    assert (shown, outcome) == (thought % OTHER, FOUND)


ENDS = ["[/THINK]", "◁/think▷", "<|END_THINKING|>", "<|end_of_thought|>", "<|end|><|channel|>final", "</scratchpad>"]


@pytest.mark.parametrize("end", [*ENDS, "</think>", "</seed:think>", "<|channel|>commentary"])
@pytest.mark.parametrize("size", [1, 5, 10_000])
def test_thought_opened_in_the_prompt_hides_calls_before_its_end(end: str, size: int) -> None:
    """A call in front of its end is thought, one behind it counts, whatever else was in either."""
    thought = f"I could try {OTHER}, or not. "
    assert scan(*pieces_of(f"{thought}{end}Done.", size))[1] == Prose()
    assert scan(*pieces_of(f"{OTHER}\n{end}{CALL}\nSo.", size)) == (f"\n{end}\nSo.", FOUND)
    assert scan(*pieces_of(f"{thought}{CALL}{end}{CALL}", size))[1] == FOUND
    assert scan(*pieces_of(f"```json\n{OTHER}\n```\n{end}{CALL}", size))[1] == FOUND


@pytest.mark.parametrize("size", [1, 5, 10_000])
def test_call_before_a_stray_reasoning_end_tag_is_doubted(size: int) -> None:
    """A thought may have left its code open, so the call asks. A call behind the tag is none of its thought."""
    doubted = CallGroup((replace(FOUND.calls[0], doubt="example"),))
    for code in ("\n```py\nx</think>Done.", "\nSee `</think>` there.", "\n```py\nx</think>\n```\nDone."):
        assert scan(*pieces_of(CALL + code, size))[1] == doubted
        assert scan(*pieces_of(CALL + code.replace("x<", "<think>x<").replace("`<", "`<think><"), size))[1] == FOUND
    assert scan(*pieces_of(f"Use `</think>`.\n{CALL}", size))[1] == FOUND
    assert scan(*pieces_of(f"{OTHER}</think>{CALL}", size))[1] == FOUND


@pytest.mark.parametrize("behind", ["[THINK]Good.[/THINK]", "<scratchpad>x</scratchpad>", "<|end|>", " [/THIN", " [/]"])
@pytest.mark.parametrize("size", [1, 5, 10_000])
def test_call_before_complete_reasoning_is_found(behind: str, size: int) -> None:
    """It counts: that thought began behind it. `<|end|>` also ends what is none."""
    assert scan(*pieces_of(CALL + behind, size)) == (behind, FOUND)
    assert scan(*pieces_of(f"<|channel|>commentary<|message|>{CALL}<|channel|>final{behind}", size))[1] == FOUND


def test_different_calls_outside_an_array_are_malformed() -> None:
    """An array is a group; two different objects are one too many; the same one twice is one."""
    assert scan(f"[{CALL}, {OTHER}]")[1] == CallGroup((*FOUND.calls, FoundCall("b", {}, terminate=True)))
    assert "array" in getattr(scan(f"{CALL}\n{OTHER}")[1], "reason", "")
    assert scan(f"```json\n{CALL}\n```\nThat is:\n{CALL}")[1] == FOUND
    alike = [f'{{"tool": "a", "parameters": {{"x": {x}}}, "terminate": false}}' for x in ("1", "true")]
    assert isinstance(scan(" ".join(alike))[1], MalformedCall)


def test_truncated_call_is_reported_as_cut_off() -> None:
    """With `length` the model is told so; a call that is whole counts all the same."""
    assert "cut off" in getattr(scan(CALL[:30], finish_reason="length")[1], "reason", "")
    assert "cut off" not in getattr(scan(CALL[:30])[1], "reason", "")
    assert scan(CALL, finish_reason="length")[1] == FOUND
    assert scan('{"name": "x', finish_reason="length") == ('{"name": "x', Prose())


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_call_longer_than_the_limit_is_malformed(size: int) -> None:
    """One longer than the limit is malformed; other JSON is shown; the limit itself is allowed."""
    text = CALL.replace("{}", "y" * 500)
    assert isinstance(scan(*pieces_of(text, size), limit=len(text))[1], CallGroup)
    shown, outcome = scan(*pieces_of(text, size), limit=len(text) - 1)
    assert (shown, outcome) == ("", MalformedCall(f"The tool call is longer than {len(text) - 1} characters."))
    other = '{"name": "' + "y" * 500 + '"}'
    assert scan(*pieces_of(other, size), limit=100) == (other, Prose())


def test_native_calls_take_precedence_over_text_calls() -> None:
    """The API's own field counts first, and text flows on."""
    scanner = AnswerScanner()
    assert scanner.feed("I call.") == "I call."
    scanner.feed_native([{"index": 0, "id": "1", "function": {"name": "n", "arguments": ""}}, None, "x"])
    assert scanner.feed(OTHER) == ""
    assert scanner.finish(finish_reason="tool_calls") == ("", CallGroup((FoundCall("n", {}, terminate=False, id="1"),)))


ATOMS = [
    *'{}[]"`\n <>~x:,tp\\',
    *("```", "~~~", "json", "python", "<think>", "</think>", "</reasoning>", "<tool_call>", "</tool_call>"),
    *('"tool":', '"parameters":', '"terminate":', '{"a": 1}', '{"a":', "{'tool':", "{tool:", "tool_call", "null"),
    *(
        "- ",
        "> ",
        "1. ",
        "\r\n",
        "\t",
        "“",
        "İ",
        "\u212a",
        "text\n",
        "```text\n",
        "```tool_call\n",
        '"name":"a",',
        '"arguments":{}}',
        "Example:\n",
        "`" * 70,
        " " * 100,
        " " * 4096,
        '\\"',
        CALL,
        OTHER,
    ),
]
HOSTILE = st.lists(st.sampled_from(ATOMS), max_size=25).map("".join)
TALK = st.lists(st.sampled_from(TEXTS) | st.text("abc .\n你", max_size=20), max_size=4).map("".join)


@settings(max_examples=400)
@given(
    text=TALK | HOSTILE,
    cuts=st.lists(st.integers(0, 400), max_size=8),
    size=st.integers(1, 9),
    limit=st.sampled_from([1 << 20, 60, 1]),
    reason=st.sampled_from(["stop", "length"]),
)
def test_scan_result_is_independent_of_chunk_boundaries(
    text: str, cuts: Sequence[int], size: int, limit: int, reason: str
) -> None:
    """The shown text and the calls found do not depend on the pieces."""
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    uneven = [text[start:end] for start, end in pairwise(edges)]
    whole = scan(text, finish_reason=reason, limit=limit)
    assert scan(*uneven, finish_reason=reason, limit=limit) == whole
    assert scan(*pieces_of(text, size), finish_reason=reason, limit=limit) == whole
    if whole[1] == Prose() and "</" not in text and CALL not in text and OTHER not in text and '"t' not in text:
        assert whole[0] == text


@settings(max_examples=200)
@given(before=st.text("abc .,!?\n你{}()*_-", max_size=30), after=st.text("abc .,!?\n你)*_-", max_size=30))
def test_call_between_prose_is_found_and_not_shown(before: str, after: str) -> None:
    """Found, not shown, and every visible character around it kept."""
    shown, outcome = scan(*pieces_of(f"{before}\n{CALL}\n{after}", 7))
    assert outcome == FOUND
    assert "".join(shown.split()) == "".join((before + after).split())


PATTERNS = [
    *("{", "[{", '{"a', '{"a":', '{"a": 1 ', '{"a":{}', '[{"a":', '{"a": 1}\n', "{tool: ", "{'tool': 1}\n", "{    "),
    *(
        "```\n",
        "```json\n",
        '```json\n{"a": 1,\n',
        "```py\nx",
        "```text\n",
        f"```text\n{CALL}\n",
        f"`{CALL}\n",
        "Example: ",
        "`",
        "` ",
        '`{"a":1 ',
        '`{"a":1\n',
        "~",
        "- ",
    ),
    *("<think>", "<think>a</think>", "</think>", "<tool_call>", "<", " ", "\n", '"', CALL + "\n", "tool: "),
]


@pytest.mark.parametrize(
    ("begin", "size"), [("", 7), ("", 1 << 20), ("```json\n", 7), ('{"a": ', 7), ("`", 1 << 20), (CALL, 7)]
)
def test_scanning_takes_linear_time(begin: str, size: int) -> None:
    """Twice as much of anything takes about twice as long."""

    def seconds(pattern: str, length: int) -> float:
        pieces = pieces_of(begin + pattern * (length // len(pattern)), size)
        begun = time.process_time()
        scan(*pieces)
        return time.process_time() - begun

    for pattern in PATTERNS:
        # More than once, and 30 ms on top: a busy machine does not decide.
        assert any(seconds(pattern, 20_000) <= 3 * seconds(pattern, 10_000) + 0.03 for _ in range(3)), pattern
