"""Gateways on one store, and the official client behind a balancer that sends each request to the next gateway."""

import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from gateways import until
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

from gateway.contracts.storage.store import Json
from gateway.testing.local_gateway import LocalGateway
from tests.mcp_server.serving import NO_TLS, World, server, services_of


class Balancer(httpx2.AsyncBaseTransport):
    """Sends each request to the next of some addresses; `only` sends all to one. `seen` are methods and places."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = urls
        self._turns = itertools.count()
        self._inner = httpx2.AsyncHTTPTransport(verify=NO_TLS)
        self.only: int | None = None
        self.seen: list[tuple[str, int]] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        at = next(self._turns) % len(self._urls) if self.only is None else self.only
        place = httpx2.URL(self._urls[at])
        request.url = request.url.copy_with(host=place.host, port=place.port)
        request.headers["Host"] = place.netloc.decode()
        self.seen.append((request.method, at))
        return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        await self._inner.aclose()


@dataclass
class Fleet:
    """Some gateways, each with the service `here`."""

    worlds: Sequence[World]

    @property
    def urls(self) -> Sequence[str]:
        return [world.gateway.base_url for world in self.worlds]

    @asynccontextmanager
    async def client(self, *, key: str | None = None, **options: Any) -> AsyncIterator[tuple[Client, Balancer]]:
        """The official client of the older era, with the key of this text, behind a balancer."""
        async with balanced_client(self.urls, key=key, **options) as both:
            yield both


@asynccontextmanager
async def balanced_client(
    urls: Sequence[str], *, key: str | None = None, mode: str = "legacy", **options: Any
) -> AsyncIterator[tuple[Client, Balancer]]:
    balancer = Balancer(urls)
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    async with httpx2.AsyncClient(headers=headers, timeout=60, transport=balancer) as http:
        transport = streamable_http_client(f"{urls[0]}/mcp", http_client=http)
        async with Client(transport, mode=mode, **options) as client:  # type: ignore[arg-type]
            yield client, balancer


@asynccontextmanager
async def fleet(folder: Path, serve: Json | None = None, *, count: int = 2, **config: Any) -> AsyncIterator[Fleet]:
    """Gateways of this process on one SQLite file."""
    content: Json = {
        "mcp": {"servers": {"here": server()}, "serve": {"wait": "30s", **(serve or {})}},
        "risk": {"trust_llm": "never"},
        "upstreams": [{"name": "up", "base_url": "http://127.0.0.1:9/v1"}],
        "store": f"sqlite:///{folder / 'gateway.db'}",
        **config,
    }
    async with AsyncExitStack() as stack:
        gateways = [await stack.enter_async_context(LocalGateway(content)) for _ in range(count)]
        for gateway in gateways:
            await until(lambda gateway=gateway: any(one.running for one in services_of(gateway)), timeout_s=120)
        yield Fleet([World(gateway, content) for gateway in gateways])
