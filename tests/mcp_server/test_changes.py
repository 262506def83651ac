"""Clients hear of changed tools, in both eras."""

import asyncio

from mcp.client.subscriptions import listen
from mcp_types import ToolListChangedNotification

from tests.mcp_server.serving import World, world


async def stop(made: World) -> None:
    status, _ = await made.post("/mcp/services/here/stop", {})
    assert status == 200


async def test_legacy_client_gets_a_tool_list_changed_notification() -> None:
    """The tools of a service that stops are not there any more."""
    heard = asyncio.Event()

    async def received(message: object) -> None:
        if isinstance(message, ToolListChangedNotification):
            heard.set()

    async with world() as made, made.client("legacy", message_handler=received) as client:
        assert client.session.server_capabilities and client.session.server_capabilities.tools
        assert client.session.server_capabilities.tools.list_changed
        assert any(tool.name == "here__echo" for tool in (await client.list_tools()).tools)
        await stop(made)
        async with asyncio.timeout(60):
            await heard.wait()
        assert not any(tool.name == "here__echo" for tool in (await client.list_tools()).tools)


async def test_modern_client_can_subscribe_to_tool_list_changes() -> None:
    """The stream ends when the gateway does."""
    async with world() as made, made.client() as client, listen(client.session, tools_list_changed=True) as changes:
        await stop(made)
        async with asyncio.timeout(60):
            await anext(aiter(changes))
