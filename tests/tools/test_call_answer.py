"""Blocks of content and structured content beside the text of a result."""

from typing import Any

import orjson
import pytest

from gateway.contracts.tools import ToolResult
from gateway.tools.call_answer import ANSWER_BYTES, dump_answer, load_result

IMAGE = {"type": "image", "mimeType": "image/png", "data": "iVBORw0KGgo="}


def text(words: str, **further: object) -> dict[str, Any]:
    return {"type": "text", "text": words, **further}


def parts_of(answer: bytes | None) -> Any:
    assert answer is not None
    return orjson.loads(answer)["parts"]


@pytest.mark.parametrize("parts", [None, [], [text("a")]])
def test_answer_fully_shown_as_text_is_not_stored(parts: list[dict[str, Any]] | None) -> None:
    assert dump_answer(ToolResult("a", True, parts), shown="a", whole="a") is None


def test_answer_round_trip_keeps_blocks_and_structured_content() -> None:
    parts = [text("a", annotations={"priority": 1}), IMAGE]
    answer = dump_answer(ToolResult("a", True, parts, {"n": 1}), shown="a", whole="a")
    assert load_result(answer, "a", ok=True) == ToolResult("a", True, parts, {"n": 1})
    assert load_result(None, "a", ok=False) == ToolResult("a", False)
    unfit = ToolResult("a", unfit="there is none")
    assert load_result(dump_answer(unfit, shown="a", whole="a"), "a", ok=True) == unfit


def test_shortened_result_shortens_its_text_blocks() -> None:
    """Blocks that are no text stay, and so does the structured content, which a client may demand."""
    inside = {"type": "resource", "resource": {"uri": "file:///a", "text": "b" * 99}}
    result = ToolResult("a" * 99, True, [text("a" * 99), IMAGE, inside], {"n": 1})
    answer = dump_answer(result, shown="a...", whole="a" * 99)
    assert parts_of(answer) == [text("a..."), IMAGE]


def test_control_and_invisible_characters_are_taken_out() -> None:
    """Also where JSON escapes them; line ends, tabs and backslashes stay."""
    words = 'a\x00\x1b\x7f\u202e\U000e0041\u200bb\n\t\r \\u0000 \\b \\\\ " \b\f/c'
    answer = dump_answer(ToolResult("", True, [IMAGE], {words: [words]}), shown="", whole="")
    clean = 'ab\n\t\r \\u0000 \\b \\\\ " /c'
    assert load_result(answer, "", ok=True).structured == {clean: [clean]}


def test_oversized_or_unreadable_content_is_left_out() -> None:
    """The text has a note about it."""
    large = {**IMAGE, "data": "A" * ANSWER_BYTES}
    assert dump_answer(ToolResult("[image]", True, [large]), shown="[image]", whole="[image]") is None
    assert dump_answer(ToolResult("a", True, None, {"n": "\ud800"}), shown="a", whole="a") is None
