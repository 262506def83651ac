"""News for open pages: one connection to the events of a tenant serves all its open pages of a worker.

What an event shows is rendered once for each language, then written to every page that is open. The pages send no
request when something happens. A page that falls behind is ended: its browser comes back, and loads what it missed.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Final, NamedTuple

import aiohttp
import orjson
from aiohttp import HttpVersion11, web

from gateway.approvals.escaping import Language
from gateway.console.api_client import Api, ApiError
from gateway.console.request import Visit
from gateway.contracts.storage.store import Json

log = logging.getLogger("gateway")

#: A comment after so long a silence; then the session is looked at, too.
KEEPALIVE_S: Final = 10.0
#: The pause before the events are followed anew after they broke off.
PAUSE_S: Final = 1.0
#: A page that is so many news behind does not read.
WAITING_MOST: Final = 100
HEADERS: Final[Mapping[str, str]] = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store, no-transform",
    "X-Accel-Buffering": "no",
    "X-Content-Type-Options": "nosniff",
}


class PageView(NamedTuple):
    """The differences between open pages of a tenant: each view is rendered once."""

    language: Language
    decides: bool  # the reader may decide on approvals


#: Renders an event for pages of a view: frames (`format_sse_frame`), b"" if it shows nothing there.
Render = Callable[[Json, Api, PageView], Awaitable[bytes]]
#: Returns whether the session of a visit still holds.
IsValid = Callable[[Visit], Awaitable[bool]]


class OpenPage:
    """The news for one open page, in their order. An empty one ends the page. `api` is that of its reader."""

    def __init__(self, view: PageView, api: Api) -> None:
        self.view = view
        self.api = api
        self._waiting: deque[bytes] = deque()
        self._news = asyncio.Event()

    def add_news(self, frames: bytes) -> None:
        """Add news; too many that wait end the page."""
        if len(self._waiting) >= WAITING_MOST:
            self._waiting.clear()
            frames = b""
        self._waiting.append(frames)
        self._news.set()

    async def wait_for_news(self) -> bytes:
        """Wait for news, and return all that are here up to the end; b"" at the end."""
        while not self._waiting:
            self._news.clear()
            await self._news.wait()
        frames = [self._waiting.popleft()]
        while frames[0] and self._waiting and self._waiting[0]:
            frames.append(self._waiting.popleft())
        return b"".join(frames)


class TenantEvents:
    """The events of one tenant, for all its open pages. They are followed while a page is open."""

    def __init__(self, render: Render) -> None:
        self._render = render
        self._pages: set[OpenPage] = set()
        self._task: asyncio.Task[None] | None = None
        self._tried = asyncio.Event()

    @asynccontextmanager
    async def subscribe(self, page: OpenPage) -> AsyncIterator[None]:
        """Send the news to a page until the context ends. It begins once they arrive, so that none is missed."""
        self._pages.add(page)
        if self._task is None or self._task.done():
            self._tried.clear()
            self._task = asyncio.get_running_loop().create_task(self._follow_feed())
        try:
            await self._tried.wait()
            yield
        finally:
            self._pages.discard(page)
            if not self._pages and self._task is not None:
                self._task.cancel()
                self._task = None  # it ends in a later turn, and the next page may come before

    def end(self) -> None:
        """End all pages: their browsers come back."""
        for page in self._pages:
            page.add_news(b"")

    async def _follow_feed(self) -> None:
        while self._pages:
            api = next(iter(self._pages)).api  # of one that is open now: the key of an earlier one may be gone
            try:
                async with api.events() as socket:
                    self._tried.set()
                    async for message in socket:
                        if message.type is aiohttp.WSMsgType.TEXT:
                            await self._show(orjson.loads(message.data), api)
            except (ApiError, aiohttp.ClientError, OSError) as error:
                log.debug("the console follows the events anew: %s", error)
            except Exception:  # pages that get no news any more would look as if nothing happened
                log.exception("the console could not show an event, and follows the events anew")
            self._tried.set()
            self.end()  # a page that comes back has what happened meanwhile
            await asyncio.sleep(0)  # the tasks that wait above go on, and end
            self._tried.clear()
            await asyncio.sleep(PAUSE_S)

    async def _show(self, event: Json, api: Api) -> None:
        for view in {page.view for page in self._pages}:
            frames = await self._render(event, api, view)
            if frames:
                for page in self._pages:
                    if page.view == view:
                        page.add_news(frames)


class Live:
    """The open pages of one worker."""

    def __init__(self, render: Render, *, is_valid: IsValid, keepalive_s: float = KEEPALIVE_S) -> None:
        self._render = render
        self._is_valid = is_valid
        self._keepalive_s = keepalive_s
        self._following: dict[str, TenantEvents] = {}
        self._open: set[OpenPage] = set()
        self._closing = False

    async def stream_news(self, visit: Visit, first: Callable[[], Awaitable[bytes]]) -> web.StreamResponse:
        """Send news of the tenant until the page is left, or its session ends. It begins with the frames of `first`."""
        page = OpenPage(PageView(visit.language, visit.may("approve")), visit.api)
        following = self._following.setdefault(visit.caller.tenant, TenantEvents(self._render))
        self._open.add(page)
        try:
            async with following.subscribe(page):
                page.add_news(await first())
                return await self._write_frames(visit, page)
        finally:
            self._open.discard(page)

    async def relay_frames(self, visit: Visit, frames: AsyncIterator[bytes]) -> web.StreamResponse:
        """Send frames as they come, until they end, the page is left, or its session ends."""
        page = OpenPage(PageView(visit.language, visit.may("approve")), visit.api)
        self._open.add(page)
        relaying = asyncio.get_running_loop().create_task(_relay_frames(frames, page))
        try:
            return await self._write_frames(visit, page)
        finally:
            self._open.discard(page)
            relaying.cancel()

    async def _write_frames(self, visit: Visit, page: OpenPage) -> web.StreamResponse:
        if visit.request.method == "HEAD":  # it would wait for what is never sent
            return web.Response(headers=HEADERS)
        response = web.StreamResponse(headers=HEADERS)
        if visit.request.version >= HttpVersion11:
            response.enable_chunked_encoding()
        await response.prepare(visit.request)
        while not self._closing:
            frames = b": open\n\n"
            with suppress(TimeoutError):
                async with asyncio.timeout(self._keepalive_s):  # `wait_for` costs a task for each page and event
                    frames = await page.wait_for_news()
            if not frames or not await self._is_valid(visit):
                break
            await response.write(frames)
        await response.write_eof()
        return response

    async def close(self) -> None:
        """End all open pages. Idempotent."""
        self._closing = True
        for page in self._open:
            page.add_news(b"")


async def _relay_frames(frames: AsyncIterator[bytes], page: OpenPage) -> None:
    try:
        async for frame in frames:
            page.add_news(frame)
    except (ApiError, aiohttp.ClientError, OSError) as error:
        log.debug("an open page loads its news anew: %s", error)
    finally:
        page.add_news(b"")


def format_sse_frame(event: str, html: str) -> bytes:
    """Return an event of server-sent events with a text of any number of lines (HTML Standard, section 9.2.6)."""
    data = "".join(f"data: {line}\n" for line in html.splitlines() or [""])
    return f"event: {event}\n{data}\n".encode()
