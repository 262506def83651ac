#!/bin/sh
# fastmcp 4.2.3: a synchronous tool with a timeout.
# Expected: the error comes at the timeout, and the tool was stopped or the error says that it goes on.
# Seen: the error comes once the tool has run to its end, with its effect; it says that the execution timed out, and the
#       tool's result is gone.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' INT TERM
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q fastmcp==4.2.3
cat > run.py <<'PY'
import asyncio
import logging
import time

from fastmcp import Client, FastMCP

logging.disable()
server = FastMCP("orders")
orders = []

@server.tool(timeout=0.2)
def order(item: str) -> str:
    time.sleep(1)
    orders.append(item)
    return "ordered"

async def main() -> bool:
    async with Client(server) as client:
        result = await client.call_tool("order", {"item": "tea"}, raise_on_error=False)
    print("error:", result.is_error, "text:", result.content[0].text, "orders:", orders)
    return result.is_error and "timed out" in result.content[0].text and orders == ["tea"]

raise SystemExit(not asyncio.run(main()))
PY
venv/bin/python run.py
