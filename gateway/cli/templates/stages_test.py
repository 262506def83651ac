"""The stage `NAME`: what it adds to a request."""

import asyncio
from pathlib import Path

from gateway.plugin import Caller, Emit, Exchange, Json, Reply, Stage
from gateway.registry.find import build_plugin

HOME = Path(__file__).parents[3] / "FOLDER"


async def silence(emit: Emit) -> None:
    """Write nothing: this test does not read the answer."""


async def nothing_to_release() -> None:
    """Release nothing: the reply of a test has no connection."""


def test_the_note_comes_last() -> None:
    """Behind the notes of stages above it; the reply of the next stage is the answer."""
    reply = Reply(silence, nothing_to_release)
    seen: list[Exchange] = []

    async def call_next(exchange: Exchange) -> Reply:
        seen.append(exchange)
        return reply

    caller = Caller("tester", "local", frozenset({"context"}))
    body: Json = {"messages": [{"role": "user", "content": "Hello?"}]}
    exchange = Exchange(id="run_1", body=body, caller=caller, chain="assistant", notes=("first",))

    async def call(stage: Stage) -> Reply:
        return await stage(exchange, call_next)

    config = {"note": "second"}
    stage: Stage = build_plugin("stages", "NAME", config, None, folder=HOME)
    assert asyncio.run(call(stage)) is reply
    assert (seen[0].notes, seen[0].body) == (("first", "second"), body)
