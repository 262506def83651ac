"""The gateway as an MCP server."""
