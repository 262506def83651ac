"""The token counters of model calls, by the key of the caller."""

from dataclasses import replace

import orjson

from gateway.contracts.exchange import Chunk, Emit, Exchange, Handler, Pause, Reply
from gateway.contracts.plugin import Counters
from gateway.contracts.store import Json
from gateway.dialects.usage import MOST


def metered(core: Handler, counters: Counters) -> Handler:
    """Return `core` with its calls counted. Usage that the model does not report is estimated (4 bytes a token)."""

    async def handle(exchange: Exchange) -> Reply:
        reply = await core(exchange)

        async def stream(emit: Emit) -> None:
            told: Json | None = None
            written = 0

            def take(chunk: Chunk) -> Pause | None:
                nonlocal told, written
                if isinstance(chunk, str):
                    written += len(chunk)
                elif isinstance(chunk.get("usage"), dict):
                    told = chunk["usage"]
                else:
                    written += 1
                return emit(chunk)

            try:
                await reply.stream(take)
            finally:
                if told is None and written:
                    asked = len(orjson.dumps(exchange.body.get("messages")))
                    told = {"prompt_tokens": -(-asked // 4), "completion_tokens": -(-written // 4)}
                for kind in ("prompt", "completion"):
                    if tokens := _number((told or {}).get(f"{kind}_tokens")):
                        counters.count("tokens", tokens, key=exchange.caller.name, type=kind)

        return replace(reply, stream=stream)

    return handle


def _number(tokens: object) -> int:
    return tokens if isinstance(tokens, int) and 0 <= tokens < MOST else 0
