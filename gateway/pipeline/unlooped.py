"""The answer of a model that no agent loop reads: as it comes, but without ids of approvals in its text."""

from gateway.contracts import Chunk, Exchange, Handler, Json, Pause, Reply, Tell
from gateway.wire.imitation import Defuser

#: The fields of a delta that clients show.
_TEXTS = ("content", "reasoning_content", "reasoning", "refusal")


def unlooped(handler: Handler) -> Handler:
    """Returns `handler` with its answers made safe to show."""

    async def handle(exchange: Exchange) -> Reply:
        reply = await handler(exchange)

        async def stream(tell: Tell) -> None:
            texts = {field: Defuser() for field in _TEXTS}

            def take(chunk: Chunk) -> Pause | None:
                if isinstance(chunk, str):
                    shown = texts["content"].feed(chunk)
                    return tell(shown) if shown else None
                return tell(_shown(chunk, texts))

            await reply.stream(take)

        return Reply(stream, reply.release, reply.intent)

    return handle


def _shown(chunk: Json, texts: dict[str, Defuser]) -> Json:
    """A chunk with the texts that may be shown by now; all that was held back comes with the finish reason."""
    choices = [
        _choice(choice, texts) if choice.get("index", 0) == 0 else choice for choice in chunk.get("choices") or ()
    ]
    return {**chunk, "choices": choices} if choices else chunk


def _choice(choice: Json, texts: dict[str, Defuser]) -> Json:
    delta = dict(choice.get("delta") or {})
    for field, defuser in texts.items():
        text = delta.get(field)
        shown = defuser.feed(text) if isinstance(text, str) else ""
        if choice.get("finish_reason"):
            shown += defuser.finish()
        if shown or isinstance(text, str):
            delta[field] = shown
    return {**choice, "delta": delta} if delta else choice
