"""The cost of the endpoint for MCP clients: a call beside one straight to its server, a long list, and many at once."""

import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import aiohttp
import orjson

from bench import growth_mcp_beside
from bench.grown import Client, Grown, Json, get, post, print_row
from bench.mcp_http import DEAD
from bench.systems import REPOSITORY, free_port

#: Rounds, and calls in each, for the figure of one call; and rounds of many calls at once.
ROUNDS: Final = 60
CALLS: Final = 20
MANY_ROUNDS: Final = 3
ADDED_BAR_MS: Final = 4.0
_READY_S: Final = 60.0
_VERSION: Final = "2026-07-28"
_META: Final = {
    "io.modelcontextprotocol/protocolVersion": _VERSION,
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
#: Knows every call to be harmless.
_ASSESSOR: Final = """from gateway.plugin import Plugin, Verdict
from pydantic import BaseModel


class Config(BaseModel):
    pass


class Harmless:
    def assess(self, arguments):
        return Verdict("auto", "whitelist", "bench", "It does nothing.")


PLUGIN = Plugin(Config, lambda config, host: Harmless())
"""
#: A tool of the gateway itself, which returns the text that it is given. Its calls run as they are.
_OWN: Final = "own"
_TOOL: Final = """from gateway.plugin import Plugin, ToolResult, ToolSpec
from pydantic import BaseModel


class Config(BaseModel):
    pass


class Own:
    async def list_tools(self):
        return (ToolSpec(name="own", description="Does nothing.", parameters={"type": "object"}),)

    async def refusal(self, call, exchange):
        return None

    async def call(self, call, exchange):
        return ToolResult(call.arguments["text"])

    async def close(self):
        pass


PLUGIN = Plugin(Config, lambda config, host: Own())
"""


def measure(folder: Path, *, tools: Sequence[int], services: int, clients: int, calls: int, rounds: int) -> None:
    """Print the rows. `clients` send `calls` calls at once to so many `services`; `rounds` are for the other lanes."""
    growth_mcp_beside.measure(folder / "beside", rounds=rounds)
    _measure_one(folder / "one")
    for count in tools:
        _measure_list(folder / f"tools{count}", count)
    _measure_many(folder / "many", services=services, clients=clients, calls=calls)


@contextmanager
def _gateway(folder: Path, names: Sequence[str], *, tools: int) -> Iterator[tuple[Grown, int]]:
    """Run a gateway in front of servers of these names, which have so many tools each; with the servers' port."""
    for kind, name, text in (("assessors", "harmless", _ASSESSOR), ("tools", _OWN, _TOOL)):
        file = folder / "plugins" / kind / f"{name}.py"
        file.parent.mkdir(parents=True, mode=0o700)
        file.write_text(text)
        file.chmod(0o600)
    port = free_port()
    command = (sys.executable, "-m", "bench.mcp_http", str(port), str(tools))
    servers = subprocess.Popen(command, cwd=REPOSITORY)
    config: Json = {
        "upstreams": [{"name": "model", "base_url": "http://127.0.0.1:9/v1"}],
        "plugins": {"folder": str(folder / "plugins")},
        "tools": {_OWN: {}},
        "risk": {"assessors": {name: {"use": "harmless"} for name in (_OWN, *(f"{name}.tool0000" for name in names))}},
        "mcp": {"servers": {name: {"url": f"http://127.0.0.1:{port}/{name}"} for name in names}, "serve": {}},
    }
    try:
        with Grown(folder, config) as gateway:
            _wait_for_tools(gateway, len(names) * tools)
            yield gateway, port
    finally:
        servers.kill()
        servers.wait()


def _wait_for_tools(gateway: Grown, tools: int) -> None:
    """Wait until a client sees so many tools."""
    until_s = time.monotonic() + _READY_S
    with Client(gateway.port) as client:
        while sum("__tool" in tool["name"] for tool in _list(client)) < tools:
            if time.monotonic() > until_s:
                raise SystemExit(f"bench: the gateway does not serve {tools} tools")
            time.sleep(0.1)


def _measure_one(folder: Path) -> None:
    """Measure one call at a time, each beside one straight to its server; the calmest of some rounds."""
    with (
        _gateway(folder, ["here"], tools=1) as (gateway, port),
        Client(gateway.port) as there,
        Client(port) as straight,
    ):
        rounds = [(_measure_round(gateway, there, straight), _measure_own_round(gateway, there)) for _ in range(ROUNDS)]
        with gateway.measured() as held:
            for number in range(CALLS):
                _call_tool(there, "/mcp", "here__tool0000", number)
    size = f"one at a time, the calmest of {ROUNDS} rounds"
    cpu_ms, added_ms, p95_ms = min(one for one, _ in rounds)
    miss = " MISS" if added_ms > ADDED_BAR_MS else ""
    facts = f"+{added_ms:.1f} ms{miss}, p95 {p95_ms:.1f} ms, {cpu_ms:.1f} ms of CPU"
    busiest = f"{max(cpu for (cpu, *_), _ in rounds):.1f}"
    print_row(
        "a call of an MCP client, beside one straight to the server", size, f"{facts} (busiest {busiest})", held.held
    )
    own_cpu_ms, own_ms = min(own for _, own in rounds)
    print_row("the same of a tool of the gateway itself", size, f"{own_ms:.1f} ms, {own_cpu_ms:.1f} ms of CPU")


def _measure_round(gateway: Grown, there: Client, straight: Client) -> tuple[float, float, float]:
    """Return the CPU time of a call, the time that it adds at the median, and its p95, in milliseconds."""
    direct_ms, through_ms = [], []
    with gateway.counted() as cost:
        for number in range(CALLS):
            direct_ms.append(_call_tool(straight, "/here", "tool0000", number))
            through_ms.append(_call_tool(there, "/mcp", "here__tool0000", number))
    added_ms = statistics.median(through_ms) - statistics.median(direct_ms)
    return cost.cpu_s / CALLS * 1e3, added_ms, statistics.quantiles(through_ms, n=20)[-1]


def _measure_own_round(gateway: Grown, there: Client) -> tuple[float, float]:
    """Return the CPU time of a call of the gateway's own tool, and its time at the median, in milliseconds."""
    with gateway.counted() as cost:
        took_ms = [_call_tool(there, "/mcp", _OWN, number) for number in range(CALLS)]
    return cost.cpu_s / CALLS * 1e3, statistics.median(took_ms)


def _measure_list(folder: Path, count: int) -> None:
    """Measure the whole list of so many tools, in pages."""
    with _gateway(folder, ["here"], tools=count) as (gateway, _), Client(gateway.port) as client:
        with gateway.counted() as cost:
            for _ in range(10):
                _list(client)
        with gateway.measured() as held:
            for _ in range(10):
                _list(client)
    print_row(
        "the whole list of tools for an MCP client", f"{count} tools", f"{cost.cpu_s * 100:.1f} ms of CPU", held.held
    )


def _measure_many(folder: Path, *, services: int, clients: int, calls: int) -> None:
    """Measure many calls at once, beside calls of a server that never answers; in turn with the gateway's own tool."""
    names = [f"s{number:02}" for number in range(services)]
    tools = {
        f"calls of MCP clients at once to {services} servers": [f"{name}__tool0000" for name in names],
        "the same of a tool of the gateway itself": [_OWN],
    }
    rounds: dict[str, list[tuple[float, float, int, float, float]]] = {what: [] for what in tools}
    with _gateway(folder, [*names, DEAD], tools=1) as (gateway, _):
        for what in list(tools) * MANY_ROUNDS:
            with gateway.measured() as cost:
                wrong, took_s, slowest_s = asyncio.run(
                    _call_at_once(gateway.port, tools[what], clients=clients, calls=calls)
                )
                with Client(gateway.port) as client:
                    client.ask(get("/health/ready"))
            rounds[what].append((took_s, slowest_s, wrong, cost.cpu_s / calls * 1e3, cost.held_ms))
    size = f"{calls} calls of {clients} clients, beside {clients} calls of a server that never answers"
    for what, measured in rounds.items():
        took_s, slowest_s, _, cpu_ms, held_ms = min(measured)
        facts = f"{sum(wrong for _, _, wrong, *_ in measured)} lost or crossed; of {MANY_ROUNDS} rounds the calmest: "
        facts += f"{took_s:.1f} s ({calls / took_s:.0f} a second), the slowest {slowest_s:.1f} s"
        print_row(
            what, size, f"{facts}; {cpu_ms:.1f} ms of CPU a call", f"{held_ms:.0f} ms"
        )  # of steps that came at once


async def _call_at_once(port: int, tools: Sequence[str], *, clients: int, calls: int) -> tuple[int, float, float]:
    """Return how many answers were wrong, the time of all calls, and that of the slowest."""
    limit = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}", connector=limit) as session:

        async def call_timed(tool: str, text: str) -> tuple[bool, float]:
            body, began_s = _call(tool, text), time.monotonic()
            async with session.post("/mcp", json=body, headers=_build_headers("tools/call", tool)) as answer:
                found = orjson.loads(await answer.read())
            right = found.get("id") == text and found.get("result", {}).get("content") == [
                {"type": "text", "text": text}
            ]
            return right, time.monotonic() - began_s

        hanging = [asyncio.create_task(call_timed(f"{DEAD}__tool0000", f"dead {number}")) for number in range(clients)]
        await asyncio.sleep(0.5)  # they are all under way
        began_s = time.monotonic()
        found = await asyncio.gather(
            *(call_timed(tools[n % len(tools)], f"{n} of {tools[n % len(tools)]}") for n in range(calls))
        )
        took_s = time.monotonic() - began_s
        for task in hanging:
            task.cancel()
        await asyncio.gather(*hanging, return_exceptions=True)
    return sum(not right for right, _ in found), took_s, max(slow_s for _, slow_s in found)


