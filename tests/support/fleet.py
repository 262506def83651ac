"""Three gateways on one store with limits that they share, an upstream that counts, and clients that want too much."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp
from gateways import config, key, until_read

from gateway.testing.messages import Request
from gateway.testing.raw_connection import Peer
from gateway.testing.scripts import build_ok_answer
from gateway.testing.upstream import FakeUpstream
from tests.support.gateway_process import GatewayProcess

KEY = "gw-shared-1"
LANES = {"passthrough": "/v1/chat/completions", "context": "/context/v1/chat/completions"}
GATEWAYS, AT_ONCE = 3, 8
TOKENS, ANSWER = 30, 8
BODY = {"model": "m", "max_tokens": ANSWER, "messages": [{"role": "user", "content": "x" * 18}]}
USAGE = {"prompt_tokens": TOKENS - ANSWER, "completion_tokens": ANSWER, "total_tokens": TOKENS}
MESSAGE = {"index": 0, "message": {"role": "assistant", "content": "fine"}, "finish_reason": "stop"}
FINE = build_ok_answer(json.dumps({"model": "m", "choices": [MESSAGE], "usage": USAGE}).encode())


class Fleet:
    """Gateways that share limits, and an upstream that counts what reaches it, now and at most."""

    def __init__(self, gateways: list[GatewayProcess], upstream: "CountingUpstream") -> None:
        self.gateways = gateways
        self.upstream = upstream

    async def overload(self, lane: str, count: int, *, shares: Sequence[int] = (1, 1, 1)) -> Counter[int]:
        """The statuses of so many requests, of which each gateway gets its part, a few at a time."""
        statuses: Counter[int] = Counter()
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, headers={"X-Gateway-Key": KEY}) as session:

            async def work(gateway: GatewayProcess, left: list[int]) -> None:
                while left[0] > 0:
                    left[0] -= 1
                    try:
                        async with session.post(gateway.base_url + LANES[lane], json=BODY) as response:
                            await response.read()
                            statuses[response.status] += 1
                    except aiohttp.ClientError:
                        statuses[0] += 1

            working = []
            for gateway, share in zip(self.gateways, shares, strict=True):
                left = [count * share // sum(shares)]
                working += [work(gateway, left) for _ in range(AT_ONCE)]
            await asyncio.gather(*working)
        return statuses

    async def exhaust(self, lane: str, count: int, *, shares: Sequence[int] = (1, 1, 1)) -> Counter[int]:
        """Ask for ten times as many as a limit allows, and for more until nearly all of it is given."""
        statuses = await self.overload(lane, 10 * count, shares=shares)
        await until_read(lambda: self.overload(lane, count), lambda _: self.upstream.count >= 0.98 * count)
        return statuses


class CountingUpstream:
    """A script of an upstream that counts. `may_answer`: whether it answers now."""

    def __init__(self) -> None:
        self.count = self.now = self.most = 0
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def script(self, peer: Peer) -> None:
        while True:
            request: Request = await peer.read_request(timeout_s=None)
            del request
            self.count += 1
            self.now += 1
            self.most = max(self.most, self.now)
            await self.may_answer.wait()
            self.now -= 1
            await peer.send(FINE)


@asynccontextmanager
async def fleet(
    folder: Path, *, workers: int = 1, store: str | None = None, valkey: str | None = None, **limits: float
) -> AsyncIterator[Fleet]:
    """`store`: one in which gateways share limits by themselves; else it is a file, where they are told to.

    `valkey`: the server in which they share limits in its place.
    """
    counting = CountingUpstream()
    prices = folder / "prices.yaml"
    prices.write_text("currency: USD\nprices: [{model: '*', input: 1, output: 1}]")
    sharing = {"valkey": valkey} if valkey is not None else {"shared": True} if store is None else {}
    async with AsyncExitStack() as stack:
        upstream = await stack.enter_async_context(FakeUpstream(counting.script))
        text = config(
            upstream.base_url + "/v1",
            upstream={"api_key": "sk-own"},
            keys=[{**key(KEY, "passthrough", "context"), "limits": limits}],
            usage={"enabled": True, "prices": str(prices)},
            limits=sharing,
            store=store or f"sqlite:///{folder / 'gateway.db'}",
            workers=workers,
        )
        started = [await stack.enter_async_context(GatewayProcess(text)) for _ in range(GATEWAYS)]
        yield Fleet(started, counting)
