"""`make bench`: prints what the gateway costs beside nginx, and whether that meets the bar (bench/README.md)."""

import argparse
import json
import os
import platform
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench import systems
from bench.bar import REFERENCE, Figures, format_bar_table, format_figures_table
from bench.gate import format_gate_table
from bench.rounds import Round
from bench.systems import Running, System
from bench.workloads import SATURATED, Client

HERE = Path(__file__).resolve().parent
SOURCES = ("mock_upstream", "load")
OPEN_FILES = 16384
# Ahead of whatever else the machine does; only root may.
PRIORITY = -8


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    rounds: int
    seconds: float
    hold_s: float
    keys: bool
    suts: tuple[str, ...]
    json_file: Path | None


def parse(arguments: Sequence[str]) -> Options:
    parser = argparse.ArgumentParser(prog="python -m bench.run", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="medians are taken over so many (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each run (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="one round of half-second runs: does it work at all?")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every round's figures here")
    parser.add_argument(
        "--sut",
        action="append",
        default=[],
        metavar="NAME=COMMAND",
        help="measure this too; {port} and {upstream_port} are filled in; the name gateway replaces this checkout's",
    )
    parser.add_argument(
        "--keys",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="the gateway checks the client's key and puts its own in place (default: on)",
    )
    given = parser.parse_args(arguments)
    if given.rounds < 1 or given.seconds <= 0:
        parser.error("--rounds must be 1 or more, --seconds more than 0")
    return Options(
        rounds=1 if given.quick else given.rounds,
        seconds=0.5 if given.quick else given.seconds,
        hold_s=3.0 if given.quick else 6.0,
        keys=given.keys,
        suts=tuple(given.sut),
        json_file=given.json,
    )


def compile_programs(folder: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        raise SystemExit("bench: no C compiler 'cc' for mock_upstream.c and load.c: apt-get install gcc libc6-dev")
    for name in SOURCES:
        subprocess.run([compiler, "-O2", "-o", folder / name, HERE / f"{name}.c"], check=True)


def prepare_machine() -> int:
    """Put this script and all that it starts on the first core. Return the second one, the core of the systems."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise SystemExit("bench: needs two cores: one for the system under test, one for its client and upstream")
    os.sched_setaffinity(0, {cores[0]})
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    return cores[1]


def choose_systems(options: Options, *, folder: Path, upstream_port: int) -> list[System]:
    named = [systems.parse_named_system(argument, upstream_port=upstream_port) for argument in options.suts]
    reference = systems.build_nginx(folder, upstream_port=upstream_port)
    chosen = [reference] if reference else []
    if not any(system.name == "gateway" for system in named):
        chosen.append(systems.build_gateway(folder, upstream_port=upstream_port, keys=options.keys))
    return chosen + named


def measure(options: Options, *, folder: Path, core: int) -> tuple[Figures, list[str]]:
    """Run all rounds, every other one in reversed order. Return the figures, and notes on failures."""
    upstream_port = systems.free_port()
    chosen = choose_systems(options, folder=folder, upstream_port=upstream_port)
    upstream = System("mock", (str(folder / "mock_upstream"), str(upstream_port)), upstream_port)
    figures, notes, disturbed = Figures(), list[str](), list[float]()
    for number in range(options.rounds):
        print(f"round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
        mock = Running(upstream, core=min(os.sched_getaffinity(0)), folder=folder)
        try:
            mock.await_ready(SATURATED.build_request(upstream_port))
            client = Client(folder / "load", upstream=mock)
            with Round(client, seconds=options.seconds, hold_s=options.hold_s) as turns:
                turns.start(chosen if number % 2 == 0 else chosen[::-1], core=core, folder=folder)
                turns.measure(open_streams=number == 0)
        finally:
            mock.stop()
        for system in chosen:
            figures.add(system.name, turns.rows[system.name])
        notes += turns.failures
        disturbed += turns.disturbed
    if disturbed:
        notes.append(f"disturbed by other work and by the host: {median(disturbed):.0%} of a core at the median")
    return figures, notes


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("bench: terminated"))
    core = prepare_machine()
    with tempfile.TemporaryDirectory(prefix="gateway-bench-") as temporary:
        folder = Path(temporary)
        compile_programs(folder)
        figures, notes = measure(options, folder=folder, core=core)
    machine = f"Python {platform.python_version()}, {platform.system()} {platform.release()}, one core for the system"
    print(f"\n{machine}; {options.rounds} rounds of {options.seconds:g} s\n\n{format_figures_table(figures)}")
    for system in figures.rows:
        if system != REFERENCE:
            print(f"\n{format_bar_table(figures, system)}")
    if REFERENCE not in figures.rows:
        notes.insert(0, f"{REFERENCE} is not installed, so there are no ratios to it: apt-get install nginx-light")
    print("\n" + "\n".join(notes))
    print(f"\n{format_gate_table()}")
    if options.json_file:
        kept = {"machine": machine, "rounds": figures.rows, "notes": notes}
        options.json_file.write_text(json.dumps(kept, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
