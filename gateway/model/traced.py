"""Spans of model calls, in OpenTelemetry's names for GenAI. They contain no text of the conversation."""

from collections.abc import Callable
from time import perf_counter
from typing import Final

from gateway.contracts.exchange import Chunk, Emit, Exchange, Handler, Pause, Reply
from gateway.contracts.records import replace
from gateway.contracts.storage.store import Json
from gateway.contracts.tracing.context import CURRENT
from gateway.contracts.tracing.tracer import Attribute, Span, Tracer
from gateway.usage.tokens import parse_tokens

#: Settings of a request that a span records, by their names in the API.
_SETTINGS: Final = (
    ("max_tokens", "gen_ai.request.max_tokens"),
    ("max_completion_tokens", "gen_ai.request.max_tokens"),
    ("temperature", "gen_ai.request.temperature"),
    ("top_p", "gen_ai.request.top_p"),
    ("frequency_penalty", "gen_ai.request.frequency_penalty"),
    ("presence_penalty", "gen_ai.request.presence_penalty"),
    ("seed", "gen_ai.request.seed"),
)
#: Larger integers have no place in a span.
_MOST: Final = 1 << 63


def trace_model_calls(core: Handler, tracer: Tracer, *, provider_of: Callable[[Json], str]) -> Handler:
    """Return `core` with a span for each call, from the request to the end of the answer.

    `provider_of` returns the first provider for a body.
    """

    async def handle(exchange: Exchange) -> Reply:
        model = str(exchange.body.get("model") or "")
        attributes: dict[str, Attribute] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": provider_of(exchange.body),
            "gen_ai.request.model": model or None,
            "gen_ai.conversation.id": exchange.conversation,
        }
        span = tracer.begin(f"chat {model}".rstrip(), "client", attributes, parent=CURRENT.get())
        if span.is_sampled:
            _note_settings(span, exchange.body)
        asked = perf_counter()
        with span.current():
            reply = await core(exchange)
        return _trace_reply(reply, span, asked=asked) if span.is_sampled else reply

    return handle


def _trace_reply(reply: Reply, span: Span, *, asked: float) -> Reply:
    """Return a reply whose end is the span's end. It was requested at this time of `perf_counter`."""
    first_s: float | None = None

    async def stream(emit: Emit) -> None:
        def take(chunk: Chunk) -> Pause | None:
            nonlocal first_s
            if first_s is None:
                first_s = perf_counter() - asked
            if not isinstance(chunk, str):
                _note_chunk(span, chunk)
            return emit(chunk)

        with span.current():
            try:
                await reply.stream(take)
            finally:
                _note_answerer(span, reply, first_s=first_s)
        span.end()

    async def release() -> None:
        await reply.release()
        span.end("cancelled")  # unless the stream has ended

    return replace(reply, stream=stream, release=release)


def _note_settings(span: Span, body: Json) -> None:
    for name, attribute in _SETTINGS:
        value = body.get(name)
        if isinstance(value, float) or (isinstance(value, int) and abs(value) < _MOST):
            span.attributes[attribute] = value


def _note_answerer(span: Span, reply: Reply, *, first_s: float | None) -> None:
    """Set the answering model and the time to the first chunk in the span."""
    by = reply.by
    if by is not None and by.upstream:
        span.name = f"chat {by.model}"
        span.attributes |= {
            "gen_ai.provider.name": by.provider,
            "gen_ai.request.model": by.model,
            "gen_ai.request.stream": by.streams or None,
            "gen_ai.response.time_to_first_chunk": first_s if by.streams else None,
            "server.address": by.host or None,
            "server.port": by.port or None,
            "twolane.upstream": by.upstream,
            "twolane.endpoint": by.endpoint,
        }


def _note_chunk(span: Span, chunk: Json) -> None:
    """Note the facts of an answer that a chunk brings: its id and model, why it ends, its tokens."""
    attributes = span.attributes
    for name in ("id", "model"):
        if isinstance(said := chunk.get(name), str):
            attributes[f"gen_ai.response.{name}"] = said
    choices = chunk.get("choices")
    reasons = (
        [one.get("finish_reason") for one in choices if isinstance(one, dict)] if isinstance(choices, list) else []
    )
    if found := tuple(reason for reason in reasons if isinstance(reason, str)):
        attributes["gen_ai.response.finish_reasons"] = found
    usage = chunk.get("usage")
    if isinstance(usage, dict) and (tokens := parse_tokens(usage)) is not None:
        attributes |= {
            "gen_ai.usage.input_tokens": tokens.input,
            "gen_ai.usage.output_tokens": tokens.output,
            "gen_ai.usage.cache_read.input_tokens": tokens.cached or None,
            "gen_ai.usage.cache_write.input_tokens": tokens.written or None,
            "gen_ai.usage.audio.input_tokens": tokens.audio_input or None,
            "gen_ai.usage.audio.output_tokens": tokens.audio_output or None,
            "gen_ai.usage.reasoning.output_tokens": tokens.reasoning or None,
        }
