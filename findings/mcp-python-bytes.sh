#!/bin/sh
# fastmcp 4.2.3 and mcp 2.3.0 (Python): a tool that returns bytes.
# Expected: the bytes arrive as a blob with a media type, or in one encoding that the result names.
# Seen: fastmcp gives text where the bytes are UTF-8 and base64 where they are not, and nothing tells one from the other;
#       mcp's own MCPServer gives text in JSON's quotes where they are UTF-8, and an error where they are not.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' INT TERM
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q fastmcp==4.2.3 mcp==2.3.0
cat > run.py <<'PY'
import asyncio
import logging

import fastmcp
from mcp.client import Client
from mcp.server.mcpserver import MCPServer

logging.disable()

def read(name: str) -> bytes:
    return {"text": b"aGk=", "binary": b"\xff\xfe\x01"}[name]

async def main() -> bool:
    first = fastmcp.FastMCP("files")
    first.tool(read)
    second = MCPServer("files", log_level="CRITICAL")
    second.tool()(read)
    seen = []
    async with fastmcp.Client(first) as client:
        for name in ("text", "binary"):
            block = (await client.call_tool("read", {"name": name})).content[0]
            seen.append((block.type, block.text, block.meta))
    async with Client(second) as client:
        for name in ("text", "binary"):
            result = await client.call_tool("read", {"name": name})
            seen.append((result.is_error, result.content[0].text))
    print(*seen, sep="\n")
    texts = [("text", "aGk=", None), ("text", "//4B", None), (False, '"aGk="')]
    return seen[:3] == texts and seen[3][0] is True

raise SystemExit(not asyncio.run(main()))
PY
venv/bin/python run.py
