"""The process between the gateway and a server: whoever is killed, nothing of the server stays."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

from gateway.mcp.transport.process import ServerProcess
from gateway.testing.processes import find_living_process, list_living
from tests.mcp.transport.test_process import ended, program, python, until

ROOT = Path(__file__).parents[3]
GATEWAY = """
import asyncio, sys
from gateway.mcp.transport.process import Program, ServerProcess
async def main():
    server = await ServerProcess.start(Program(sys.argv[1], tuple(sys.argv[2:])))
    print(server.pid, flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""


def keeper_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def test_a_killed_gateway_leaves_no_server() -> None:
    """Not even one that ignores the end of its input and SIGTERM."""
    server = program("ignores-term")
    gateway = subprocess.Popen(
        [sys.executable, "-c", GATEWAY, server.command, *server.args], cwd=ROOT, stdout=subprocess.PIPE
    )
    with gateway:
        assert gateway.stdout is not None
        left = find_living_process(int(gateway.stdout.readline()))
        assert left is not None
        gateway.send_signal(signal.SIGKILL)
    await until(lambda: not list_living({left}))


async def test_killed_keeper_process_ends_its_server(tmp_path: Path) -> None:
    """With what that has started in its session; its streams end."""
    file = tmp_path / "pid"
    server = await ServerProcess.start(program("grandchild", file))
    await until(lambda: file.exists() and file.read_text())
    child = int(file.read_text())
    os.kill(keeper_of(server.pid), signal.SIGKILL)
    async with asyncio.timeout(120):
        assert await server.stdout.read() == b""
    await server.stop()
    await until(lambda: find_living_process(server.pid) is find_living_process(child) is None)
    assert server.returncode is None


async def test_group_signals_do_not_end_the_keeper_process() -> None:
    """The gateway itself ends servers, once their calls have ended."""
    server = await ServerProcess.start(program("ok"))
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(keeper_of(server.pid), number)
    server.stdin.write(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
    assert b'"id": 1' in await server.stdout.readline()
    await ended(server)
    assert server.returncode == 0


async def test_server_process_ends_on_sigterm() -> None:
    """Its keeper's deafness is not passed on."""
    server = await ServerProcess.start(program("ok"))
    os.kill(server.pid, signal.SIGTERM)
    assert await server.stdout.read() == b""
    await server.stop()
    assert (server.returncode, server.forced) == (128 + signal.SIGTERM, False)


async def test_orphan_processes_are_reaped() -> None:
    """What a child of the server leaves behind becomes no zombie of the keeper."""
    code = "import subprocess, sys; subprocess.run(['sh', '-c', 'sleep 0.3 & echo left']); sys.stdin.read()"
    server = await ServerProcess.start(python(code))
    assert await server.stdout.readline() == b"left\n"
    keeper = keeper_of(server.pid)
    await until(lambda: len(children_of(keeper)) == 2)
    await until(lambda: children_of(keeper) == [server.pid])
    await ended(server)


def children_of(pid: int) -> list[int]:
    """With those that are zombies."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
