"""The MCP servers of several workers that share one store, with a clock that a test sets."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from gateway.config.schema.mcp import McpServer
from gateway.contracts.storage.store import StoredService, StoreError, WorkerService
from gateway.mcp.servers import McpServers
from gateway.plugins.stores.sqlite import SqliteStore
from gateway.telemetry.counters import ContextCounters
from tests.tools.managed import Managed, ServiceFactory


@dataclass
class Wall:
    """A clock that a test sets."""

    now_s: float = 1000.0

    def monotonic(self) -> float:
        return self.now_s

    def time(self) -> float:
        return self.now_s


class Fragile(SqliteStore):
    """The real store; `broken` is its disk. It reports what workers write about services."""

    broken = False

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._written = asyncio.Event()

    async def list_services(self) -> list[StoredService]:
        if self.broken:
            raise StoreError("no such disk")
        return list(await super().list_services())

    async def put_service(self, service: StoredService, *, expected: int) -> bool:
        is_put = await super().put_service(service, expected=expected)
        self._written.set()
        return is_put

    async def report_services(self, worker: str, services: Sequence[WorkerService]) -> None:
        await super().report_services(worker, services)
        self._written.set()

    async def until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        """Return as soon as it holds, looked at after each write."""
        async with asyncio.timeout(120):
            while True:
                self._written.clear()
                if await holds():
                    return
                await self._written.wait()


@dataclass
class Workers:
    """A store, and the MCP servers of each worker by its name."""

    store: Fragile
    clock: Wall = field(default_factory=Wall)
    counters: ContextCounters = field(default_factory=ContextCounters)
    factories: dict[str, ServiceFactory] = field(default_factory=dict)
    by_name: dict[str, McpServers] = field(default_factory=dict)

    async def start(self, name: str = "w1", **servers: Mapping[str, object]) -> McpServers:
        """Start a worker with these services in its configuration."""
        factory = self.factories[name] = ServiceFactory()
        mcp_servers = self.by_name[name] = McpServers(
            self.store, build=factory.build, worker=name, counters=self.counters, clock=self.clock
        )
        mcp_servers.configure(configured(**servers))
        await mcp_servers.refresh()
        for server in servers:
            await mcp_servers.wait_until_applied(server)
        return mcp_servers

    async def register(self, name: str = "time", **settings: object) -> None:
        """Register a service as another worker does."""
        config = json.dumps(settings or X).encode()
        assert await self.store.put_service(StoredService(name=name, config=config), expected=0)

    def service(self, name: str = "time", *, worker: str = "w1") -> Managed:
        return self.factories[worker].newest(name)

    async def kept(self, name: str = "time") -> StoredService | None:
        return next((one for one in await self.store.list_services() if one.name == name), None)

    async def until_kept(self, reached: Callable[[StoredService | None], bool], name: str = "time") -> None:
        async def holds() -> bool:
            return reached(await self.kept(name))

        await self.store.until(holds)

    async def until_told(self, *told: tuple[str, ...]) -> None:
        """Wait until all reports are these: worker, service, state, and the error if it is given."""

        async def holds() -> bool:
            reports = await self.store.list_reported_services(since_s=0.0)
            size = len(told[0]) if told else 3
            return told == tuple((r.worker, r.name, r.state, r.error or "")[:size] for r in reports)

        await self.store.until(holds)


def configured(**servers: Mapping[str, object]) -> dict[str, McpServer]:
    return {name: McpServer.model_validate(server) for name, server in servers.items()}


X, Y = {"command": "x"}, {"command": "y"}
SECRET = "sk-canary-12345"


@asynccontextmanager
async def opened() -> AsyncIterator[Workers]:
    store = Fragile(":memory:")
    await store.open()
    made = Workers(store)
    try:
        yield made
    finally:
        store.broken = False
        for mcp_servers in made.by_name.values():
            await mcp_servers.close()
            await mcp_servers.close()
        await store.close()
