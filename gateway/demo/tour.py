"""`make demo`: six steps against a running gateway with the demo model, each shown as it happens."""

import asyncio
import importlib.util
import json
import sqlite3
import sys
import tempfile
from collections.abc import Coroutine
from contextlib import closing
from pathlib import Path

from gateway.testing.messages import Response
from gateway.testing.peer import connect
from gateway.testing.run import GatewayProcess

PASSTHROUGH, CONTEXT = "/v1/chat/completions", "/context/v1/chat/completions"
_METRICS = ("gateway_agent_runs_total", "gateway_tool_calls_total", "gateway_agent_parse_failures_total")
#: What a user of the SDK writes; run in a process of its own, as they would.
_SDK = """
import sys, openai
client = openai.OpenAI(base_url=sys.argv[1] + "/context/v1", api_key="unused")
messages = [{"role": "user", "content": sys.argv[2]}]
for chunk in client.chat.completions.create(model="demo", stream=True, messages=messages):
    print(chunk.choices[0].delta.content or "", end="", flush=True)
"""


async def tour() -> int:
    """Runs the steps; the exit code: 0 if each went as it should."""
    with tempfile.TemporaryDirectory(prefix="twolane-demo-") as name:
        folder = Path(name)
        folder.joinpath("note.txt").write_text("Two lanes on one base URL.\n", encoding="utf-8")
        with closing(sqlite3.connect(folder / "shop.db")) as database:
            database.executescript(
                "CREATE TABLE fruit (name, price); INSERT INTO fruit VALUES ('apple', 3), ('fig', 7)"
            )
        config = {
            "tools": {
                "file_operations": {"roots": [str(folder)]},
                "execute_sql": {"url": f"sqlite:///{folder / 'shop.db'}"},
            },
            "store": "sqlite:///:memory:",
        }
        async with GatewayProcess(json.dumps(config)) as gateway:
            _say(f"A gateway with the demo model on {gateway.base_url}, two tools on: file_operations, execute_sql.")
            failed = [title for title, step in _STEPS.items() if not await _passed(title, step(gateway))]
    _say(f"\n{len(failed)} of {len(_STEPS)} steps failed." if failed else "\nAll six steps went as they should.")
    return 1 if failed else 0


async def _passed(title: str, step: Coroutine[object, object, bool]) -> bool:
    _say(f"\n{title}")
    try:
        return await step
    except (OSError, TimeoutError, ValueError) as error:
        _say(f"   {error}")
        return False


async def _passthrough(gateway: GatewayProcess) -> bool:
    answer = await _ask(gateway, PASSTHROUGH, "Hello!")
    return "said" in _told(answer) and not answer.values(b"x-context-run-id")


async def _safe_tool(gateway: GatewayProcess) -> bool:
    answer = await _ask(gateway, CONTEXT, 'tool file_operations {"operation": "read", "path": "note.txt"}')
    return "Two lanes" in _told(answer)


async def _several_rounds(gateway: GatewayProcess) -> bool:
    answer = await _ask(gateway, CONTEXT, 'steps 3 tool execute_sql {"sql": "SELECT * FROM fruit WHERE price > $step"}')
    return "round 3" in _told(answer)


async def _repaired(gateway: GatewayProcess) -> bool:
    answer = await _ask(gateway, CONTEXT, 'malformed 1 tool execute_sql {"sql": "SELECT count(*) FROM fruit"}')
    return "rows" in _told(answer)


async def _sdk(gateway: GatewayProcess) -> bool:
    if importlib.util.find_spec("openai") is None:
        _say("   openai-python is not installed here (pip install openai), so this step is left out.")
        return True
    words = 'tool execute_sql {"sql": "SELECT name FROM fruit ORDER BY price"}'
    command = (sys.executable, "-c", _SDK, gateway.base_url, words)
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    out, _ = await asyncio.wait_for(process.communicate(), 60)
    _say(f"   {out.decode()}")
    return process.returncode == 0 and b"fig" in out


async def _metrics(gateway: GatewayProcess) -> bool:
    page = (await _send(gateway, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")).payload.decode()
    lines = [line for line in page.splitlines() if line.startswith(_METRICS)]
    for line in lines:
        _say(f"   {line}")
    return any('outcome="completed"' in line for line in lines)


_STEPS = {
    "1. Passthrough: /v1/chat/completions, byte for byte": _passthrough,
    "2. A safe tool: the model reads a file by itself": _safe_tool,
    "3. Several rounds: three queries, one answer": _several_rounds,
    "4. A malformed call, repaired: the model is told, and tries again": _repaired,
    "5. openai-python, streaming, unchanged but for its base URL": _sdk,
    "6. Metrics of what happened": _metrics,
}


async def _ask(gateway: GatewayProcess, path: str, text: str) -> Response:
    _say(f"   POST {path}  {text}")
    body = json.dumps({"model": "demo", "messages": [{"role": "user", "content": text}]}).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return await _send(gateway, head.encode() + b"\r\n\r\n" + body)


async def _send(gateway: GatewayProcess, request: bytes) -> Response:
    async with connect(gateway.host, gateway.port) as client:
        await client.send(request)
        return await client.read_response(timeout_s=20)


def _told(answer: Response) -> str:
    """What the model said, shown; an error answer has no choices."""
    body = json.loads(answer.payload)
    text = body["choices"][0]["message"]["content"] if answer.status == 200 else body["error"]["message"]
    _say(f"   {text.strip()}")
    return str(text)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(asyncio.run(tour()))
