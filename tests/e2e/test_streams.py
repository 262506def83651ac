"""What a stream of the context lane looks like on the wire (the HTTP contract, "Context streams")."""

import asyncio
import json
import re
import time
from pathlib import Path

import pytest
from gateways import until_read, until_still
from measuring import LoopTime

from gateway.runs import live
from gateway.testing.raw_connection import connect

from .models import CUT, USAGE, Answer, call, calls, native, says
from .talking import CHAT, Streamed, desk, talking

#: Bound of the contract for closing the model's connection behind a client that left.
LEFT_S = 0.1
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
LOOK = json.dumps(call("file_operations", operation="read", path="notes.txt"))


def is_clean(stream: Streamed, *, usage: bool = False) -> None:
    """Every rule about frames that a whole stream must keep."""
    assert stream.events[-1] == b"[DONE]" and stream.events.count(b"[DONE]") == 1
    frames = stream.frames
    for key in ("id", "object", "created", "model"):
        assert len({frame[key] for frame in frames}) == 1, key
    assert frames[0]["object"] == "chat.completion.chunk"
    if usage:
        assert frames[-1]["choices"] == [] and "usage" in frames[-1]
        frames = frames[:-1]
    assert not any("usage" in frame for frame in frames)
    assert all([choice["index"] for choice in frame["choices"]] == [0] for frame in frames)
    deltas = [frame["choices"][0]["delta"] for frame in frames]
    assert [i for i, delta in enumerate(deltas) if "role" in delta] == [0]
    assert deltas[0]["role"] == "assistant"
    reasons = [frame["choices"][0]["finish_reason"] for frame in frames]
    assert [reason for reason in reasons if reason is not None] == [reasons[-1]]
    assert reasons[-1] in ("stop", "length", "tool_calls", "content_filter")
    assert all(not frame["choices"][0]["delta"] for frame in frames if "context" in frame)


ROUNDS = (
    says("I will ", "look.\n", LOOK, usage=(10, 1)),
    calls("execute_sql", sql="SELECT 1").but(usage=(20, 2)),
    says("It is behind ", "the mirror.", usage=(30, 3)),
)


async def test_multi_round_turn_streams_as_one_completion(tmp_path: Path) -> None:
    """One id, created, model, role, finish reason and end, however often the model was asked; no usage unasked."""
    async with talking(*ROUNDS, tools=desk(tmp_path)) as world:
        stream = await world.stream("Where is the safe?", model="the-model")
        is_clean(stream)
        assert stream.text == "I will look.\nIt is behind the mirror."
        assert stream.frames[0]["model"] == "the-model"
        assert abs(stream.frames[0]["created"] - time.time()) < 60
        assert stream.finishes == ["stop"]
        assert stream.told == []


async def test_stream_headers_name_run_chain_and_intent() -> None:
    """Nothing on the way may hold it, and it says which run and chain it is."""
    async with talking(says("Hi.")) as world:
        headers = (await world.stream()).response.headers
        assert headers["Content-Type"] == "text/event-stream; charset=utf-8"
        assert headers["Cache-Control"] == "no-cache, no-transform"
        assert headers["X-Accel-Buffering"] == "no"
        assert headers["X-Context-Chain"] == "assistant"
        assert headers["X-Context-Intent"] == "normal"
        assert headers["x-request-id"] == headers["X-Context-Run-Id"]
        assert re.fullmatch("run_[0-9a-f]{24}", headers["X-Context-Run-Id"])


async def test_stream_contains_only_sse_data_lines() -> None:
    """Never `id:`, `retry:`, `event:`, a BOM or a comment: each breaks a client."""
    body = json.dumps({"model": "m", "stream": True, "messages": [{"role": "user", "content": "Hi"}]}).encode()
    async with talking(says("one", "two")) as world, connect(world.gateway.host, world.gateway.port) as client:
        await client.send(
            b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
            % (CHAT.encode(), len(body))
            + body
        )
        response = await client.read_response()
    lines = response.payload.split(b"\n")
    assert all(line.startswith(b"data: ") for line in lines[::2][:-1]) and set(lines[1::2]) == {b""}
    assert response.payload.endswith(b"data: [DONE]\n\n")


async def test_stream_usage_sums_all_model_calls_when_requested(tmp_path: Path) -> None:
    """In one last frame without choices, over all calls of the model."""
    async with talking(*ROUNDS, tools=desk(tmp_path)) as world:
        stream = await world.stream("Where is the safe?", stream_options={"include_usage": True})
        is_clean(stream, usage=True)
        assert stream.frames[-1]["usage"] == {"prompt_tokens": 60, "completion_tokens": 6, "total_tokens": 66}
        assert all(
            (body["stream"], body["stream_options"]) == (True, {"include_usage": True}) for body in world.model.asked
        )


