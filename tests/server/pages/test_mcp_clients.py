"""The pages of MCP clients, which only a gateway that serves them has."""

import asyncio

import aiohttp
import pytest

from gateway.testing.local_gateway import LocalGateway

#: What a client sends first (MCP 2025-06-18, lifecycle).
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}},
}
ACCEPT = {"Accept": "application/json, text/event-stream"}


@pytest.mark.parametrize(("serve", "status"), [({"serve": {}}, 200), ({}, 404)])
async def test_mcp_endpoint_exists_only_when_the_gateway_serves_it(serve: dict[str, object], status: int) -> None:
    """And who does not has no page there."""
    async with (
        LocalGateway({"upstreams": [], "mcp": serve}) as made,
        aiohttp.ClientSession(made.base_url) as session,
        session.post("/mcp", json=HELLO, headers=ACCEPT) as response,
    ):
        assert response.status == status


async def test_mcp_sessions_and_streams_end_with_the_gateway() -> None:
    """Their sessions are gone afterwards; leaving once more does no harm."""
    async with LocalGateway({"upstreams": [], "mcp": {"serve": {}}}) as made:
        async with aiohttp.ClientSession(made.base_url) as session:
            async with session.post("/mcp", json=HELLO, headers=ACCEPT) as response:
                named = {"Mcp-Session-Id": response.headers["Mcp-Session-Id"], "Accept": "text/event-stream"}
            async with session.get("/mcp", headers=named) as stream:
                assert stream.status == 200
                await asyncio.wait_for(made.gateway.drain(), 120)
                with pytest.raises(aiohttp.ClientPayloadError):  # it is cut off
                    await stream.read()
        await made.gateway.drain()
