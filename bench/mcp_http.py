"""MCP servers over HTTP: `python -m bench.mcp_http PORT COUNT`. One process; each path is a server with COUNT tools.

A tool returns the text that it is given. Those at `/dead` never answer a call.
"""

import asyncio
import logging
import sys
from typing import Any, Final

import orjson
from aiohttp import web

from bench.mcp_tools import build_tools

DEAD: Final = "dead"


def main() -> None:
    """Serve until the process is terminated."""
    port, count = map(int, sys.argv[1:])
    listed = [{**tool, "inputSchema": {"type": "object"}} for tool in build_tools(count)]

    async def answer_request(request: web.Request) -> web.Response:
        message: dict[str, Any] = orjson.loads(await request.read())
        if "id" not in message:
            return web.Response(status=202)
        method, params = message["method"], message.get("params", {})
        result: dict[str, Any] = {}
        if method == "initialize":
            result = {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "bench", "version": "1"},
            }
        elif method == "tools/list":
            result = {"tools": listed}
        elif method == "tools/call":
            if request.match_info["name"] == DEAD:
                await asyncio.Event().wait()
            result = {"content": [{"type": "text", "text": params["arguments"]["text"]}]}
        elif method != "ping":
            error = {"code": -32601, "message": "unknown"}
            return _build_json_answer({"jsonrpc": "2.0", "id": message["id"], "error": error})
        return _build_json_answer({"jsonrpc": "2.0", "id": message["id"], "result": result})

    logging.disable()
    server = web.Application()
    server.router.add_post("/{name}", answer_request)
    web.run_app(server, host="127.0.0.1", port=port, print=None, access_log=None, backlog=1024)


def _build_json_answer(message: dict[str, Any]) -> web.Response:
    return web.Response(body=orjson.dumps(message), content_type="application/json")


if __name__ == "__main__":
    main()
