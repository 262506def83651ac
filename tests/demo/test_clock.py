"""The MCP server of the demo, by the SDK's own client."""

import sys
from datetime import UTC, datetime, timedelta

from mcp import Client, StdioServerParameters
from mcp_types import TextContent

from gateway.demo.clock import build_clock_server


async def told(client: Client, offset_hours: float) -> str:
    result = await client.call_tool("now", {"utc_offset_hours": offset_hours})
    [block] = result.content
    assert isinstance(block, TextContent)
    return block.text


async def test_clock_program_serves_its_now_tool() -> None:
    """It has one tool, which tells the time; nothing of it is left when its input ends."""
    async with Client(StdioServerParameters(command=sys.executable, args=["-m", "gateway.demo.clock"])) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["now"]
        now = datetime.fromisoformat(await told(client, 9))
        assert now.utcoffset() == timedelta(hours=9)
        assert timedelta(0) <= datetime.now(UTC) - now < timedelta(minutes=1)


async def test_clock_rejects_an_offset_of_24_hours_or_more() -> None:
    """No day has a place that is a whole day away, and the model is told so."""
    async with Client(build_clock_server()) as client:
        assert "less than 24" in await told(client, 30)
