"""Three gateways on one PostgreSQL, which are killed or stand still, as the server is: decided anywhere, done once.

`REPLICA_FAULTS` is the number of faults (12), `REPLICA_DECISIONS` that of questions which are decided at two gateways
at the same time (60). Every other gateway goes through PgBouncer.
"""

import asyncio
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import aiohttp
import asyncpg
import pytest
from gateways import until_read

from tests.postgres import PostgresServer, pooler, started_server
from tests.support.gateway_process import GatewayProcess

from .effects import Json, effects, settings, words
from .talk import APPROVAL, CHAT, asking

pytestmark = pytest.mark.crash

FAULTS: Final = int(os.environ.get("REPLICA_FAULTS", "12"))
DECISIONS: Final = int(os.environ.get("REPLICA_DECISIONS", "60"))
GATEWAYS, TALKS, AT_ONCE = 3, 4, 12
#: A run whose gateway is gone has another one within this time, once the store is there.
TAKEOVER_S: Final = 10.0
#: A client looks elsewhere after this time: a gateway that stands still answers nothing.
LOOK_S: Final = 1.0
#: The longest that a test waits for an answer, or for the end of a run.
WAIT_S: Final = 90.0
#: A gateway stands still for less than a lease, or for more.
STILL_S: Final = (1.0, 8.0)
ENDED: Final = frozenset(("completed", "rejected", "failed", "interrupted", "cancelled", "expired", "unknown"))
#: By the state of an approval at the end: the decision that led there, and how often the call was done.
DONE_BY: Final = {
    "rejected": ("reject", (0,)),
    "done": ("approve", (1,)),
    "failed": ("approve", (0, 1)),
    "unknown": ("approve", (0, 1)),
}


@dataclass(slots=True)
class Fleet:
    """The gateways, the server, and the clients' words to them."""

    folder: Path
    server: PostgresServer
    gateways: list[GatewayProcess]
    session: aiohttp.ClientSession
    chance: random.Random
    counts: Counter[str] = field(default_factory=Counter)
    slowest_s: float = 0.0
    #: While a fault lasts, nobody takes anything up.
    over_s: float = 0.0

    async def request(self, method: str, path: str, body: Json | None = None) -> tuple[int, Json]:
        """Send it to any gateway, again and again until one answers with less than 500."""
        async with asyncio.timeout(WAIT_S):
            while True:
                gateway = self.chance.choice(self.gateways)
                try:
                    timeout = aiohttp.ClientTimeout(total=LOOK_S if method == "GET" else 15)
                    url = gateway.base_url + path
                    async with self.session.request(method, url, json=body, timeout=timeout) as response:
                        answer: Json = await response.json()
                        if response.status < 500:
                            return response.status, answer
                except (aiohttp.ClientError, TimeoutError):
                    self.counts["requests sent again"] += 1
                await asyncio.sleep(0.1)

    async def ask(self, name: str) -> str:
        """Begin a run that asks for one call, and return the id of the approval."""
        status, answer = await self.request("POST", CHAT, asking(words(name, steps=1)))
        found = APPROVAL.search(answer["choices"][0]["message"]["content"]) if status == 200 else None
        assert found is not None, (status, answer)
        return found[0]

    async def decide(self, approval_id: str, decision: str) -> int:
        """Decide at any gateway; return the status of the answer."""
        status, approval = await self.request("GET", f"/context/approvals/{approval_id}")
        assert status == 200, approval
        body = {"decision": decision, "sha256": approval["sha256"]}
        return (await self.request("POST", f"/context/approvals/{approval_id}", body))[0]

    async def decide_at(self, gateway: GatewayProcess, approval: Json, decision: str) -> int:
        """Decide at this gateway; return the status of the answer."""
        body = {"decision": decision, "sha256": approval["sha256"]}
        url = f"{gateway.base_url}/context/approvals/{approval['id']}"
        async with self.session.post(url, json=body) as response:
            return response.status

    async def wait_for_end(self, approval_id: str) -> tuple[str, str]:
        """Return the states of an approval and of its run, which has ended."""
        path = f"/context/approvals/{approval_id}"
        _, approval = await self.request("GET", path)

        async def read_state() -> str:
            _, run = await self.request("GET", f"/context/runs/{approval['run_id']}")
            return str(run["state"])

        state = await until_read(read_state, ENDED.__contains__, timeout_s=WAIT_S)
        _, approval = await self.request("GET", path)
        return approval["state"], state

    async def kill_gateway(self) -> None:
        gateway = self.chance.choice(self.gateways)
        await gateway.kill()
        await asyncio.sleep(self.chance.random())
        await gateway.start()

    async def stop_gateway(self) -> None:
        gateway = self.chance.choice(self.gateways)
        gateway.signal(signal.SIGSTOP)
        await asyncio.sleep(self.chance.uniform(*STILL_S))
        gateway.signal(signal.SIGCONT)

    async def kill_server(self) -> None:
        await asyncio.to_thread(self.server.kill)
        await asyncio.sleep(self.chance.random())
        await asyncio.to_thread(self.server.start)

    async def cut_connections(self) -> None:
        connection = await asyncpg.connect(f"postgresql://owner@{self.server.place}")
        for _ in range(3):
            await connection.execute(
                """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                    WHERE pid <> pg_backend_pid() AND datname IS NOT NULL"""
            )
            await asyncio.sleep(0.2)
        await connection.close()

    def faults(self) -> list[Callable[[], Awaitable[None]]]:
        return [self.kill_gateway, self.stop_gateway, self.kill_server, self.cut_connections]

    async def disturb(self, fault: Callable[[], Awaitable[None]]) -> None:
        await asyncio.sleep(self.chance.random())
        await fault()
        self.over_s = time.monotonic()


