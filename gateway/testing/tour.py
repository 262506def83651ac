"""`make demo`: ten steps against a running gateway with the demo model, each shown as it happens."""

import asyncio
import importlib.util
import json
import re
import sqlite3
import sys
import tempfile
import textwrap
from collections.abc import Coroutine
from contextlib import closing
from pathlib import Path
from typing import Any, Final, Literal

from gateway.testing.messages import Response
from gateway.testing.raw_connection import connect
from gateway.testing.run import GatewayProcess

PASSTHROUGH, CONTEXT = "/v1/chat/completions", "/context/v1/chat/completions"
_ROOT = Path(__file__).parents[2]
_WORKFLOW = _ROOT / "workflows" / "table-report.yaml"
_CLOCK = {"command": sys.executable, "args": ["-m", "gateway.demo.clock"], "cwd": str(_ROOT)}
_PIP: Final = f"{Path(sys.executable).parent / 'pip'} install"
_SERVICE = "/mcp/services/clock"
#: The SDK and the server take a few seconds to load.
_MCP_S, _LOOK_S = 20.0, 0.1
#: What the guarded chain blocks, hides from the model, and answers from memory.
_GUARDED: Final = (
    {"use": "block_list", "with": {"phrases": {"projects": ["Blue Heron"]}}},
    {"use": "redact_pii"},
    {"use": "response_cache"},
)
_METRICS = (
    "gateway_agent_runs_total",
    "gateway_agent_parse_failures_total",
    "gateway_mcp_server_up",
    "gateway_tool_calls_total",
    "gateway_workflow_runs_total",
)
#: What a user of the SDK writes; run in a separate process, as they would.
_SDK = """
import sys, openai
client = openai.OpenAI(base_url=sys.argv[1] + "/context/v1", api_key="unused")
messages = [{"role": "user", "content": sys.argv[2]}]
for chunk in client.chat.completions.create(model="demo", stream=True, messages=messages):
    print(chunk.choices[0].delta.content or "", end="", flush=True)
"""
#: What a user of an MCP client sees: a list, a question about a call, its result.
_MCP_CLIENT = """
import asyncio, sys
from mcp import Client
from mcp_types import ElicitResult

async def decide(_context, question):
    print(question.message, "\\n-> approve")
    return ElicitResult(action="accept", content={"decision": "approve"})

async def main():
    async with Client(sys.argv[1] + "/mcp", elicitation_callback=decide) as client:
        print("tools:", *sorted(tool.name for tool in (await client.list_tools()).tools))
        print((await client.call_tool("clock__now", {"utc_offset_hours": 9})).content[0].text)

asyncio.run(main())
"""


class _LeftOutError(Exception):
    """A step that needs what is not installed here; the text names it."""


async def run_tour() -> int:
    """Run the steps; return the exit code: 0 if each went as it should."""
    with tempfile.TemporaryDirectory(prefix="twolane-demo-") as name:
        async with GatewayProcess(json.dumps(_prepare_config(Path(name)))) as gateway:
            _print(f"A gateway with the demo model on {gateway.base_url}, two tools on: file_operations, execute_sql.")
            outcomes = [await _run_step(title, step(gateway)) for title, step in _STEPS.items()]
    count = {outcome: outcomes.count(outcome) for outcome in ("done", "left out", "failed")}
    shown = ", ".join(f"{n} {outcome}" for outcome, n in count.items() if n)
    _print(f"\nOf {len(outcomes)} steps: {shown}.")
    return 1 if count["failed"] else 0


