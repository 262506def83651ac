"""The visit of a message is the one of its own request, also within a session."""

from tests.mcp_server.serving import keys, texts, world


async def test_session_request_is_authorized_by_its_own_path(calm: dict[str, object]) -> None:
    """A session that began on the whole endpoint is narrowed on the path of a service."""
    async with world(**calm, keys=keys(agent=["tools"])) as made:
        async with made.client("legacy", key="agent") as client:
            assert texts(await client.call_tool("here__echo", {"text": "hi"})) == "hi"
        async with made.client("legacy", path="/here", key="agent") as client:
            assert "read_result" not in {tool.name for tool in (await client.list_tools()).tools}
