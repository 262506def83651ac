"""The means of confinement of the machine that runs the tests, and ways to try them."""

import asyncio
import ctypes
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from gateway.sandbox.levels import ACCEPTED, at, strongest
from gateway.sandbox.order import Level, Limits, Order
from gateway.sandbox.run import Finished, run
from gateway.testing.processes import living

ROOT = Path(__file__).parents[2]
#: The interpreter itself, for commands that need more than a shell, and what it has to read.
PYTHON = os.path.realpath(sys.executable)
READABLE = (os.path.realpath(sys.base_prefix),)


def order(cwd: Path, *argv: str, level: Level, timeout_s: float = 120.0, limits: Limits | None = None) -> Order:
    wanted = Order(
        argv=argv,
        cwd=str(cwd),
        level=level,
        timeout_s=timeout_s,
        grace_s=0.2,
        limits=limits or Limits(),
        readable=READABLE,
    )
    return at(wanted, level=level)


async def run_order(wanted: Order, *, flood_bytes: int = 1 << 24) -> Finished:
    return await run(wanted, stdout_bytes=1 << 16, stderr_bytes=1 << 16, flood_bytes=flood_bytes)


async def shell(cwd: Path, command: str, *, level: Level, timeout_s: float = 120.0) -> Finished:
    return await run_order(order(cwd, "/bin/sh", "-c", command, level=level, timeout_s=timeout_s))


async def python(cwd: Path, code: str, *, level: Level) -> Finished:
    return await run_order(order(cwd, PYTHON, "-I", "-S", "-B", "-c", code, level=level))


def in_child(code: str) -> str:
    """Return the output of a fresh interpreter that runs `code` with the gateway importable."""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def survivors(cwd: Path) -> list[int]:
    """The living processes whose home is `cwd`: commands that were started there."""
    found = []
    for pid in living():
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue
        if f"HOME={cwd}\0".encode() in environment:
            found.append(pid)
    return found


@contextmanager
def exchanging(one: Path, other: Path) -> Iterator[None]:
    """Meanwhile the two change places all the time, each time at once (renameat2 with RENAME_EXCHANGE)."""
    libc = ctypes.CDLL(None, use_errno=True)
    stop = threading.Event()
    failures: list[int] = []

    def exchange() -> None:
        while not stop.is_set():
            if libc.renameat2(-100, os.fsencode(one), -100, os.fsencode(other), 2):
                failures.append(ctypes.get_errno())

    thread = threading.Thread(target=exchange)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert not failures


@cache
def confined_levels() -> tuple[Level, ...]:
    """The levels that confine and that this machine has."""

    async def tried() -> tuple[Level, ...]:
        with tempfile.TemporaryDirectory() as folder:
            trial = order(Path(folder), level="none")
            singles = [level for level in ACCEPTED["auto"] if (await _has(level, trial))]
            return tuple(singles)

    return asyncio.run(tried())


async def _has(level: Level, trial: Order) -> bool:
    if level == "bubblewrap":
        return (await strongest("bubblewrap", trial)).level is not None
    finished = await shell(Path(trial.cwd), ":", level=level)
    return finished.outcome.end == "exited" and finished.outcome.code == 0


CONFINED = confined_levels()
EVERY_LEVEL: tuple[Level, ...] = (*CONFINED, "none")
