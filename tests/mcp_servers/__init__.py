"""Real MCP servers and the protocol's own conformance suite."""
