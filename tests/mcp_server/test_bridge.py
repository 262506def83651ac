"""The bridge from our requests to an ASGI application, over real connections."""

import asyncio

import aiohttp
import orjson
import pytest
from gateways import until_read

from gateway.contracts.store import Json
from gateway.testing.peer import Peer, connect
from tests.e2e.test_garbage import REQUESTS, STRAY, uncollected
from tests.mcp_server.serving import OLDER, World, keys, world

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


BEARER = {"Authorization": "Bearer agent", "Accept": HEADERS["Accept"], "Content-Type": "application/json"}


async def reads_the_beginning(made: World, peer: Peer, version: str, meta: Json) -> None:
    """Call a tool with progress and a large picture, which a person approves, and read its beginning."""
    params = {"name": "here__picture", "arguments": {}, "_meta": meta}
    body = orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    fields = {
        "Host": "localhost",
        "Content-Length": str(len(body)),
        **HEADERS,
        **BEARER,
        "MCP-Protocol-Version": version,
        "Mcp-Name": "here__picture",
        **(await made.session(key="agent") if version == OLDER else {}),
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    await peer.send(f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + body)
    await made.decide("approve", key="anna")
    await peer.read_until(b"iVBOiVBO")


@pytest.mark.parametrize("told", [{}, {"progressToken": 1}])
@pytest.mark.parametrize("version", ["2026-07-28", OLDER])
async def test_a_result_that_its_client_did_not_read_stays_owed(version: str, told: Json) -> None:
    """Reports about progress went out before it, and the client left: the same call gets the result, and runs once."""
    meta = told if version == OLDER else {**CALL["params"]["_meta"], **told}
    async with world(keys=keys(agent=["tools"], anna=["approve", "context"])) as made:
        async with connect(made.gateway.host, made.gateway.port, rcvbuf=4096) as peer:
            await reads_the_beginning(made, peer, version, meta)
            peer.reset()
        async with made.client(key="agent") as client:
            (picture,) = (await client.call_tool("here__picture", {})).content
            assert picture.type == "image" and len(picture.data) == 6 << 20
        assert len((await made.get("/context/runs", key="anna"))["data"]) == 1


async def test_a_body_may_be_packed(calm: dict[str, object]) -> None:
    """As for all pages of ours."""
    async with (
        world(**calm) as made,
        aiohttp.ClientSession(made.gateway.base_url) as session,
        session.post("/mcp", json=CALL, headers=HEADERS, compress="gzip") as response,
    ):
        assert response.status == 200 and "hi" in await response.text()
