"""Texts of strangers as HTML: every character that runs is there to be seen, nothing of it is HTML, in bounded time."""

import random
import re
from collections.abc import Iterable
from html import unescape
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.approvals.escaping import escape_line, format_shown_json
from gateway.console.rendering import TemplateRenderer
from gateway.console.request import link
from gateway.console.visible_text import (
    BRIEF_LINES,
    DIFFERENCE_LINES,
    render_exact_arguments,
    render_exact_difference,
    render_exact_text,
    render_exact_value,
)
from tests.console.html import read_html

TEXTS = st.text(st.characters(exclude_categories=("Cs",)) | st.sampled_from("\n\r\t<>&'\"\\\u202e\u200b\x1b\0{}u "))


def lines_of(html: str) -> list[str]:
    found = [line for line in read_html(html).all("span") if "line" in line.attributes["class"].split()]
    return [
        one
        for line in found
        for one in (line.raw_text.split("\n") if "many" in line.attributes["class"] else [line.raw_text])
    ]


def counted(lines: Iterable[str]) -> list[str]:
    """The lines as a reader sees them: more than 8 equal ones in a row are counted."""
    found: list[str] = []
    for line, group in groupby(lines):
        count = sum(1 for _ in group)
        found += (
            [escape_line(line)] * count
            if count <= 8
            else [escape_line(line), f"\\{{{count - 1} more lines like this one}}"]
        )
    return found


@given(TEXTS)
def test_exact_text_renders_every_line_without_foreign_elements(text: str) -> None:
    """The lines are those of the text; each shows what `shown` writes, and no element of the text's own."""
    html = render_exact_text(text)
    assert lines_of(html) == counted(text.split("\n"))
    assert set(re.findall(r"<(/?\w+)", html)) <= {"span", "/span", "mark", "/mark"}


@given(TEXTS)
def test_escaped_invisible_characters_are_marked(text: str) -> None:
    """An invisible character that was written out is told from the same letters in the text."""
    assert "".join(unescape(part) for part in re.split(r"<[^>]*>", render_exact_text(text))) == "".join(
        counted(text.split("\n"))
    )
    assert "mark" in render_exact_text("a\u202eb") and "mark" not in render_exact_text("u{202e}")
    assert [one.raw_text for one in read_html(render_exact_text("\\u{202e}\u202e\u200b")).all("mark")] == [
        "\\\\",
        "\\u{202e}\\u{200b}",
    ]


def test_repeated_lines_are_counted_and_cannot_hide_text() -> None:
    """Equal lines in a row are counted; what comes behind them has the number of its line."""
    html = render_exact_text("first\n" + "\n" * 50_000 + "rm -rf /\nlast")
    assert lines_of(html) == ["first", "", "\\{49999 more lines like this one}", "rm -rf /", "last"]
    assert [line.attributes.get("data-line") for line in read_html(html).all("span")] == [None] * 3 + ["50002", "50003"]
    assert lines_of(render_exact_text("a\n" * 8)) == ["a"] * 8 + [""]
    assert lines_of(render_exact_text("\u202e\n" * 9)) == ["\\u{202e}", "\\{8 more lines like this one}", ""]
    (forged, _) = lines_of(render_exact_text("\\{8 more lines like this one}\n"))
    assert forged == "\\\\{8 more lines like this one}"
    note = "\\{18 more lines like this one}"
    assert kinds("", "x" + "\n" * 20) == [("added", "x"), ("added", ""), ("added", note), ("same", "")]


@pytest.mark.parametrize("text", ["\n", "a\n", "a\nb\n", "\n\n\n\n\n\na", "\n\n\n\n\n\n\n\n\na", "\u200b\na\n"])
def test_html_of_many_short_lines_is_bounded(text: str) -> None:
    """100 kB of line ends were 2.6 MB of HTML. All of them are still there."""
    text *= 100_000 // len(text)
    html = render_exact_text(text)
    assert len(html) < 400_000 + 20 * text.count("\u200b") and lines_of(html) == counted(text.split("\n"))
    assert len(render_exact_difference("", text)) <= DIFFERENCE_LINES + 1


