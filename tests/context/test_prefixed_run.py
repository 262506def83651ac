"""An answer behind what came of an earlier question."""

from dataclasses import replace

import pytest

from gateway.context.prefixed_run import with_earlier_result
from gateway.contracts.caller import LOCAL
from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import Exchange, Reply
from tests.scripted_replies import reply_of, told

RUN = Exchange(id="run_1", body={"messages": []}, caller=LOCAL, chain="main")


async def test_handler_is_called_with_the_earlier_result_once_available() -> None:
    """Once it is known, not before; its reply is released once, with what it was called with."""
    asked: list[Exchange] = []
    released: list[None] = []

    async def handler(exchange: Exchange) -> Reply:
        asked.append(exchange)
        return reply_of("Hi.", release=release)

    async def release() -> None:
        released.append(None)

    async def brought() -> str:
        assert not asked
        return "It is done."

    reply = await with_earlier_result(handler, brought, loops=True)(RUN)
    assert asked == []
    assert await told(reply) == ["Hi."]
    await reply.release()
    assert asked == [replace(RUN, delivery=replace(RUN.delivery, brings="It is done."))] and len(released) == 1


async def test_handler_without_a_loop_is_called_after_the_earlier_result() -> None:
    """Nobody else would tell it."""

    async def handler(exchange: Exchange) -> Reply:
        assert exchange is RUN
        return reply_of("Hi.")

    async def brought() -> str:
        return "It is done. "

    assert await told(await with_earlier_result(handler, brought, loops=False)(RUN)) == ["It is done. ", "Hi."]


async def test_failed_earlier_result_raises_in_the_answer() -> None:
    """There is nothing to release then."""

    async def handler(_exchange: Exchange) -> Reply:
        raise AssertionError

    async def brought() -> str:
        raise GatewayError("internal_error", "No.")

    reply = await with_earlier_result(handler, brought, loops=True)(RUN)
    with pytest.raises(GatewayError, match="No"):
        await told(reply)
    await reply.release()