def _call_tool(client: Client, path: str, name: str, number: int) -> float:
    """Call a tool, and return how long that took, in milliseconds."""
    text = f"text {number}"
    request, began_s = post(path, _call(name, text), _build_headers("tools/call", name)), time.perf_counter()
    answer = orjson.loads(client.ask(request))
    took_ms = (time.perf_counter() - began_s) * 1e3
    if answer["result"]["content"] != [{"type": "text", "text": text}]:
        raise SystemExit(f"bench: a wrong answer: {answer}")
    return took_ms


def _list(client: Client) -> list[Json]:
    found: list[Json] = []
    params: Json = {"_meta": _META}
    while True:
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params}
        page = orjson.loads(client.ask(post("/mcp", body, _build_headers("tools/list"))))["result"]
        found += page["tools"]
        if "nextCursor" not in page:
            return found
        params = {**params, "cursor": page["nextCursor"]}


def _call(name: str, text: str) -> Json:
    params = {"name": name, "arguments": {"text": text}, "_meta": _META}
    return {"jsonrpc": "2.0", "id": text, "method": "tools/call", "params": params}


def _build_headers(method: str, name: str | None = None) -> dict[str, str]:
    named = {} if name is None else {"Mcp-Name": name}
    accepted = "application/json, text/event-stream"
    return {"Accept": accepted, "MCP-Protocol-Version": _VERSION, "Mcp-Method": method, **named}
