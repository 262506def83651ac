"""Tools of MCP servers: their processes and connections, and what they say of themselves and answer."""
