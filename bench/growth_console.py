"""The costs of the console: each of its pages with many runs and approvals, open inboxes, and its first request."""

import asyncio
import hashlib
import importlib.util
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple, cast

from bench.console_pages import Place, list_combinations, list_page_addresses
from bench.console_reader import CHAT, CONSOLE, KEY, measure_times_ms, open_inboxes, request_json, sign_in
from bench.console_stock import TENANT, WORKFLOWS, Templates, fill
from bench.grown import Client, Grown, Json, build_chat, get, print_row
from bench.model import ROUNDS, WRITES, Model
from gateway.console.assembly import assemble, compile_templates
from gateway.console.middleware import Conditions
from gateway.plugins.stores.sqlite.file_check import read_finding

PAGE_BAR_MS, INBOX_BAR, AT_ONCE = 100.0, 0.05, 4
#: Steps of the longest run, and tools of the MCP server.
LONG_RUN, MCP_TOOLS = 100, 200
WITHIN_S: Final = 60.0
_MCP_SERVER: Final = Path(__file__).with_name("mcp_tools.py")

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
        _measure_starts(folder, model, starts)
        grown = Grown(folder / "console", build_config(folder / "console", model))
        templates = _make_templates(grown)
        fill(grown.store, templates, runs)
        with grown as gateway:
            _measure_pages(gateway, templates, runs, requests)
        with grown as gateway:
            _measure_inboxes(gateway, inboxes, seconds)


def build_config(folder: Path, model: Model, *, console: bool = True) -> Json:
    """Return a configuration with workflows, a key for everything, and MCP servers if their SDK is installed."""
    files, workflows = folder / "files", folder / "workflows"
    for made in (files, workflows):
        made.mkdir(parents=True, exist_ok=True)
    for number in range(LONG_RUN + 1):
        (files / f"note{number}.txt").write_text("".join(f"Line {line}.\n" for line in range(200)))
    for number in range(WORKFLOWS):
        (workflows / f"flow{number}.yaml").write_text(_WORKFLOW.format(number=number, category=number % 3))
    scopes = ["passthrough", "context", "approve", "admin", "metrics"]
    key = {"name": "console", "sha256": hashlib.sha256(KEY.encode()).hexdigest(), "scopes": scopes, "tenant": TENANT}
    program = {"command": sys.executable, "args": [str(_MCP_SERVER), str(MCP_TOOLS)], "start_timeout": "30s"}
    return {
        "upstreams": [{"name": "model", "base_url": f"http://127.0.0.1:{model.port}/v1", "api_key": "sk-none"}],
        "keys": [key],
        "tools": {"file_operations": {"roots": [str(files)], "write": True}},
        "chains": {
            "assistant": [
                {"use": "memory"},
                {"use": "prompt_enhancer"},
                {"use": "agent_loop", "with": {"max_tool_calls": LONG_RUN}},
            ]
        },
        "workflows": {"folder": str(workflows)},
        "mcp": {"servers": {"bench": program} if _has_mcp() else {}},
        "console": {"enabled": console},
    }


def _has_mcp() -> bool:
    return importlib.util.find_spec("mcp") is not None


def _measure_starts(folder: Path, model: Model, count: int) -> None:
    """Measure starts with and without a console, in turn, and what its first request costs."""
    took_s: dict[bool, list[float]] = {True: [], False: []}
    firsts: list[tuple[float, float, float, float]] = []
    for number in range(count):
        for console in (True, False):
            place = folder / f"start{number}{console}"
            place.mkdir()
            gateway = Grown(place, {**build_config(place, model, console=console), "mcp": {"servers": {}}})
            try:
                took_s[console].append(gateway.start())
                if console:
                    firsts.append(_measure_first(gateway))
            finally:
                gateway.__exit__(None, None, None)
    for console, name in ((True, "with"), (False, "without")):
        figures = sorted(took_s[console])
        print_row(f"start {name} the console", "", f"{median(figures):.2f} s ({figures[0]:.2f} to {figures[-1]:.2f})")
    first, second, before_mb, after_mb = (median(column) for column in zip(*firsts, strict=True))
    print_row("the first page of a worker", "", f"{first:.0f} ms, the next {second:.0f} ms")
    print_row("memory before the first page, and after", "", f"{before_mb:.1f}; {after_mb:.1f} MB")


