"""Starts gateways by a fork of a process that has imported them: a start costs a tenth of the CPU time.

`forked` asks the server on the socket that TWOLANE_FORKSERVER names, and starts the server first where there is none.
The server ends with the process that TWOLANE_FORKSERVER_OWNER names. For each gateway it forks a minder, which forks
the gateway, sends the gateway's number and then its exit code, and leaves the zombie until the asker has read that:
so a signal never reaches a stranger who was given the number anew.
"""

import asyncio
import contextlib
import fcntl
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn

SOCKET: Final = "TWOLANE_FORKSERVER"
OWNER: Final = "TWOLANE_FORKSERVER_OWNER"

#: Whatever the folder it is started in, it imports the gateway that the asker imported.
_SERVER: Final = """
import sys
_, sys.path[0], path, owner = sys.argv
from tests.support.forkserver import serve
serve(path, owner)
"""
#: What the gateways find imported: what most of them use, and what costs its users most of their start.
_USED: Final = (
    "encodings.idna",
    "gateway.cli.main",
    "gateway.demo.app",
    "gateway.server.serve",
    "gateway.server.pages.api",
    "gateway.plugins.stages.agent_loop",
    "gateway.plugins.stages.intent",
    "gateway.plugins.stages.memory",
    "gateway.plugins.stages.prompt_enhancer",
    "gateway.plugins.stores.sqlite",
    "gateway.plugins.tools.execute_command",
    "gateway.plugins.tools.execute_sql",
    "gateway.plugins.tools.file_operations",
    "gateway.plugins.tools.http_request",
    "gateway.console.assembly",
)
#: The same of what needs libraries that are not installed everywhere.
_USED_IF_THERE: Final = (
    "gateway.cli.operator.mcp_bridge",
    "gateway.mcp.connection",
    "gateway.mcp.transport.http",
    "gateway.mcp.transport.stdio",
    "gateway.mcp_server.assembly",
    "gateway.mcp_server.auth.tokens",
    "gateway.server.pages.mcp_clients",
    "gateway.telemetry.tracing.export",
)
_MAX_REQUEST: Final = 1 << 17
_POLL_S: Final = 0.02
_MOST_FILES: Final = 1 << 16


class Forked:
    """A gateway that the server forked, with what asyncio's Process offers of a process."""

    def __init__(self, asked: socket.socket) -> None:
        self._asked = asked
        self._ended = asyncio.Event()
        if not (number := asked.recv(32)):
            raise RuntimeError("the fork server ended before it started the gateway")
        self.pid = int(number)
        self.returncode: int | None = None
        asked.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(asked, self._read_exit_code)

    async def wait(self) -> int:
        """Wait for the exit code; negative: the signal that ended it."""
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal. Raises ProcessLookupError if the process has ended."""
        if self.returncode is not None:
            raise ProcessLookupError
        os.kill(self.pid, number)

    def _read_exit_code(self) -> None:
        self._loop.remove_reader(self._asked)
        self.returncode = int(self._asked.recv(32) or -signal.SIGKILL)  # nothing: the minder itself was killed
        self._asked.close()
        self._ended.set()


def fork_command(*arguments: str) -> tuple[str, ...]:
    """Return a program for others to start: it is `gateway ARGUMENTS`, forked, on the streams that they gave it."""
    path = os.environ[SOCKET]
    _connected(path).close()
    return (sys.executable, "-I", "-S", str(Path(__file__).with_name("forked_program.py")), path, *arguments)


async def forked(arguments: Sequence[str], *, stdout: int, stderr: int) -> Forked:
    """Run `gateway ARGUMENTS` in a session of its own, with this process's folder and environment."""
    asked = await asyncio.to_thread(_connected, os.environ[SOCKET])
    request = {"arguments": arguments, "folder": str(Path.cwd()), "environment": dict(os.environ)}
    try:
        socket.send_fds(asked, [json.dumps(request).encode()], [stdout, stderr])
        return Forked(asked)
    except BaseException:
        asked.close()
        raise


def _connected(path: str) -> socket.socket:
    """Connect to the server; the first caller starts it."""
    with Path(f"{path}.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not Path(path).exists():
            _start_server(path)
    asked = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    asked.connect(path)
    return asked


def _start_server(path: str) -> None:
    quiet = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1, 2)]
    command = [sys.executable, "-c", _SERVER, str(Path(__file__).parents[2]), path, os.environ[OWNER]]
    pid = os.posix_spawn(sys.executable, command, os.environ, file_actions=quiet, setsid=True)
    while not Path(path).exists():
        if os.waitpid(pid, os.WNOHANG) != (0, 0):
            raise RuntimeError(f"the fork server ended at its start: {command}")
        time.sleep(_POLL_S)


def serve(path: str, owner: str) -> None:
    """Fork a minder for each connection, until the owner has ended."""
    os.closerange(3, _MOST_FILES)  # some event loops start programs with more than they meant to hand down
    for module in _USED:
        importlib.import_module(module)
    for module in _USED_IF_THERE:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    importlib.import_module("gateway.config").Settings.model_validate({})  # which builds its models: half of a start
    importlib.import_module("gateway.plugins.stores.sqlite.file").keep_blank()
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no minder stays a zombie
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(f"{path}.new")
    listener.listen(64)
    Path(f"{path}.new").rename(path)
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    poll.register(os.pidfd_open(int(owner)), select.POLLIN)
    while True:
        ready = [number for number, _ in poll.poll()]
        if ready != [listener.fileno()]:
            return
        asked = listener.accept()[0]
        if os.fork() == 0:
            listener.close()
            _mind(asked)
        asked.close()


def _mind(asked: socket.socket) -> NoReturn:
    """Fork the gateway and report its number and exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    text, streams, _, _ = socket.recv_fds(asked, _MAX_REQUEST, 3)
    if not text:
        os._exit(0)  # it only wanted to know that the server is there
    request = json.loads(text)
    pid = os.fork()
    if pid == 0:
        asked.close()
        _become(request["arguments"], request["folder"], request["environment"], streams)
    asked.send(b"%d" % pid)
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert ended is not None
    asked.send(b"%d" % (ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status))
    asked.recv(1)  # until the asker has closed it
    os._exit(0)


def _become(arguments: list[str], folder: str, environment: dict[str, str], streams: list[int]) -> NoReturn:
    """Run the program as `python -m gateway` does; the streams are output, errors, and input where there is one."""
    os.setsid()
    for stream, number in zip(streams, (1, 2, 0), strict=False):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[:] = ["gateway", *arguments]
    from gateway.__main__ import main

    sys.exit(main())
