"""Output items told again: the events of an answer that came in whole pieces."""

from typing import Any

import orjson
import pytest

from gateway.contracts.exchange import Chunk
from gateway.contracts.store import Json
from gateway.dialects import chat_chunks as made
from gateway.dialects.responses.answer import ResponseAnswer
from gateway.dialects.responses.facts import ResponseFacts

CALL: Json = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
#: Answers in whole pieces, each with its end.
ANSWERS: list[list[Chunk]] = [
    [],
    ["Hello", made.finish("stop")],
    [made.event({"type": "tools.listed", "tools": [], "failed": [{"service": "notes", "error": "No."}]}), "Hello"],
    ["Hello", made.finish("length")],
    [made.delta({"reasoning_content": "Hm."}), "Hello", made.finish("stop")],
    [made.delta({"refusal": "No."}), made.finish("stop")],
    ["Well.", *made.called([CALL], reason="tool_calls"), made.finish("tool_calls")],
]


def answer() -> ResponseAnswer:
    facts = ResponseFacts(fields={"model": "m"}, shows_calls=True)
    return ResponseAnswer(facts, response_id="resp_" + "0" * 24, created_s=1.0, now_s=lambda: 2.0)


def events(frames: bytes) -> list[Any]:
    lines = [line.removeprefix(b"data: ") for line in frames.split(b"\n") if line.startswith(b"data: {")]
    return [orjson.loads(line) for line in lines]


@pytest.mark.parametrize("chunks", ANSWERS)
def test_an_answer_is_told_again_with_its_events(chunks: list[Chunk]) -> None:
    """From the response alone, with the same numbers."""
    first = answer()
    stream = first.stream()
    frames = stream.first() + b"".join(map(stream.frames, chunks)) + stream.finish()
    again = answer().stream()
    told = again.first() + again.retold(first.json)
    assert events(told) == events(frames) and told.endswith(b"data: [DONE]\n\n")
