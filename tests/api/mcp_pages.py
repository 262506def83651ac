"""The pages of services behind the real listener: the fleets of two workers on one store, and keys of three callers."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import ClientSession, web
from tools.managed import Managed, ServiceFactory

from gateway.api.mcp_services import ServicePages
from gateway.config.schema.mcp import McpServer
from gateway.contracts.caller import Caller
from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.store import Json
from gateway.mcp.servers import McpServers
from gateway.plugins.stores.sqlite import SqliteStore
from gateway.telemetry.counters import ContextCounters
from tests.lanes.assembled import Lane, assembled

from .answering import errors

KEYS: Mapping[str, Caller] = {
    "root": Caller("root", "acme", frozenset(("admin",))),
    "boss": Caller("bob", "acme", frozenset(("context", "approve"))),
    "reader": Caller("rex", "acme", frozenset(("passthrough",))),
}
SERVICES = "/mcp/services"


@dataclass
class Wall:
    """A clock that a test sets."""

    now_s: float = 1000.0

    def monotonic(self) -> float:
        return self.now_s

    def time(self) -> float:
        return self.now_s


@dataclass
class ServedMcp:
    """A client of the pages of the first worker; `other` is a second one on the same store."""

    store: SqliteStore
    factory: ServiceFactory
    mcp_servers: McpServers
    other_factory: ServiceFactory
    other: McpServers
    lane: Lane
    session: ClientSession
    clock: Wall = field(default_factory=Wall)

    def service(self, name: str = "time") -> Managed:
        return self.factory.newest(name)

    async def ask(self, method: str, path: str = "", body: object = None, *, key: str = "root") -> tuple[int, Json]:
        """Status and answer; `path` is below `/mcp/services`."""
        url, headers = f"http://127.0.0.1:{self.lane.port}{SERVICES}{path}", {"X-Gateway-Key": key}
        async with self.session.request(method, url, json=body, headers=headers) as response:
            return response.status, (await response.json()) if await response.read() else {}

    async def get(self, path: str = "") -> Json:
        status, answer = await self.ask("GET", path)
        assert status == 200, answer
        return answer

    async def refused(self, method: str, path: str = "", body: object = None, *, key: str = "root") -> tuple[int, str]:
        status, answer = await self.ask(method, path, body, key=key)
        return status, answer["error"]["code"]


@asynccontextmanager
async def moored(**servers: Mapping[str, object]) -> AsyncIterator[ServedMcp]:
    """`servers` stand in the configuration of both workers."""
    store, clock, factories = SqliteStore(":memory:"), Wall(), (ServiceFactory(), ServiceFactory())
    await store.open()
    counters = ContextCounters()
    fleets = [
        McpServers(store, build=factory.build, worker=f"w{i}", counters=counters, clock=clock)
        for i, factory in enumerate(factories)
    ]
    for mcp_servers in fleets:
        mcp_servers.configure({name: McpServer.model_validate(server) for name, server in servers.items()})
        await mcp_servers.refresh()
        for name in servers:
            await mcp_servers.wait_until_applied(name)

    def authorise(request: web.Request, *scopes: str) -> Caller:
        caller = KEYS.get(request.headers.get("X-Gateway-Key", ""))
        if caller is None:
            raise GatewayError("missing_api_key", "No key.")
        if not caller.scopes & set(scopes):
            raise GatewayError("scope_missing", "Another key.")
        return caller

    app = web.Application(middlewares=[errors])
    for method, path, handler in ServicePages(mcp_servers=lambda: fleets[0], authorise=authorise).list_routes():
        app.router.add_route(method, path, handler)
    try:
        async with assembled(pages=app, own_paths=(SERVICES.encode(),)) as lane, ClientSession() as session:
            yield ServedMcp(store, factories[0], fleets[0], factories[1], fleets[1], lane, session, clock)
    finally:
        for mcp_servers in fleets:
            await mcp_servers.close()
        await store.close()
