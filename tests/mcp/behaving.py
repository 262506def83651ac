"""An MCP server on standard input and output that behaves, of the era of `initialize`; standard library only."""

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

Json = dict[str, Any]

_PROTOCOL: Final = "2025-11-25"
_PNG: Final = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
_TEXT: Final = {"type": "string"}
_NUMBER: Final = {"type": "number"}
TOOLS: Final[dict[str, tuple[str, Json]]] = {
    "echo": ("Says the text again.", {"text": _TEXT}),
    "add": ("Adds two numbers. Both are needed.", {"a": _NUMBER, "b": _NUMBER}),
    "sleep": ("Answers after some seconds.", {"seconds": _NUMBER}),
    "big": ("Answers so many characters.", {"bytes": _NUMBER}),
    "env": ("The environment, as JSON.", {}),
    "cwd": ("The working directory.", {}),
    "pid": ("The id of the process.", {}),
    "image": ("One pixel, and a word on it.", {}),
    "structured": ("The sum as structured content only.", {}),
    "fail": ("Fails.", {}),
    "progress": ("Tells its progress.", {"steps": _NUMBER, "pause": _NUMBER}),
    "crash": ("Ends the server.", {}),
    "cancelled": ("How many calls were cancelled.", {}),
    "calls": ("How many calls there were, with this one.", {}),
}


class Server:
    """The base of every behaviour: a server that is right."""

    def __init__(self, arguments: list[str]) -> None:
        self.arguments = arguments
        self.tools: dict[str, Json] = {name: tool(name, *about) for name, about in TOOLS.items()}
        self.calls = 0
        self.cancelled: set[Any] = set()
        self._writing = threading.Lock()

    def run(self) -> None:
        self.start()
        for line in iter(sys.stdin.buffer.readline, b""):
            self.received(json.loads(line))
        self.end()

    def start(self) -> None:
        """Before anything is read."""

    def end(self) -> None:
        """After the end of its input."""
        sys.stdout.flush()
        os._exit(0)

    def received(self, message: Json) -> None:
        method = message.get("method")
        if method == "notifications/cancelled":
            self.cancelled.add(message["params"]["requestId"])
        elif method == "tools/call":
            self.calls += 1
            threading.Thread(target=self.call, args=(message,), daemon=True).start()
        elif "id" in message and method is not None:
            self.asked(message["id"], method, message.get("params") or {})

    def asked(self, request_id: Any, method: str, params: Json) -> None:
        if method == "initialize":
            self.answer(request_id, self.initialized(params))
        elif method == "tools/list":
            self.answer(request_id, self.listed(params.get("cursor")))
        elif method == "ping":
            self.answer(request_id, {})
        else:
            self.refuse(request_id, f"Method not found: {method}")

    def initialized(self, params: Json) -> Json:
        return {
            "protocolVersion": params.get("protocolVersion", _PROTOCOL),
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "misbehaving", "version": "1"},
        }

    def listed(self, cursor: str | None) -> Json:
        return {"tools": list(self.tools.values())}

    def call(self, message: Json) -> None:
        params = message["params"]
        do: Callable[[Json], Json] | None = getattr(self, f"do_{params['name']}", None)
        if do is None:
            self.refuse(message["id"], f"Unknown tool: {params['name']}", code=-32602)
            return
        result = do({**(params.get("arguments") or {}), "_": message})
        if message["id"] not in self.cancelled:
            self.answer_call(message["id"], result)

    def answer_call(self, request_id: Any, result: Json) -> None:
        self.answer(request_id, result)

    def answer(self, request_id: Any, result: Any) -> None:
        self.send({"jsonrpc": "2.0", "id": request_id, "result": result})

    def refuse(self, request_id: Any, text: str, *, code: int = -32601) -> None:
        self.send({"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": text}})

    def notify(self, method: str, params: Json) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def send(self, message: Json) -> None:
        self.write(json.dumps(message).encode() + b"\n")

    def write(self, data: bytes) -> None:
        with self._writing:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()

    # The tools.

    def do_echo(self, arguments: Json) -> Json:
        return text(arguments["text"])

    def do_add(self, arguments: Json) -> Json:
        return text(str(arguments["a"] + arguments["b"]))

    def do_sleep(self, arguments: Json) -> Json:
        time.sleep(arguments["seconds"])
        return text("slept")

    def do_big(self, arguments: Json) -> Json:
        return text("x" * arguments["bytes"])

    def do_env(self, arguments: Json) -> Json:
        return text(json.dumps(dict(os.environ)))

    def do_cwd(self, arguments: Json) -> Json:
        return text(str(Path.cwd()))

    def do_pid(self, arguments: Json) -> Json:
        return text(str(os.getpid()))

    def do_image(self, arguments: Json) -> Json:
        image = {"type": "image", "data": _PNG, "mimeType": "image/png"}
        return {"content": [image, {"type": "text", "text": "a pixel"}]}

    def do_structured(self, arguments: Json) -> Json:
        return {"content": [], "structuredContent": {"sum": 3}}

    def do_fail(self, arguments: Json) -> Json:
        return {**text("it does not work"), "isError": True}

    def do_progress(self, arguments: Json) -> Json:
        message = arguments["_"]
        token = message["params"].get("_meta", {}).get("progressToken")
        for step in range(arguments["steps"]):
            time.sleep(arguments["pause"])
            if token is not None:
                self.notify("notifications/progress", {"progressToken": token, "progress": step + 1})
        return text("done")

    def do_crash(self, arguments: Json) -> Json:
        os._exit(9)

    def do_cancelled(self, arguments: Json) -> Json:
        return text(str(len(self.cancelled)))

    def do_calls(self, arguments: Json) -> Json:
        return text(str(self.calls))

    # Arguments of the behaviour.

    def number(self, place: int, default: float) -> float:
        return float(self.arguments[place]) if len(self.arguments) > place else default

    def starts(self) -> int:
        """Counts this start in the file that the first argument names: how many there were before."""
        file = Path(self.arguments[0])
        before = int(file.read_text()) if file.exists() else 0
        file.write_text(str(before + 1))
        return before


def text(words: str) -> Json:
    return {"content": [{"type": "text", "text": words}]}


def tool(name: str, description: str, properties: Json) -> Json:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"name": name, "description": description, "inputSchema": schema}
