"""Sessions of the older era at several gateways on one store, with the official client behind a balancer."""

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from gateways import until, until_read
from mcp_types import ElicitResult, ToolListChangedNotification

from gateway.contracts.storage.store import Json
from gateway.upstream.replicas.seals import SEAL_FIELD
from tests.mcp_server.replicated import Fleet, fleet
from tests.mcp_server.serving import keys, texts

OTHER = "gw-other-tenant"


async def post(
    fleet: Fleet, at: int, fields: dict[str, str], message: Json | None, *, method: str = "POST"
) -> tuple[int, Any]:
    """A message to one gateway, in a session; its answer as text."""
    session = aiohttp.ClientSession(fleet.urls[at])
    async with session, session.request(method, "/mcp", json=message, headers=fields) as response:
        return response.status, await response.text()


def call(text: str, number: int = 7) -> Json:
    params = {"name": "here__echo", "arguments": {"text": text}}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


async def test_session_is_served_by_any_gateway(tmp_path: Path, calm: dict[str, object]) -> None:
    """Each request goes to another gateway than the one before; the end of the session, too."""
    async with fleet(tmp_path, count=3, **calm) as made:
        async with made.client() as (client, balancer):
            for word in ("one", "two", "three"):
                assert texts(await client.call_tool("here__echo", {"text": word})) == word
            assert "here__echo" in {tool.name for tool in (await client.list_tools()).tools}
        assert {at for _, at in balancer.seen} == {0, 1, 2} and balancer.seen[-1][0] == "DELETE"


async def test_changes_are_reported_on_a_stream_at_another_gateway(tmp_path: Path) -> None:
    """The stream that a client opens by GET, and what its session's worker reports."""
    reported = asyncio.Event()

    async def note(message: object) -> None:
        if isinstance(message, ToolListChangedNotification):
            reported.set()

    async with fleet(tmp_path) as made, made.client(message_handler=note) as (client, balancer):
        await client.list_tools()
        await until(lambda: any(method == "GET" for method, _ in balancer.seen))
        for world in made.worlds:
            await world.post("/mcp/services/here/restart", {})
        async with asyncio.timeout(60):
            await reported.wait()


async def test_question_is_answered_through_another_gateway(tmp_path: Path) -> None:
    """It is put on the stream of the call, and the answer comes in a request of its own."""
    asked = []

    async def approve(_context: object, question: Any) -> ElicitResult:
        asked.append(question.message)
        return ElicitResult(action="accept", content={"decision": "approve"})

    async with fleet(tmp_path) as made, made.client(elicitation_callback=approve) as (client, balancer):
        for word in ("one", "two"):
            assert texts(await client.call_tool("here__echo", {"text": word})) == word
        assert len(asked) == 2 and {at for method, at in balancer.seen if method == "POST"} == {0, 1}


@pytest.mark.parametrize("owner", [0, 1])
async def test_decision_at_another_gateway_ends_the_call(owner: int, tmp_path: Path) -> None:
    """A person decides at one gateway; the client gets the result on its stream, at whichever gateway it is."""
    async with fleet(tmp_path) as made, made.client() as (client, balancer):
        balancer.only = owner
        calling = asyncio.create_task(client.call_tool("here__echo", {"text": "hi"}))
        await made.worlds[1].decide("approve")
        assert texts(await calling) == "hi"
        (run,) = (await made.worlds[0].get("/context/runs"))["data"]
        assert run["state"] == "completed"


async def test_foreign_key_has_no_session(tmp_path: Path) -> None:
    """Not at the session's gateway, and not through another; the session goes on."""
    access = keys(mine=["tools", "context"])
    access += [{**one, "tenant": OTHER} for one in keys(foreign=["tools"])]
    async with fleet(tmp_path, keys=access) as made:
        fields = await made.worlds[0].session(key="mine")
        for at in (0, 1):
            status, answer = await post(made, at, {**fields, "Authorization": "Bearer foreign"}, call("x"))
            assert status == 404 and "Session not found" in answer
        listing = {"jsonrpc": "2.0", "id": 3, "method": "tools/list"}
        status, answer = await post(made, 1, {**fields, "Authorization": "Bearer mine"}, listing)
        assert status == 200 and "here__echo" in answer
        status, _ = await post(made, 1, {**fields, "Authorization": "Bearer unknown"}, listing)
        assert status == 401


