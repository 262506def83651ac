"""The tool `NAME`: what it answers."""

import asyncio
from pathlib import Path

from gateway.plugin import Caller, Exchange, ToolCall, ToolResult, ToolSource
from gateway.registry.find import build_plugin

HOME = Path(__file__).parents[3] / "FOLDER"
EXCHANGE = Exchange(
    id="run_1", body={"messages": []}, caller=Caller("tester", "local", frozenset({"context"})), chain="assistant"
)


def tool(**config: object) -> ToolSource:
    source: ToolSource = build_plugin("tools", "NAME", config, None, folder=HOME)
    return source


def call(text: str) -> ToolCall:
    return ToolCall(id="call_1", tool="NAME", arguments={"text": text})


def test_words_are_counted() -> None:
    """However they are separated; nothing speaks against asking."""
    asked = call("one two\n three")
    assert asyncio.run(tool().refusal(asked, EXCHANGE)) is None
    assert asyncio.run(tool().call(asked, EXCHANGE)) == ToolResult("3")


def test_a_text_that_is_too_long_is_refused() -> None:
    """With the limit, so that the model can do better; before anybody is asked."""
    text = "The text is longer than 4 characters."
    assert asyncio.run(tool(max_chars=4).refusal(call("a b c"), EXCHANGE)) == text
    assert asyncio.run(tool(max_chars=4).call(call("a b c"), EXCHANGE)) == ToolResult(text, ok=False)


def test_the_tool_has_the_name_of_its_file() -> None:
    """By which models call it and operators configure it."""
    (spec,) = asyncio.run(tool().list_tools())
    assert spec.name == "NAME"
