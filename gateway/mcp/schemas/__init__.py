"""The JSON Schemas of MCP servers: what an untrusted schema may refer to, and what it may cost."""
