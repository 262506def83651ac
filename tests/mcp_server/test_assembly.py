"""The endpoint of a worker follows a reload of the configuration."""

from tests.mcp_server.serving import world


async def test_reload_narrows_the_tools_of_open_sessions() -> None:
    """Open sessions, too."""
    async with world() as made, made.client("legacy") as client:
        assert any(tool.name == "here__echo" for tool in (await client.list_tools()).tools)
        serve = {**made.config["mcp"]["serve"], "tools": ["read_result"]}
        await made.gateway.reload({**made.config, "mcp": {**made.config["mcp"], "serve": serve}})
        assert [tool.name for tool in (await client.session.list_tools()).tools] == ["read_result"]
