"""The costs of the console: each of its pages with many runs and approvals, open inboxes, and its first request."""

import asyncio
import hashlib
import importlib.util
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final, cast

from bench.console_reader import CHAT, CONSOLE, KEY, asked, open_inboxes, sign_in, times_ms
from bench.console_stock import AGE_S, CALLER, LONG_CONVERSATION, RARE_CALLER, TENANT, USER, Templates, fill
from bench.grown import Client, Grown, Json, chat, get, told
from bench.model import ROUNDS, WRITES, Model
from gateway.console.assembly import assemble, prepared
from gateway.console.pages.runs import STATES
from gateway.console.site import Conditions

PAGE_BAR_MS, INBOX_BAR, AT_ONCE = 100.0, 0.05, 4
#: Steps of the longest run, and tools of the MCP server.
LONG_RUN, MCP_TOOLS, WORKFLOWS = 100, 200, 20
WITHIN_S: Final = 60.0

_WORKFLOW: Final = """\
name: flow{number}
category: category{category}
description: Answers a question.
parameters:
  question: {{default: Why?, description: The question.}}
steps:
  - {{name: look, tool: file_operations, with: {{operation: read, path: note1.txt}}}}
  - {{name: answer, prompt: "{{{{params.question}}}} {{{{steps.look}}}}"}}
"""


def measure(folder: Path, *, runs: int, requests: int, inboxes: int, seconds: float, starts: int) -> None:
    """Print the rows."""
    with Model() as model:
        _starts(folder, model, starts)
        grown = Grown(folder / "console", config(folder / "console", model))
        fill(grown.store, _templates(grown), runs)
        with grown as gateway:
            _pages(gateway, runs, requests)
        with grown as gateway:
            _inboxes(gateway, inboxes, seconds)


def config(folder: Path, model: Model, *, console: bool = True) -> Json:
    """Return a configuration with workflows, a key for everything, and MCP servers if their SDK is installed."""
    files, workflows = folder / "files", folder / "workflows"
    for made in (files, workflows):
        made.mkdir(parents=True, exist_ok=True)
    for number in range(LONG_RUN + 1):
        (files / f"note{number}.txt").write_text("A line of a note.\n" * 50)
    for number in range(WORKFLOWS):
        (workflows / f"flow{number}.yaml").write_text(_WORKFLOW.format(number=number, category=number % 3))
    scopes = ["passthrough", "context", "approve", "admin", "metrics"]
    key = {"name": "console", "sha256": hashlib.sha256(KEY.encode()).hexdigest(), "scopes": scopes, "tenant": TENANT}
    program = {"command": sys.executable, "args": ["-m", "bench.mcp_tools", str(MCP_TOOLS)], "start_timeout": "30s"}
    return {
        "upstreams": [{"name": "model", "base_url": f"http://127.0.0.1:{model.port}/v1", "api_key": "sk-none"}],
        "keys": [key],
        "tools": {"file_operations": {"roots": [str(files)], "write": True}},
        "chains": {"assistant": [{"use": "memory"}, {"use": "agent_loop", "with": {"max_tool_calls": LONG_RUN}}]},
        "workflows": {"folder": str(workflows)},
        "mcp": {"servers": {"bench": program} if _has_mcp() else {}},
        "console": {"enabled": console},
    }


def _has_mcp() -> bool:
    return importlib.util.find_spec("mcp") is not None


def _starts(folder: Path, model: Model, count: int) -> None:
    """Measure starts with and without a console, in turn, and what its first request costs."""
    took_s: dict[bool, list[float]] = {True: [], False: []}
    firsts: list[tuple[float, float, float, float]] = []
    for number in range(count):
        for console in (True, False):
            place = folder / f"start{number}{console}"
            place.mkdir()
            gateway = Grown(place, {**config(place, model, console=console), "mcp": {"servers": {}}})
            try:
                took_s[console].append(gateway.start())
                if console:
                    firsts.append(_first(gateway))
            finally:
                gateway.__exit__(None, None, None)
    for console, name in ((True, "with"), (False, "without")):
        figures = sorted(took_s[console])
        told(f"start {name} the console", "", f"{median(figures):.2f} s ({figures[0]:.2f} to {figures[-1]:.2f})")
    first, second, before_mb, after_mb = (median(column) for column in zip(*firsts, strict=True))
    told("the first page of a worker", "", f"{first:.0f} ms, the next {second:.0f} ms")
    told("memory before the first page, and after", "", f"{before_mb:.1f}; {after_mb:.1f} MB")


