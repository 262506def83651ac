"""Tools of MCP servers: their processes and connections, their definitions and their answers."""