def _measure_first(gateway: Grown) -> tuple[float, float, float, float]:
    before_mb = gateway.read_memory_mb()
    took_ms = []
    with Client(gateway.port) as client:
        for target in (f"{CONSOLE}/sign-in",) * 2:
            began_s = time.perf_counter()
            client.ask(get(target))
            took_ms.append((time.perf_counter() - began_s) * 1e3)
    measure_times_ms(gateway.port, sign_in(gateway.port), "", 1)
    return (*cast("tuple[float, float]", tuple(took_ms)), before_mb, gateway.read_memory_mb())


def _make_templates(grown: Grown) -> Templates:
    """Let a gateway make one run of each kind."""
    with grown as gateway, Client(gateway.port) as client:
        plain = _run_chat(client, f"{ROUNDS}1 a plain question")
        steps = _run_chat(client, f"{ROUNDS}3 some notes")
        long = _run_chat(client, f"{ROUNDS}{LONG_RUN - 1} all notes")
        approved = _wait_for_approval(client, "an approved note")
        _approve(client, approved)
        run_id = str(approved["run_id"])
        _wait_until_ended(client, run_id)
        pending = str(_wait_for_approval(client, "a note that waits")["run_id"])
        started = request_json(client, "/workflows/flow1/runs", {"parameters": {"question": "What is in the note?"}})
        workflow = str(started["id"])
        _wait_until_ended(client, workflow)
    return Templates(plain=plain, steps=steps, approved=run_id, pending=pending, workflow=workflow, long=long)


def _run_chat(client: Client, words: str) -> str:
    """Return the id of the run of a chat."""
    request_json(client, CHAT, build_chat(words))
    return str(request_json(client, "/context/runs?limit=1")["data"][0]["id"])


def _wait_for_approval(client: Client, words: str) -> Json:
    """Return the approval that a chat waits for."""
    request_json(client, CHAT, build_chat(f"{WRITES}1 {words}"))
    found: Json = request_json(client, "/context/approvals?status=pending&order=newest&limit=1")["data"][0]
    return found


def _approve(client: Client, approval: Json) -> None:
    body = {"decision": "approve", "sha256": approval["sha256"]}
    request_json(client, f"/context/approvals/{approval['id']}", body)


def _wait_until_ended(client: Client, run_id: str) -> None:
    _wait_until_done(
        lambda: request_json(client, f"/context/runs/{run_id}")["state"] == "completed", f"the run {run_id}"
    )


def _wait_until_done(is_done: Callable[[], bool], what: str) -> None:
    ends_s = time.monotonic() + WITHIN_S
    while not is_done():
        if time.monotonic() > ends_s:
            raise SystemExit(f"bench: {what} takes more than {WITHIN_S:.0f} s")
        time.sleep(0.05)


