"""The JSON Schemas of MCP servers: what a stranger's schema may refer to, and what it may cost."""
