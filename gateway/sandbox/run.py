"""Running one command through the launcher: sends the order, takes the output in bounds, and never leaves anything."""

import asyncio
import os
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from gateway.sandbox.launch_messages import CommandOutcome, Order

#: Where the package `gateway` lies, for an interpreter that looks nowhere else.
_HOME: Final = str(Path(__file__).parents[2])
_BOOT: Final = "import sys; sys.path.append(sys.argv[1]); from gateway.sandbox.launcher import main; main()"
#: Some builds of Python do not start without these; the command never sees them.
_NEEDED_BY_PYTHON: Final = ("LD_LIBRARY_PATH",)
#: How long the launcher has to clean up after the order to end, before it is killed itself. What the command started
#: would outlive that, so it is more than a launcher needs that gets a hundredth of a busy machine.
_END_S: Final = 10.0
#: How long the streams of a launcher may stay open behind its end.
_STREAMS_S: Final = 1.5
#: What the launcher may need besides the command's own time: two starts of an interpreter on a busy machine.
_START_S: Final = 10.0


class OutputExcerpt:
    """The beginning and the end of a stream, in bounded memory."""

    def __init__(self, *, limit_bytes: int) -> None:
        self._half = max(1, limit_bytes // 2)
        self._head = bytearray()
        self._tail = bytearray()
        self.total_bytes = 0

    def add(self, piece: bytes) -> None:
        """Add output; only its beginning and its end are kept."""
        self.total_bytes += len(piece)
        room = self._half - len(self._head)
        if room > 0:
            self._head += piece[:room]
            piece = piece[room:]
        self._tail += piece
        if len(self._tail) > 2 * self._half:
            del self._tail[: -self._half]

    def get_text(self) -> str:
        """Return the kept output as UTF-8, with a note on how many bytes were omitted."""
        tail = bytes(self._tail[-self._half :])
        omitted = self.total_bytes - len(self._head) - len(tail)
        if not omitted:
            return (bytes(self._head) + tail).decode(errors="replace")
        head = bytes(self._head).decode(errors="replace")
        return f"{head}\n[... {omitted} bytes omitted ...]\n{tail.decode(errors='replace')}"


@dataclass(frozen=True, slots=True)
class CommandResult:
    outcome: CommandOutcome
    stdout: str
    stderr: str


class _Launcher(asyncio.SubprocessProtocol):
    """One launcher, as the gateway sees it.

    `over` is set when it ended or its command printed too much, `ended` when it ended, `closed` when nothing of it is
    open here.
    """

    def __init__(self, *, stdout_bytes: int, stderr_bytes: int, flood_bytes: int) -> None:
        self.excerpts = {1: OutputExcerpt(limit_bytes=stdout_bytes), 2: OutputExcerpt(limit_bytes=stderr_bytes)}
        self.flooded = False
        self.over = asyncio.Event()
        self.ended = asyncio.Event()
        self.closed = asyncio.Event()
        self._flood_bytes = flood_bytes

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Keep output, and stop the command once all streams exceed the flood limit."""
        if self.flooded:
            return
        self.excerpts[fd].add(data)
        if sum(excerpt.total_bytes for excerpt in self.excerpts.values()) > self._flood_bytes:
            self.flooded = True
            self.over.set()

    def process_exited(self) -> None:
        # The end of both streams follows at once, unless another process killed the launcher and left its command.
        asyncio.get_running_loop().call_later(_STREAMS_S, self._end)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (the protocol's signature)
        self._end()
        self.closed.set()

    def _end(self) -> None:
        self.over.set()
        self.ended.set()


async def run(order: Order, *, stdout_bytes: int, stderr_bytes: int, flood_bytes: int) -> CommandResult:
    """Run the command; of each stream at most so many bytes are kept, and after `flood_bytes` the command is ended.

    Cancelling ends the command and all its processes first.
    """
    answer, answer_end = os.pipe()
    os.set_blocking(answer, False)
    with os.fdopen(answer, "rb") as told:
        try:
            transport, launcher = await asyncio.get_running_loop().subprocess_exec(
                lambda: _Launcher(stdout_bytes=stdout_bytes, stderr_bytes=stderr_bytes, flood_bytes=flood_bytes),
                *(sys.executable, "-I", "-S", "-B", "-c", _BOOT, _HOME, str(answer_end)),
                pass_fds=(answer_end,),
                env={name: os.environ[name] for name in _NEEDED_BY_PYTHON if name in os.environ},
                cwd="/",
                start_new_session=True,
            )
        finally:
            os.close(answer_end)
        try:
            _get_control_pipe(transport).write(order.to_line())
            with suppress(TimeoutError):
                async with asyncio.timeout(order.timeout_s + order.grace_s + _START_S):
                    await launcher.over.wait()
        finally:
            await asyncio.shield(asyncio.create_task(_end(transport, launcher)))
        line = told.readline()
    outcome = CommandOutcome.from_line(line) if line else CommandOutcome("lost", detail="the launcher gave no answer")
    if launcher.flooded:
        outcome = CommandOutcome("output")
    return CommandResult(outcome, launcher.excerpts[1].get_text(), launcher.excerpts[2].get_text())


async def _end(transport: asyncio.SubprocessTransport, launcher: _Launcher) -> None:
    """Make the launcher clean up, or kill it; afterwards nothing of it is open here."""
    _get_control_pipe(transport).close()
    try:
        await asyncio.wait_for(launcher.ended.wait(), _END_S)
    except TimeoutError:
        with suppress(ProcessLookupError):
            os.killpg(transport.get_pid(), signal.SIGKILL)
    finally:
        transport.close()
    await launcher.closed.wait()


def _get_control_pipe(transport: asyncio.SubprocessTransport) -> asyncio.WriteTransport:
    # uvloop's transports are none of asyncio's classes.
    return cast(asyncio.WriteTransport, transport.get_pipe_transport(0))
