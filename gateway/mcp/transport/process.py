"""One running MCP server: its three streams, its exit code, and its end with all processes that it started.

1. Its environment is made from nothing: the variables of INHERITED, and the configured ones.
2. It ends in at most 5 s, whatever it does, and with it every process that it started (see `shim`).
3. Its streams end when it does.
"""

import asyncio
import errno
import json
import os
import re
import shutil
import signal
import socket
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from gateway.aio.clock import wait_until_set
from gateway.mcp.transport.lines import Lines

#: The variables that a server gets of the gateway's own environment.
INHERITED: Final = ("PATH", "HOME", "LANG", "LC_ALL", "TERM", "USER", "TZ", "TMPDIR")
#: The stored part of standard error.
STDERR_LINES: Final = 50
STDERR_CHARS: Final = 500

_HOME: Final = str(Path(__file__).parents[3])
_BOOT: Final = "import sys; sys.path.append(sys.argv[1]); from gateway.mcp.transport.shim import main; main()"
#: Some builds of Python do not start without these; the server never sees them.
_NEEDED_BY_PYTHON: Final = ("LD_LIBRARY_PATH",)
#: How long the server may take after the end of its input, after SIGTERM, and after SIGKILL, and its shim then.
_INPUT_S, _TERM_S, _KILL_S, _KEEPER_S = 1.5, 1.5, 1.0, 0.5
_READ_BYTES: Final = 1 << 15
#: A shorter value of the environment is an ordinary word; masking it would only garble the server's output.
_SHORTEST_SECRET, _MASK = 8, "***"
_BLANK: Final = re.compile(rb"\n\s*\n")
#: Control characters, and the sequences by which a terminal is coloured.
_UNSEEN: Final = re.compile("\x1b\\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


class StartError(Exception):
    """The error that the program cannot be started; the text names it and the next step, for the operator."""


@dataclass(frozen=True, slots=True)
class Program:
    """The program to run. Arguments and environment may contain secrets, so they are not shown."""

    command: str
    args: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str | None = None  # None: that of the gateway


class ServerProcess:
    """One server process, made by `start`. Read `stdout` to its end, also while it stops, and await `stop`."""

    def __init__(
        self, keeper: asyncio.subprocess.Process, control: asyncio.StreamWriter, pid: int, *, secrets: Sequence[str]
    ) -> None:
        assert keeper.stdin is not None and keeper.stdout is not None and keeper.stderr is not None
        self.pid = pid
        self.stdin, self.stdout = keeper.stdin, keeper.stdout
        self.returncode: int | None = None  # as shells count: 128 and the signal for what a signal ended
        self.forced = False  # whether a signal of the gateway had to end it
        self._keeper, self._control = keeper, control
        self._over = asyncio.Event()
        self._secrets = secrets
        self._stderr: deque[str] = deque(maxlen=STDERR_LINES)
        self._reading = asyncio.create_task(self._read_stderr(keeper.stderr))
        self._watching: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, program: Program) -> "ServerProcess":
        """Start the program. Raises StartError.

        Nothing is left of it if that is raised or the caller is cancelled.
        """
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            try:
                answers, control = await asyncio.open_unix_connection(sock=ours)
            except BaseException:
                ours.close()
                raise
            try:
                keeper = await _spawn_shim(theirs)
            except BaseException:
                control.close()
                raise
        try:
            control.write(_encode_order(program))
            told: dict[str, Any] = json.loads(await answers.readline() or b'{"error": "its keeper ended"}')
            if "error" in told:
                raise StartError(_describe_start_failure(program, told))
        except BaseException:
            control.close()
            await _wait_uncancelled(asyncio.create_task(_drain_shim(keeper)))
            raise
        secrets = sorted(
            (text for text in program.env.values() if len(text) >= _SHORTEST_SECRET), key=len, reverse=True
        )
        process = cls(keeper, control, told["pid"], secrets=secrets)
        process._watching = asyncio.create_task(process._watch_shim(answers))
        return process

    @property
    def stderr(self) -> Sequence[str]:
        """Return its last lines on standard error, without control characters and configured environment values."""
        return tuple(self._stderr)

    async def stop(self) -> None:
        """Stop it, and return once it is gone: its input is closed, then SIGTERM, then SIGKILL.

        Idempotent. A cancel of the caller takes effect afterwards.
        """
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop())
        await _wait_uncancelled(self._stopping)

    async def _stop(self) -> None:
        """Close the input, then hang up on the shim, then kill the process group, with a wait after each."""
        self.stdin.close()
        if not await self._wait_for_end(_INPUT_S):
            self.forced = True
            if not self._control.is_closing():
                self._control.write_eof()
            if not await self._wait_for_end(_TERM_S + _KILL_S):
                self._kill()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._keeper.wait(), _KEEPER_S)
        await asyncio.wait((self._reading,), timeout=_KEEPER_S)  # its last line is the reason of its end
        self._control.close()
        tasks = [task for task in (self._reading, self._watching) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch_shim(self, answers: asyncio.StreamReader) -> None:
        """Wait for the exit code from the shim, and note that the server is over."""
        line = b""
        with suppress(OSError):
            line = await answers.readline()
        if line:
            self.returncode = json.loads(line)["code"]
        else:
            self._kill()  # the shim was killed, so no other process would end the server
        self._over.set()

    async def _wait_for_end(self, limit_s: float) -> bool:
        await wait_until_set(self._over, limit_s)
        return self._over.is_set()

    def _kill(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._keeper.pid, signal.SIGKILL)

    async def _read_stderr(self, stream: asyncio.StreamReader) -> None:
        """Keep the last lines of standard error, until it ends."""
        lines = Lines(limit_bytes=_READ_BYTES)
        while data := await stream.read(_READ_BYTES):
            older, *last = _BLANK.sub(b"\n", data).rsplit(b"\n", STDERR_LINES + 1)
            if len(last) > STDERR_LINES:
                lines, older = Lines(limit_bytes=_READ_BYTES), b""  # a flood costs the lines before it
            for line in lines.feed(b"\n".join((older, *last))):
                self._append_stderr(line.head)
            await asyncio.sleep(0)  # a flood must not keep the loop for itself
        if (rest := lines.get_rest()) is not None:
            self._append_stderr(rest.head)

    def _append_stderr(self, line: bytes) -> None:
        text = _UNSEEN.sub("", line[: 4 * STDERR_CHARS].decode(errors="replace")).strip()
        for secret in self._secrets:
            text = text.replace(secret, _MASK)
        if text:
            self._stderr.append(text[:STDERR_CHARS])


async def _spawn_shim(control: socket.socket) -> asyncio.subprocess.Process:
    """Start the shim with its control socket, in a session of its own."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", "-B", "-c", _BOOT, _HOME, str(control.fileno())),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=_READ_BYTES,
        pass_fds=(control.fileno(),),
        env={name: os.environ[name] for name in _NEEDED_BY_PYTHON if name in os.environ},
        start_new_session=True,
    )


def _build_environment(program: Program) -> dict[str, str]:
    return {name: os.environ[name] for name in INHERITED if name in os.environ} | dict(program.env)


def _encode_order(program: Program) -> bytes:
    argv = (program.command, *program.args)
    order = {"argv": argv, "environment": _build_environment(program), "cwd": program.cwd, "grace_s": _TERM_S}
    return json.dumps(order).encode() + b"\n"


def find_start_problem(program: Program) -> str | None:
    """Return why a program cannot be started, as far as that is visible without a start; None: no reason is visible."""
    if program.cwd is not None and not Path(program.cwd).is_dir():
        return _describe_start_failure(program, {})
    file: str | Path | None = Path(program.cwd or "", program.command)
    if "/" not in program.command:
        file = shutil.which(program.command, path=_build_environment(program).get("PATH", os.defpath))
    if file is None or not Path(file).exists():
        return _describe_start_failure(program, {"errno": errno.ENOENT})
    return None if os.access(file, os.X_OK) else _describe_start_failure(program, {"errno": errno.EACCES})


def _describe_start_failure(program: Program, told: Mapping[str, Any]) -> str:
    """Return why the program could not be started, and how to mend that."""
    name, number = f"the program {program.command!r}", told.get("errno")
    if program.cwd is not None and not Path(program.cwd).is_dir():
        return f"the folder {program.cwd!r} of {name} is not there: make it, or correct `cwd`"
    if number == errno.ENOENT and "/" not in program.command:
        path = _build_environment(program).get("PATH", os.defpath)
        return f"{name} is not in PATH: install it, or give its absolute path as `command` (PATH is {path})"
    if number == errno.ENOENT and Path(program.cwd or "", program.command).exists():
        return f"{name} cannot be started: the interpreter that its first line names is not installed"
    if number == errno.ENOENT:
        return f"{name} is not there: install it, or correct `command`"
    if number == errno.EACCES:
        return f"{name} may not be executed: make it executable (chmod +x), or name a program as `command`"
    if number == errno.ENOEXEC:
        return f"{name} is no program: begin it with a line `#!INTERPRETER`, or give its interpreter as `command`"
    return f"{name} cannot be started: {told['error']}; check `command`, `args`, `env` and `cwd`"


async def _drain_shim(keeper: asyncio.subprocess.Process) -> None:
    """Wait until the shim and its streams have ended, for a limited time."""
    with suppress(TimeoutError):
        await asyncio.wait_for(keeper.communicate(), _TERM_S + _KILL_S)


async def _wait_uncancelled(task: asyncio.Task[None]) -> None:
    """Wait for a task that must not be broken off; a cancel of the waiter takes effect afterwards."""
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    task.result()
