"""Sessions with a web server of a test, and a server of the older era for them."""

from collections.abc import Callable, Mapping

from aiohttp import web
from pytest_aiohttp import AiohttpServer

from gateway.mcp.server_facts import Channel, Config, OAuth, ServerEndpoint
from gateway.mcp.transport.http import HttpTransport
from tests.mcp.mcp_host import Clock, Stand


def stands_at(
    url: str,
    *,
    oauth: OAuth | None = None,
    headers: Mapping[str, str] | None = None,
    timeout: float = 30.0,
    **settings: float,
) -> Stand:
    """Return a session with the server at this address."""

    def make_channel(lost: Callable[[str], None]) -> Channel:
        endpoint = ServerEndpoint(url=url, oauth=oauth, headers=headers or {})
        return HttpTransport(endpoint, lost=lost, clock=Clock(), **settings)

    return Stand(Config(name="web", url="http://x.invalid", start_timeout=12.0, timeout=timeout), make_channel)


class Elsewhere:
    """A server of the older era whose address leads to another path; calls lead further still if `calls` is set."""

    def __init__(self, *, calls: bool = False, to: str = "/mcp/") -> None:
        self.seen: list[tuple[str, str]] = []
        self._calls, self._to = calls, to

    async def answer(self, request: web.Request) -> web.StreamResponse:
        message = await request.json() if request.method == "POST" else {"method": request.method}
        method = message.get("method", "answer")
        self.seen.append((request.path, method))
        if request.path == "/mcp" or (self._calls and method == "tools/call"):
            return web.Response(status=307, headers={"Location": self._to})
        if "id" not in message:
            return web.Response(status=202 if request.method == "POST" else 405)
        info = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "x", "version": "1"}}
        results = {
            "initialize": info,
            "tools/list": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": "hi"}]},
        }
        told = {"result": results[method]} if method in results else {"error": {"code": -32601, "message": "no"}}
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], **told})

    async def site(self, aiohttp_server: AiohttpServer) -> str:
        app = web.Application()
        app.router.add_route("*", "/mcp{rest:/?}", self.answer)
        return str((await aiohttp_server(app)).make_url("/mcp"))