def _prepare_config(folder: Path) -> dict[str, object]:
    """Return the configuration, and write in `folder` what it names."""
    folder.joinpath("note.txt").write_text("Two lanes on one base URL.\n", encoding="utf-8")
    with closing(sqlite3.connect(folder / "shop.db")) as database:
        database.executescript("CREATE TABLE fruit (name, price); INSERT INTO fruit VALUES ('apple', 3), ('fig', 7)")
    workflows = folder / "workflows"
    workflows.mkdir(mode=0o700)
    if _WORKFLOW.exists():
        # A copy, as a workflow that a group may write is refused, and a checkout may be such a folder.
        workflows.joinpath(_WORKFLOW.name).touch(mode=0o600)
        workflows.joinpath(_WORKFLOW.name).write_bytes(_WORKFLOW.read_bytes())
    return {
        "tools": {
            "file_operations": {"roots": [str(folder)]},
            "execute_sql": {"url": f"sqlite:///{folder / 'shop.db'}"},
        },
        "mcp": {"servers": {"clock": _CLOCK}, "serve": {}} if _has_sdk() else {},
        "workflows": {"folder": str(workflows)},
        "chains": {"guarded": _GUARDED},
        "store": "sqlite:///:memory:",
    }


async def _run_step(title: str, step: Coroutine[object, object, bool]) -> Literal["done", "left out", "failed"]:
    _print(f"\n{title}")
    try:
        return "done" if await step else "failed"
    except _LeftOutError as error:
        _print(f"   Left out: {error}.")
        return "left out"
    except (OSError, TimeoutError, ValueError) as error:
        _print(f"   {error}")
        return "failed"


async def _show_passthrough(gateway: GatewayProcess) -> bool:
    answer = await _post(gateway, PASSTHROUGH, "Hello!")
    return "said" in _show_summary(answer) and not answer.list_values(b"x-context-run-id")


async def _show_safe_tool(gateway: GatewayProcess) -> bool:
    answer = await _post(gateway, CONTEXT, 'tool file_operations {"operation": "read", "path": "note.txt"}')
    return "Two lanes" in _show_summary(answer)


async def _show_several_rounds(gateway: GatewayProcess) -> bool:
    answer = await _post(
        gateway, CONTEXT, 'steps 3 tool execute_sql {"sql": "SELECT * FROM fruit WHERE price > $step"}'
    )
    return "round 3" in _show_summary(answer)


async def _show_repair(gateway: GatewayProcess) -> bool:
    answer = await _post(gateway, CONTEXT, 'malformed 1 tool execute_sql {"sql": "SELECT count(*) FROM fruit"}')
    return "rows" in _show_summary(answer)


async def _show_sdk(gateway: GatewayProcess) -> bool:
    if importlib.util.find_spec("openai") is None:
        raise _LeftOutError(f"openai-python is not installed here ({_PIP} openai)")
    words = 'tool execute_sql {"sql": "SELECT name FROM fruit ORDER BY price"}'
    return "fig" in await _run_program(_SDK, gateway.base_url, words)


async def _show_mcp_tool(gateway: GatewayProcess) -> bool:
    if not _has_sdk():
        raise _LeftOutError(f"the SDK for MCP is not installed here ({_PIP} 'twolane[mcp]')")
    clock = await _wait_until_running(gateway, _SERVICE)
    _print(f"   GET {_SERVICE}  {clock['state']}, {clock['transport']}, tools: {clock['tools']}")
    held = await _post(gateway, CONTEXT, 'tool clock.now {"utc_offset_hours": 9}')
    approve = re.search(r"^approve ap_\w+ \w+$", _show_summary(held), re.MULTILINE)
    return approve is not None and "+09:00" in _show_summary(await _post(gateway, CONTEXT, approve[0]))


async def _show_mcp_client(gateway: GatewayProcess) -> bool:
    if not _has_sdk():
        raise _LeftOutError(f"the SDK for MCP is not installed here ({_PIP} 'twolane[mcp]')")
    printed = await _run_program(_MCP_CLIENT, gateway.base_url)
    return "Approve this call?" in printed and "+09:00" in printed


async def _run_program(program: str, *arguments: str) -> str:
    """Show and return what a program of a user prints; an empty text if it fails."""
    command = (sys.executable, "-c", program, *arguments)
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    out, _ = await asyncio.wait_for(process.communicate(), 60)
    _print(textwrap.indent(out.decode().strip(), "   "))
    return out.decode() if process.returncode == 0 else ""


