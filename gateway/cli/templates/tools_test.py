"""The tool `NAME`: what it answers."""

import asyncio
from pathlib import Path

from gateway.plugin import ToolCall, ToolResult
from gateway.testing import check_tool, make_exchange

HOME = Path(__file__).parents[3] / "FOLDER"
#: The schema accepts both.
SHORT, LONG = {"text": "one two\n three"}, {"text": "one two three four five"}


def test_words_are_counted() -> None:
    """However they are separated. `check_tool` holds the tool to the rules; a text that is too long is refused."""
    config = {"max_chars": 15}
    tool = check_tool("NAME", config, folder=HOME, calls=[SHORT], refused=[LONG])
    call = ToolCall(id="call_1", tool="NAME", arguments=SHORT)
    assert asyncio.run(tool.call(call, make_exchange())) == ToolResult("3")


def test_the_refusal_has_the_limit() -> None:
    """So that the model can do better."""
    tool = check_tool("NAME", {"max_chars": 4}, folder=HOME, refused=[LONG])
    call = ToolCall(id="call_1", tool="NAME", arguments=LONG)
    assert asyncio.run(tool.refusal(call, make_exchange())) == "The text is longer than 4 characters."
