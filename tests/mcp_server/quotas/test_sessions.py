"""The share of each key in sessions and subscriptions."""

import asyncio
from contextlib import AsyncExitStack, suppress

import aiohttp
import pytest
from mcp.client.subscriptions import listen
from mcp.shared.exceptions import MCPError

from gateway.contracts.errors import GatewayError
from gateway.mcp_server.quotas.sessions import KeyPlaces, compute_share
from tests.mcp_server.serving import World, keys, world

FIELDS = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25"}
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "probe", "version": "7"}},
}


async def opened(made: World, key: str) -> tuple[int, str | None]:
    """Open a session; return the status and its id."""
    fields = {**FIELDS, "Authorization": f"Bearer {key}"}
    async with aiohttp.ClientSession() as http, http.post(made.url, json=INITIALIZE, headers=fields) as response:
        await response.read()
        return response.status, response.headers.get("mcp-session-id")


async def pinged(made: World, key: str, session_id: str | None) -> int:
    """Use a session; return the status."""
    message = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
    return (await made.post("/mcp", message, key=key, **FIELDS, **{"mcp-session-id": session_id or ""}))[0]


async def test_oldest_unused_session_of_a_key_is_evicted() -> None:
    """Sessions of other keys are not touched, and always find room."""
    async with world({"sessions": {"most": 8}}, keys=keys(one=["tools"], second=["tools"])) as made:
        others = await opened(made, "second")
        first, second = await opened(made, "one"), await opened(made, "one")
        assert await pinged(made, "one", first[1]) == 200  # so the second one is the oldest now
        assert (await opened(made, "one"))[0] == 200
        assert [await pinged(made, "one", session[1]) for session in (first, second)] == [200, 404]
        for _ in range(20):
            assert (await opened(made, "one"))[0] == 200
        assert await pinged(made, "second", others[1]) == 200 and (await opened(made, "second"))[0] == 200


async def test_key_with_all_sessions_in_use_gets_no_further_session() -> None:
    """The error names the share; another key gets in."""
    async with world({"sessions": {"most": 4}}, keys=keys(one=["tools"], second=["tools"])) as made:
        _, session_id = await opened(made, "one")
        fields = {**FIELDS, "Authorization": "Bearer one", "mcp-session-id": session_id or ""}
        async with aiohttp.ClientSession() as http, http.get(made.url, headers=fields) as stream:
            assert stream.status == 200
            status, body = await made.post("/mcp", INITIALIZE, key="one", **FIELDS)
            assert (status, body["error"]["code"]) == (503, "overloaded") and "1 open sessions" in str(body)
            assert (await opened(made, "second"))[0] == 200
        while (await opened(made, "one"))[0] != 200:  # once the stream's end has been seen
            await asyncio.sleep(0)


async def test_subscriptions_are_limited_per_key() -> None:
    """Another key subscribes."""
    config = {"sessions": {"most": 8}}
    async with world(config, keys=keys(one=["tools"], second=["tools"])) as made, AsyncExitStack() as stack:
        one = await stack.enter_async_context(made.client(key="one"))
        other = await stack.enter_async_context(made.client(key="second"))
        for _ in range(2):
            await stack.enter_async_context(listen(one.session, tools_list_changed=True))
        with pytest.raises(MCPError, match="This key has 2 open subscriptions"):
            await stack.enter_async_context(listen(one.session, tools_list_changed=True))
        await stack.enter_async_context(listen(other.session, tools_list_changed=True))


def test_place_is_released_after_a_failure() -> None:
    """Also after a failure; everybody has at least one."""
    places = KeyPlaces("streams", most=1)
    assert (compute_share(1), compute_share(1000)) == (1, 250)
    for _ in range(2):
        with suppress(KeyError), places.take_place(("team", "one")):
            with pytest.raises(GatewayError, match="1 open streams"), places.take_place(("team", "one")):
                pass
            with places.take_place(("team", "second")):
                raise KeyError