def test_a_long_comparison_says_how_much_is_missing() -> None:
    found = render_exact_difference("", "a\nb\n" * 10_000)
    assert (len(found), found[-1].kind, str(found[-1].text)) == (5_001, "rest", "15001")


@given(st.recursive(st.none() | st.booleans() | st.integers() | TEXTS, lambda inner: st.lists(inner, max_size=3)))
def test_single_line_value_is_shown_as_json(value: object) -> None:
    if not (isinstance(value, str) and "\n" in value):
        assert lines_of(render_exact_value(value)) == [format_shown_json(value)]


def test_string_and_json_value_of_equal_text_are_shown_differently() -> None:
    assert lines_of(render_exact_value("[1]")) == ['"[1]"'] and lines_of(render_exact_value([1])) == ["[1]"]
    assert lines_of(render_exact_value("a\nb")) == ["a", "b"]


def test_abbreviated_value_counts_the_omitted_text() -> None:
    brief = lines_of(render_exact_value("line\nmore\n" * 5_000, limit=2_000))
    assert len(brief) == BRIEF_LINES + 1 and brief[:2] == ["line", "more"]
    assert re.match(r"\\\{49881 more characters in 9978 lines, SHA-256 [0-9a-f]+", brief[-1]), brief[-1]
    wide = lines_of(render_exact_value("x" * 3_000 + "\ny", limit=2_000))
    assert len(wide) == 2 and len(wide[0]) == 2_000 and "more characters" in wide[1]
    assert lines_of(render_exact_value("a\nb", limit=2_000)) == ["a", "b"]
    assert len(render_exact_value("\n" * 100_000, limit=2_000)) < 2_000


def test_arguments_are_shown_in_order_with_warnings() -> None:
    path, text = render_exact_arguments({"text": "a\u202eb", "path": "раypal"}).entries
    assert (path.name, text.name) == ("path", "text")
    assert "several scripts" in path.remarks[0] and lines_of(text.value) == ['"a\\u{202e}b"']
    assert "\u202e" not in render_exact_arguments({"\u202e": 1}).entries[0].name
    assert render_exact_arguments({}).entries == []


#: Arguments of 100 kB, by what makes them expensive to show.
EXPENSIVE: dict[str, dict[str, object]] = {
    "one long line": {"content": "x" * 100_000},
    "hidden characters": {"content": "\u200b\u200c" * 50_000},
    "every other one hidden": {"content": "a\u200b" * 50_000},
    "quotes": {"content": "\"'" * 50_000},
    "lines": {"content": "\u200b\n" * 50_000, "path": "a"},
    "many arguments": {f"name{number}": "some value" * 8 for number in range(1_000)},
    "many hidden names": {f"\u200bname{number}\u200b" * 9: "a\u200b" * 9 for number in range(1_000)},
    "many remarks": {f"n\u0430me{number}": "p\u0430ypal.com a\u2215b \u05d0" for number in range(2_000)},
    "a long name": {"\u200b\u200c" * 50_000: 1},
    "deep": {"x": [{"a": "\u200b"}] * 5_000},
    "several long ones": dict.fromkeys("abcdefghij", "a\u200b" * 5_000),
}


def card_of(arguments: dict[str, object], *, edited: dict[str, object] | None = None) -> str:
    """Return the HTML of the card of a call, also of one whose arguments a person has changed."""
    approval = {
        "id": "ap_1", "tool": "write", "arguments": arguments, "basis": "llm", "reason": "", "rule": "", "user": "",
        "client": None, "asked_by": "ann", "edited_arguments": edited, "required_approvals": 1, "approved_by": [],
        "conversation": "", "run_id": "run_1", "created_at": 1, "expires_at": 2, "sha256": "0" * 64,
        "state": "pending",
    }  # fmt: skip
    values = {"approval": approval, "decides": True, "bases": {}, "link": link, "console": "/console"}
    return TemplateRenderer().render("card.html", "en", values)


