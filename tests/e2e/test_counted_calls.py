"""Whatever ends a call of a model that an upstream was sent: it counts once, in the usage and in the limits."""

import asyncio
import json
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
from gateways import until, until_read

from gateway.testing.local_gateway import LocalGateway
from gateway.testing.raw_connection import Peer
from gateway.testing.scripts import build_head
from gateway.testing.upstream import FakeUpstream

from .models import CUT, Answer, Json, Model, calls, native, refuses, says
from .talking import CHAT, World, desk, talking

COUNTS: Final = ("requests", "rejected", "cut", "estimated")
RESPONSES = "/context/v1/responses"
#: Two endpoints, or one that is asked twice, without a breaker that knows it.
TWICE: Final = {"retry": {"tries": 2, "budget": "100%"}, "breaker": {"failures": 0}}
LONG = "x" * 8000


@dataclass(frozen=True)
class Counted:
    """The usage so far, and the tokens of the minute."""

    counts: tuple[int, ...]
    tokens: tuple[int, int]
    used: int


def counting(*answers: Answer, **settings: Any) -> AbstractAsyncContextManager[World]:
    """A gateway with usage and a limit of tokens."""
    limits = {"tenants": {"local": {"tokens_per_minute": 10**9}}}
    return talking(*answers, usage={"enabled": True}, limits=limits, **settings)


async def counted(world: World) -> Counted:
    rows = (await world.get("/context/usage?by=lane")).json["data"]
    (limit,) = (await world.get("/context/limits")).json["data"]
    row: Json = next(iter(rows), dict.fromkeys((*COUNTS, "input", "output"), 0))
    return Counted(tuple(row[name] for name in COUNTS), (row["input"], row["output"]), limit["used"])


def asked_tokens(world: World, number: int = -1) -> int:
    """An estimate of the tokens of a request, as the upstream got it."""
    return ceil(len(world.model.upstream.requests[number].payload) / 4)


async def leave(world: World, path: str, body: Json) -> None:
    """Ask, and leave as soon as the model has the request."""
    before = len(world.model.asked)
    async with aiohttp.ClientSession(world.gateway.base_url) as session:
        asking = asyncio.create_task(session.post(path, json=body))
        await until(lambda: len(world.model.asked) > before)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, {"messages": [{"role": "user", "content": LONG}]}),
        (CHAT, {"messages": [{"role": "user", "content": LONG}], "stream": True}),
        (RESPONSES, {"input": LONG}),
        (RESPONSES, {"input": LONG, "stream": True}),
    ],
    ids=["chat", "chat stream", "response", "response stream"],
)
@pytest.mark.parametrize("loops", [True, False])
async def test_early_client_disconnect_is_charged_for_the_prompt(path: str, body: Json, loops: bool) -> None:
    never = says("Too late.", before=asyncio.Event())
    chains = {} if loops else {"chains": {"assistant": []}}
    async with counting(never, never, **chains) as world:
        for number in (1, 2):
            await leave(world, path, {"model": "m", **body})
            await until_read(lambda: counted(world), lambda found, n=number: found.counts[0] == n)  # type: ignore[misc]
        asked = asked_tokens(world, 0) + asked_tokens(world, 1)
        assert asked > 4000
        assert await counted(world) == Counted((2, 0, 2, 2), (asked, 0), asked)


async def test_client_disconnect_mid_answer_is_charged_for_streamed_output() -> None:
    async with counting(says("12345678", asyncio.Event())) as world:
        async with world.streaming() as stream:
            await stream.until_text("12345678")
        found = await until_read(lambda: counted(world), lambda found: found.counts[0] == 1)
        assert found == Counted((1, 0, 1, 1), (asked_tokens(world), 2), asked_tokens(world) + 2)


async def test_gateway_shutdown_stores_usage_of_unfinished_calls(tmp_path: Path) -> None:
    """The next one that opens the store has them."""
    settings: Json = {"store": f"sqlite:///{tmp_path / 'gateway.db'}"}
    async with counting(says("Too late.", before=asyncio.Event()), **settings) as world:
        asking = asyncio.create_task(world.chat(LONG))
        await until(lambda: len(world.model.asked) == 1)
        await world.gateway.gateway.close()
        await asyncio.gather(asking, return_exceptions=True)
        config = {**world.config, "upstreams": [{"name": "up", "base_url": world.model.upstream.base_url}]}
        async with LocalGateway(config) as gateway, aiohttp.ClientSession(gateway.base_url) as session:
            found = await counted(World(gateway, world.model, session, config))
        assert (found.counts, found.tokens) == ((1, 0, 1, 1), (asked_tokens(world), 0))


USAGE_SAID = json.dumps({"choices": [], "usage": {"prompt_tokens": 5000, "completion_tokens": 400}}).encode()


@pytest.mark.parametrize(
    ("broken", "tokens", "estimated"),
    [
        (says("some text", CUT), 3, True),
        (says({"reasoning_content": "a thought of it"}, CUT), 4, True),
        (says("some text", USAGE_SAID, CUT), 5400, False),
        (says(CUT), 0, True),
    ],
    ids=["text", "thought", "usage", "nothing"],
)
async def test_interrupted_try_is_counted_beside_its_retry(broken: Answer, tokens: int, estimated: bool) -> None:
    """With the tokens that its upstream said, or an estimate: it was paid for."""
    async with counting(broken, says("Fine."), upstream=TWICE) as world:
        assert (await world.chat()).text == "Fine."
        found = await counted(world)
        asked = asked_tokens(world, 0) if estimated else 0
        assert found.counts == (2, 0, 1, int(estimated))
        assert sum(found.tokens) == found.used == asked + tokens + 11 + 7