async def test_non_stream_answer_always_contains_summed_usage(tmp_path: Path) -> None:
    """Summed, too; the model is asked for a stream all the same."""
    async with talking(*ROUNDS, tools=desk(tmp_path)) as world:
        answer = await world.chat("Where is the safe?")
        assert answer.json.keys() == {"id", "object", "created", "model", "choices", "usage"}
        assert answer.json["object"] == "chat.completion"
        assert answer.json["usage"] == {"prompt_tokens": 60, "completion_tokens": 6, "total_tokens": 66}
        assert answer.text == "I will look.\nIt is behind the mirror."
        assert answer.message["role"] == "assistant"
        assert all(body["stream"] is True for body in world.model.asked)


@pytest.mark.parametrize("stream", [False, True])
async def test_missing_model_usage_is_estimated(*, stream: bool) -> None:
    """A quarter of the bytes, rounded up, and marked as such."""
    async with talking(says("12345", usage=None), enhancer={"tools": False}) as world:
        if stream:
            streamed = await world.stream(stream_options={"include_usage": True})
            is_clean(streamed, usage=True)
            usage, marks = streamed.frames[-1]["usage"], [f["context"] for f in streamed.frames if "context" in f]
        else:
            answer = await world.chat()
            usage, marks = answer.json["usage"], [answer.json["context"]]
        assert usage["completion_tokens"] == 2 and usage["prompt_tokens"] > 2
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
        assert marks == [{"usage_estimated": True}]


async def test_progress_events_are_streamed_when_requested(tmp_path: Path) -> None:
    """Each on a chunk with an empty delta; a client that knows nothing of them sees a clean completion."""
    async with talking(*ROUNDS, tools=desk(tmp_path)) as world:
        stream = await world.stream("Where is the safe?", headers={"X-Context-Events": "1"})
        is_clean(stream)
        tool = ["step.started", "step.finished", "tool.started", "tool.finished"]
        types = [event["type"] for event in stream.told]
        assert types == ["run.started", *tool, *tool, "step.started", "step.finished", "run.finished"]
        assert [event["step"] for event in stream.told if event["type"] == "step.started"] == [1, 2, 3]
        run_id = stream.response.headers["X-Context-Run-Id"]
        assert stream.told[0]["run_id"] == stream.told[-1]["run_id"] == run_id
        called = [(event["tool"], event["call_id"]) for event in stream.told if event["type"].startswith("tool.")]
        assert called[0] == called[1] and called[2] == called[3]
        assert [name for name, _ in called[::2]] == ["file_operations", "execute_sql"]
        assert stream.text == "I will look.\nIt is behind the mirror."


async def test_text_arrives_when_the_model_sends_it() -> None:
    """Each piece before the next one exists."""
    gates = [asyncio.Event() for _ in range(3)]
    answer = says("one ", gates[0], "two ", gates[1], "three", gates[2], ".")
    async with talking(answer) as world, world.streaming() as stream:
        for text, gate in zip(("one ", "one two ", "one two three"), gates, strict=True):
            await stream.until_text(text)
            gate.set()
        is_clean(await stream.rest())
        assert stream.text == "one two three."


async def test_prose_before_a_call_arrives_before_the_tool_runs(tmp_path: Path) -> None:
    """And what the model says in the next round, as it says it."""
    gate = asyncio.Event()
    rounds = (says("I will look.\n", gate, LOOK), says("Behind ", "the mirror."))
    async with talking(*rounds, tools=desk(tmp_path)) as world, world.streaming() as stream:
        await stream.until_text("I will look.\n")
        gate.set()
        is_clean(await stream.rest())


async def test_reasoning_content_is_streamed() -> None:
    """As the field that the model used; it is no content."""
    async with talking(says({"reasoning_content": "Hm. "}, {"reasoning_content": "Yes."}, "Hi.")) as world:
        stream = await world.stream()
        is_clean(stream)
        assert [delta["reasoning_content"] for delta in stream.deltas if "reasoning_content" in delta] == [
            "Hm. ",
            "Yes.",
        ]
        assert stream.text == "Hi."


async def test_keepalive_chunks_are_sent_during_silence() -> None:
    """A whole chunk with an empty delta: comments do not reset the timers of clients."""
    gate = asyncio.Event()
    context = {"stream": {"keepalive": "50ms"}}
    async with talking(says("one", gate, "two"), context=context) as world, world.streaming() as stream:
        await stream.until_text("one")
        for _ in range(3):
            assert (await stream.frame())["choices"] == [{"index": 0, "delta": {}, "finish_reason": None}]
        gate.set()
        is_clean(await stream.rest())
        assert stream.text == "onetwo"


