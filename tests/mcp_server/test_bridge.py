"""The bridge from our requests to an ASGI application, over real connections."""

import asyncio

import aiohttp
from gateways import until_read

from tests.e2e.test_garbage import REQUESTS, STRAY, uncollected
from tests.mcp_server.serving import world

CALL = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {
        "name": "here__echo",
        "arguments": {"text": "hi"},
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    },
}
HEADERS = {
    "Accept": "application/json, text/event-stream",
    "MCP-Protocol-Version": "2026-07-28",
    "Mcp-Method": "tools/call",
    "Mcp-Name": "here__echo",
}


async def test_an_answer_of_one_part_has_a_length(calm: dict[str, object]) -> None:
    """And the connection goes on."""
    async with world(**calm) as made, aiohttp.ClientSession(made.gateway.base_url) as session:
        for _ in range(2):
            async with session.post("/mcp", json=CALL, headers=HEADERS) as response:
                assert (response.status, response.content_type) == (200, "application/json")
                assert response.headers["Content-Length"] == str(len(await response.read()))
                assert "Server" not in response.headers


async def test_a_call_leaves_nothing_to_the_collector(calm: dict[str, object]) -> None:
    """Nothing of ours: the SDK stops watching the connection without being cancelled."""
    async with world(**calm) as made, aiohttp.ClientSession(made.gateway.base_url) as session:

        async def call() -> None:
            async with session.post("/mcp", json=CALL, headers=HEADERS) as response:
                assert "hi" in await response.text()

        await call()
        with uncollected() as found:
            for _ in range(REQUESTS):
                await call()
        assert found.total() < STRAY, found


async def test_a_client_that_leaves_ends_its_call() -> None:
    """In the newer era that is how it cancels; nothing of the request stays."""
    async with world() as made, aiohttp.ClientSession(made.gateway.base_url) as session:
        posting = asyncio.create_task(session.post("/mcp", json=CALL, headers=HEADERS))
        await until_read(made.approvals)
        posting.cancel()
        await until_read(made.approvals, lambda pending: not pending)


async def test_a_body_may_be_packed(calm: dict[str, object]) -> None:
    """As for all pages of ours."""
    async with (
        world(**calm) as made,
        aiohttp.ClientSession(made.gateway.base_url) as session,
        session.post("/mcp", json=CALL, headers=HEADERS, compress="gzip") as response,
    ):
        assert response.status == 200 and "hi" in await response.text()
