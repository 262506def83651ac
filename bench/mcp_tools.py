"""An MCP server with many tools, over standard input and output: `python -m bench.mcp_tools COUNT`."""

import json
import sys
from typing import Any, Final

_SCHEMA: Final = {
    "type": "object",
    "properties": {f"value{number}": {"type": "string", "description": "A value."} for number in range(5)},
    "required": ["value0"],
}


def build_tools(count: int) -> list[dict[str, Any]]:
    """Return the definitions of so many tools."""
    return [
        {
            "name": f"tool{number:04}",
            "description": f"Tool {number}. " + "It does nothing. " * 10,
            "inputSchema": _SCHEMA,
        }
        for number in range(count)
    ]


def main() -> None:
    """Answer until standard input ends."""
    listed = build_tools(int(sys.argv[1]))
    for line in sys.stdin:
        message: dict[str, Any] = json.loads(line)
        if "id" not in message:
            continue
        results: dict[str, dict[str, Any]] = {"tools/list": {"tools": listed}}
        if message["method"] == "initialize":
            results["initialize"] = {
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "bench", "version": "1"},
            }
        result = results.get(message["method"], {})
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)


if __name__ == "__main__":
    main()
