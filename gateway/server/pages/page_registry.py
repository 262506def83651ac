"""The place of our own pages in a worker: it has chats from its start, and makes all others for their first request."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiohttp import web

from gateway.api.chat import ChatPages
from gateway.api.ops_pages import Route
from gateway.server.lazy_service import FirstUse, import_in_thread
from gateway.server.pages.needs import Leave, PageNeeds

if TYPE_CHECKING:
    from gateway.server.pages.api import ApiPages


class PagesEntry:
    """The way of a request to the gateway's pages. `services_apart`: pages of MCP services have a separate address."""

    def __init__(self, needs: PageNeeds, *, services_apart: bool) -> None:
        self._needs = needs
        self._services_apart = services_apart
        self._later = FirstUse(self._build_pages, end=lambda later: _leave_all(later.held_open))
        self._of_mcp_clients: Sequence[Route] = ()
        self._held_open: list[Leave] = []
        self._leaves = False

    def list_start_routes(self) -> Sequence[Route]:
        """Return the routes that a worker has from its start: the routes of chats."""
        return ChatPages(self._needs.build_requests()).list_routes()

    async def open_mcp_clients(self, closing: AsyncExitStack) -> None:
        """Add the pages of MCP clients, if they are served. `closing` ends their sessions. Raises ConfigError."""
        if self._needs.get_settings().mcp.serve is None:
            return
        # Imported here because most gateways serve no MCP clients.
        from gateway.server.pages.mcp_clients import build_mcp_clients

        self._of_mcp_clients, leave = await build_mcp_clients(self._needs, closing)
        self._held_open.append(leave)

    async def list_other_routes(self) -> web.UrlDispatcher:
        """Return the routes of all pages that a worker does not have from its start."""
        return (await self._later.get()).others

    async def list_service_routes(self) -> web.UrlDispatcher:
        """Return the routes of MCP services by themselves."""
        return (await self._later.get()).services

    async def _build_pages(self) -> "_Later":
        pages = (await import_in_thread(_import_api_pages))(self._needs, await self._needs.kept.get())
        services = pages.list_service_routes()
        # In one router with all others: a path of MCP clients may begin with theirs, as `/mcp/services` with `/mcp`.
        others = [*pages.list_routes(), *(() if self._services_apart else services), *self._of_mcp_clients]
        if self._leaves:  # who waits for these pages is answered at once
            await _leave_all(pages.held_open)
        return _Later(_build_router(others), _build_router(services), pages.held_open)

    def begin_shutdown(self) -> Sequence[Leave]:
        """Return what ends the answers that are held open, since the gateway stops. From now on none is held."""
        self._leaves = True
        later = self._later.part
        return [*self._held_open, *(() if later is None else later.held_open)]

    async def close(self) -> None:
        """Stop making pages. Idempotent."""
        await self._later.close()


@dataclass(frozen=True, slots=True)
class _Later:
    """The pages that are made for their first request, and what ends the answers that they hold open."""

    others: web.UrlDispatcher
    services: web.UrlDispatcher
    held_open: Sequence[Leave]


async def _leave_all(held_open: Sequence[Leave]) -> None:
    await asyncio.gather(*(leave() for leave in held_open))


def _build_router(routes: Sequence[Route]) -> web.UrlDispatcher:
    router = web.UrlDispatcher()
    for method, path, handler in routes:
        router.add_route(method, path, handler)
    return router


def _import_api_pages() -> "type[ApiPages]":
    # Imported here because these pages are a tenth of a gateway's code, and many gateways serve none of them.
    from gateway.server.pages.api import ApiPages

    return ApiPages
