"""Answers of Messages over real sockets: how their chunks come, and every way in which they break."""

import orjson
import pytest

from gateway.contracts.exchange import Chunk
from gateway.contracts.storage.store import Json
from gateway.dialects.extra_message_fields import FieldAccumulator
from gateway.testing.scripts import build_answer, build_event_stream_answer, serve
from gateway.testing.scripts import build_chunk as framed
from gateway.upstream.endpoint import ModelAccess
from gateway.upstream.group import GroupRules, RetryRules
from tests.agent.models import STREAM, failure, models
from tests.messages_server import Answer, calls, frame, hides, says, thinks, write_events, write_message

MESSAGES = ModelAccess(api="messages")
START = frame("message_start", message={"id": "msg_1", "type": "message", "model": "m", "usage": {"input_tokens": 3}})
BEGIN = frame("content_block_start", index=0, content_block={"type": "text", "text": ""})
STOP = frame("content_block_stop", index=0)
END = frame("message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage={"output_tokens": 5})
DONE = frame("message_stop")


def words(*texts: str) -> list[bytes]:
    return [frame("content_block_delta", index=0, delta={"type": "text_delta", "text": text}) for text in texts]


def stream(*events: bytes) -> bytes:
    return build_event_stream_answer(list(events))


def texts(chunks: list[Chunk]) -> str:
    return "".join(build_chunk for build_chunk in chunks if isinstance(build_chunk, str))


async def ask(raw: bytes) -> list[Chunk]:
    async with models(serve(raw), models=MESSAGES) as one:
        return await one.ask()


async def test_events_become_chunks_as_they_come() -> None:
    chunks = await ask(stream(START, frame("ping"), BEGIN, *words("Hel", "lo", " é\n\"'"), STOP, END, DONE))
    first, *told, last = chunks
    begun = {"index": 0, "delta": {"role": "assistant"}, "finish_reason": None}
    assert first == {"id": "msg_1", "model": "m", "choices": [begun]}
    assert told == ["Hel", "lo", " é\n\"'"]
    ending = {"index": 0, "delta": {}, "finish_reason": "stop", "native_finish_reason": "end_turn"}
    usage = {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}
    assert last == {"choices": [ending], "usage": usage}


async def test_many_events_in_one_piece_and_in_pieces_of_bytes_are_the_same() -> None:
    events = [START, BEGIN, *words(*"abcdefghij"), STOP, END, DONE]
    whole = b"".join(events)
    expected = await ask(stream(*events))
    for size in (len(whole), 1, 7):
        pieces = [framed(whole[at : at + size]) for at in range(0, len(whole), size)]
        assert await ask(STREAM + b"".join(pieces) + b"0\r\n\r\n") == expected


async def test_events_of_the_future_are_left_out() -> None:
    chunks = await ask(stream(START, frame("of_the_future", x=1), BEGIN, *words("Hi"), STOP, END, DONE))
    assert texts(chunks) == "Hi"


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ([START, BEGIN, *words("Hi")], "without a stop reason"),
        ([START, BEGIN, *words("Hi"), STOP, DONE], "without a stop reason"),
        ([], "without a stop reason"),
        ([b'data: {"choices": []}\n\n'], "does its `api` fit it"),
        ([b"data: [DONE]\n\n"], "not JSON"),
        ([b"data: {\n\n"], "not JSON"),
        ([frame("message_start", message=7)], "does its `api` fit it"),
    ],
)
async def test_broken_stream_is_a_failure(events: list[bytes], reason: str) -> None:
    async with models(serve(stream(*events)), models=MESSAGES) as one:
        assert reason in (await failure(one, "upstream_error")).message


@pytest.mark.parametrize("kind", ["overloaded_error", "rate_limit_error", "api_error"])
async def test_error_in_a_stream_goes_elsewhere_until_the_answer_has_begun(kind: str) -> None:
    told = frame("error", error={"type": kind, "message": "Not now."})
    good = stream(START, BEGIN, *words("Hi"), STOP, END, DONE)
    scripts = [serve(stream(START, frame("ping"), told)), serve(good)]
    rules = GroupRules(retry=RetryRules(tries=2))
    async with models(each=scripts, endpoints=True, rules=rules, models=MESSAGES) as one:
        assert texts(await one.ask()) == "Hi"
        assert one.asked == [1, 1]
    async with models(serve(stream(START, BEGIN, *words("Hi"), told)), models=MESSAGES) as one:
        assert "Not now." in (await failure(one, "upstream_error")).message


async def test_whole_message_is_one_chunk_like_its_stream() -> None:
    blocks = [thinks("Hm."), hides("eHg="), says("Hello."), calls("look", {"x": 1}), calls("look", {"y": 2}, id_="b")]
    told, usage = Answer(blocks, about={"stop_sequence": "END"}), {"input_tokens": 3}
    content = orjson.dumps(write_message({"model": "m"}, told, usage))
    (whole,) = await ask(build_answer(200, content, [("Content-Type", "application/json")]))
    streamed = await ask(stream(*write_events({"model": "m"}, told, usage)))
    assert isinstance(whole, dict) and isinstance(streamed[-1], dict)
    assert joined([whole]) == joined(streamed)
    assert whole["usage"] == streamed[-1]["usage"]
    message = joined([whole])
    assert (message["content"], message["reasoning_content"]) == ("Hello.", "Hm.")
    assert message["arguments"] == [{"x": 1}, {"y": 2}]
    assert [call["id"] for call in whole["choices"][0]["delta"]["tool_calls"]] == [calls("look", {"x": 1})["id"], "b"]
    assert [entry["type"] for entry in message["reasoning_details"]] == ["reasoning.text", "reasoning.encrypted"]
    (choice,) = whole["choices"]
    assert (choice["finish_reason"], choice["stop_sequence"]) == ("tool_calls", "END")


def joined(chunks: list[Chunk]) -> Json:
    """The message of these chunks, with arguments in one spelling."""
    fields, arguments = FieldAccumulator(), dict[int, str]()
    for build_chunk in chunks:
        delta = {"content": build_chunk} if isinstance(build_chunk, str) else build_chunk["choices"][0]["delta"]
        for name, value in delta.items():
            if name != "tool_calls":
                fields.add(name, value)
                continue
            for call in value:
                arguments[call["index"]] = arguments.get(call["index"], "") + call["function"]["arguments"]
    return {**fields.get_whole(), "arguments": [orjson.loads(one) for one in arguments.values()]}


@pytest.mark.parametrize(
    "content", [{"id": "x", "choices": []}, {"type": "message"}, {"type": "message", "content": 7}]
)
async def test_json_that_is_no_message_is_a_failure(content: Json) -> None:
    raw = build_answer(200, orjson.dumps(content), [("Content-Type", "application/json")])
    async with models(serve(raw), models=MESSAGES) as one:
        assert "is no message" in (await failure(one, "upstream_error")).message
