"""The check of stages finds each broken rule."""

import asyncio
import contextlib
import re
from dataclasses import replace

import pytest

from gateway.contracts.caller import Caller
from gateway.contracts.exchange import Chunk, Emit, Exchange, Handler, Pause, Reply
from gateway.testing import ContractError, FakeHost, check_stage, make_exchange

from .rule_keepers import PassOn, plugin_of


class Alone(PassOn):
    async def __call__(self, exchange: Exchange, call_next: Handler) -> Reply:
        async def stream(emit: Emit) -> None:
            emit("no")

        async def release() -> None:
            pass

        return Reply(stream, release)


class Raises(PassOn):
    async def __call__(self, exchange: Exchange, call_next: Handler) -> Reply:
        return await call_next(replace(exchange, notes=(exchange.body["messages"][0]["content"].upper(),)))


class ReturnsText(PassOn):
    async def __call__(self, exchange: Exchange, call_next: Handler) -> Reply:
        await call_next(exchange)
        return "ok"  # type: ignore[return-value]


class Renames(PassOn):
    async def __call__(self, exchange: Exchange, call_next: Handler) -> Reply:
        return await call_next(replace(exchange, caller=Caller("root", "local", frozenset())))


class Mutates(PassOn):
    async def __call__(self, exchange: Exchange, call_next: Handler) -> Reply:
        exchange.body["messages"].insert(0, {"role": "system", "content": "Hi."})
        return await call_next(exchange)


class NeverReleases(PassOn):
    async def __call__(self, exchange: Exchange, call_next: Handler) -> Reply:
        reply = await call_next(exchange)

        async def release() -> None:
            pass

        return replace(reply, release=release)


class ReleasesLater(PassOn):
    async def __call__(self, exchange: Exchange, call_next: Handler) -> Reply:
        reply = await call_next(exchange)

        async def release() -> None:
            self.later = asyncio.ensure_future(reply.release())

        return replace(reply, release=release)


class StreamsTwice(PassOn):
    async def __call__(self, exchange: Exchange, call_next: Handler) -> Reply:
        reply = await call_next(exchange)

        async def stream(emit: Emit) -> None:
            await reply.stream(lambda _chunk: None)
            await reply.stream(emit)

        return replace(reply, stream=stream)


class DropsPauses(PassOn):
    async def __call__(self, exchange: Exchange, call_next: Handler) -> Reply:
        reply = await call_next(exchange)

        async def stream(emit: Emit) -> None:
            def take(chunk: Chunk) -> Pause | None:
                emit(chunk)
                return None

            await reply.stream(take)

        return replace(reply, stream=stream)


class HidesLeaving(PassOn):
    async def __call__(self, exchange: Exchange, call_next: Handler) -> Reply:
        reply = await call_next(exchange)

        async def stream(emit: Emit) -> None:
            with contextlib.suppress(Exception):
                await reply.stream(emit)

        return replace(reply, stream=stream)


class SwallowsCancel(PassOn):
    async def __call__(self, exchange: Exchange, call_next: Handler) -> Reply:
        try:
            return await call_next(exchange)
        except asyncio.CancelledError:
            return await Alone()(exchange, call_next)


class SwallowsCancelInTheAnswer(PassOn):
    async def __call__(self, exchange: Exchange, call_next: Handler) -> Reply:
        reply = await call_next(exchange)

        async def stream(emit: Emit) -> None:
            with contextlib.suppress(asyncio.CancelledError):
                await reply.stream(emit)

        return replace(reply, stream=stream)


class Mixes(PassOn):
    async def __call__(self, exchange: Exchange, call_next: Handler) -> Reply:
        self.exchange = exchange
        await asyncio.sleep(0)
        return await call_next(replace(self.exchange, id=self.exchange.id))


@pytest.mark.parametrize(
    ("stage", "rule"),
    [
        (Alone, "passes the exchange on"),
        (Raises, "answers every request"),
        (ReturnsText, "returns a Reply"),
        (Renames, "passes the exchange on"),
        (Mutates, "does not change its exchange"),
        (NeverReleases, "releases the reply that it got"),
        (ReleasesLater, "releases the reply that it got"),
        (StreamsTwice, "streams a reply once"),
        (DropsPauses, "waits for a slow client"),
        (HidesLeaving, "ends with its client"),
        (SwallowsCancel, "ends when it is cancelled"),
        (SwallowsCancelInTheAnswer, "ends when it is cancelled"),
        (Mixes, "keeps requests apart"),
    ],
)
def test_broken_stage_rule_is_reported_with_place_and_fix(stage: type[PassOn], rule: str) -> None:
    """With the place, and what to do."""
    told = rf"at {re.escape(__file__)}:\d+, {stage.__name__} breaks the rule '{rule}': .+ To fix it: .+docs/plugins.md"
    with pytest.raises(ContractError, match=told):
        check_stage(plugin_of(stage))


def test_a_stage_that_keeps_the_rules_passes() -> None:
    """And is there for further tests; the host of the test is as it was."""
    host = FakeHost()
    assert isinstance(check_stage(plugin_of(PassOn), host=host, exchanges=[make_exchange("More?")]), PassOn)
    assert host.tools.n_asked == 0
