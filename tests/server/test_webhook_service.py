"""Webhooks of a running worker: what of its configuration they follow."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from functional.through import post
from gateways import config, exchange, until_read

from gateway.testing import processes
from gateway.testing.raw_connection import connect
from tests.e2e.asking import GO, asks, ranch
from tests.e2e.models import Model
from tests.e2e.talking import talking
from tests.support.gateway_process import GatewayProcess


@asynccontextmanager
async def receiving() -> AsyncIterator[tuple[str, "asyncio.Queue[dict[str, object]]"]]:
    """A receiver of webhooks: its URL, and what it gets."""
    heard: asyncio.Queue[dict[str, object]] = asyncio.Queue()

    async def hear(request: web.Request) -> web.Response:
        heard.put_nowait((await request.json())["data"])
        return web.Response(status=204)

    app = web.Application()
    app.router.add_post("/hook", hear)
    async with TestServer(app) as server:
        yield str(server.make_url("/hook")), heard


async def test_webhook_links_follow_the_console_configuration(tmp_path: Path) -> None:
    """A pending approval is reported again when its link changes: its receiver gets the one that leads somewhere."""
    async with (
        receiving() as (url, heard),
        talking(asks(), tools=ranch(tmp_path), approvals={"notify": [{"webhook": url}]}) as world,
    ):
        asked = (await world.chat(GO)).asks[0]["id"]
        links = [(await heard.get())["link"]]
        for console in ({"url": "https://gw.example/"}, {"url": "https://gw.example", "enabled": False}):
            await world.reload(console=console)
            links.append((await heard.get())["link"])
        assert links == [None, f"https://gw.example/console/approvals/{asked}", None]
        await world.reload(limits={"drain": "1s"})
        assert heard.empty()


@pytest.mark.parametrize("stopped", [0, 1])
async def test_stopped_worker_does_not_block_webhook_notices(tmp_path: Path, stopped: int) -> None:
    """Whichever of them had the duty to send them: the other one takes over."""
    async with receiving() as (url, heard), Model(*[asks()] * 2) as model:
        settings = config(
            model.upstream.base_url,
            workers=2,
            tools=ranch(tmp_path),
            store=f"sqlite:///{tmp_path}/gateway.db",
            approvals={"notify": [{"webhook": url}]},
        )
        async with GatewayProcess(settings) as gateway:
            workers = sorted(one.pid for one in processes.list_processes().values() if one.parent == gateway.pid)
            os.kill(workers[stopped], signal.SIGSTOP)
            try:
                asked = await until_read(lambda: question(gateway))
                assert (await heard.get())["id"] == asked
            finally:
                os.kill(workers[stopped], signal.SIGCONT)


async def question(gateway: GatewayProcess) -> str | None:
    """The approval that a call asks for, or None: the kernel gave the connection to the worker that stands still."""
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": GO}]}).encode()
    request = post(body, b"/context/v1/chat/completions").replace(b"gw.example", b"localhost")
    try:
        async with connect(gateway.host, gateway.port) as client:
            answer = await exchange(client, request, timeout_s=2.0)
    except TimeoutError:
        return None
    found: str = json.loads(answer.payload)["context"]["approvals"][0]["id"]
    return found
