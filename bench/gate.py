"""Prints what one verdict of the gate costs: over the cases of the tests, and over texts at the edge of what it reads.

`python -m bench.gate`; `make bench` prints the same table below its own.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Final, cast

from bench.bar import format_number, format_table
from gateway.contracts.plugin import Host, Plugin
from gateway.contracts.risk import RiskAssessor
from gateway.contracts.storage.store import Json
from gateway.plugins.assessors import command, file, http, sql

CASES: Final = Path(__file__).resolve().parents[1] / "tests" / "data"
BAR_US: Final = 200.0
REPEATS: Final = 5  # the best of them counts: a verdict does no I/O, so everything above it is the machine's
PLUGINS: Final[Mapping[str, Plugin[Any, RiskAssessor]]] = {
    "sql": sql.PLUGIN,
    "command": command.PLUGIN,
    "file": file.PLUGIN,
    "http": http.PLUGIN,
}
#: By kind, what is too long to be judged.
TOO_LONG: Final[Mapping[str, tuple[Json, ...]]] = {
    "sql": ({"sql": "SELECT 1" + " " * 1_000_000}, {"sql": "SELECT '" + "x" * 5_000_000 + "'"}),
    "command": ({"command": "ls " + "x" * 5_000_000}, {"command": "echo '" + "x" * 1_000_000 + "'"}),
    "file": ({"operation": "read", "path": "a/" * 2_500_000}, {"operation": "read", "path": "\u754c" * 1_000_000}),
    "http": (
        {"method": "GET", "url": "https://example.com/?" + "a=b&" * 1_000_000},
        {"method": "GET", "url": "https://example.com/", "params": {f"x{i}": "a" * 4_000 for i in range(250)}},
        {"method": "GET", "url": "https://example.com/", "headers": {f"x{i}": "a" * 4_000 for i in range(250)}},
    ),
}


def format_gate_table() -> str:
    """Return a table with one line for each kind: cases, median, 99th percentile, and the worst too long text."""
    lines = []
    for kind, plugin in PLUGINS.items():
        judge = plugin.build(plugin.config.model_validate({"profile": "hardened"}), cast(Host, None))
        took = sorted(_measure_us(judge, arguments) for arguments in _choose_arguments(kind))
        p99 = took[len(took) * 99 // 100]
        long = max(_measure_us(judge, arguments) for arguments in TOO_LONG[kind])
        mark = "pass" if max(p99, long) <= BAR_US else "MISS"
        lines.append(
            [
                kind,
                str(len(took)),
                format_number(median(took), 0),
                format_number(p99, 0),
                format_number(long, 0),
                f"<= {BAR_US:g}",
                mark,
            ]
        )
    return format_table(["verdicts on", "cases", "p50 us", "p99 us", "too long us", "bar, p99", ""], lines)


def _choose_arguments(kind: str) -> list[Json]:
    lines = [line for name in (kind, f"{kind}_further") for line in (CASES / f"{name}.jsonl").read_text().splitlines()]
    return [json.loads(line)["arguments"] for line in lines]


def _measure_us(judge: RiskAssessor, arguments: Json) -> float:
    best = float("inf")
    for _ in range(REPEATS):
        started = perf_counter()
        judge.assess(arguments)
        best = min(best, perf_counter() - started)
    return best * 1e6


if __name__ == "__main__":
    print(format_gate_table())
