"""Gateways on one PostgreSQL change their configuration, and are replaced by a later version, under load.

That version has one step more in its schema: both live side by side until the last gateway is new. No request fails.
`ROLLING_GATEWAYS` is the number of gateways (2), `ROLLING_CLIENTS` that of clients (2). Every other gateway goes
through PgBouncer.
"""

import asyncio
import json
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import aiohttp
import asyncpg
import pytest
from crash.effects import ASKS, effects, settings
from crash.talk import CHAT, Stream
from gateways import until

from tests.plugins.stores.postgresql.next_schema import VERSION
from tests.postgres import pooler, postgres_server
from tests.support.gateway_process import GatewayProcess

pytestmark = pytest.mark.postgres

CLIENTS: Final = int(os.environ.get("ROLLING_CLIENTS", "2"))
GATEWAYS: Final = int(os.environ.get("ROLLING_GATEWAYS", "2"))
LANES: Final = [(path, stream) for path in ("/v1/chat/completions", CHAT) for stream in (False, True)]
#: A gateway whose program knows a schema that is one step longer.
LATER: Final = (sys.executable, "-m", "tests.plugins.stores.postgresql.next_schema")


HOLD: Final = {"X-Context-Approvals": "hold"}


def build_question(run: str) -> dict[str, object]:
    text = f'tool ledger {{"run": "{run}", "n": {ASKS}}}'
    return {"model": "demo", "messages": [{"role": "user", "content": text}], "stream": True}


@dataclass(slots=True)
class Rollout:
    """The gateways in service, and the clients, each of which goes on to the next gateway where one is refused."""

    folder: Path
    gateways: list[GatewayProcess]
    answers: Counter[object] = field(default_factory=Counter)
    decided: list[str] = field(default_factory=list)
    is_over: bool = False

    @asynccontextmanager
    async def session(self) -> AsyncIterator["Balancer"]:
        async with AsyncExitStack() as stack:
            sessions = [
                await stack.enter_async_context(aiohttp.ClientSession(gateway.base_url)) for gateway in self.gateways
            ]
            yield Balancer(sessions)

    async def chat(self) -> None:
        """Send chats of both lanes, whole and streamed, until it is over."""
        body = {"model": "demo", "messages": [{"role": "user", "content": "Say hello"}]}
        async with self.session() as balancer:
            while not self.is_over:
                for path, stream in LANES:
                    try:
                        response = await balancer.post(path, {**body, "stream": stream})
                        async with response:
                            text = await response.text()
                    except aiohttp.ClientError as error:
                        self.answers[repr(error)] += 1
                        continue
                    is_whole = text.rstrip().endswith("data: [DONE]" if stream else "}")
                    self.answers[response.status if is_whole else text] += 1

    async def approve(self, name: str) -> None:
        """Ask for calls in held streams, and approve each at any gateway, until it is over."""
        async with self.session() as balancer:
            number = 0
            while not self.is_over:
                number += 1
                run = f"{name}-{number}"
                stream = Stream(await balancer.post(CHAT, build_question(run), headers=HOLD))
                await self.decide(balancer, await stream.until_asked(), run)
                await stream.rest()  # with the result, or with the end of the turn if its gateway drains

    async def decide(self, balancer: "Balancer", approval_id: str, run: str) -> None:
        """Approve a call at any gateway, and return once it has run."""
        async with await balancer.post(f"/context/approvals/{approval_id}", {"decision": "approve"}) as decided:
            self.answers[decided.status] += 1
        await until(lambda: effects(self.folder, run))
        self.decided.append(run)

    async def hold_and_stop(self, gateway: GatewayProcess) -> None:
        """Stop a gateway with a held stream, which ends as a turn. The call is decided elsewhere then."""
        async with aiohttp.ClientSession(gateway.base_url) as session, self.session() as balancer:
            run = f"held-{gateway.port}"
            stream = Stream(await session.post(CHAT, json=build_question(run), headers=HOLD))
            approval_id = await stream.until_asked()
            stopping = asyncio.create_task(gateway.stop())
            assert (await stream.rest()).endswith("send one of the lines above.")
            await stopping
            await self.decide(balancer, approval_id, run)

    async def reach(self) -> None:
        """Return once each client has gone through all lanes again, and a person has decided one more call."""
        answers = self.answers.total() + CLIENTS * len(LANES)
        decided = len(self.decided) + 1
        await until(lambda: self.answers.total() >= answers and len(self.decided) >= decided)


class Balancer:
    """Sends each request to the next gateway, and to another one only where a connection is refused."""

    def __init__(self, sessions: list[aiohttp.ClientSession]) -> None:
        self._sessions = sessions
        self._turn = 0

    async def post(self, path: str, body: object, *, headers: dict[str, str] | None = None) -> aiohttp.ClientResponse:
        while True:
            self._turn += 1
            session = self._sessions[self._turn % len(self._sessions)]
            try:
                return await session.post(path, json=body, headers=headers)
            except aiohttp.ClientConnectorError:
                await asyncio.sleep(0)


async def test_upgrade_and_reload_under_load_fail_no_request(tmp_path: Path) -> None:
    """Nothing is answered with an error or cut, and each approved call runs once."""
    async with AsyncExitStack() as stack:
        place = stack.enter_context(postgres_server("SELECT 1"))
        pooled = stack.enter_context(pooler(place))
        config = settings(tmp_path)
        texts = [
            json.dumps({**config, "store": f"postgresql://owner@{pooled if number % 2 else place}?pool=2"})
            for number in range(GATEWAYS)
        ]
        gateways = [await stack.enter_async_context(GatewayProcess(text)) for text in texts]
        made = Rollout(tmp_path, gateways)
        async with asyncio.TaskGroup() as clients:
            for _ in range(CLIENTS):
                clients.create_task(made.chat())
            clients.create_task(made.approve("person"))
            await made.reach()
            for gateway, text in zip(gateways, texts, strict=True):
                await reload(gateway, {**json.loads(text), "approvals": {"expires": "1h"}})
            await made.reach()
            for gateway, text in zip(gateways, texts, strict=True):
                await made.hold_and_stop(gateway)
                await stack.enter_async_context(GatewayProcess(text, command=LATER, port=gateway.port))
                await made.reach()
            made.is_over = True
        print(made.answers, len(made.decided))
        assert made.answers.keys() == {200}, made.answers
        assert [line for gateway in gateways for line in gateway.read_stderr().splitlines() if '"error"' in line] == []
        assert Counter(effect.run for effect in effects(tmp_path)) == Counter(made.decided)
        connection = await asyncpg.connect(f"postgresql://owner@{place}")
        assert await connection.fetchval("SELECT max(version) FROM twolane.schema_versions") == VERSION
        await connection.close()


async def reload(gateway: GatewayProcess, config: dict[str, object]) -> None:
    """Give it another configuration, and return once it uses that."""
    reloads = len(re.findall("configuration reloaded", gateway.read_stderr()))
    (gateway.folder / "gateway.yaml").write_text(json.dumps(config))
    gateway.signal(signal.SIGHUP)
    await until(lambda: len(re.findall("configuration reloaded", gateway.read_stderr())) > reloads)