def _first(gateway: Grown) -> tuple[float, float, float, float]:
    before_mb = gateway.memory_mb()
    took_ms = []
    with Client(gateway.port) as client:
        for target in (f"{CONSOLE}/sign-in",) * 2:
            began_s = time.perf_counter()
            client.ask(get(target))
            took_ms.append((time.perf_counter() - began_s) * 1e3)
    times_ms(gateway.port, sign_in(gateway.port), "", 1)
    return (*cast("tuple[float, float]", tuple(took_ms)), before_mb, gateway.memory_mb())


def _templates(grown: Grown) -> Templates:
    """Let a gateway make one run of each kind."""
    with grown as gateway, Client(gateway.port) as client:
        plain = _ran(client, f"{ROUNDS}1 a plain question")
        steps = _ran(client, f"{ROUNDS}3 some notes")
        _ran(client, f"{ROUNDS}{LONG_RUN - 1} all notes")
        approved = _asks(client, "an approved note")
        _approve(client, approved)
        run_id = str(approved["run_id"])
        _until_ended(client, run_id)
        pending = str(_asks(client, "a note that waits")["run_id"])
        started = asked(client, "/workflows/flow1/runs", {"parameters": {"question": "What is in the note?"}})
        workflow = str(started["id"])
        _until_ended(client, workflow)
    return Templates(plain=plain, steps=steps, approved=run_id, pending=pending, workflow=workflow)


def _ran(client: Client, words: str) -> str:
    """Return the id of the run of a chat."""
    asked(client, CHAT, chat(words))
    return str(asked(client, "/context/runs?limit=1")["data"][0]["id"])


def _asks(client: Client, words: str) -> Json:
    """Return the approval that a chat waits for."""
    asked(client, CHAT, chat(f"{WRITES}1 {words}"))
    found: Json = asked(client, "/context/approvals?status=pending&order=newest&limit=1")["data"][0]
    return found


def _approve(client: Client, approval: Json) -> None:
    body = {"decision": "approve", "sha256": approval["sha256"]}
    asked(client, f"/context/approvals/{approval['id']}", body)


def _until_ended(client: Client, run_id: str) -> None:
    ends_s = time.monotonic() + WITHIN_S
    while (run := asked(client, f"/context/runs/{run_id}"))["state"] != "completed":
        if time.monotonic() > ends_s:
            raise SystemExit(f"bench: a run is {run['state']} after {WITHIN_S} s: {run}")
        time.sleep(0.05)


# Pages.


def _pages(gateway: Grown, runs: int, requests: int) -> None:
    """Measure all pages that there are."""
    with Client(gateway.port) as client:
        targets = _targets(client)
    cookie = sign_in(gateway.port)
    for path in sorted(asyncio.run(_paths())):
        if path not in targets and ("services/" not in path or _has_mcp()):
            raise SystemExit(f"bench: the console has a page {path!r} that growth_console.py does not measure")
    for path, shown in targets.items():
        for query in shown:
            name, target = query if isinstance(query, tuple) else (path + query, path + query)
            alone = times_ms(gateway.port, cookie, target, requests)
            together = times_ms(gateway.port, cookie, target, requests, at_once=AT_ONCE)
            missed = " MISS" if _p95(alone) > PAGE_BAR_MS else ""
            told(
                f"{CONSOLE}{name}",
                f"{runs} runs",
                f"{median(alone):.0f} ms, p95 {_p95(alone):.0f}{missed}; {AT_ONCE} at a time "
                f"{median(together):.0f}, p95 {_p95(together):.0f}",
            )


def _p95(sorted_ms: Sequence[float]) -> float:
    return sorted_ms[len(sorted_ms) * 95 // 100]


async def _paths() -> list[str]:
    """Return the paths of all pages that the console answers to GET."""
    sessions = (b"", lambda: 0.0, lambda: 0.0)
    console = assemble(prepared(), sockets={"listen": "-"}, conditions=cast("Conditions", None), sessions=sessions)
    await console.close()
    return [page.path for page in console.console.pages if page.method == "GET"]
