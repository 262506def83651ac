#!/bin/sh
# mcp 2.3.0 (Python), MCPServer.
# Expected: a tool's parameter of type `str | None` takes every text, as one of type `str` does.
# Seen: a text that is a JSON object, list or null is parsed first: the object is refused, and "null" arrives as None.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' INT TERM
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q mcp==2.3.0
cat > run.py <<'PY'
import asyncio
import logging

from mcp.client import Client
from mcp.server.mcpserver import MCPServer

logging.disable()
server = MCPServer("notes", log_level="CRITICAL")

@server.tool()
def save(text: str) -> str:
    return repr(text)

@server.tool()
def save_optional(text: str | None = None) -> str:
    return repr(text)

async def main() -> int:
    wrong = 0
    async with Client(server) as client:
        for text, taken in (("plain", True), ("12", True), ('{"a": 1}', False), ("[1]", False), ("null", False)):
            for name, expected in (("save", True), ("save_optional", taken)):
                result = await client.call_tool(name, {"text": text})
                kept = not result.is_error and result.content[0].text == repr(text)
                print(f"{name}({text!r}): {result.content[0].text.splitlines()[0]}")
                wrong += kept is not expected
    return wrong

raise SystemExit(asyncio.run(main()))
PY
venv/bin/python run.py