async def test_slow_reader_receives_few_keepalives() -> None:
    """One is enough for whoever does not read, and none comes behind the end."""
    pieces = ["x" * 20_000] * 300
    context = {"stream": {"keepalive": "300ms"}}
    async with talking(says(*pieces), context=context) as world, world.streaming() as stream:
        await asyncio.sleep(1.2)  # four times the silence that asks for one
        is_clean(await stream.rest())
        assert stream.text == "".join(pieces)
        assert stream.deltas[:-1].count({}) < 10


async def test_keepalive_chunks_are_sent_while_a_tool_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The silence of a tool is silence, too."""
    monkeypatch.setattr(live, "GRACE_S", 0.1)  # behind the client that leaves
    context = {"stream": {"keepalive": "50ms"}}
    rounds = (calls("execute_sql", sql=ENDLESS),)
    async with talking(*rounds, tools=desk(tmp_path), context=context) as world, world.streaming() as stream:
        for _ in range(4):
            await stream.frame()
        assert stream.deltas[1:] == [{}, {}, {}]


EXAMPLES = [
    pytest.param(LOOK, "", id="bare"),
    pytest.param(f"I will look.\n\n```json\n{LOOK}\n```", "I will look.", id="fenced"),
    pytest.param(f"I will look: {LOOK}\nWait.", "I will look: \nWait.", id="within prose"),
    pytest.param(json.dumps([json.loads(LOOK)] * 2), "", id="a group"),
    pytest.param(json.dumps(json.loads(LOOK), indent=2), "", id="indented"),
    pytest.param('{"tool_call": {"name": "execute_sql", "arguments": {"sql": "SELECT 1"}}}', "", id="tool_call"),
    pytest.param('{"tool": "file_operations", "parameters": {"operation": "rea', "", id="cut"),
]


@pytest.mark.parametrize("size", [1, 3, 10_000])
@pytest.mark.parametrize(("written", "shown"), EXAMPLES)
async def test_tool_call_json_is_hidden_for_any_chunking(tmp_path: Path, written: str, shown: str, size: int) -> None:
    """Letter by letter or at once: the client sees the prose, and nothing of the call."""
    pieces = [written[at : at + size] for at in range(0, len(written), size)]
    async with talking(says(*pieces), says(" Done."), tools=desk(tmp_path)) as world:
        stream = await world.stream("Go.")
        is_clean(stream)
        assert "tool" not in stream.text and "{" not in stream.text
        assert stream.text.replace("\n", "") == f"{shown} Done.".replace("\n", "")


@pytest.mark.parametrize("size", [1, 7, 10_000])
async def test_json_that_is_not_a_call_is_streamed_unchanged(tmp_path: Path, size: int) -> None:
    """What only looks like a call arrives letter for letter."""
    text = 'See {"name": "tool", "size": [1, {"a": 2}]}, {x}, and ```python\nd = {"tool": "x"}\n``` `{"tool": 1}`.'
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    async with talking(says(*pieces), tools=desk(tmp_path)) as world:
        assert (await world.stream("Go.")).text == text


@pytest.mark.parametrize("finish", ["stop", "length", "content_filter"])
async def test_model_finish_reason_is_forwarded(finish: str) -> None:
    """As long as clients know it."""
    async with talking(says("Hi", finish=finish)) as world:
        stream = await world.stream()
        is_clean(stream)
        assert stream.finishes == [finish]


@pytest.mark.parametrize("finish", ["eos", "error", "insufficient_system_resource"])
async def test_unknown_finish_reason_becomes_stop(finish: str) -> None:
    """Others break clients."""
    async with talking(says("Hi", finish=finish)) as world:
        assert (await world.stream()).finishes == ["stop"]


DYING = [
    pytest.param(says("Hello wor", CUT), id="the connection ends"),
    pytest.param(says("Hello wor", finish=None, usage=None, done=False), id="no finish reason"),
    pytest.param(says("Hello wor", b"{broken"), id="no JSON"),
    pytest.param(says("Hello wor", b'{"choices": [1]}'), id="no object"),
    pytest.param(says("Hello wor", b'{"choices": {"0": {}}}'), id="no chunk"),
    pytest.param(says("Hello wor", b'{"error": {"message": "out of memory"}}'), id="an error event"),
]


@pytest.mark.parametrize("answer", DYING)
async def test_model_failure_in_mid_stream_ends_with_an_error(answer: Answer) -> None:
    """One error, no end: neither a finish reason nor [DONE] is invented; an answer that is no stream is a 502."""
    async with talking(answer, answer) as world:
        stream = await world.stream()
        assert stream.text == "Hello wor"
        assert stream.finishes == [] and b"[DONE]" not in stream.events
        last = json.loads(stream.events[-1])
        assert last.keys() == {"error"} and last["error"]["code"] == "upstream_error"
        assert stream.response.headers["x-request-id"] in last["error"]["message"]
        assert [frame for frame in stream.frames if "error" in frame] == [last]
        completed = await world.chat()
        assert (completed.status, completed.error["code"]) == (502, "upstream_error")


async def test_client_disconnect_closes_the_model_connection() -> None:
    """Within 100 ms."""
    async with talking(says("Hi", asyncio.Event())) as world:
        async with world.streaming() as stream:
            await stream.until_text("Hi")
        left = LoopTime()
        await world.model.upstream.wait_open(0)
        left.within(LEFT_S)


async def test_client_disconnect_without_streaming_closes_the_model_connection() -> None:
    """The same for an answer that is no stream."""
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Hi"}]}).encode()
    async with talking(says("Hi", asyncio.Event())) as world:
        async with connect(world.gateway.host, world.gateway.port) as client:
            await client.send(
                b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (CHAT.encode(), len(body)) + body
            )
            await world.model.upstream.wait_requests(1)
        left = LoopTime()
        await world.model.upstream.wait_open(0)
        left.within(LEFT_S)


WRITES = {
    "before the model answers": says("Done.", before=asyncio.Event()),
    "in mid-answer": says("D", asyncio.Event()),
}


@pytest.mark.parametrize("phase", WRITES)
async def test_client_disconnect_after_a_tool_closes_the_model_connection(tmp_path: Path, phase: str) -> None:
    """Within 100 ms as well; whoever repeats the request gets the answer of a fresh call, and no tool runs twice."""
    write = calls("file_operations", operation="write", path="new.txt", content="x")
    rounds = (write, WRITES[phase], says("Written."))
    async with talking(*rounds, tools=desk(tmp_path, write=True)) as world:
        async with world.streaming("Write it.") as stream:
            await world.model.upstream.wait_requests(2)
            if phase == "in mid-answer":
                await stream.until_text("D")
        left = LoopTime()
        await world.model.upstream.wait_open(0)
        left.within(LEFT_S)
        again = await world.stream("Write it.", headers={"x-stainless-retry-count": "1"})
        is_clean(again)
        assert again.text == "Written." and len(world.model.asked) == 3
        assert again.response.headers["X-Context-Run-Id"] == stream.response.headers["X-Context-Run-Id"]
        assert await world.counted('gateway_tool_calls_total{outcome="ok",tool="file_operations"}') == 1


async def test_unread_stream_applies_backpressure_to_the_model() -> None:
    """The model is read as far as the client may be behind, not to its end; later the client gets everything."""
    pieces = ["x" * 50_000] * 300
    async with talking(says(*pieces)) as world, world.streaming() as stream:
        (connection,) = await world.model.upstream.wait_connections(1)
        assert await until_still(lambda: connection.n_sent) < 12_000_000
        is_clean(await stream.rest())
        assert len(stream.text) == 15_000_000


async def test_client_disconnect_cancels_a_running_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets a little time to finish, then it is cancelled; the model is not asked again."""
    monkeypatch.setattr(live, "GRACE_S", 0.1)
    rounds, context = calls("execute_sql", sql=ENDLESS), {"stream": {"keepalive": "50ms"}}
    async with talking(rounds, tools=desk(tmp_path), context=context) as world:
        async with world.streaming(headers={"X-Context-Events": "1"}) as stream:
            while "tool.started" not in [event["type"] for event in stream.told]:
                await stream.frame()
            for _ in range(4):  # it is written down, and runs
                await stream.frame()
        await until_read(lambda: world.counted('gateway_agent_runs_total{outcome="cancelled"}'))
        assert len(world.model.asked) == 1
        assert await world.counted('gateway_tool_calls_total{outcome="cancelled",tool="execute_sql"}') == 1