async def test_unanswered_try_is_counted_beside_its_retry() -> None:
    slow = {**TWICE, "timeouts": {"first_byte": "100ms"}}
    async with counting(says("Too late.", before=asyncio.Event()), says("Fine."), upstream=slow) as world:
        assert (await world.chat(LONG)).text == "Fine."
        asked = asked_tokens(world, 0)
        assert await counted(world) == Counted((2, 0, 1, 1), (asked + 11, 7), asked + 18)


async def test_call_with_a_failed_last_retry_counts_once_per_attempt() -> None:
    """With each of its tries, and no more for its error."""
    async with counting(says("12345678", CUT), says("1234", CUT), upstream=TWICE) as world:
        assert (await world.chat()).status == 502
        asked = asked_tokens(world, 0) + asked_tokens(world, 1)
        assert await counted(world) == Counted((2, 0, 2, 2), (asked, 3), asked + 3)


async def test_error_answer_counts_no_tokens() -> None:
    """Where another try follows, it is no request of its own; where none does, the call is rejected."""
    async with counting(refuses(503), says("Fine."), refuses(400), upstream=TWICE) as world:
        assert (await world.chat()).text == "Fine."
        assert await counted(world) == Counted((1, 0, 0, 0), (11, 7), 18)
        assert (await world.chat()).status == 400
        assert await counted(world) == Counted((2, 1, 0, 0), (11, 7), 18)


async def test_tries_are_counted_for_their_own_model_and_upstream() -> None:
    """Not for those that answer in their place."""
    limit = {"tokens_per_minute": 10**9}
    uses = [{"model": "big", "upstream": "own"}, {"model": "small", "upstream": "rented"}]
    async with Model(says("some text", CUT)) as own, Model(says("Fine.")) as rented:
        upstreams = [
            {"name": "own", "base_url": own.upstream.base_url, "limits": limit},
            {"name": "rented", "base_url": rented.upstream.base_url, "limits": limit, "paths": ["/rented/"]},
        ]
        settings = {"upstreams": upstreams, "models": {"fast": {"use": uses}}, "usage": {"enabled": True}}
        async with talking(**settings, limits={"models": {"big": limit, "small": limit}}) as world:
            assert (await world.chat(model="fast")).text == "Fine."
            rows = (await world.get("/context/usage?by=model,upstream")).json["data"]
            limits = (await world.get("/context/limits")).json["data"]
            broken = ceil(len(own.upstream.requests[0].payload) / 4) + 3
    assert {(row["model"], row["upstream"]): row["input"] + row["output"] for row in rows} == {
        ("big", "own"): broken,
        ("upstream-model", "rented"): 18,
    }
    used = {"big": broken, "small": 18, "own": broken, "rented": 18}
    assert {limit["name"]: limit["used"] for limit in limits} == used


CALL = ("find", {"query": "a" * 40})
TOOLS = [{"type": "function", "function": {"name": "find", "description": "d" * 4000, "parameters": {}}}]


@pytest.mark.parametrize(
    ("answer", "tokens"),
    [
        (says("中文字符"), 3),
        (says("a", "b"), 2),
        (says({"reasoning_content": "some words of thought "}, {"reasoning": "four"}, "42"), 5.5 + 1 + 1),
        (native(CALL), 1 + 2 * 26.5 / 4),
        (says({"refusal": "12345678"}), 2),
    ],
    ids=["bytes", "short", "thoughts", "calls", "refusal"],
)
async def test_usage_estimate_covers_all_output_kinds_and_request_tools(answer: Answer, tokens: float) -> None:
    """In bytes, as in passthrough: a token for each event at least, and the tools of the request."""
    async with counting(answer.but(usage=None), chains={"assistant": []}) as world:
        assert (await world.chat(tools=TOOLS)).status == 200
        assert asked_tokens(world) > 1000
        expected = (asked_tokens(world), ceil(tokens))
        assert await counted(world) == Counted((1, 0, 0, 1), expected, sum(expected))


async def test_truncated_single_object_answer_is_counted_by_bytes() -> None:
    """The half of it cannot be read."""
    half = b'{"choices": [{"message": {"content": "' + b"x" * 4000

    async def breaks_off(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(build_head(200, [("Content-Type", "application/json"), ("Content-Length", "9000")]) + half)

    async with FakeUpstream(breaks_off) as upstream:
        never = {"name": "up", "base_url": upstream.base_url, "quirks": ["no_stream"]}
        async with counting(upstreams=[never]) as world:
            assert (await world.chat()).status == 502
            expected = (ceil(len(upstream.requests[0].payload) / 4), ceil(len(half) / 4))
            assert await counted(world) == Counted((1, 0, 1, 1), expected, sum(expected))


async def test_each_round_of_a_run_counts(tmp_path: Path) -> None:
    """Also one that is broken off, in whose place the run calls its model again."""
    write = calls("file_operations", operation="write", path="new.txt", content="x")
    async with counting(write, says("Wri", CUT), says("Written."), tools=desk(tmp_path, write=True)) as world:
        await world.chat("Write.")
        found = await counted(world)
        assert found.counts[0] == len(world.model.asked)
        assert found.counts[2:] == (1, 1)
