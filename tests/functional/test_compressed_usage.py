"""Usage of compressed answers that grow a lot: exact, and no other client waits while they are decoded."""

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import pytest
from functional.through import HOSTS, NO_WORKFLOWS, ask, client_of, get, post, through
from gateways import exchange, key, until_read
from usage.packing import TOLD, Packed, packed_chat

from gateway.features.usage.service import UsageService
from gateway.testing.local_gateway import LocalGateway
from gateway.testing.messages import Request
from gateway.testing.scripts import build_answer, build_chunk, build_head, serve
from gateway.testing.upstream import FakeUpstream
from gateway.usage.decompression import LATE_OF_ONE_BYTES

PATH = b"/v1/chat/completions"
SMALL, LONG = post(b'{"n":"small"}', PATH), post(b'{"n":"long"}', PATH)
GZIP = [("Content-Type", "application/json"), ("Content-Encoding", "gzip")]
PLAIN = build_answer(200, json.dumps({"model": "small", "usage": {"prompt_tokens": 1}}).encode())
#: The bytes of a chunk: those that pass one after the other, and those of which many come at once.
CHUNKS = {"chunks": 9000, "many chunks": 150}
NOISE = bytes(random.Random(3).choices(b"abcdefgh", k=400))
MODEL = "gpt-4.1-2025-04-14"


def growing(times: int, megabytes: float) -> Packed:
    """An answer that grows so many times to so many megabytes."""
    block = NOISE + b"a" * (200 * times)
    return packed_chat(block, int(megabytes * (1 << 20)) // len(block))


def says(long: Packed, *, framing: str = "length") -> Any:
    """An upstream with such an answer, and a small one."""
    whole = build_answer(200, long.body, GZIP)
    if framing in CHUNKS:
        size = CHUNKS[framing]
        parts = [long.body[start : start + size] for start in range(0, len(long.body), size)]
        whole = (
            build_head(200, [*GZIP, ("Transfer-Encoding", "chunked")])
            + b"".join(map(build_chunk, parts))
            + b"0\r\n\r\n"
        )
    elif framing == "close":
        whole = build_head(200, [*GZIP, ("Connection", "close")]) + long.body

    def said(request: Request) -> bytes:
        return whole if b"long" in request.payload else PLAIN

    return serve(said)


async def rows(gateway: LocalGateway, by: str = "model") -> dict[str, tuple[int, ...]]:
    told = await ask(gateway, get(b"/context/usage?by=" + by.encode()))
    facts = ("requests", "input", "output", "estimated", "cut")
    return {row[by]: tuple(row[fact] for fact in facts) for row in json.loads(told.payload)["data"]}


def told(requests: int) -> tuple[int, ...]:
    return (requests, requests * TOLD["prompt_tokens"], requests * TOLD["completion_tokens"], 0, 0)


@pytest.mark.parametrize("framing", ["length", "chunks", "close"])
@pytest.mark.parametrize(("times", "megabytes"), [(5, 5.0), (20, 20.0), (70, 40.0)])
async def test_usage_of_a_compressed_answer_is_exact(times: int, megabytes: float, framing: str) -> None:
    """As long answers of models compress, and more: however they come, the client gets them as they are."""
    long = growing(times, megabytes)
    async with through(says(long, framing=framing), usage={"enabled": True}) as (gateway, _):
        assert (await ask(gateway, LONG)).payload == long.body
        await until_read(lambda: rows(gateway), lambda found: found.get(MODEL) == told(1))


@pytest.mark.parametrize("count", [1, 4, 20])
async def test_other_requests_are_answered_while_usage_is_decoded(count: int) -> None:
    """Turn by turn of the event loop: their answers come between the steps of decoding."""
    long = growing(70, 80.0 / count)
    async with through(says(long), usage={"enabled": True}) as (gateway, _), client_of(gateway) as other:
        undecoded = gateway.gateway._shared.features.find(UsageService).batch.undecoded
        asked = [asyncio.create_task(ask(gateway, LONG)) for _ in range(count)]
        answered = 0
        while not (all(one.done() for one in asked) and undecoded.size == 0):
            assert (await exchange(other, SMALL)).status == 200
            answered += 1
        assert [one.result().payload == long.body for one in asked] == [True] * count
        assert answered > 20  # of 300 turns
        await until_read(lambda: rows(gateway), lambda found: found.get(MODEL) == told(count))


@pytest.mark.parametrize("framing", ["length", *CHUNKS])
async def test_undecoded_answer_bytes_are_bounded(framing: str) -> None:
    """Of an answer that waits: its upstream does, too. Nothing is left out."""
    long = growing(20, 200.0)
    assert len(long.body) > 2 * LATE_OF_ONE_BYTES
    async with through(says(long, framing=framing), usage={"enabled": True}) as (gateway, _):
        undecoded = gateway.gateway._shared.features.find(UsageService).batch.undecoded
        asked, most = asyncio.create_task(ask(gateway, LONG)), 0
        while not asked.done():
            await asyncio.sleep(0)
            most = max(most, undecoded.size)
        assert asked.result().payload == long.body
        assert LATE_OF_ONE_BYTES < most < LATE_OF_ONE_BYTES + (1 << 20)
        await until_read(lambda: rows(gateway), lambda found: found.get(MODEL) == told(1))


async def test_concurrency_place_is_released_when_the_answer_is_delivered() -> None:
    """Its tokens are settled when they are known."""
    long = growing(70, 40.0)
    keys = [{**key("sk-a", "passthrough", "context"), "limits": {"concurrent": 1, "tokens_per_minute": 100_000}}]
    ours = b"X-Gateway-Key: sk-a"
    async with through(says(long), keys=keys, usage={"enabled": True}) as (gateway, _):

        async def used() -> list[int]:
            told = await ask(gateway, get(b"/context/limits", ours))
            return [one["used"] for one in json.loads(told.payload)["data"]]

        for _ in range(3):  # one at a time is admitted
            assert (await ask(gateway, post(b'{"n":"long"}', PATH, ours))).status == 200
        await until_read(used, lambda found: sorted(found) == [0, 3 * sum(TOLD.values())])


async def test_undecoded_usage_is_counted_at_an_orderly_end(tmp_path: Path) -> None:
    long = growing(70, 40.0)
    async with FakeUpstream(says(long)) as upstream:
        settings = {
            "upstreams": [{"name": "up", "base_url": upstream.base_url}],
            "allowed_hosts": HOSTS,
            "workflows": NO_WORKFLOWS,
            "usage": {"enabled": True},
            "store": f"sqlite:///{tmp_path / 'gateway.db'}",
        }
        async with LocalGateway(settings) as gateway:
            assert (await ask(gateway, LONG)).payload == long.body
            assert gateway.gateway._shared.features.find(UsageService).batch.undecoded.size
        async with LocalGateway(settings) as gateway:
            assert await rows(gateway) == {MODEL: told(1)}


async def test_usage_of_a_cut_answer_survives_a_client_disconnect() -> None:
    """The rest of a cut answer is decoded, and estimated."""
    long = growing(8, 120.0)
    async with through(says(long), usage={"enabled": True}) as (gateway, _):
        async with client_of(gateway) as client:
            await client.send(LONG)
            await client.read_head()
        await until_read(lambda: rows(gateway), lambda found: [row[3:] for row in found.values()] == [(1, 1)])