@asynccontextmanager
async def fleet(folder: Path, chance: random.Random) -> AsyncIterator[Fleet]:
    async with AsyncExitStack() as stack:
        server = stack.enter_context(started_server())
        pooled = stack.enter_context(pooler(server.place))
        config = settings(folder, limits={"drain": "1s"}, logging={"level": "warning"})
        config["risk"]["assessors"]["ledger"]["with"]["asks"] = [1]
        gateways = []
        for number in range(GATEWAYS):
            place = pooled if number % 2 else server.place
            own = {**config, "store": f"postgresql://owner@{place}?pool=2"}
            gateways.append(await stack.enter_async_context(GatewayProcess(json.dumps(own))))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        yield Fleet(folder, server, gateways, session, chance)


async def test_faults_of_replicas_lose_repeat_and_invent_nothing(tmp_path: Path) -> None:
    """Each question is decided twice at once, anywhere, alike or not, while something fails."""
    chance = random.Random(20261130)
    async with fleet(tmp_path, chance) as made:
        for number in range(FAULTS):
            fault = made.faults()[number % 4]
            names = [f"{number}-{talk}" for talk in range(TALKS)]
            ids = await asyncio.gather(*map(made.ask, names))
            disturbing = asyncio.create_task(made.disturb(fault))
            wishes = [(chance.choice(("approve", "reject")), chance.choice(("approve", "reject"))) for _ in names]
            deciding = [made.decide(one, wish) for one, pair in zip(ids, wishes, strict=True) for wish in pair]
            statuses = await asyncio.gather(*deciding)
            decided_s = time.monotonic()
            ends = [asyncio.create_task(made.wait_for_end(one)) for one in ids]
            await disturbing
            await asyncio.wait(ends)
            made.slowest_s = max(made.slowest_s, time.monotonic() - max(decided_s, made.over_s))
            for name, pair, end in zip(names, wishes, ends, strict=True):
                state, run = end.result()
                made.counts[f"{fault.__name__}: {state}, {run}"] += 1
                done = len(effects(tmp_path, name))
                assert done <= 1, f"{name}: done {done} times"
                assert state in DONE_BY, (name, pair, state, run)
                assert DONE_BY[state][0] in pair and done in DONE_BY[state][1], (name, pair, state, run, done)
            made.counts.update(f"decision: {status}" for status in statuses)
        print(dict(made.counts), f"slowest {made.slowest_s:.1f} s")
        assert made.slowest_s <= TAKEOVER_S


async def test_decisions_at_two_gateways_at_once_hold_once(tmp_path: Path) -> None:
    """One of the two goes through PgBouncer. Where they differ, one is refused, and the call runs as the other says."""
    chance = random.Random(20261130)
    counts: Counter[object] = Counter()
    approved: Counter[str] = Counter()
    async with fleet(tmp_path, chance) as made:
        room = asyncio.Semaphore(AT_ONCE)

        async def decide_twice(number: int) -> None:
            async with room:
                name = f"twice-{number}"
                approval_id = await made.ask(name)
                _, approval = await made.request("GET", f"/context/approvals/{approval_id}")
                wishes = [chance.choice(("approve", "reject")) for _ in range(2)]
                statuses = await asyncio.gather(
                    *(
                        made.decide_at(gateway, approval, wish)
                        for gateway, wish in zip(chance.sample(made.gateways[:2], 2), wishes, strict=True)
                    )
                )
                accepted = {wish for wish, status in zip(wishes, statuses, strict=True) if status == 200}
                assert len(accepted) == 1 and sorted(statuses) == [200, 200 if len(set(wishes)) == 1 else 409]
                state, _ = await made.wait_for_end(approval_id)
                assert state == ("done" if accepted == {"approve"} else "rejected")
                approved.update([name] if state == "done" else [])
                counts[(*wishes, state)] += 1

        await asyncio.gather(*map(decide_twice, range(DECISIONS)))
    print(dict(counts))
    assert counts.total() == DECISIONS
    assert Counter(effect.run for effect in effects(tmp_path)) == approved