async def _wait_until_running(gateway: GatewayProcess, path: str) -> dict[str, Any]:
    """Return the service once it runs, which takes a few seconds. Raises TimeoutError."""
    service: dict[str, Any] = {}
    try:
        async with asyncio.timeout(_MCP_S):
            while True:
                service = json.loads((await _get(gateway, path)).payload)
                if service["state"] == "running":
                    return service
                await asyncio.sleep(_LOOK_S)
    except TimeoutError:
        raise TimeoutError(f"{path} does not run after {_MCP_S:g} s: {service.get('error')}") from None


async def _show_workflow(gateway: GatewayProcess) -> bool:
    if not _WORKFLOW.exists():
        raise _LeftOutError("the shipped workflows are not here, they are in the repository")
    answer = await _post(gateway, CONTEXT, "/table-report title=Fruit SELECT name, price FROM fruit ORDER BY price")
    report = _show_summary(answer)
    return report.startswith("# Fruit") and "apple" in report


async def _show_guardrails(gateway: GatewayProcess) -> bool:
    """Send personal data twice, and the demo model returns what it got; then send a blocked phrase."""
    told = "Write to ann@example.com"
    first, again = [await _post(gateway, CONTEXT, told, "X-Context-Chain: guarded") for _ in range(2)]
    cached = [answer.list_values(b"x-context-cache") for answer in (first, again)]
    hidden = _show_summary(first)
    _print("   X-Context-Cache: " + ", then ".join(value.decode() for values in cached for value in values))
    blocked = _show_summary(await _post(gateway, CONTEXT, "Tell me about Blue Heron", "X-Context-Chain: guarded"))
    return "[EMAIL_1]" in hidden and cached == [[b"miss"], [b"hit"]] and "rule of the gateway: projects" in blocked


async def _show_metrics(gateway: GatewayProcess) -> bool:
    page = (await _get(gateway, "/metrics")).payload.decode()
    lines = [line for line in page.splitlines() if line.startswith(_METRICS)]
    for line in lines:
        _print(f"   {line}")
    return any('outcome="completed"' in line for line in lines)


_STEPS = {
    "1. Passthrough: /v1/chat/completions, byte for byte": _show_passthrough,
    "2. A safe tool: the model reads a file by itself": _show_safe_tool,
    "3. Several rounds: three queries, one answer": _show_several_rounds,
    "4. A malformed call, repaired: the model reads the error, and tries again": _show_repair,
    "5. openai-python, streaming, unchanged but for its base URL": _show_sdk,
    "6. A tool of an MCP server: no rule knows it, so a person is asked": _show_mcp_tool,
    "7. A workflow, called by its name in the chat: a query, the model, a page": _show_workflow,
    "8. The gateway as an MCP server: its client asks the person": _show_mcp_client,
    "9. Guardrails and a cache: placeholders for personal data, a blocked phrase, an answer kept": _show_guardrails,
    "10. Metrics of what happened": _show_metrics,
}


async def _post(gateway: GatewayProcess, path: str, text: str, *fields: str) -> Response:
    _print("   ".join((f"   POST {path}", *fields, text)))
    body = json.dumps({"model": "demo", "temperature": 0, "messages": [{"role": "user", "content": text}]}).encode()
    own = ("Host: localhost", "Content-Type: application/json", f"Content-Length: {len(body)}")
    head = "\r\n".join((f"POST {path} HTTP/1.1", *own, *fields))
    return await _send(gateway, head.encode() + b"\r\n\r\n" + body)


async def _get(gateway: GatewayProcess, path: str) -> Response:
    return await _send(gateway, f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())


async def _send(gateway: GatewayProcess, request: bytes) -> Response:
    async with connect(gateway.host, gateway.port) as client:
        await client.send(request)
        return await client.read_response(timeout_s=20)


def _show_summary(answer: Response) -> str:
    """Show and return the model's text; an error answer has no choices."""
    body = json.loads(answer.payload)
    text = body["choices"][0]["message"]["content"] if answer.status == 200 else body["error"]["message"]
    _print(textwrap.indent(text.strip(), "   "))
    return str(text)


def _has_sdk() -> bool:
    return importlib.util.find_spec("mcp") is not None


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(asyncio.run(run_tour()))