def _measure_pages(gateway: Grown, templates: Templates, runs: int, requests: int) -> None:
    """Measure all pages that there are, after the check of a large store that begins with its gateway."""
    _wait_until_done(lambda: read_finding(str(gateway.store)) is None, "the check of the store")
    with Client(gateway.port) as client:
        if _has_mcp():
            own = {"name": "own", "url": "http://127.0.0.1:9/mcp", "enabled": False}
            request_json(client, "/mcp/services", own, status=201)
            _wait_until_done(
                lambda: request_json(client, "/mcp/services/bench")["tools"] == MCP_TOOLS, "the MCP server"
            )
        shown, narrowed = list_page_addresses(client, templates), list_combinations(client)
    for path in asyncio.run(_list_paths()):
        if path not in shown:
            raise SystemExit(f"bench: the console has a page {path!r}: add it to bench/console_pages.py")
    cookie, size = sign_in(gateway.port), f"{runs} runs"
    shown_places = [
        place for path, found in shown.items() if _has_mcp() or not path.startswith("/services/") for place in found
    ]
    for place in shown_places:
        _print_times(place.name, size, _measure_times(gateway, cookie, place, requests))
    figures = [(_measure_times(gateway, cookie, place, requests // 4), place) for place in narrowed]
    alone = max(figures, key=lambda figure: _compute_p95(figure[0][0]))
    _print_times(f"the slowest of {len(figures)} combinations: {alone[1].name}", size, alone[0])
    together = max(figures, key=lambda figure: _compute_p95(figure[0][1]))
    _print_times(f"the slowest of them, {AT_ONCE} at a time: {together[1].name}", size, together[0])
    with gateway.measured() as cost:
        for place in (*shown_places, *narrowed):
            measure_times_ms(gateway.port, cookie, place.target, 5)
    print_row("all pages, one after the other", size, f"{cost.cpu_s:.0f} s of CPU", cost.held)


class Times(NamedTuple):
    """The times of a page, one at a time and some at a time, the shortest first; and its CPU time."""

    alone: Sequence[float]
    together: Sequence[float]
    cpu_ms: float


def _measure_times(gateway: Grown, cookie: Mapping[str, str], place: Place, requests: int) -> Times:
    port, target = gateway.port, place.target
    measure_times_ms(port, cookie, target, 2)
    with gateway.counted() as cost:
        alone = measure_times_ms(port, cookie, target, requests)
    return Times(alone, measure_times_ms(port, cookie, target, requests, at_once=AT_ONCE), cost.cpu_s / requests * 1e3)


def _print_times(name: str, size: str, times: Times) -> None:
    alone, together, cpu_ms = times
    missed = " MISS" if _compute_p95(alone) > PAGE_BAR_MS else ""
    several = f"{AT_ONCE} at a time {median(together):.0f}, p95 {_compute_p95(together):.0f} ms; {cpu_ms:.1f} ms of CPU"
    print_row(
        f"`{CONSOLE}{name}`" if name.startswith(("/", "?")) or not name else name,
        size,
        f"{median(alone):.0f}, p95 {_compute_p95(alone):.0f} ms{missed}; {several}",
    )


def _compute_p95(sorted_ms: Sequence[float]) -> float:
    return sorted_ms[len(sorted_ms) * 95 // 100]


async def _list_paths() -> list[str]:
    """Return the paths of all pages that the console answers to GET."""
    sessions = (b"", lambda: 0.0, lambda: 0.0)
    console = assemble(
        compile_templates(), sockets={"listen": "-"}, conditions=cast("Conditions", None), sessions=sessions
    )
    await console.close()
    return [page.path for page in console.console.pages if page.method == "GET"]


def _measure_inboxes(gateway: Grown, count: int, seconds: float) -> None:
    """Measure open inboxes while nothing happens, and with a new call that is approved each second."""
    measure_times_ms(gateway.port, sign_in(gateway.port), "", 5)
    shares: dict[tuple[bool, int], float] = {}
    with Client(gateway.port) as client:
        _make_calls(client, 2, "warm")
        for many in (0, count):
            with open_inboxes(gateway.port, many) as heard:
                for calls in (False, True):
                    time.sleep(1)
                    with gateway.counted() as cost:
                        began_s = time.perf_counter()
                        if calls:
                            _make_calls(client, int(seconds), f"{many}")
                        else:
                            time.sleep(seconds)
                        took_s = time.perf_counter() - began_s
                    shares[calls, many] = cost.cpu_s / took_s
                time.sleep(1)
                if many and min(heard.values()) < int(seconds) * 2:
                    raise SystemExit(f"bench: an inbox got {min(heard.values())} events of {int(seconds) * 2}")
    for calls, name in ((False, "nothing happens"), (True, "one call a second is asked for and approved")):
        share, rest = shares[calls, count], shares[calls, 0]
        missed = " MISS" if share - rest > INBOX_BAR else ""
        figure = (
            f"{share * 100:.1f} % of a core, {rest * 100:.1f} % without inboxes: +{(share - rest) * 100:.1f} %{missed}"
        )
        print_row(f"open inboxes, {name}", f"{count} inboxes", figure)


def _make_calls(client: Client, count: int, name: str) -> None:
    """Let a chat ask for a call each second, and approve it."""
    for number in range(count):
        began_s = time.monotonic()
        _approve(client, _wait_for_approval(client, f"{name} {number}"))
        time.sleep(max(began_s + 1 - time.monotonic(), 0))
