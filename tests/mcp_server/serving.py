"""A gateway that serves MCP clients, in this process, and the official client in front of it."""

import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import aiohttp
import httpx2
import pytest
from gateways import key, until, until_read
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

from gateway.contracts.storage.store import Json
from gateway.testing.local_gateway import LocalGateway

ROOT: Final = Path(__file__).parents[2]
#: Of clients that speak to a gateway without TLS: one of its own reads all authorities of the system for each.
NO_TLS: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
Era = Literal["legacy", "auto"]
ERAS: Final[tuple[Era, ...]] = ("legacy", "auto")
OLDER: Final = "2025-11-25"
ACCEPT: Final = {"Accept": "application/json, text/event-stream"}
INITIALIZE: Final[Json] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": OLDER, "capabilities": {}, "clientInfo": {"name": "probe", "version": "7"}},
}
both_eras = pytest.mark.parametrize("era", ERAS)


def server(*behaviour: str, module: str = "tests.mcp_server.offering") -> Json:
    """The entry of a server: one that offers everything, or one that behaves as `tests.mcp.misbehaving` has it."""
    module_args = ["-m", "tests.mcp.misbehaving", *behaviour] if behaviour else ["-m", module]
    return {"command": sys.executable, "args": module_args, "cwd": str(ROOT), "start_timeout": 60}


@dataclass
class World:
    """A gateway with the service `here`."""

    gateway: LocalGateway
    config: Json

    @property
    def url(self) -> str:
        return f"{self.gateway.base_url}/mcp"

    @asynccontextmanager
    async def client(
        self, era: Era = "auto", *, path: str = "", key: str | None = None, user: str | None = None, **options: Any
    ) -> AsyncIterator[Client]:
        """The official client of one era, with the key of this text and this end user."""
        headers = {**_bearer(key), **({} if user is None else {"X-Context-User": user})}
        async with httpx2.AsyncClient(headers=headers, timeout=60, verify=NO_TLS) as http:
            transport = streamable_http_client(self.url + path, http_client=http)
            async with Client(transport, mode=era, **options) as client:
                yield client

    async def approvals(self, *, key: str | None = None, state: str = "pending") -> list[Json]:
        page: Json = await self.get(f"/context/approvals?status={state}", key=key)
        return list(page["data"])

    async def get(self, path: str, *, key: str | None = None) -> Any:
        session = aiohttp.ClientSession(self.gateway.base_url)
        async with session, session.get(path, headers=_bearer(key)) as response:
            return await response.json()

    async def post(self, path: str, body: object, *, key: str | None = None, **headers: str) -> tuple[int, Any]:
        session = aiohttp.ClientSession(self.gateway.base_url)
        async with session, session.post(path, json=body, headers={**_bearer(key), **headers}) as response:
            is_json = response.content_type == "application/json"
            return response.status, await (response.json() if is_json else response.text())

    async def sent(self, path: str, body: str, **headers: str) -> tuple[int, Any]:
        """Send a body as it is, and return the status and the JSON of the answer."""
        session = aiohttp.ClientSession(self.gateway.base_url)
        async with session, session.post(path, data=body, headers=headers) as response:
            return response.status, await response.json()

    async def session(self, capabilities: Json | None = None, *, key: str | None = None) -> dict[str, str]:
        """Open a session of the older era, and return the fields of a request in it."""
        fields, http = {**ACCEPT, **_bearer(key)}, aiohttp.ClientSession(self.gateway.base_url)
        opening = {**INITIALIZE, "params": {**INITIALIZE["params"], "capabilities": capabilities or {}}}
        async with http, http.post("/mcp", json=opening, headers=fields) as response:
            await response.read()
            session_id = response.headers["Mcp-Session-Id"]
        fields = {**ACCEPT, "Mcp-Session-Id": session_id, "MCP-Protocol-Version": OLDER}
        begun = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert (await self.post("/mcp", begun, key=key, **fields))[0] == 202
        return fields

    async def decide(self, decision: str, *, key: str | None = None) -> Json:
        """Decide on the one call that waits, as a person does elsewhere."""
        (pending,) = await until_read(lambda: self.approvals(key=key), lambda found: len(found) == 1)
        status, decided = await self.post(f"/context/approvals/{pending['id']}", {"decision": decision}, key=key)
        assert status == 200, decided
        return dict(pending)


def _bearer(key: str | None) -> dict[str, str]:
    return {} if key is None else {"Authorization": f"Bearer {key}"}


@asynccontextmanager
async def world(serve: Json | None = None, *, here: Json | None = None, **config: Any) -> AsyncIterator[World]:
    """A gateway that serves, with the service `here` running."""
    content: Json = {
        "mcp": {"servers": {"here": here or server()}, "serve": {"wait": "30s", **(serve or {})}},
        "risk": {"trust_llm": "never"},
        "upstreams": [{"name": "up", "base_url": "http://127.0.0.1:9/v1"}],
        **config,
    }
    async with LocalGateway(content) as gateway:
        made = World(gateway, content)
        await until(lambda: any(service.running for service in services_of(gateway)), timeout_s=120)
        yield made


def services_of(gateway: LocalGateway) -> list[Any]:
    """The services of a gateway as they are now."""
    return [one.source.get_service() for one in gateway.gateway._shared.mcp_servers.get_services()]


def keys(**scopes: list[str]) -> list[Json]:
    """Entries of keys whose text and name are the same, all of one tenant."""
    return [{**key(name, *allowed), "name": name, "tenant": "team"} for name, allowed in scopes.items()]


def texts(result: Any) -> str:
    """The text of a result."""
    return "\n".join(block.text for block in result.content if block.type == "text")
