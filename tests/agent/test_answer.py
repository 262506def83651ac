"""One answer as it streams: what the client gets of it at once, and what the loop gets at its end."""

import asyncio
from dataclasses import replace

import pytest

from gateway.agent.answer import AnswerReader, Further, OpenReply, PlainAnswer, build_reader
from gateway.agent.budget import TimeBudget
from gateway.agent.output.scanner import CallGroup, MalformedCall, Outcome, Prose
from gateway.contracts.caller import Caller
from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import ANSWER_CHARS, Chunk, Emit, Exchange, Reply
from gateway.contracts.storage.store import Json
from gateway.dialects.usage import TurnUsage
from gateway.testing.clock import ManualClock
from tests.scripted_replies import reply_of, whole

from .agent_bench import USAGE, call
from .models import chunk


async def read(
    *chunks: Json, spoken: list[str] | None = None
) -> tuple[list[Json], AnswerReader, str, Outcome, TurnUsage]:
    """Return the results of reading: chunks, the answer, its rest and what it was."""
    usage, said = TurnUsage(), [] if spoken is None else spoken

    def tell(text: str) -> str:
        said.append(text)
        return text

    async def release() -> None:
        raise AssertionError("whoever has the reply releases it")

    answer = AnswerReader(usage=usage, spoken=tell)
    out: list[Chunk] = []
    await answer.read(reply_of(*chunks, release=release), out.append)
    rest, found = answer.finish()
    return [whole(one) for one in out], answer, rest, found, usage


def deltas(told: list[Json]) -> list[Json]:
    return [one["choices"][0]["delta"] for one in told]


async def test_answer_text_is_streamed_piece_by_piece() -> None:
    """Each piece at once; it is told as it was shown."""
    spoken: list[str] = []
    out, answer, rest, found, _ = await read(chunk("Hel"), chunk("lo"), chunk(finish="length"), spoken=spoken)
    assert deltas(out) == [{"content": "Hel"}, {"content": "lo"}] and rest == ""
    assert (answer.content, answer.reason, spoken) == ("Hello", "length", ["Hel", "lo"])
    assert isinstance(found, Prose)


async def test_tool_call_text_is_never_streamed() -> None:
    """However it was cut; the text before it does."""
    text = f"Let me see. {call(x=1)}"
    for size in (1, 3, 1000):
        pieces = [chunk(text[i : i + size]) for i in range(0, len(text), size)]
        out, answer, rest, found, _ = await read(*pieces, chunk(finish="stop"))
        assert "".join(delta["content"] for delta in deltas(out)) + rest == answer.content == "Let me see. "
        assert isinstance(found, CallGroup) and found.calls[0].parameters == {"risk_level": "low", "x": 1}


async def test_held_back_text_is_released_at_the_end() -> None:
    """It is spoken like any other."""
    spoken: list[str] = []
    out, answer, rest, found, _ = await read(chunk('See {"tool'), chunk(finish="stop"), spoken=spoken)
    assert answer.content == "".join(spoken) == "".join(d["content"] for d in deltas(out)) + rest
    assert isinstance(found, Prose | MalformedCall)


async def test_reasoning_is_streamed_beside_the_text() -> None:
    """Under either name; they are no part of the answer, and no call is looked for in them."""
    thought = {"choices": [{"index": 0, "delta": {"reasoning_content": call(), "content": "Hi"}}]}
    other = {"choices": [{"index": 0, "delta": {"reasoning": "Hm."}}]}
    empty = {"choices": [{"index": 0, "delta": {"reasoning": "", "reasoning_content": None}}]}
    out, answer, _, found, _ = await read(thought, other, empty, chunk(finish="stop"))
    assert deltas(out) == [{"reasoning_content": call()}, {"content": "Hi"}, {"reasoning": "Hm."}]
    assert answer.content == "Hi" and isinstance(found, Prose)


