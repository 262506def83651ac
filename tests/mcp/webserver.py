"""A real MCP server of the SDK over streamable HTTP, in the test's own loop, and the sessions that use it."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.mcp.server_facts import Channel, Config, OAuth, ServerEndpoint
from gateway.mcp.transport.http import HttpTransport
from tests.mcp.mcp_host import Clock, Stand


def tools() -> MCPServer:
    server = MCPServer("web")

    @server.tool()
    async def echo(text: str) -> str:
        return text

    @server.tool()
    async def work(steps: int, ctx: Context[Any, Any]) -> str:
        for step in range(steps):
            await asyncio.sleep(0.05)
            await ctx.report_progress(step, steps)
        return "done"

    @server.tool()
    async def grow(ctx: Context[Any, Any]) -> str:
        server.add_tool(echo, name="grown")
        await ctx.notify_tools_changed()
        await ctx.session.send_tool_list_changed()
        return "grown"

    return server


class _Uvicorn(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listens = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listens.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # signals are pytest's


class Site:
    """Where the server listens; `heads` are the headers of each request. It can go down and come back."""

    def __init__(self, app: Callable[[], ASGIApp]) -> None:
        self.heads: list[dict[str, str]] = []
        self.port = 0
        self._app = app
        self._uvicorn: _Uvicorn | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    async def up(self) -> None:
        app = self._app()

        async def heard(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http":
                self.heads.append({name.decode(): value.decode() for name, value in scope["headers"]})
            await app(scope, receive, send)

        config = uvicorn.Config(heard, port=self.port, log_config=None, timeout_graceful_shutdown=0)
        self._uvicorn = _Uvicorn(config)
        self._task = asyncio.create_task(self._uvicorn.serve())
        await self._uvicorn.listens.wait()
        self.port = self._uvicorn.servers[0].sockets[0].getsockname()[1]

    async def down(self) -> None:
        """At once, whatever is under way."""
        if self._uvicorn is not None and self._task is not None:
            self._uvicorn.should_exit = self._uvicorn.force_exit = True
            await self._task
            self._uvicorn = None

    def stands(self, *, oauth: OAuth | None = None, headers: dict[str, str] | None = None, **facts: Any) -> Stand:
        def make_channel(lost: Callable[[str], None]) -> Channel:
            endpoint = ServerEndpoint(url=self.url, headers=headers or {}, oauth=oauth)
            return HttpTransport(endpoint, lost=lost, clock=Clock())

        return Stand(Config(name="web", url="http://x.invalid", **facts), make_channel)


@asynccontextmanager
async def serving(**options: Any) -> AsyncIterator[Site]:
    site = Site(lambda: tools().streamable_http_app(**options))
    await site.up()
    try:
        yield site
    finally:
        await site.down()
