"""Output items told again: the events of an answer that came in whole pieces."""

from typing import Any

import orjson
import pytest

from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import Chunk
from gateway.contracts.storage.store import Json
from gateway.dialects import chat_chunks as made
from gateway.dialects.responses.answer import ResponseAnswer
from gateway.dialects.responses.response_metadata import ResponseFacts

CALL: Json = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
#: Answers in whole pieces, each with its end.
ANSWERS: list[list[Chunk]] = [
    [],
    ["Hello", made.build_finish("stop")],
    [
        made.build_event({"type": "tools.listed", "tools": [], "failed": [{"service": "notes", "error": "No."}]}),
        "Hello",
    ],
    ["Hello", made.build_finish("length")],
    [made.build_delta({"reasoning_content": "Hm."}), "Hello", made.build_finish("stop")],
    [made.build_delta({"refusal": "No."}), made.build_finish("stop")],
    ["Well.", *made.build_call_chunks([CALL], reason="tool_calls"), made.build_finish("tool_calls")],
]
#: What was told before a failure.
FAILURES: list[list[Chunk]] = [
    ["Half"],
    [made.build_delta({"reasoning_content": "Hm."})],
    [made.build_delta({"reasoning_content": "Hm."}), "Half"],
    ["Half", made.build_delta({"refusal": "No"})],
    [made.build_delta({"tool_calls": [{**CALL, "index": 0}]})],
]


def answer() -> ResponseAnswer:
    facts = ResponseFacts(fields={"model": "m"}, shows_calls=True)
    return ResponseAnswer(facts, response_id="resp_" + "0" * 24, created_s=1.0, now_s=lambda: 2.0)


def events(frames: bytes) -> list[Any]:
    lines = [line.removeprefix(b"data: ") for line in frames.split(b"\n") if line.startswith(b"data: {")]
    return [orjson.loads(line) for line in lines]


@pytest.mark.parametrize("chunks", ANSWERS)
def test_replayed_answer_has_the_events_of_the_original_stream(chunks: list[Chunk]) -> None:
    """From the response alone, with the same numbers."""
    first = answer()
    stream = first.build_stream_writer()
    frames = stream.build_first_frame() + b"".join(map(stream.build_frames, chunks)) + stream.finish()
    again = answer().build_stream_writer()
    told = again.build_first_frame() + again.render_ended_response(first.json)
    assert events(told) == events(frames) and told.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("chunks", FAILURES)
@pytest.mark.parametrize("code", ["upstream_error", "run_cancelled"])
def test_replayed_failure_leaves_the_open_item_incomplete(chunks: list[Chunk], code: str) -> None:
    """As it was told the first time."""
    first = answer()
    stream = first.build_stream_writer()
    frames = stream.build_first_frame() + b"".join(map(stream.build_frames, chunks))
    frames += stream.build_error_frames(GatewayError(code, "It broke."), request_id="")
    again = answer().build_stream_writer()
    told = events(again.build_first_frame() + again.render_ended_response(first.json))
    begun = [event for event in events(frames) if event["type"] != "error"]
    assert [(event["type"], event.get("delta")) for event in told] == [
        (event["type"], event.get("delta")) for event in begun
    ]
    assert [event["type"] for event in told].count("response.output_item.done") == len(first.output) - 1
    assert first.output[-1]["status"] == "incomplete"
