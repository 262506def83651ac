"""Figures of the context lane under load (`make soak` prints them)."""

import asyncio
import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from functional.through import post
from gateways import Stopwatch, Usage, exchange

from gateway.testing.raw_connection import connect
from tests.support.gateway_process import GatewayProcess

pytestmark = pytest.mark.soak

RUNS, ROUNDS, WAVES = 200, 5, 9


def cpu_s(pid: int) -> float:
    """User and system time of a process until now."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def test_many_concurrent_agent_runs_keep_results_apart(tmp_path: Path) -> None:
    """200 runs of 5 rounds at a time, on a store in a file: each has its own result, and memory stays as it is."""
    with closing(sqlite3.connect(tmp_path / "data.db")) as database:
        database.execute("CREATE TABLE t (x)")
    tools = {"execute_sql": {"url": f"sqlite:///{tmp_path / 'data.db'}"}}
    config = {"tools": tools, "store": f"sqlite:///{tmp_path / 'gateway.db'}"}

    async def run(number: int) -> None:
        words = f'steps {ROUNDS} tool execute_sql {{"sql": "SELECT {number} * 1000 + $step"}}'
        body = json.dumps({"model": "demo", "messages": [{"role": "user", "content": words}]}).encode()
        async with connect(gateway.host, gateway.port) as client:
            request = post(body, b"/context/v1/chat/completions").replace(b"gw.example", b"localhost")
            response = await exchange(client, request, timeout_s=60)
        text = json.loads(response.payload)["choices"][0]["message"]["content"]
        foreign.extend([text] * (f"[[{number * 1000 + ROUNDS}]]" not in text))

    foreign: list[str] = []
    memory: list[int] = []
    async with GatewayProcess(json.dumps(config)) as gateway:
        usage = Usage(gateway.pid)
        for wave in range(WAVES):
            if wave == WAVES - 1:
                began, taken = cpu_s(gateway.pid), Stopwatch()
            await asyncio.gather(*(run(number) for number in range(RUNS)))
            memory.append(usage.rss_bytes)
        steps = RUNS * ROUNDS
        print(
            f"\n{WAVES} x {RUNS} agent runs of {ROUNDS} rounds: {len(foreign)} with foreign results; "
            f"{steps / taken.s:.0f} steps/s, {(cpu_s(gateway.pid) - began) / steps * 1e3:.1f} ms CPU a step with the "
            f"demo model in the same process; {(memory[-1] - memory[-3]) / 1e6:+.1f} MB over the last two waves"
        )
    assert not foreign
    assert memory[-1] - memory[-3] <= 0.05 * memory[-3]
