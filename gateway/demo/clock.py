"""`python -m gateway.demo.clock`: a small MCP server on standard input and output, to try services with.

It needs the SDK of the extra `mcp`, and nothing of the gateway.
"""

from datetime import UTC, datetime, timedelta, timezone
from typing import Annotated

from mcp.server.mcpserver import MCPServer
from pydantic import Field

Offset = Annotated[float, Field(gt=-24, lt=24, description="Hours east of Greenwich; 0 is UTC.")]


def build_clock_server() -> MCPServer:
    """Return the server with its one tool."""
    # It would log each request on standard error.
    server = MCPServer("clock", log_level="ERROR")
    server.add_tool(tell_time, name="now", description="Tells date and time, to the second.", structured_output=False)
    return server


def tell_time(utc_offset_hours: Offset = 0.0) -> str:
    """Return the time in ISO 8601."""
    return datetime.now(UTC).astimezone(timezone(timedelta(hours=utc_offset_hours))).isoformat(timespec="seconds")


if __name__ == "__main__":
    build_clock_server().run()