@pytest.mark.parametrize(("edited", "is_shown"), [(None, True), ({}, False), ({"path": "b"}, False)])
def test_a_card_shows_the_arguments_that_would_run(edited: dict[str, object] | None, is_shown: bool) -> None:
    """Also where a person has taken all of them away."""
    assert ("model-wrote-this" in card_of({"path": "model-wrote-this"}, edited=edited)) is is_shown


@pytest.mark.parametrize("arguments", EXPENSIVE.values(), ids=EXPENSIVE)
def test_a_card_of_long_arguments_is_small(arguments: dict[str, object]) -> None:
    """Less than 64 kB of HTML, whatever the arguments are; those that are left out are counted."""
    html = card_of(arguments)
    assert len(html.encode()) < 64_000 and html.count("<") < 3_000
    shown_here = render_exact_arguments(arguments, brief=True)
    missing = len(arguments) - len(shown_here.entries)
    assert shown_here.rest.startswith(f"{missing} more arguments, ") if missing else shown_here.rest == ""
    assert len(render_exact_arguments(arguments).entries) == len(arguments)


def kinds(before: str, after: str) -> list[tuple[str, str]]:
    return [(line.kind, unescape(re.sub(r"<[^>]*>", "", line.text))) for line in render_exact_difference(before, after)]


def test_difference_shows_changed_lines_with_context() -> None:
    before = "\n".join(f"line {i}" for i in range(100))
    assert kinds(before, before.replace("line 50", "changed")) == [
        ("skipped", "47"),
        *(("same", f"line {i}") for i in (47, 48, 49)),
        *(("removed", "line 50"), ("added", "changed")),
        *(("same", f"line {i}") for i in (51, 52, 53)),
        ("skipped", "46"),
    ]
    assert kinds("a", "a") == kinds("", "") == []
    assert kinds("a\nb", "a\nb\nc") == [("same", "a"), ("same", "b"), ("added", "c")]
    assert kinds("", "<b>\u202e") == [("removed", ""), ("added", "<b>\\u{202e}")]


@given(st.lists(st.sampled_from("abc"), max_size=30), st.lists(st.sampled_from("abc"), max_size=30))
def test_difference_reproduces_both_texts(old: list[str], new: list[str]) -> None:
    """Its lines, with those that were skipped, are the lines of both texts."""
    before, after = "\n".join(old), "\n".join(new)
    found = render_exact_difference(before, after)
    for text, kind in ((before, "removed"), (after, "added")):
        seen, lines = list[str](), text.split("\n")
        for line in found:
            if line.kind == "skipped":
                seen += lines[len(seen) : len(seen) + int(line.text)]
            elif line.kind in ("same", kind):
                seen.append(str(line.text))
        assert seen == lines or (before == after and not found)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a\nb\n" * 999, "b\na\nc\n" * 660),
        ("\n".join(random.Random(1).choices("ab", k=900)), "\n".join(random.Random(2).choices("ab", k=900))),
        ("x\n" * 20_000, "y\n" * 20_000),
    ],
    ids=("two kinds of lines", "random", "many lines"),
)
def test_expensive_comparison_falls_back_to_whole_replacement(before: str, after: str) -> None:
    """A comparison of the first two takes minutes; what all of them begin and end with is still set aside."""
    order = [line.kind for line in render_exact_difference(before, after) if line.kind in ("removed", "added")]
    assert order == sorted(order, reverse=True) and len(set(order)) == 2


def test_small_change_in_a_large_file_yields_a_small_difference() -> None:
    half = "the same\n" * 25_000
    found = kinds(half + half, f"{half}new\n{half}")
    assert [kind for kind, _ in found].count("added") == 1 and ("added", "new") in found and len(found) <= 9


def test_card_abbreviates_by_the_rendered_length() -> None:
    """Characters that are written out take more room: such a call has a page of its own."""
    for value in ("\u200b\u200c" * 500, ["\U000e0041\U000e0042" * 400], "a\u200b\n" * 20 + "\u200b\u200c" * 300):
        brief = render_exact_arguments({"x": value}, brief=True)
        assert not brief.is_whole and sum(map(len, lines_of(brief.entries[0].value))) < 2_200
    assert render_exact_arguments({"x": "plain " * 300, "y": "\u200b" * 500}, brief=True).is_whole
