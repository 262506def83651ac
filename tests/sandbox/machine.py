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

from gateway.sandbox.confinement import ACCEPTED, READ_ONLY, replace_level
from gateway.sandbox.launch_messages import Level, Order, ProcessLimits
from gateway.sandbox.run import CommandResult, run
from gateway.testing.processes import list_processes

ROOT = Path(__file__).parents[2]
#: The interpreter itself, for commands that need more than a shell, and what it has to read.
PYTHON = os.path.realpath(sys.executable)
READABLE = (os.path.realpath(sys.base_prefix),)


def order(
    cwd: Path,
    *argv: str,
    level: Level,
    timeout_s: float = 120.0,
    limits: ProcessLimits | None = None,
    read_only: bool = False,
) -> Order:
    wanted = Order(
        argv=argv,
        cwd=str(cwd),
        level=level,
        timeout_s=timeout_s,
        grace_s=0.2,
        limits=limits or ProcessLimits(),
        readable=READABLE,
        read_only=read_only,
    )
    return replace_level(wanted, level=level)


async def run_order(wanted: Order, *, flood_bytes: int = 1 << 24) -> CommandResult:
    return await run(wanted, stdout_bytes=1 << 16, stderr_bytes=1 << 16, flood_bytes=flood_bytes)


async def shell(
    cwd: Path, command: str, *, level: Level, timeout_s: float = 120.0, read_only: bool = False
) -> CommandResult:
    argv = ("/bin/sh", "-c", command)
    return await run_order(order(cwd, *argv, level=level, timeout_s=timeout_s, read_only=read_only))


async def python(cwd: Path, code: str, *, level: Level, read_only: bool = False) -> CommandResult:
    argv = (PYTHON, "-I", "-S", "-B", "-c", code)
    return await run_order(order(cwd, *argv, level=level, read_only=read_only))


def in_child(code: str) -> str:
    """Return the output of a fresh interpreter that runs `code` with the gateway importable."""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def survivors(cwd: Path) -> list[int]:
    """The living processes whose home is `cwd`: commands that were started there."""
    found = []
    for pid in list_processes():
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
def confined_levels(*, read_only: bool = False) -> tuple[Level, ...]:
    """The levels that confine and that this machine has."""

    async def tried() -> tuple[Level, ...]:
        with tempfile.TemporaryDirectory() as folder:
            levels = READ_ONLY if read_only else ACCEPTED["auto"]
            singles = [level for level in levels if (await _has(level, Path(folder), read_only=read_only))]
            return tuple(singles)

    return asyncio.run(tried())


async def _has(level: Level, folder: Path, *, read_only: bool) -> bool:
    wanted = order(folder, "/bin/sh", "-c", ":", level=level, read_only=read_only)
    if level == "bubblewrap" and not wanted.bubblewrap:
        return False
    finished = await run_order(wanted)
    return finished.outcome.end == "exited" and finished.outcome.code == 0


CONFINED = confined_levels()
READ_ONLY_LEVELS = confined_levels(read_only=True)
EVERY_LEVEL: tuple[Level, ...] = (*CONFINED, "none")
