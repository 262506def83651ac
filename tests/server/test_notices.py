"""Webhooks of a running worker: what of its configuration they follow."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.e2e.asking import GO, asks, ranch
from tests.e2e.talking import talking


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


async def test_links_follow_the_configuration(tmp_path: Path) -> None:
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
