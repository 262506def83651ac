"""One server as a process: what it gets, how it ends, and that nothing of it stays."""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable
from pathlib import Path

import pytest
from gateways import until

from gateway.mcp.transport.process import INHERITED, STDERR_CHARS, STDERR_LINES, Program, ServerProcess, StartError
from gateway.testing.processes import find_living_process
from tests.mcp.misbehaving import command

ECHO = 'import sys; [print(line.strip() + "!", flush=True) for line in sys.stdin]'


def program(behaviour: str, *arguments: object) -> Program:
    """The server that behaves so."""
    name, *rest = command(behaviour, *arguments)
    return Program(name, tuple(rest))


def python(code: str, *, env: dict[str, str] | None = None, cwd: str | None = None) -> Program:
    return Program(sys.executable, ("-I", "-S", "-c", code), env or {}, cwd)


async def ended(server: ServerProcess) -> list[str]:
    """Stops it; what it printed since."""
    output, _ = await asyncio.gather(server.stdout.read(), server.stop())
    return output.decode().splitlines()


async def test_process_exchanges_lines_and_ends_with_its_input() -> None:
    """And at the end of its input it ends by itself."""
    server = await ServerProcess.start(python(ECHO))
    server.stdin.write(b"one\ntwo\n")
    assert await server.stdout.readline() == b"one!\n"
    assert await ended(server) == ["two!"]
    assert (server.returncode, server.forced) == (0, False)


async def test_process_environment_contains_only_listed_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """M18: the listed variables and what is configured for it; no key of the gateway's."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/canary")
    monkeypatch.setenv("LANG", "C.UTF-8")
    code = "import json, os; print(json.dumps(dict(os.environ)))"
    server = await ServerProcess.start(python(code, env={"TOKEN": "mine", "TERM": "none"}))
    (printed,) = await ended(server)
    environment = json.loads(printed)
    environment.pop("LC_CTYPE", None)  # Python's own
    assert environment.keys() <= {*INHERITED, "TOKEN"}
    assert (environment["TOKEN"], environment["TERM"], environment["LANG"]) == ("mine", "none", "C.UTF-8")


async def test_process_inherits_only_its_three_streams() -> None:
    """No socket, file or pipe of the gateway's is open in it."""
    server = await ServerProcess.start(python("import os; print(sorted(map(int, os.listdir('/proc/self/fd'))))"))
    assert await ended(server) == ["[0, 1, 2, 3]"]  # 3: the folder that is being listed


async def test_process_runs_in_the_configured_folder(tmp_path: Path) -> None:
    """Is the configured one, and else that of the gateway."""
    code = "import os; print(os.getcwd())"
    assert await ended(await ServerProcess.start(python(code, cwd=str(tmp_path)))) == [str(tmp_path)]
    assert await ended(await ServerProcess.start(python(code))) == [str(Path.cwd())]


async def test_program_repr_contains_no_secrets() -> None:
    """Arguments and environment hold tokens."""
    assert repr(Program("x", ("--token", "sk-canary"), {"KEY": "sk-canary"})) == "Program(command='x', cwd=None)"


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (
            Program("no-such-server"),
            "the program 'no-such-server' is not in PATH: install it, or give its absolute path as `command` "
            "(PATH is /bin)",
        ),
        (Program("{tmp}/none"), "the program '{tmp}/none' is not there: install it, or correct `command`"),
        (Program("{tmp}/plain"), "the program '{tmp}/plain' may not be executed: make it executable (chmod +x)"),
        (Program("{tmp}/empty"), "the program '{tmp}/empty' is no program: begin it with a line `#!INTERPRETER`"),
        (Program("{tmp}/orphan"), "cannot be started: the interpreter that its first line names is not installed"),
        (Program("sh", cwd="{tmp}/gone"), "the folder '{tmp}/gone' of the program 'sh' is not there: make it, or corr"),
        (Program("sh", ("a\0b",)), "the program 'sh' cannot be started: embedded null byte; check `command`, `args`"),
    ],
    ids=lambda value: None if isinstance(value, str) else value.command,
)
async def test_a_program_that_cannot_be_started_is_named(wrong: Program, text: str, tmp_path: Path) -> None:
    """With what to do about it."""
    for name, content, mode in (("plain", "x", 0o600), ("empty", "", 0o700), ("orphan", "#!/no/such/thing\n", 0o700)):
        (tmp_path / name).write_text(content)
        (tmp_path / name).chmod(mode)
    command_ = wrong.command.format(tmp=tmp_path)
    cwd = None if wrong.cwd is None else wrong.cwd.format(tmp=tmp_path)
    with pytest.raises(StartError) as raised:
        await ServerProcess.start(Program(command_, wrong.args, {"PATH": "/bin"}, cwd))
    assert text.format(tmp=tmp_path) in str(raised.value)


