"""The bridge from our requests to an ASGI application, over real connections."""

import asyncio

import aiohttp
import orjson
import pytest
from gateways import until_read

from gateway.contracts.storage.store import Json
from gateway.testing.raw_connection import Peer, connect
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


async def test_single_part_response_has_a_content_length(calm: dict[str, object]) -> None:
    """And the connection goes on."""
    async with world(**calm) as made, aiohttp.ClientSession(made.gateway.base_url) as session:
        for _ in range(2):
            async with session.post("/mcp", json=CALL, headers=HEADERS) as response:
                assert (response.status, response.content_type) == (200, "application/json")
                assert response.headers["Content-Length"] == str(len(await response.read()))
                assert "Server" not in response.headers


async def test_tool_call_leaves_no_reference_cycles(calm: dict[str, object]) -> None:
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


async def test_client_disconnect_withdraws_its_call() -> None:
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
async def test_unread_result_is_delivered_to_the_repeated_call(version: str, told: Json) -> None:
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


async def test_gzip_request_body_is_accepted(calm: dict[str, object]) -> None:
    """As for all pages of ours."""
    async with (
        world(**calm) as made,
        aiohttp.ClientSession(made.gateway.base_url) as session,
        session.post("/mcp", json=CALL, headers=HEADERS, compress="gzip") as response,
    ):
        assert response.status == 200 and "hi" in await response.text()


async def test_session_end_answers_its_open_requests_with_errors() -> None:
    """With an error for each id, the only answer to it; a held call waits on, and another session joins it."""
    async with world(keys=keys(agent=["tools"], boss=["tools", "approve"])) as made:
        fields, bearer = await made.session(key="agent"), {"Authorization": "Bearer agent"}
        async with aiohttp.ClientSession(made.gateway.base_url, headers={**fields, **bearer}) as session:
            ping = {"jsonrpc": "2.0", "id": 7, "method": "ping"}
            async with session.post("/mcp", json=ping) as response:
                assert [message.get("id") for message in messages_in(await response.text())] == [7]
            opened = [
                await session.post("/mcp", json={**CALL, "id": name, "params": {**CALL["params"], "_meta": {}}})
                for name in (7, "seven")
            ]
            await until_read(lambda: made.approvals(key="boss"))
            async with session.delete("/mcp") as response:
                assert response.status == 200
            for name, response in zip((7, "seven"), opened, strict=True):
                (answer,) = messages_in(await response.text())
                assert (answer["id"], answer["error"]["code"]) == (name, -32603)
                assert "The session ended" in answer["error"]["message"]
        fields = await made.session(key="agent")
        call = {**CALL, "params": {**CALL["params"], "_meta": {}}}
        async with aiohttp.ClientSession(made.gateway.base_url, headers={**fields, **bearer}) as session:
            again = await session.post("/mcp", json=call)
            await made.decide("approve", key="boss")
            (answer,) = messages_in(await again.text())
            assert answer["result"]["content"] == [{"type": "text", "text": "hi"}]


async def test_session_end_leaves_the_approval_pending() -> None:
    """A call whose form its user has not answered stays held, however long the SDK takes to withdraw that form."""
    async with world(keys=keys(boss=["tools", "approve"])) as made:
        for _ in range(3):
            fields = await made.session({"elicitation": {"form": {}}}, key="boss")
            fields["Authorization"] = "Bearer boss"
            async with aiohttp.ClientSession(made.gateway.base_url, headers=fields) as session:
                opened = await session.post("/mcp", json={**CALL, "params": {**CALL["params"], "_meta": {}}})
                while b"elicitation/create" not in await opened.content.readline():
                    continue
                async with session.delete("/mcp") as response:
                    assert response.status == 200
                assert "The session ended" in await opened.text()
            assert len(await made.approvals(key="boss")) == 1
        async with made.client(key="boss") as client:
            calling = asyncio.create_task(client.call_tool("here__echo", {"text": "hi"}))
            await made.decide("approve", key="boss")
            assert not (await calling).is_error
        assert not await made.approvals(key="boss", state="cancelled")


def messages_in(events: str) -> list[Json]:
    return [orjson.loads(line[5:]) for line in events.splitlines() if line.startswith("data:") and line[5:].strip()]