async def test_native_tool_calls_are_collected_and_not_streamed() -> None:
    """In pieces, none of which the client sees."""
    pieces = [
        {"index": 0, "id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"x"'}},
        {"index": 0, "function": {"arguments": ":1}"}},
    ]
    out, _, rest, found, _ = await read(
        *({"choices": [{"index": 0, "delta": {"tool_calls": [piece]}}]} for piece in pieces),
        chunk(finish="tool_calls"),
    )
    assert (out, rest) == ([], "")
    assert isinstance(found, CallGroup)
    (asked,) = found.calls
    assert (asked.tool, asked.parameters, asked.id) == ("look", {"x": 1}, "c1")


ODD = pytest.mark.parametrize(
    "odd",
    [
        {},
        {"choices": None},
        {"choices": []},
        {"choices": [{}]},
        {"choices": [{"delta": None}]},
        {"choices": [{"index": 1, "delta": {"content": "other"}, "finish_reason": "length"}]},
        {"choices": [{"index": 0, "delta": {"role": "assistant"}}]},
        {"choices": [{"index": 0, "delta": {"content": ""}}]},
        {"choices": [{"index": 0, "delta": {"content": None, "refusal": None}}]},
        {"choices": [{"index": 0, "delta": {"content": [1, None, {"type": "text"}, {"type": "text", "text": 5}]}}]},
        {"choices": [{"index": 0, "delta": {"reasoning": {}, "images": []}}]},
        {"choices": [{"index": 0, "delta": {"tool_calls": []}}]},
        {"object": "error", "message": None},
    ],
)


@ODD
async def test_empty_chunks_leave_an_answer_unchanged(odd: Json) -> None:
    """Upstreams send such chunks; the rest of the answer is what it was."""
    out, answer, _, _, _ = await read(odd, chunk("Hi"), chunk(finish="stop"))
    assert deltas(out) == [{"content": "Hi"}] and (answer.content, answer.reason) == ("Hi", "stop")


async def test_usage_is_read_from_any_chunk() -> None:
    """Without choices at the end, or beside text."""
    for last in ([chunk(finish="stop"), {"choices": [], "usage": USAGE}], [chunk(finish="stop", usage=USAGE)]):
        *_, usage = await read(chunk("Hi"), *last)
        assert usage.build_chunk()["usage"] == USAGE


# Of a step of a workflow.


async def plainly(*chunks: Chunk) -> tuple[PlainAnswer, TurnUsage, list[Chunk]]:
    """The answer, its tokens, what was told of it."""
    usage, told = TurnUsage(), list[Chunk]()
    answer = PlainAnswer(usage=usage)
    await answer.read(reply_of(*chunks), told.append)
    return answer, usage, told


@pytest.mark.parametrize("text", ["Hello", call(x=1), f"```json\n{call(x=1)}\n```", '{"tool', "<think>Hm.</think> Yes"])
async def test_plain_answer_is_never_parsed_as_a_call(text: str) -> None:
    """However it was cut. Nobody is told of it, nothing of it is held back, and it asks for nothing."""
    for size in (1, 7, 1000):
        pieces = [text[i : i + size] for i in range(0, len(text), size)]
        for told_as in (pieces, [chunk(piece) for piece in pieces]):
            answer, _, told = await plainly(*told_as, chunk(finish="length"))
            assert (answer.content, answer.reason, told) == (text, "length", [])
            assert answer.finish() == ("", Prose())


async def test_plain_answer_ignores_reasoning_and_native_calls() -> None:
    """The model was offered no tools."""
    delta = {"reasoning_content": "Hm.", "content": "Hi", "tool_calls": [{"index": 0, "function": {"name": "look"}}]}
    answer, _, _ = await plainly({"choices": [{"index": 0, "delta": delta}]}, chunk(finish="tool_calls"))
    assert (answer.content, answer.reason) == ("Hi", "tool_calls") and answer.finish() == ("", Prose())


@ODD
async def test_empty_chunks_leave_a_plain_answer_unchanged(odd: Json) -> None:
    """Either."""
    answer, _, _ = await plainly(odd, chunk("Hi"), chunk(finish="stop"))
    assert (answer.content, answer.reason) == ("Hi", "stop")


async def test_usage_of_a_plain_answer_is_read_or_estimated() -> None:
    """Or are estimated."""
    _, usage, _ = await plainly(chunk("Hi"), chunk(finish="stop"), {"choices": [], "usage": USAGE})
    assert usage.build_chunk()["usage"] == USAGE
    usage = TurnUsage()
    usage.begin_call({"messages": []})
    await PlainAnswer(usage=usage).read(reply_of(chunk("12345"), chunk(finish="stop")), print)
    assert usage.build_chunk()["usage"]["completion_tokens"] == 2


async def test_plain_answer_length_is_limited() -> None:
    """No client reads it meanwhile, so nothing else would stop it."""
    half = "x" * (ANSWER_CHARS // 2)
    answer, _, _ = await plainly(half, half)
    assert len(answer.content) == ANSWER_CHARS
    with pytest.raises(GatewayError, match="grew over") as error:
        await plainly(half, half, "y")
    assert error.value.code == "upstream_error"


@pytest.mark.parametrize(
    "text", ['{"tool": "look", "parameters": {}, "terminate": false}', '{"tool": "look"', "``` {}"]
)
async def test_json_format_answer_is_not_searched_for_calls(text: str) -> None:
    """It flows on as it comes; a workflow's is read for its text alone."""
    body: Json = {"messages": [], "response_format": {"type": "json_object"}}
    exchange = Exchange(id="run_1", body=body, caller=Caller("c", "t", frozenset()), chain="main")
    usage, told = TurnUsage(), list[Chunk]()
    answer = build_reader(exchange, usage=usage, spoken=str, further=Further())
    await answer.read(reply_of(text[:5], text[5:], chunk(finish="stop")), told.append)
    assert "".join(one for one in told if isinstance(one, str)) == answer.content == text
    assert answer.finish() == ("", Prose())
    of_workflow = replace(exchange, job=replace(exchange.job, workflow={"definition": {}, "parameters": {}}))
    assert isinstance(build_reader(of_workflow, usage=usage, spoken=str, further=Further()), PlainAnswer)


def opened() -> tuple[OpenReply, list[str]]:
    """Return an open reply, and the list of its releases."""
    released: list[str] = []

    async def stream(emit: Emit) -> None:
        del emit

    async def release() -> None:
        released.append("released")

    budget = TimeBudget(10.0, clock=ManualClock(), expiry=lambda: GatewayError("agent_timeout", "Over."))
    made = OpenReply(budget)
    made.reply = Reply(stream, release)
    return made, released


async def test_model_reply_is_released_once() -> None:
    made, released = opened()
    await made.release()
    await made.release()
    assert released == ["released"] and made.reply is None


async def test_reply_is_released_on_drop_and_expiry() -> None:
    for end, flags in (("drop_call", (True, False)), ("expire", (False, True))):
        made, released = opened()
        getattr(made, end)()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*others)
        assert released == ["released"] and (made.is_dropped, made.has_expired) == flags
