"""An MCP server on standard input and output that writes the ledger; standard library only.

`lines.py LEDGER TITLE [SECONDS]`: its one tool `write`, which takes so long, is described by what stands in the file
TITLE. It tells when that changes, and writes down when it was asked for the new description.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path

LEDGER, TITLE = Path(sys.argv[1]), Path(sys.argv[2])
CALL_S = float(sys.argv[3]) if len(sys.argv) > 3 else 0.3
writing = threading.Lock()


def note(line: dict[str, object]) -> None:
    file = os.open(LEDGER, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, json.dumps(line).encode() + b"\n")
    finally:
        os.close(file)


def send(message: dict[str, object]) -> None:
    with writing:
        sys.stdout.buffer.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        sys.stdout.buffer.flush()


def call(number: object, arguments: dict[str, object]) -> None:
    note({"run": arguments["run"], "n": arguments["n"], "at_s": time.time(), "pid": os.getpid()})
    time.sleep(CALL_S)
    send({"id": number, "result": {"content": [{"type": "text", "text": f"wrote {arguments['n']}"}]}})


def listed() -> dict[str, object]:
    title = TITLE.read_text(encoding="utf-8")
    note({"run": "", "n": 0, "at_s": time.time(), "pid": os.getpid(), "title": title})
    properties = {"run": {"type": "string"}, "n": {"type": "integer"}}
    schema = {"type": "object", "properties": properties, "required": ["run", "n"]}
    return {"tools": [{"name": "write", "description": title, "inputSchema": schema}]}


def watch() -> None:
    title = TITLE.read_text(encoding="utf-8")
    while True:
        time.sleep(0.02)
        if (now := TITLE.read_text(encoding="utf-8")) != title:
            title = now
            send({"method": "notifications/tools/list_changed", "params": {}})


threading.Thread(target=watch, daemon=True).start()
for text in iter(sys.stdin.buffer.readline, b""):
    message = json.loads(text)
    method, number, params = message.get("method"), message.get("id"), message.get("params") or {}
    if method == "tools/call":
        threading.Thread(target=call, args=(number, params["arguments"]), daemon=True).start()
    elif method == "initialize":
        about = {"capabilities": {"tools": {"listChanged": True}}, "serverInfo": {"name": "lines", "version": "1"}}
        send({"id": number, "result": {"protocolVersion": params["protocolVersion"], **about}})
    elif method == "tools/list":
        send({"id": number, "result": listed()})
    elif number is not None and method is not None:
        send({"id": number, "result": {}})
