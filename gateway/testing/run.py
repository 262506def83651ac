"""A gateway as a separate process: started on a free loopback port, awaited, signalled, stopped, nothing left."""

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import tempfile
from asyncio.subprocess import DEVNULL
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self

from gateway.testing import processes
from gateway.testing.ports import free_port
from gateway.testing.raw_connection import connect
from gateway.testing.streams import require_loopback

GATEWAY: Final = (sys.executable, "-m", "gateway")

_POLL_S: Final = 0.02
_TAIL_CHARACTERS: Final = 2000


class ProcessHandle(Protocol):
    """A process of a gateway, however it was started."""

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | None: ...

    async def wait(self) -> int: ...

    def send_signal(self, number: int) -> None: ...


class Starter(Protocol):
    """Starts a command in a session of its own, with `env` added to the environment of this process."""

    async def __call__(
        self, command: Sequence[str], *, env: Mapping[str, str], stdout: int, stderr: int
    ) -> ProcessHandle: ...


async def execute(command: Sequence[str], *, env: Mapping[str, str], stdout: int, stderr: int) -> ProcessHandle:
    """Execute a command in a session of its own (`Starter`)."""
    return await asyncio.create_subprocess_exec(
        *command,
        stdin=DEVNULL,
        stdout=stdout,
        stderr=stderr,
        env={**os.environ, **env},
        start_new_session=True,
    )


@dataclass(frozen=True, slots=True)
class _Limits:
    """The times that a process may take, in seconds."""

    ready_s: float
    stop_s: float
    leftovers_s: float


