"""Spans of model calls: what an answer says of itself, and nothing of what it says."""

import asyncio
from collections.abc import Sequence

import pytest

from gateway.contracts.caller import Caller
from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import Chunk, Emit, Exchange, Handler, Pause, Reply
from gateway.contracts.tracing.context import CURRENT, TraceContext
from gateway.contracts.tracing.tracer import Record, Tracer
from gateway.model.fallback_chain import By
from gateway.model.traced import trace_model_calls

BODY = {
    "model": "m",
    "messages": [{"role": "user", "content": "hidden"}],
    "temperature": 0.5,
    "max_tokens": 9,
    "seed": "x",
}
EXCHANGE = Exchange(id="run_1", body=BODY, caller=Caller("ci", "acme", frozenset()), chain="c", conversation="talk")
END = {"id": "chatcmpl-1", "model": "m-2026", "choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]}
USED = {"prompt_tokens": 11, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 3}}


def model(
    *chunks: Chunk,
    error: BaseException | None = None,
    refused: bool = False,
    seen: list[TraceContext | None] | None = None,
) -> Handler:
    async def stream(emit: Emit) -> None:
        for chunk in chunks:
            emit(chunk)
        if error is not None:
            raise error

    async def release() -> None:
        """Hold nothing."""

    async def core(_: Exchange) -> Reply:
        if seen is not None:
            seen.append(CURRENT.get())
        if refused:
            raise GatewayError("upstream_unavailable", "no")
        return Reply(stream, release, by=By("up", "up-1", "m-there", "mistral_ai", "up.example", 443))

    return core


def anthropic(_: object) -> str:
    return "anthropic"


def tracer_to(sent: list[Record], share: float = 1.0) -> Tracer:
    return Tracer(sent.append, share=share, receivers=frozenset())


def nowhere(_: Chunk) -> Pause | None:
    return None


async def test_span_records_upstream_finish_reason_and_usage() -> None:
    sent, told = list[Record](), list[Chunk]()
    seen: list[TraceContext | None] = []
    chunks: Sequence[Chunk] = ("hidden", END, {"choices": [], "usage": USED})
    reply = await trace_model_calls(model(*chunks, seen=seen), tracer_to(sent), provider_of=anthropic)(EXCHANGE)
    assert sent == []
    await reply.stream(lambda chunk: told.append(chunk))  # type: ignore[func-returns-value]
    await reply.release()
    (span,) = sent
    assert told == list(chunks) and seen == [span.context] and CURRENT.get() is None
    assert (span.name, span.kind, span.error) == ("chat m-there", "client", "")
    first_s = span.attributes["gen_ai.response.time_to_first_chunk"]
    assert isinstance(first_s, float) and 0 < first_s <= (span.ended_ns - span.began_ns) / 1e9
    assert {name: value for name, value in span.attributes.items() if value is not None} == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "mistral_ai",
        "gen_ai.request.model": "m-there",
        "gen_ai.request.stream": True,
        "gen_ai.response.time_to_first_chunk": span.attributes["gen_ai.response.time_to_first_chunk"],
        "server.address": "up.example",
        "server.port": 443,
        "gen_ai.conversation.id": "talk",
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.max_tokens": 9,
        "gen_ai.response.id": "chatcmpl-1",
        "gen_ai.response.model": "m-2026",
        "gen_ai.response.finish_reasons": ("length",),
        "gen_ai.usage.input_tokens": 11,
        "gen_ai.usage.output_tokens": 7,
        "gen_ai.usage.cache_read.input_tokens": 3,
        "twolane.upstream": "up",
        "twolane.endpoint": "up-1",
    }


@pytest.mark.parametrize(
    ("error", "said"),
    [(GatewayError("upstream_timeout", "why"), "upstream_timeout"), (asyncio.CancelledError(), "cancelled")],
)
async def test_broken_off_answer_marks_its_span_failed(error: BaseException, said: str) -> None:
    sent: list[Record] = []
    reply = await trace_model_calls(model("a", error=error), tracer_to(sent), provider_of=anthropic)(EXCHANGE)
    with pytest.raises(type(error)):
        await reply.stream(nowhere)
    await reply.release()
    assert [one.error for one in sent] == [said]


async def test_refused_and_released_calls_end_their_spans() -> None:
    sent: list[Record] = []
    with pytest.raises(GatewayError):
        await trace_model_calls(model(refused=True), tracer_to(sent), provider_of=anthropic)(EXCHANGE)
    await (await trace_model_calls(model("a"), tracer_to(sent), provider_of=anthropic)(EXCHANGE)).release()
    assert [one.error for one in sent] == ["upstream_unavailable", "cancelled"]
    assert sent[0].attributes["gen_ai.provider.name"] == "anthropic"


@pytest.mark.parametrize(
    "odd", [{"choices": "x"}, {"choices": [1, {"finish_reason": 7}]}, {"usage": {"x": 1}, "model": 7}]
)
async def test_malformed_chunks_add_no_span_attributes(odd: Chunk) -> None:
    sent: list[Record] = []
    await (await trace_model_calls(model(odd), tracer_to(sent), provider_of=anthropic)(EXCHANGE)).stream(nowhere)
    assert "gen_ai.response.model" not in sent[0].attributes and sent[0].error == ""


async def test_unsampled_call_is_not_wrapped_for_tracing() -> None:
    sent: list[Record] = []
    core = model("a")
    reply = await trace_model_calls(core, tracer_to(sent, 0.0), provider_of=anthropic)(EXCHANGE)
    assert reply.stream.__qualname__ == (await core(EXCHANGE)).stream.__qualname__ and sent == []