async def test_client_disconnect_stops_the_keepalive() -> None:
    """A run without effects does not outlive its client, and nothing fails unseen behind it."""
    context = {"stream": {"keepalive": "10ms"}}
    async with talking(says("Hi", asyncio.Event()), context=context) as world:
        async with world.streaming() as stream:
            for _ in range(4):
                await stream.frame()
        await world.model.upstream.wait_open(0)


async def test_client_tool_calls_are_streamed_whole() -> None:
    """In one piece each, with fresh indexes, behind the text; `finish_reason` says so."""
    tools = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in ("a", "b")]
    asked = native(("a", {"x": 1}), ("b", {}), text="Calling.")
    async with talking(asked) as world:
        stream = await world.stream(tools=tools, stream_options={"include_usage": True})
        is_clean(stream, usage=True)
        (first,), (second,) = [delta["tool_calls"] for delta in stream.deltas if "tool_calls" in delta]
        assert (first["index"], first["function"]) == (0, {"name": "a", "arguments": '{"x": 1}'})
        assert (second["index"], second["function"]) == (1, {"name": "b", "arguments": "{}"})
        assert stream.text == "Calling." and stream.finishes == ["tool_calls"]
        prompt, completion = USAGE
        assert stream.frames[-1]["usage"]["total_tokens"] == prompt + completion
