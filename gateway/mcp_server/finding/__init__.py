"""The tools that an MCP client looks for by words: `find_tools`."""
