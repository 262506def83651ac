"""`kill -9` of a whole gateway under load: the usage of the last second is lost at most, and the next start says so."""

import asyncio
import json
import os
import random
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path

import pytest
from functional.several import CHAT
from functional.through import get, post
from gateways import all_workers, config, exchange, until

from gateway.testing.raw_connection import PEER_LEFT, connect
from gateway.testing.scripts import build_answer, serve
from gateway.testing.upstream import FakeUpstream
from gateway.usage.ledger import EVERY_S
from tests.support.gateway_process import GatewayProcess

pytestmark = pytest.mark.crash

ROUNDS, CLIENTS, WORKERS = 5, 8, 2
INPUT, OUTPUT = 30, 20
MESSAGE = {"role": "assistant", "content": "Hi."}
COMPLETION = {
    "object": "chat.completion",
    "model": "m",
    "choices": [{"index": 0, "finish_reason": "stop", "message": MESSAGE}],
    "usage": {"prompt_tokens": INPUT, "completion_tokens": OUTPUT, "total_tokens": INPUT + OUTPUT},
}
ANSWER = build_answer(200, json.dumps(COMPLETION).encode(), [("Content-Type", "application/json")])
LOST = "did not end in order"


class Load:
    """Clients of both lanes. `ended_s` is when each of their answers was whole; `lag_s`: how late this machine was."""

    def __init__(self, gateway: GatewayProcess) -> None:
        self.ended_s: list[float] = []
        self.lag_s = 0.0
        self._gateway = gateway
        self._numbers = count()

    @asynccontextmanager
    async def going_on(self) -> AsyncIterator[None]:
        """Ask until the gateway is gone."""
        clients = [asyncio.create_task(self._client(n % 2 == 0)) for n in range(CLIENTS)]
        watch = asyncio.create_task(self._watch())
        try:
            yield
            await asyncio.gather(*clients)
        finally:
            for task in (watch, *clients):
                task.cancel()

    async def _client(self, through: bool) -> None:
        path = CHAT if through else b"/context" + CHAT
        with suppress(*PEER_LEFT):
            async with connect(self._gateway.host, self._gateway.port) as peer:
                while True:
                    said = f"{random.random()} {next(self._numbers)}"  # no request is like another
                    asked = {"model": "m", "messages": [{"role": "user", "content": said}]}
                    request = post(json.dumps(asked).encode(), path).replace(b"gw.example", b"localhost")
                    assert (await exchange(peer, request)).status == 200
                    self.ended_s.append(time.monotonic())

    async def _watch(self) -> None:
        before = time.monotonic()
        while True:
            await asyncio.sleep(0.01)  # how late the loop wakes up is the figure
            now = time.monotonic()
            self.lag_s, before = max(self.lag_s, now - before), now


async def stored(gateway: GatewayProcess) -> tuple[int, int]:
    """The requests and the tokens of the usage."""
    async with connect(gateway.host, gateway.port) as peer:
        page = await exchange(peer, get(b"/context/usage?by=lane").replace(b"gw.example", b"localhost"))
    rows = json.loads(page.payload)["data"]
    return sum(row["requests"] for row in rows), sum(row["input"] + row["output"] for row in rows)


async def test_a_killed_gateway_loses_the_usage_of_a_second_at_most(tmp_path: Path) -> None:
    """Of all that its upstream saw, by what both lanes recorded; nothing is counted twice, and no token too many."""
    rng, losses = random.Random(17), []
    async with FakeUpstream(serve(ANSWER)) as upstream:
        store = f"sqlite:///{tmp_path / 'gateway.db'}"
        settings = config(
            upstream.base_url, usage={"enabled": True}, workers=WORKERS, store=store, chains={"assistant": []}
        )
        async with GatewayProcess(settings) as gateway:
            seen = recorded = told = 0
            for _ in range(ROUNDS):
                await all_workers(gateway)
                load = Load(gateway)
                async with load.going_on():
                    await asyncio.sleep(rng.uniform(1.2, 3.2))  # the moment is the case
                    killed_s = time.monotonic()
                    os.killpg(gateway.pid, signal.SIGKILL)
                    await gateway.wait()
                await gateway.start()
                requests, tokens = await stored(gateway)
                assert tokens == requests * (INPUT + OUTPUT)
                round_seen, round_recorded = len(upstream.requests) - seen, requests - recorded
                # A store is begun a second after the last one, on a machine that is as late as it was for this process.
                since_s = killed_s - EVERY_S - 2 * load.lag_s
                last = sum(ended_s >= since_s for ended_s in load.ended_s)
                lost = round_seen - round_recorded
                assert 0 <= lost <= last + CLIENTS, (lost, last, load.lag_s)
                losses.append((round_seen, lost, last))
                seen, recorded = len(upstream.requests), requests
                await until(lambda told=told: gateway.read_stderr().count(LOST) > told)  # type: ignore[misc]
                told = gateway.read_stderr().count(LOST)
    print("(requests, lost, of the last second) of each kill -9:", losses)
    assert any(lost for _, lost, _ in losses), "nothing was ever lost: the kills came too late"
