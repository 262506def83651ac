"""Pages that talk over WebSockets, and clients of theirs."""

import asyncio
from typing import Any

from aiohttp import web
from gateways import until_still

from gateway.lanes.websocket import accept_websocket

LIVE = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Page:
    """A page that accepts and then does `talk`; it tells how that ended."""

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.begun = asyncio.Event()
        self.ended = asyncio.Event()
        self.how: BaseException | None = None
        self.moved = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        try:
            async with accept_websocket(request, **self.options) as talk:
                self.begun.set()
                await self.talk(talk)
        except BaseException as error:
            self.how = error
            raise
        finally:
            self.ended.set()
        return talk

    async def talk(self, talk: web.WebSocketResponse) -> None:
        async for _ in talk:
            self.moved += 1


class Deaf(Page):
    """Reads nothing before it is told to."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.told = asyncio.Event()

    async def talk(self, talk: web.WebSocketResponse) -> None:
        await self.told.wait()
        await super().talk(talk)


class Flood(Page):
    """Sends without end."""

    async def talk(self, talk: web.WebSocketResponse) -> None:
        while True:
            await talk.send_bytes(bytes(50_000))
            self.moved += 50_000


async def stands_still(page: Page) -> None:
    """Returns once nothing has moved for a while."""
    await until_still(lambda: page.moved)
