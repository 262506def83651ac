"""Answers of Responses over real sockets: how their chunks come, and every way in which they break."""

import orjson
import pytest

from gateway.contracts.exchange import Chunk
from gateway.contracts.storage.store import Json
from gateway.dialects.extra_message_fields import FieldAccumulator
from gateway.testing.scripts import build_answer, build_event_stream_answer, serve
from gateway.testing.scripts import build_chunk as framed
from gateway.upstream.endpoint import ModelAccess
from tests.agent.models import STREAM, failure, models
from tests.responses_server import USAGE, Answer, calls, frame, reasons, says, write_events, write_response

RESPONSES = ModelAccess(api="responses")
RESPONSE: Json = {"id": "resp_1", "object": "response", "model": "m", "status": "in_progress"}
START = frame("response.created", response=RESPONSE)
END = frame("response.completed", response={**RESPONSE, "status": "completed", "usage": USAGE})


def words(*texts: str) -> list[bytes]:
    return [
        frame("response.output_text.delta", sequence_number=n, output_index=0, delta=text)
        for n, text in enumerate(texts)
    ]


async def ask(raw: bytes) -> list[Chunk]:
    async with models(serve(raw), models=RESPONSES) as one:
        return await one.ask()


async def test_events_become_chunks_as_they_come() -> None:
    events = [START, frame("response.in_progress", response=RESPONSE), *words("Hel", "lo", " é\n\"'"), END]
    first, *told, last = await ask(build_event_stream_answer(events))
    begun = {"index": 0, "delta": {"role": "assistant"}, "finish_reason": None}
    assert first == {"id": "resp_1", "model": "m", "choices": [begun]}
    assert told == ["Hel", "lo", " é\n\"'"]
    ending = {"index": 0, "delta": {}, "finish_reason": "stop", "native_finish_reason": "completed"}
    usage = {
        "prompt_tokens": 20,
        "completion_tokens": 12,
        "total_tokens": 32,
        "prompt_tokens_details": {"cached_tokens": 5},
        "completion_tokens_details": {"reasoning_tokens": 4},
    }
    assert last == {"choices": [ending], "usage": usage}


async def test_many_events_in_one_piece_and_in_pieces_of_bytes_are_the_same() -> None:
    events = [START, *words(*"abcdefghij"), END]
    whole = b"".join(events)
    expected = await ask(build_event_stream_answer(events))
    for size in (len(whole), 1, 7):
        pieces = [framed(whole[at : at + size]) for at in range(0, len(whole), size)]
        assert await ask(STREAM + b"".join(pieces) + b"0\r\n\r\n") == expected


async def test_stream_without_lines_of_events_and_events_of_the_future_is_read() -> None:
    text = b'data: {"type": "response.output_text.delta", "delta": "Hi"}\n\n'
    odd = frame("response.of_the_future", x=1), frame("keepalive")
    assert "Hi" in await ask(build_event_stream_answer([START, *odd, text, END]))


def join(chunks: list[Chunk]) -> Json:
    """The message that a client makes of chunks."""
    joined, message, arguments = FieldAccumulator(), {"content": ""}, ""
    for build_chunk in chunks:
        if isinstance(build_chunk, str):
            message["content"] += build_chunk
            continue
        for name, value in build_chunk["choices"][0]["delta"].items():
            if name == "content":
                message["content"] += value
            elif name == "tool_calls":
                arguments += value[0]["function"]["arguments"]
            else:
                joined.add(name, value)
    return {**message, **joined.get_whole(), "arguments": arguments}


async def test_whole_response_has_the_message_of_its_stream() -> None:
    made = [reasons("One.", "Two."), says("Hello.", phase="commentary"), reasons(thought="x"), calls("look", {"x": 1})]
    body = {"model": "m"}
    streamed = await ask(build_event_stream_answer(list(write_events(body, Answer(made)))))
    unpieced = await ask(build_event_stream_answer(list(write_events(body, Answer(made, pieces=False)))))
    (whole,) = await ask(build_answer(200, orjson.dumps(write_response(body, Answer(made)))))
    assert isinstance(whole, dict) and isinstance(streamed[-1], dict)
    assert join(streamed) == join(unpieced) == join([whole])
    assert whole["choices"][0]["finish_reason"] == "tool_calls" and whole["usage"] == streamed[-1]["usage"]


async def test_sources_are_annotations_of_chats() -> None:
    note = {"type": "url_citation", "url": "https://x", "title": "X", "start_index": 0, "end_index": 2}
    added = frame("response.output_text.annotation.added", annotation=note)
    chunks = await ask(build_event_stream_answer([START, *words("Hi"), added, END]))
    about = {name: value for name, value in note.items() if name != "type"}
    assert join(chunks)["annotations"] == [{"type": "url_citation", "url_citation": about}]


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ([START, *words("Hi")], "without `response.completed`"),
        ([], "without `response.completed`"),
        ([b'data: {"choices": []}\n\n'], "does its `api` fit it"),
        ([b"data: {\n\n"], "not JSON"),
        ([frame("response.completed", response=7)], "without `response.completed`"),
        ([START, frame("response.cancelled", response={"status": "cancelled"})], "the status 'cancelled'"),
        ([frame("response.failed", response={"status": "failed", "error": {"message": "Oops."}})], "Oops."),
        ([frame("error", code="server_error", message="Broken.", param=None)], "Broken."),
    ],
)
async def test_broken_stream_is_a_failure(events: list[bytes], reason: str) -> None:
    async with models(serve(build_event_stream_answer(events)), models=RESPONSES) as one:
        assert reason in (await failure(one, "upstream_error")).message


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"object": "chat.completion", "choices": []}, "no response"),
        ({**RESPONSE, "output": []}, "the status 'in_progress'"),
        ({**RESPONSE, "output": [], "status": "failed", "error": {"message": "Oops."}}, "Oops."),
    ],
)
async def test_other_json_is_a_failure(content: Json, reason: str) -> None:
    async with models(serve(build_answer(200, orjson.dumps(content))), models=RESPONSES) as one:
        assert reason in (await failure(one, "upstream_error")).message
