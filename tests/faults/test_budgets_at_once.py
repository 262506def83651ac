"""A budget of ten requests, and a hundred at once: no more than it has room for are sent.

In one gateway all workers count together. Gateways on one store leave each other their parts.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from gateways import config, key, until

from gateway.testing.messages import Request
from gateway.testing.raw_connection import Peer
from gateway.testing.scripts import build_event, build_event_stream_answer, build_ok_answer
from gateway.testing.upstream import FakeUpstream
from tests.support.gateway_process import GatewayProcess

KEY = "gw-budget-1"
LANES = {"passthrough": "/v1/chat/completions", "context": "/context/v1/chat/completions"}
AT_ONCE, MEANT = 100, 10
#: What each request uses, and says that it may use: 22 tokens of its own, and 8 of its answer.
TOKENS, ANSWER = 30, 8
BODY = {"model": "m", "max_tokens": ANSWER, "messages": [{"role": "user", "content": "x" * 18}]}
BUDGETS = {
    "tokens_per_day": MEANT * TOKENS,
    "tokens_per_month": MEANT * TOKENS,
    "cost_per_day": MEANT * TOKENS / 1e6,
    "cost_per_month": MEANT * TOKENS / 1e6,
}


def answered(request: Request) -> bytes:
    """An answer that used so many tokens, as it was asked for."""
    usage = {"prompt_tokens": TOKENS - ANSWER, "completion_tokens": ANSWER, "total_tokens": TOKENS}
    if json.loads(request.payload).get("stream"):
        word = {"choices": [{"index": 0, "delta": {"content": "fine"}, "finish_reason": "stop"}], "model": "m"}
        told = {"choices": [], "model": "m", "usage": usage}
        return build_event_stream_answer(
            [build_event(json.dumps(word)), build_event(json.dumps(told)), build_event("[DONE]")]
        )
    message = {"index": 0, "message": {"role": "assistant", "content": "fine"}, "finish_reason": "stop"}
    return build_ok_answer(json.dumps({"model": "m", "choices": [message], "usage": usage}).encode())


class Crowd:
    """Gateways with a budget, an upstream that answers when it may, and all clients."""

    def __init__(self, gateways: list[GatewayProcess], upstream: FakeUpstream, may_answer: asyncio.Event) -> None:
        self.gateways = gateways
        self.upstream = upstream
        self.may_answer = may_answer

    async def ask(self, lane: str, count: int) -> list[int]:
        """The statuses of so many requests at once. The upstream answers when each was refused or has reached it."""
        before = len(self.upstream.requests)
        self.may_answer.clear()
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        async with aiohttp.ClientSession(connector=connector, headers={"X-Gateway-Key": KEY}) as session:

            async def one(number: int) -> int:
                gateway = self.gateways[number % len(self.gateways)]
                async with session.post(gateway.base_url + LANES[lane], json=BODY) as response:
                    await response.read()
                    return response.status

            asking = [asyncio.create_task(one(number)) for number in range(count)]
            await until(lambda: sum(task.done() for task in asking) + len(self.upstream.requests) - before >= count)
            self.may_answer.set()
            return await asyncio.gather(*asking)


@asynccontextmanager
async def crowd(folder: Path, budget: str, *, workers: int, gateways: int) -> AsyncIterator[Crowd]:
    may_answer = asyncio.Event()

    async def script(peer: Peer) -> None:
        while True:
            request = await peer.read_request(timeout_s=None)
            await may_answer.wait()
            await peer.send(answered(request))

    prices = folder / "prices.yaml"
    prices.write_text("currency: USD\nprices: [{model: '*', input: 1, output: 1}]")
    async with AsyncExitStack() as stack:
        upstream = await stack.enter_async_context(FakeUpstream(script))
        text = config(
            upstream.base_url + "/v1",
            upstream={"api_key": "sk-own"},
            keys=[{**key(KEY, "passthrough", "context"), "limits": {budget: BUDGETS[budget]}}],
            usage={"enabled": True, "prices": str(prices)},
            store=f"sqlite:///{folder / 'gateway.db'}",
            workers=workers,
        )
        started = [await stack.enter_async_context(GatewayProcess(text)) for _ in range(gateways)]
        if gateways > 1:
            await until(lambda: all(f"{gateways} gateways with limits" in one.read_stderr() for one in started))
        yield Crowd(started, upstream, may_answer)


@pytest.mark.parametrize(
    ("budget", "lane", "workers", "gateways"),
    [
        ("tokens_per_day", "passthrough", 2, 1),
        ("cost_per_month", "context", 2, 1),
        ("cost_per_day", "passthrough", 1, 2),
        ("tokens_per_month", "context", 1, 2),
    ],
)
async def test_no_more_than_the_budget_is_sent(
    budget: str, lane: str, workers: int, gateways: int, tmp_path: Path
) -> None:
    """Of a hundred at once, and of those that come while the first ones are not stored yet."""
    async with crowd(tmp_path, budget, workers=workers, gateways=gateways) as made:
        statuses = await made.ask(lane, AT_ONCE)
        assert MEANT - 1 <= statuses.count(200) <= MEANT + 1 and statuses.count(429) == AT_ONCE - statuses.count(200)
        again = await made.ask(lane, AT_ONCE)
        assert statuses.count(200) + again.count(200) <= MEANT + 1
        assert len(made.upstream.requests) == statuses.count(200) + again.count(200)
