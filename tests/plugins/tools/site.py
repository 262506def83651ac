"""Helpers for tests of the web tool: real servers on loopback, and a call of the tool."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from aiohttp import web
from pytest_aiohttp import AiohttpServer

from gateway.contracts.caller import Caller
from gateway.contracts.exchange import Exchange
from gateway.contracts.tools import ToolCall, ToolResult
from gateway.plugins.tools.http_request import Config, HttpRequest

EXCHANGE = Exchange(id="x", body={}, caller=Caller("ann", "acme", frozenset()), chain="assistant")
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@contextlib.asynccontextmanager
async def asking(tool: HttpRequest) -> AsyncIterator[Callable[..., Awaitable[ToolResult]]]:
    async def ask(url: str, *, harmless: bool = False, **arguments: Any) -> ToolResult:
        call = ToolCall(id="c", tool="http_request", arguments={"url": url, **arguments}, harmless=harmless)
        return await tool.call(call, EXCHANGE)

    try:
        yield ask
    finally:
        await tool.close()
        await tool.close()


async def ask(url: str, *, config: Config | None = None, **arguments: Any) -> ToolResult:
    async with asking(HttpRequest(config or Config(private_networks=True))) as asked:
        return await asked(url, **arguments)


class Site:
    """A server that answers with `answer` and remembers what it was asked."""

    def __init__(self, server: AiohttpServer) -> None:
        self._server = server
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []

    async def serve(self, answer: Answer) -> str:
        async def handle(request: web.Request) -> web.StreamResponse:
            self.requests.append((request.method, request.path_qs, dict(request.headers), await request.read()))
            return await answer(request)

        app = web.Application()
        app.router.add_route("*", "/{path:.*}", handle)
        return str((await self._server(app)).make_url("/")).rstrip("/")

    async def says(self, **response: Any) -> str:
        async def answer(request: web.Request) -> web.StreamResponse:
            return web.Response(**response)

        return await self.serve(answer)


@contextlib.asynccontextmanager
async def raw(answer: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]) -> AsyncIterator[str]:
    """A server that speaks bytes."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            await answer(reader, writer)
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