class GatewayProcess:
    """`COMMAND run -c FILE --listen HOST:PORT ARGS` in a separate session (no `--listen`: `listens_by_config`).

    `async with` starts it and returns when `GET /health/ready` answers 200; on leaving, it is stopped with SIGTERM, and
    a process of its family that outlives it is killed and an AssertionError. After it ended, `start` starts it again
    on the same port, with the same file.
    """

    def __init__(
        self,
        config: str,
        *,
        args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        command: Sequence[str] = GATEWAY,
        host: str = "127.0.0.1",
        port: int | None = None,
        listens_by_config: bool = False,
        ready_timeout_s: float = 60.0,
        stop_timeout_s: float = 60.0,
        leftovers_grace_s: float = 10.0,
        starter: Starter = execute,
    ) -> None:
        """`env` is added to the environment of this process; children may outlive it by `leftovers_grace_s`."""
        self.host = require_loopback(host)
        self.port = free_port(self.host) if port is None else port
        self._config = config
        self._args = tuple(args)
        self._env = dict(env or {})
        self._command = tuple(command)
        self._listens_by_config = listens_by_config
        self._limits = _Limits(ready_timeout_s, stop_timeout_s, leftovers_grace_s)
        self._starter = starter
        self._process: ProcessHandle | None = None
        self._leader: processes.Process | None = None
        self._family: set[processes.Process] = set()
        self._folder: Path | None = None
        self._output = {"stdout": "", "stderr": ""}

    def __repr__(self) -> str:
        return f"<GatewayProcess {self.base_url}, returncode={self.returncode}>"

    @property
    def base_url(self) -> str:
        return f"http://[{self.host}]:{self.port}" if ":" in self.host else f"http://{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        return self._get_process().pid

    @property
    def returncode(self) -> int | None:
        """Return the exit code; None while it runs, or was never started; negative: the signal that ended it."""
        return None if self._process is None else self._process.returncode

    @property
    def folder(self) -> Path:
        """Return the folder of its configuration file; it exists from entering to leaving."""
        if self._folder is None:
            raise RuntimeError("the folder of a GatewayProcess exists inside `async with` only")
        return self._folder

    async def __aenter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="gateway-run-"))
        try:
            self.folder.joinpath("gateway.yaml").write_text(self._config, encoding="utf-8")
            await self.start()
        except BaseException:
            await self._leave()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self._leave()
            return
        try:
            await self._leave()
        except Exception as failure:
            error.add_note(f"and then, while the gateway was stopped: {failure}")
        error.add_note(self._report())

    async def start(self) -> None:
        """Start it and wait until it is ready; RuntimeError if it exits, TimeoutError if it does not get there."""
        if self._process is not None and self._process.returncode is None:
            raise RuntimeError(f"process {self._process.pid} is running: stop() it before start()")
        address = f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
        listen = () if self._listens_by_config else ("--listen", address)
        arguments = ("run", "-c", str(self.folder / "gateway.yaml"), *listen, *self._args)
        with self._build_path("stdout").open("ab") as stdout, self._build_path("stderr").open("ab") as stderr:
            self._process = await self._starter(
                (*self._command, *arguments), env=self._env, stdout=stdout.fileno(), stderr=stderr.fileno()
            )
        self._leader = processes.find_living_process(self._process.pid)
        await self._wait_until_ready(self._process)

    def signal(self, number: signal.Signals) -> None:
        self._remember_family()
        self._get_process().send_signal(number)

    async def wait(self, timeout_s: float = 60.0) -> int:
        """Wait for the end; return the exit code."""
        process = self._get_process()
        try:
            return await asyncio.wait_for(process.wait(), timeout_s)
        except TimeoutError as error:
            raise TimeoutError(f"process {process.pid} still runs after {timeout_s} s; {self._report()}") from error

    async def kill(self) -> None:
        """Send SIGKILL and wait for the end: the process cannot clean up."""
        self._get_process().send_signal(signal.SIGKILL)
        await self.wait()
        self._remember_family()

    async def stop(self) -> None:
        """Send SIGTERM if it runs, SIGKILL if that does not help; AssertionError if so, or if any process is left."""
        if self._process is None:
            return
        self._remember_family()
        late = ""
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                await self.wait(self._limits.stop_s)
            except TimeoutError as error:
                late = str(error)
        left = await self._find_leftovers(grace_s=0.0 if late else self._limits.leftovers_s)
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        await self._process.wait()
        if late or left:
            names = ", ".join(f"{process.pid} {process.name!r}" for process in left)
            raise AssertionError(f"SIGTERM did not end everything, killed: {names}. {late or self._report()}")

    def read_stdout(self) -> str:
        """Return its stdout so far."""
        return self._read_text("stdout")

    def read_stderr(self) -> str:
        """Return its stderr so far."""
        return self._read_text("stderr")

    async def _wait_until_ready(self, process: ProcessHandle) -> None:
        try:
            async with asyncio.timeout(self._limits.ready_s):
                while not await self._is_ready():
                    if process.returncode is not None:
                        raise RuntimeError(f"exited with {process.returncode} before it was ready; {self._report()}")
                    await asyncio.sleep(_POLL_S)
        except TimeoutError as error:
            what = f"GET {self.base_url}/health/ready did not answer 200 within {self._limits.ready_s} s"
            raise TimeoutError(f"{what}; {self._report()}") from error

    async def _is_ready(self) -> bool:
        authority = self.base_url.removeprefix("http://")
        request = f"GET /health/ready HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n"
        try:
            async with connect(self.host, self.port) as peer:
                await peer.send(request.encode())
                return (await peer.read_response()).status == 200
        except (OSError, EOFError, ValueError):
            return False

    def _remember_family(self) -> None:
        if self._leader is not None:
            self._family |= processes.list_family(self._leader)

    async def _find_leftovers(self, *, grace_s: float) -> list[processes.Process]:
        """Return the processes left of the family; children of a process that just exited get a moment to exit."""
        self._remember_family()
        waited_s = 0.0
        while (left := processes.list_living(self._family)) and waited_s < grace_s:
            await asyncio.sleep(_POLL_S)
            waited_s += _POLL_S
        return left

    async def _leave(self) -> None:
        try:
            await self.stop()
        finally:
            self._output = {"stdout": self.read_stdout(), "stderr": self.read_stderr()}
            folder, self._folder = self.folder, None
            shutil.rmtree(folder)

    def _get_process(self) -> ProcessHandle:
        if self._process is None:
            raise RuntimeError("this GatewayProcess was never started: use it with `async with`")
        return self._process

    def _build_path(self, stream: str) -> Path:
        return self.folder / f"{stream}.txt"

    def _read_text(self, stream: str) -> str:
        if self._folder is None:
            return self._output[stream]
        path = self._build_path(stream)
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def _report(self) -> str:
        tails = (f"{name}:\n{self._read_text(name)[-_TAIL_CHARACTERS:]}" for name in ("stdout", "stderr"))
        return f"returncode {self.returncode}, " + "\n".join(tails)
