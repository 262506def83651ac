"""The head of a stream waits for the upstream's status: an error that comes at once keeps its own."""

import asyncio
import json
from pathlib import Path

import pytest
from measuring import LoopTime
from unanswered_ports import refusing_port

from .models import Answer, Json, calls, refuses, says
from .talking import desk, talking

READ = calls("file_operations", operation="read", path="notes.txt")
SOON: Json = {"stream": {"status_wait": "50ms", "keepalive": "20ms"}}
UNLOOPED: Json = {"response_format": {"type": "json_object"}}


def limited(retry_after: str) -> Answer:
    return refuses(429, "slow down").but(headers=(("Retry-After", retry_after),))


@pytest.mark.parametrize("further", [{}, UNLOOPED, {"headers": {"X-Context-Events": "1"}}])
async def test_early_rate_limit_response_contains_retry_after(further: Json) -> None:
    """In the header that SDKs read; also where progress was asked for, which is no answer yet."""
    async with talking(limited("7"), says("Hi."), says("Hi.")) as world:
        refused = await world.chat(stream=True, **further)
        assert (refused.status, refused.headers["Retry-After"]) == (429, "7")
        assert "x-should-retry" not in refused.headers
        further = {**further, "headers": {**further.get("headers", {}), "x-stainless-retry-count": "1"}}
        assert (await world.stream(**further)).text == "Hi."  # the same request again begins anew


async def test_unreachable_upstream_of_a_stream_is_answered_with_502() -> None:
    """502, which SDKs send again."""
    with refusing_port() as port:
        async with talking(upstream={"base_url": f"http://127.0.0.1:{port}/v1"}) as world:
            answer = await world.chat(stream=True)
            assert (answer.status, answer.error["code"]) == (502, "upstream_error")


@pytest.mark.parametrize("stream", [False, True])
async def test_unresolvable_upstream_host_returns_502_without_its_name(stream: bool) -> None:
    """502, which says so, and not where the upstream is; 504 where the resolver itself does not answer."""
    entry = {"base_url": "http://no-such-host.invalid/v1", "timeouts": {"connect": "2s"}}
    async with talking(upstream=entry) as world:
        answer = await world.chat(stream=stream)
        assert (answer.status, answer.error["code"]) in ((502, "upstream_error"), (504, "upstream_timeout"))
        assert answer.status == 504 or "its name cannot be resolved" in answer.error["message"]
        assert "no-such-host" not in answer.error["message"]


async def test_stream_head_is_sent_with_the_upstream_status() -> None:
    """Not only with the first word, which a model may think about for long."""
    gate = asyncio.Event()
    async with talking(says(gate, "Hi.")) as world, world.streaming() as stream:
        (choice,) = (await stream.frame())["choices"]
        assert choice == {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
        gate.set()
        assert (await stream.rest()).text == "Hi."


@pytest.mark.parametrize("further", [{}, UNLOOPED])
async def test_stream_head_is_sent_after_the_maximum_wait(further: Json) -> None:
    """Then it goes out, and is kept alive; an error after that is told in the stream."""
    gate = asyncio.Event()
    refused = refuses(500, "the reason").but(before=gate)
    async with talking(refused, context=SOON) as world, world.streaming(**further) as stream:
        assert stream.response.status == 200
        for _ in range(3):
            assert (await stream.frame())["choices"][0]["finish_reason"] is None
        gate.set()
        await stream.rest()
        assert stream.finishes == [] and b"[DONE]" not in stream.events
        assert json.loads(stream.events[-1])["error"]["code"] == "upstream_error"


async def test_client_disconnect_before_the_status_closes_the_upstream_connection() -> None:
    """The model's connection is closed, as it is later on."""
    async with talking(says("Hi.", before=asyncio.Event())) as world:
        asking = asyncio.create_task(world.stream())
        await world.model.upstream.wait_requests(1)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        left = LoopTime()
        await world.model.upstream.wait_open(0)
        left.within(0.1)


async def test_error_of_a_later_round_is_sent_in_the_stream(tmp_path: Path) -> None:
    """A tool has run: the status is out, and no client may try again by itself."""
    async with talking(READ, refuses(400, "too long"), tools=desk(tmp_path)) as world, world.streaming() as stream:
        assert stream.response.status == 200
        await stream.rest()
        assert json.loads(stream.events[-1])["error"]["code"] == "upstream_rejected"


async def test_gateway_reply_without_a_model_keeps_its_own_status() -> None:
    """What the gateway itself answers is an answer."""
    async with talking() as world:
        workflow = await world.chat("approve ap_" + "a" * 26, stream=True)
        assert workflow.status == 404
