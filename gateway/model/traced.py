"""Spans of model calls, in OpenTelemetry's names for GenAI. Nothing of what is said is in them."""

from typing import Final

from gateway.contracts.exchange import Chunk, Emit, Exchange, Handler, Pause, Reply
from gateway.contracts.store import Json
from gateway.records import replace
from gateway.trace_context import CURRENT
from gateway.tracing.tracer import Attribute, Span, Tracer
from gateway.usage.tokens import tokens_of

#: Settings of a request that a span says, by their names in the API.
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


def traced_model(core: Handler, tracer: Tracer) -> Handler:
    """Return `core` with a span for each call, from the request to the end of the answer."""

    async def handle(exchange: Exchange) -> Reply:
        model = str(exchange.body.get("model") or "")
        attributes: dict[str, Attribute] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "openai",
            "gen_ai.request.model": model or None,
            "gen_ai.conversation.id": exchange.conversation,
        }
        span = tracer.begin(f"chat {model}".rstrip(), "client", attributes, parent=CURRENT.get())
        if span.is_sampled:
            _note_settings(span, exchange.body)
        with span.current():
            reply = await core(exchange)
        return _followed(reply, span) if span.is_sampled else reply

    return handle


def _followed(reply: Reply, span: Span) -> Reply:
    """Return a reply whose end is that of the span."""

    async def stream(emit: Emit) -> None:
        def take(chunk: Chunk) -> Pause | None:
            if not isinstance(chunk, str):
                _note_chunk(span, chunk)
            return emit(chunk)

        with span.current():
            try:
                await reply.stream(take)
            finally:
                _note_answerer(span, reply)
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


def _note_answerer(span: Span, reply: Reply) -> None:
    """Name the model that was asked at last: an alias stands for several."""
    if reply.by is not None and reply.by.upstream:
        span.name = f"chat {reply.by.model}"
        span.attributes |= {
            "gen_ai.request.model": reply.by.model,
            "twolane.upstream": reply.by.upstream,
            "twolane.endpoint": reply.by.endpoint,
        }


def _note_chunk(span: Span, chunk: Json) -> None:
    """Note the facts of an answer that a chunk brings: who says it, why it ends, its tokens."""
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
    if isinstance(usage, dict) and (tokens := tokens_of(usage)) is not None:
        attributes |= {
            "gen_ai.usage.input_tokens": tokens.input,
            "gen_ai.usage.output_tokens": tokens.output,
            "gen_ai.usage.cache_read.input_tokens": tokens.cached or None,
            "gen_ai.usage.reasoning.output_tokens": tokens.reasoning or None,
        }
