"""The cost of a command that runs without asking, beside the same in another checkout: in turn, as medians.

    python -m bench.commands --other ../old --rounds 200

Each checkout serves in a process of its own, and runs one command of `execute_command` for each line that it reads.
"""

import argparse
import asyncio
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

HERE = Path(__file__).parents[1]
COMMANDS = ("ls", "cat a | sort | head -n 3")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--other", type=Path, default=HERE, help="a checkout to compare with")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve is not None:
        asyncio.run(_serve(arguments.serve))
        return
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "a").write_text("one\ntwo\n" * 99)
        served = [stack.enter_context(_server(place.resolve(), folder)) for place in (HERE, arguments.other)]
        for command in COMMANDS:
            figures: list[list[tuple[float, float]]] = [[], []]
            for turn in range(arguments.rounds + 5):
                for index in (0, 1) if turn % 2 else (1, 0):
                    figures[index].append(_measure_command(served[index], command))
            walls, cpus = ([statistics.median(f[kind] for f in of[5:]) for of in figures] for kind in (0, 1))
            print(
                f"{command!r}: {walls[0]:.1f} ms (other {walls[1]:.1f}, ratio {walls[0] / walls[1]:.2f}), CPU "
                f"{cpus[0]:.1f} ms (other {cpus[1]:.1f}, ratio {cpus[0] / cpus[1]:.2f})"
            )


@contextmanager
def _server(checkout: Path, folder: Path) -> Iterator["subprocess.Popen[str]"]:
    argv = [sys.executable, str(Path(__file__)), "--serve", str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    server = subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=checkout
    )
    with server:
        yield server
        assert server.stdin is not None
        server.stdin.close()


def _measure_command(server: "subprocess.Popen[str]", command: str) -> tuple[float, float]:
    assert server.stdin is not None and server.stdout is not None
    server.stdin.write(f"{command}\n")
    server.stdin.flush()
    wall_ms, cpu_ms = server.stdout.readline().split()
    return float(wall_ms), float(cpu_ms)


async def _serve(folder: Path) -> None:
    from gateway.contracts.caller import Caller
    from gateway.contracts.exchange import Exchange
    from gateway.contracts.tools import ToolCall
    from gateway.plugins.tools.execute_command import Config, ExecuteCommand

    exchange = Exchange(id="1", body={}, caller=Caller("a", "a", frozenset()), chain="assistant")
    tool = ExecuteCommand(Config(cwd=str(folder)), cwd=folder)
    for line in sys.stdin:
        arguments = {"command": line.rstrip("\n")}
        call = ToolCall(id="c", tool="execute_command", arguments=arguments, harmless=True)
        began, before_s = time.perf_counter(), _read_cpu_s()
        answer = await tool.call(call, exchange)
        assert answer.content.startswith("exit code 0"), answer
        print((time.perf_counter() - began) * 1e3, (_read_cpu_s() - before_s) * 1e3, flush=True)


def _read_cpu_s() -> float:
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(usage.ru_utime + usage.ru_stime for usage in map(resource.getrusage, kinds))


if __name__ == "__main__":
    main()