async def test_ended_server_closes_its_streams_and_child_processes(tmp_path: Path) -> None:
    """Though a process that it started holds them."""
    code = (
        "import subprocess, sys; child = subprocess.Popen(['sleep', '600'], start_new_session=True);"
        "print(child.pid, flush=True); sys.stdin.readline(); sys.exit(7)"
    )
    server = await ServerProcess.start(python(code))
    child = int(await server.stdout.readline())
    assert find_living_process(child) is not None
    server.stdin.write(b"\n")
    async with asyncio.timeout(120):
        assert await server.stdout.read() == b""
    await until(lambda: find_living_process(child) is None)
    await server.stop()
    assert server.returncode == 7


@pytest.mark.parametrize("behaviour", ["grandchild", "grandchild-away"])
async def test_stopping_ends_grandchildren(behaviour: str, tmp_path: Path) -> None:
    """M19: also those that left its session."""
    file = tmp_path / "pid"
    server = await ServerProcess.start(program(behaviour, file))
    await until(lambda: file.exists() and file.read_text())
    child = int(file.read_text())
    await ended(server)
    assert find_living_process(server.pid) is find_living_process(child) is None


async def test_server_that_ignores_sigterm_is_killed() -> None:
    """M19: stdin closed, then TERM, then KILL; and it is known that it had to be forced."""
    server = await ServerProcess.start(program("ignores-term"))
    began = time.monotonic()
    await ended(server)
    assert time.monotonic() - began > 2
    assert find_living_process(server.pid) is None
    assert (server.returncode, server.forced) == (137, True)


async def test_server_that_ends_on_sigterm_is_not_killed() -> None:
    """It reads nothing, but ends when it is asked to."""
    code = (
        "import os, signal, time; signal.signal(signal.SIGTERM, lambda *_: os._exit(5));"
        "print('ready', flush=True); time.sleep(60)"
    )
    server = await ServerProcess.start(python(code))
    await server.stdout.readline()
    await ended(server)
    assert (server.returncode, server.forced) == (5, True)


async def test_a_flood_on_standard_error_is_drained() -> None:
    """5 MB of it do not block the server, and its last lines are kept, without colours and cut."""
    server = await ServerProcess.start(program("stderr-flood"))
    server.stdin.write(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
    assert json.loads(await server.stdout.readline())["id"] == 1
    await ended(server)
    assert len(server.stderr) == STDERR_LINES
    assert server.stderr[-2:] == ("the end", "y" * STDERR_CHARS)
    assert max(map(len, server.stderr)) == STDERR_CHARS


async def test_concurrent_stops_wait_for_the_same_end() -> None:
    """Whoever comes waits for the one end."""
    server = await ServerProcess.start(python(ECHO))
    await asyncio.gather(server.stop(), server.stop(), server.stdout.read())
    await server.stop()
    assert server.returncode == 0


async def cancelled(awaitable: Awaitable[object], *, after_s: float) -> None:
    task = asyncio.ensure_future(awaitable)
    await asyncio.sleep(after_s)  # the moment is the case
    task.cancel()
    await asyncio.wait((task,))


async def test_a_cancelled_stop_still_stops() -> None:
    """It takes as long as it takes; then the cancel counts."""
    server = await ServerProcess.start(program("ignores-term"))
    reading = asyncio.create_task(server.stdout.read())
    stopping = asyncio.create_task(server.stop())
    await cancelled(stopping, after_s=0.05)
    assert stopping.cancelled()
    assert find_living_process(server.pid) is None
    await reading


async def test_cancelled_start_leaves_no_process(tmp_path: Path) -> None:
    """At any moment of it."""
    file = tmp_path / "starts"
    for after_s in (0.0, 0.001, 0.01, 0.03, 0.06):
        starting = asyncio.create_task(ServerProcess.start(program("exits-first", file, 0)))
        await cancelled(starting, after_s=after_s)
        if not starting.cancelled():
            await ended(starting.result())
    marked = [path for path in Path("/proc").glob("[0-9]*/cmdline") if str(file).encode() in _bytes(path)]
    assert marked == []


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""  # it has just ended
