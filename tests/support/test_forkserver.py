"""A gateway that was forked behaves as one that was executed."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from gateways import until

from gateway.testing import processes
from tests.support.forkserver import OWNER, SOCKET, fork_command, forked

CONFIG = {"upstreams": [], "listen": "127.0.0.1:0"}


@pytest.fixture
def output(tmp_path: Path) -> Path:
    (tmp_path / "gateway.yaml").write_text(json.dumps(CONFIG))
    return tmp_path / "output.txt"


async def test_forked_gateway_has_the_callers_environment_and_streams(
    output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And its exit code comes back."""
    monkeypatch.chdir(output.parent)
    (output.parent / "gateway.yaml").write_text('upstreams: [{name: up, base_url: "${UP_URL}"}]')
    codes = []
    with output.open("wb") as stream:
        for url in ("http://127.0.0.1:9/v1", "no url"):
            monkeypatch.setenv("UP_URL", url)
            asked = await forked(["check-config"], stdout=stream.fileno(), stderr=stream.fileno())
            codes.append(await asked.wait())
    assert codes == [0, 1]
    assert "upstreams[0].base_url: a URL has no spaces" in output.read_text()


async def test_forked_gateway_leads_its_own_session(output: Path) -> None:
    """Its family is that of an executed gateway; a signal that kills it is its negative exit code."""
    with output.open("wb") as stream:
        arguments = ["run", "-c", str(output.parent / "gateway.yaml")]
        gateway = await forked(arguments, stdout=stream.fileno(), stderr=stream.fileno())
    leader = processes.find_living_process(gateway.pid)
    assert leader is not None and leader.parent != os.getpid()
    assert gateway.returncode is None
    gateway.send_signal(signal.SIGKILL)
    assert await gateway.wait() == -signal.SIGKILL == gateway.returncode
    with pytest.raises(ProcessLookupError):
        gateway.send_signal(signal.SIGTERM)
    assert processes.list_living([*processes.list_family(leader), leader]) == []


async def test_concurrent_forks_return_their_own_exit_codes(output: Path) -> None:
    """Each has its own exit code."""
    with output.open("wb") as stream:
        commands = [["version"] if n % 2 else ["no-such-command"] for n in range(10)]
        started = [forked(command, stdout=stream.fileno(), stderr=stream.fileno()) for command in commands]
        codes = [await gateway.wait() for gateway in await asyncio.gather(*started)]
    assert codes[0::2] == [2] * 5


@pytest.mark.parametrize(("command", "code"), [(("assess",), 0), (("no-such-command",), 2)])
async def test_forked_program_has_the_streams_of_its_starter(command: tuple[str, ...], code: int) -> None:
    """It reads the input until that ends, and its exit code is the fork's."""
    program = await asyncio.to_thread(fork_command, *command)
    process = await asyncio.create_subprocess_exec(*program, stdin=-1, stdout=-1, stderr=-1)
    call = {"tool": "execute_command", "arguments": {"command": "ls"}}
    output, errors = await process.communicate(json.dumps(call).encode())
    assert process.returncode == code
    assert (b'"auto"' in output, b"no-such-command" in errors) == (code == 0, code == 2)


async def test_fork_server_ends_with_its_owner(tmp_path: Path) -> None:
    """Nothing of it is left, and the next owner starts another."""
    code = (
        "import asyncio, os, sys; from tests.support.forkserver import OWNER, forked\n"
        "os.environ[OWNER] = str(os.getpid())\n"
        "async def main(): await (await forked(['check-config'], stdout=1, stderr=2)).wait()\n"
        "asyncio.run(main())"
    )
    path = str(tmp_path / "socket")
    environment = {**os.environ, SOCKET: path, OWNER: ""}
    await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", code], check=True, capture_output=True, env=environment
    )
    await until(lambda: not any(path.encode() in command for command in map(command_line, processes.list_processes())))


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