async def test_session_that_never_was_is_not_found(tmp_path: Path) -> None:
    """Whatever its id: the client begins a new one."""
    async with fleet(tmp_path) as made:
        fields = await made.worlds[0].session()
        known = fields["Mcp-Session-Id"]
        for session_id in (known[:32], "f" * 32 + known[32:], known[:-1] + "!", known[:33] + "worker_" + "0" * 16, "x"):
            for at in (0, 1):
                status, answer = await post(made, at, {**fields, "Mcp-Session-Id": session_id}, call("x"))
                assert status == 404 and "Session not found" in answer, session_id
        assert (await post(made, 1, fields, None, method="DELETE"))[0] == 200
        assert (await post(made, 0, fields, call("x")))[0] == 404


async def test_key_is_bound_to_the_address_of_its_client(tmp_path: Path) -> None:
    """Another gateway passes on where the client is, and not where it is itself."""
    (bound,) = keys(bound=["tools"])
    async with fleet(tmp_path, keys=[{**bound, "networks": ["127.0.0.7/32"]}]) as made:
        owner, other = made.worlds
        connector = aiohttp.TCPConnector(local_addr=("127.0.0.7", 0))
        fields = {"Authorization": "Bearer bound"}
        async with aiohttp.ClientSession(connector=connector, headers=fields) as session:
            listing = {"jsonrpc": "2.0", "id": 3, "method": "tools/list"}
            owner_session = await _open_session(session, owner.url)
            async with session.post(other.url, json=listing, headers=owner_session) as response:
                assert response.status == 200 and "here__echo" in await response.text()
        assert (await post(made, 1, {**owner_session, **fields}, listing))[0] == 403


async def _open_session(session: aiohttp.ClientSession, url: str) -> dict[str, str]:
    from tests.mcp_server.serving import ACCEPT, INITIALIZE, OLDER

    async with session.post(url, json=INITIALIZE, headers=ACCEPT) as response:
        assert response.status == 200
        return {**ACCEPT, "Mcp-Session-Id": response.headers["Mcp-Session-Id"], "MCP-Protocol-Version": OLDER}


async def test_port_for_gateways_refuses_everybody_else(tmp_path: Path, calm: dict[str, object]) -> None:
    """Without a seal, with that of another request, and with one that was used before."""
    async with fleet(tmp_path, **calm) as made:
        fields = await made.worlds[0].session()
        owner, other = (world.gateway.gateway._shared.replicas for world in made.worlds)
        address = other.directory.find_address(owner.owner) or await other.directory.find_worker(owner.owner)
        assert address is not None
        recorded: list[tuple[bytes, bytes]] = []
        write = other._seals.write  # type: ignore[union-attr]

        def record(request: Any, body: bytes, **facts: Any) -> bytes:
            value = write(request, body, **facts)
            recorded[:] = [*request.fields, (SEAL_FIELD, value), (b"Host", b"localhost")]
            return value

        other._seals.write = record  # type: ignore[union-attr, method-assign]
        assert (await post(made, 1, fields, call("one")))[0] == 200
        replayed = {name.decode(): value.decode() for name, value in recorded}
        async with aiohttp.ClientSession(f"http://{address}") as session:
            for headers in (replayed, fields, {**fields, "X-Twolane-Replica": "1 worker 1 - 0 0"}):
                async with session.post("/replica/mcp", json=call("one"), headers=headers) as response:
                    assert response.status == 421
            for path in ("/mcp", "/context/runs", "/metrics", "/v1/models", "/replica/services"):
                async with session.post(path, json={}, headers=fields) as response:
                    assert response.status in (404, 405, 421), path


async def test_result_counts_as_received_once_the_client_has_it(tmp_path: Path, calm: dict[str, object]) -> None:
    """A client that leaves the other gateway before gets it by the same call, which does not run again."""
    async with fleet(tmp_path) as made:
        fields = await made.worlds[0].session()
        session = aiohttp.ClientSession(made.urls[1])
        async with session:
            calling = asyncio.create_task(session.post("/mcp", json=call("hi"), headers=fields).__aenter__())
            await made.worlds[1].approvals()
            await until_read(made.worlds[1].approvals, lambda found: len(found) == 1)
            response = await calling
            response.close()  # the client leaves
        await made.worlds[1].decide("approve")
        runs = lambda: made.worlds[0].get("/context/runs")  # noqa: E731
        await until_read(runs, lambda page: [run["state"] for run in page["data"]] == ["completed"])
        status, answer = await post(made, 1, fields, call("hi", 8))
        assert status == 200 and '"hi"' in answer
        assert len((await runs())["data"]) == 1
        calling = asyncio.create_task(post(made, 1, fields, call("hi", 9)))
        await made.worlds[0].decide("approve")
        await calling
        assert len((await runs())["data"]) == 2
