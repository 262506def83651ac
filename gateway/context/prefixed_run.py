"""A run whose answer begins with the result of an earlier run of its conversation."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from gateway.contracts.exchange import Emit, Exchange, Handler, Reply
from gateway.contracts.records import replace

#: Gives the text, once it is known.
Brought: TypeAlias = Callable[[], Awaitable[str]]


def with_earlier_result(handler: Handler, brought: Brought, *, loops: bool) -> Handler:
    """Return `handler` behind `brought`. The client waits for it in its answer: a stream is kept alive.

    `loops`: the handler has an agent loop, which emits the text and stores it with its answer.
    """

    async def handle(exchange: Exchange) -> Reply:
        inner: list[Reply] = []

        async def stream(emit: Emit) -> None:
            text = await brought()
            if not loops and (pause := emit(text)) is not None:
                await pause()
            inner.append(await handler(_with_beginning(exchange, text) if loops else exchange))
            await inner[0].stream(emit)

        async def release() -> None:
            for reply in inner:
                await reply.release()

        return Reply(stream, release)

    return handle


def _with_beginning(exchange: Exchange, text: str) -> Exchange:
    """Return the exchange whose answer begins with this text."""
    return replace(exchange, delivery=replace(exchange.delivery, brings=text))
