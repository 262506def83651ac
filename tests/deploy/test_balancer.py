"""Two gateways on PostgreSQL behind nginx, as in compose.yaml: each restarts under load, and no client notices."""

import asyncio
import json
import os
import shutil
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from crash.effects import ASKS, effects, settings
from crash.talk import approval_asked, post
from gateways import until

from gateway.testing.ports import free_port
from tests.postgres import postgres_server
from tests.support.gateway_process import GatewayProcess

from .files import DEPLOY

CONFIG = (DEPLOY / "nginx" / "nginx.conf").read_text()
PATHS = ("/v1/chat/completions", "/context/v1/chat/completions")
LANES = [(path, stream) for path in PATHS for stream in (False, True)]
CLIENTS = 8
#: Of each client, before the first restart and after the last one.
EACH = 5


def balanced(folder: Path, port: int, *gateways: GatewayProcess) -> str:
    """Return the shipped configuration, with addresses of this machine and without compose's resolver of names."""
    text = CONFIG.replace("/tmp/", f"{folder}/").replace("listen 8080;", f"listen 127.0.0.1:{port};")
    text = text.replace("    resolver 127.0.0.11 valid=5s ipv6=off;\n", "").replace(" resolve ", " ")
    for name, gateway in zip(("gateway-a", "gateway-b"), gateways, strict=True):
        text = text.replace(f"server {name}:8080", f"server {gateway.host}:{gateway.port}")
    # By default it leaves its terminal, and takes another user.
    return f"daemon off;\nuser root;\n{text}".replace("error_log stderr warn;", f"error_log {folder}/error.log warn;")


@asynccontextmanager
async def nginx(folder: Path, *gateways: GatewayProcess) -> AsyncIterator[str]:
    """Yield the URL of an nginx in front of these gateways (Debian: apt-get install nginx)."""
    program = shutil.which("nginx", path=f"{os.defpath}:/usr/sbin")
    assert program is not None, "no nginx here: apt-get install nginx"
    port, file = free_port(), folder / "nginx.conf"
    file.write_text(balanced(folder, port, *gateways))
    process = await asyncio.create_subprocess_exec(program, "-c", file, "-p", folder, "-e", folder / "error.log")
    try:
        await until((folder / "nginx.pid").exists)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        await process.wait()


class Load:
    """Clients that send chats of both lanes, streamed and whole, on kept connections, until they are stopped."""

    def __init__(self, url: str) -> None:
        self.answers = Counter[object]()
        self._url = url
        self._is_stopped = False

    async def send(self) -> None:
        async with aiohttp.ClientSession(self._url) as session:
            while not self._is_stopped:
                for path, stream in LANES:
                    self.answers[await self._ask(session, path, stream=stream)] += 1

    async def _ask(self, session: aiohttp.ClientSession, path: str, *, stream: bool) -> object:
        body = {"model": "demo", "stream": stream, "messages": [{"role": "user", "content": "Say hello"}]}
        try:
            async with session.post(path, json=body) as response:
                text = await response.text()
        except aiohttp.ClientError as error:
            return repr(error)
        is_whole = text.rstrip().endswith("data: [DONE]" if stream else "}")
        return response.status if is_whole else text

    def stop(self) -> None:
        self._is_stopped = True

    async def reach(self, number: int) -> None:
        """Return once so many further chats were answered."""
        wanted = self.answers.total() + number
        await until(lambda: self.answers.total() >= wanted)


@pytest.mark.deploy
async def test_clients_of_a_balancer_notice_no_rolling_restart(tmp_path: Path) -> None:
    """Each of two gateways drains and starts again in turn, while eight clients chat with the demo model.

    A question of before the restarts is decided after them, at either gateway, and its call runs once.
    """
    with postgres_server("SELECT 1") as place:
        config = json.dumps({**settings(tmp_path), "store": f"postgresql://owner@{place}"})
        async with (
            GatewayProcess(config) as a,
            GatewayProcess(config) as b,
            nginx(tmp_path, a, b) as url,
            aiohttp.ClientSession(url) as person,
        ):
            asked = await approval_asked(person, f'tool ledger {{"run": "q", "n": {ASKS}}}')
            load = Load(url)
            async with asyncio.TaskGroup() as clients:
                for _ in range(CLIENTS):
                    clients.create_task(load.send())
                await load.reach(CLIENTS * EACH)
                for gateway in (a, b):
                    await gateway.stop()
                    await load.reach(CLIENTS * EACH)
                    await gateway.start()
                    await load.reach(CLIENTS * EACH)
                load.stop()
            assert load.answers.keys() == {200}, load.answers
            assert effects(tmp_path) == []
            status, decided = await post(person, f"/context/approvals/{asked}", {"decision": "approve"})
            assert status == 200, decided
            await until(lambda: [effect.n for effect in effects(tmp_path)] == [ASKS])


def test_balancer_never_sends_a_post_again_that_a_gateway_may_have_read() -> None:
    """`non_idempotent` would; without it nginx sends a POST to the next gateway only if it has sent nothing yet."""
    assert "proxy_next_upstream error;" in CONFIG
    assert "non_idempotent;" not in CONFIG
