"""The tokens of model calls: counters by the key of the caller, and the usage of the context lane."""

from dataclasses import replace

import orjson

from gateway.contracts.exchange import Chunk, Emit, Exchange, Handler, Pause, Reply
from gateway.contracts.plugin import Counters
from gateway.contracts.store import Json
from gateway.dialects.usage import MOST
from gateway.errors import GatewayError
from gateway.usage.answers import name_of
from gateway.usage.tokens import Recorded, Tokens, Usage, tokens_of

LANE = "context"


def metered(core: Handler, counters: Counters, recorded: Recorded | None = None) -> Handler:
    """Return `core` with its calls counted. Usage that the model does not report is estimated (4 bytes a token).

    `recorded` takes the usage of each call: a run calls its model once a round.
    """

    async def handle(exchange: Exchange) -> Reply:
        try:
            reply = await core(exchange)
        except GatewayError:
            if recorded is not None:
                recorded(Usage(rejected=True), exchange.caller.name, exchange.caller.tenant, "", "", LANE)
            raise

        async def stream(emit: Emit) -> None:
            told: Json | None = None
            model = ""
            written = 0
            is_whole = False

            def take(chunk: Chunk) -> Pause | None:
                nonlocal told, written, model
                if isinstance(chunk, str):
                    written += len(chunk)
                else:
                    if isinstance(chunk.get("usage"), dict):
                        told = chunk["usage"]
                    else:
                        written += 1
                    if isinstance(named := chunk.get("model"), str):
                        model = name_of(named) or model
                return emit(chunk)

            try:
                await reply.stream(take)
                is_whole = True
            finally:
                estimate = _estimate(exchange, written) if told is None and written else None
                _count(counters, exchange, told or estimate or {})
                if recorded is not None or reply.spent is not None:
                    tokens = tokens_of(told)
                    used = tokens or tokens_of(estimate or _estimate(exchange, written)) or Tokens()
                    if reply.spent is not None:
                        reply.spent(used.input + used.output)
                    if recorded is not None:
                        by = reply.by
                        upstream, model = ("", model) if by is None else (by.upstream, model or by.model)
                        usage = Usage(used, cut=not is_whole, estimated=tokens is None)
                        recorded(usage, exchange.caller.name, exchange.caller.tenant, model, upstream, LANE)

        async def release() -> None:
            await reply.release()
            if reply.spent is not None:
                reply.spent(None)

        return replace(reply, stream=stream, release=release)

    return handle


def _count(counters: Counters, exchange: Exchange, told: Json) -> None:
    for kind in ("prompt", "completion"):
        if tokens := _number(told.get(f"{kind}_tokens")):
            counters.count("tokens", tokens, key=exchange.caller.name, type=kind)


def _estimate(exchange: Exchange, written: int) -> Json:
    asked = len(orjson.dumps(exchange.body.get("messages")))
    return {"prompt_tokens": -(-asked // 4), "completion_tokens": -(-written // 4)}


def _number(tokens: object) -> int:
    return tokens if isinstance(tokens, int) and 0 <= tokens < MOST else 0
