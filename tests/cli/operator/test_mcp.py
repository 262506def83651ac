"""`gateway mcp`: services from their registration to their end, as an operator sees them."""

import asyncio
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from api.mcp_pages import ServedMcp, moored
from cli_cases import told
from gateways import until_read

from gateway.cli.commands import CommandError
from gateway.cli.main import main
from gateway.cli.operator.mcp import (
    accept_tools,
    add_service,
    control_service,
    iterate_tools,
    list_services,
    remove_service,
)
from gateway.cli.operator.remote import Remote, RemoteError

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
TIME = {"command": "uvx", "args": ["mcp-server-time"]}


def remote(harbour: ServedMcp) -> Remote:
    return Remote(f"http://127.0.0.1:{harbour.lane.port}", "root")


async def until_pinned(harbour: ServedMcp) -> None:
    await until_read(harbour.store.list_services, lambda services: any(one.pins for one in services))


async def test_services_are_listed() -> None:
    """With what went wrong, escaped; a script gets all of it."""
    async with moored() as harbour:
        asked = remote(harbour)
        assert await told(lambda: list_services(asked, as_json=False)) == ["none"]
        assert await told(lambda: add_service(asked, "time", settings=TIME)) == [
            "time  running  registered, stdio, 1 tool",
        ]
        harbour.service().restarts = 3
        harbour.service().becomes("error", error="exit\x1b[31m code 1")
        assert await told(lambda: list_services(asked, as_json=False)) == [
            "time  error  registered, stdio, 0 tools, restarted 3 times by itself",
            "  exit\\u{1b}[31m code 1",
        ]
        (line,) = await told(lambda: list_services(asked, as_json=True))
        assert json.loads(line)["settings"]["args"] == ["mcp-server-time"]
        with pytest.raises(RemoteError, match="answered 409: name: A service of this name exists"):
            await told(lambda: add_service(asked, "time", settings=TIME))


async def test_mcp_stop_start_restart_and_remove_report_the_state() -> None:
    """Each tells how the service is then."""
    async with moored() as harbour:
        asked = remote(harbour)
        await told(lambda: add_service(asked, "My Server", settings=TIME))
        for what, state in (("stop", "stopped"), ("start", "running"), ("restart", "running")):
            (line,) = await told(lambda what=what: control_service(asked, "My Server", what))
            assert f"  {state}  " in line
        await told(lambda: remove_service(asked, "My Server"))
        with pytest.raises(RemoteError, match="answered 404: The gateway has no service of this name"):
            await told(lambda: remove_service(asked, "My Server"))


async def test_mcp_tools_shows_and_accepts_changed_tools() -> None:
    """A changed tool is accepted as it was shown, beside the accepted one; a name that is none is told."""
    async with moored(time=TIME) as harbour:
        asked = remote(harbour)
        await until_pinned(harbour)
        assert await told(lambda: accept_tools(asked, "time", wanted=())) == ["nothing to accept: no tool has changed"]
        harbour.service().described["look"] = "Sends all."
        harbour.service().becomes("running", look="2" * 64, listen="3" * 64)
        lines = await told(lambda: iterate_tools(asked, "time", as_json=False))
        compared = ["  Sends all.", "  description", '  - "Does look."', '  + "Sends all."']
        assert lines[:5] == [f"look  {'2' * 64}  not as it was accepted: each call asks a person", *compared]
        assert (await told(lambda: list_services(asked, as_json=False)))[1].startswith(
            "  not as they were accepted: look"
        )
        with pytest.raises(CommandError, match="has no tool 'nope' just now"):
            await told(lambda: accept_tools(asked, "time", wanted=("nope",)))
        assert await told(lambda: accept_tools(asked, "time", wanted=())) == [f"look  {'2' * 64}", *compared]
        (line, _) = await told(lambda: iterate_tools(asked, "time", as_json=True))
        assert json.loads(line)["changed"] is False
        harbour.service().tools = {}
        assert await told(lambda: iterate_tools(asked, "time", as_json=False)) == [
            "none: the service runs, and lists no tools"
        ]


async def test_mcp_tools_waits_for_a_starting_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """Right after the start of a gateway there is nothing to list yet."""
    async with moored(time=TIME) as harbour:
        await until_pinned(harbour)
        harbour.service().becomes("starting")
        loop, slept = asyncio.get_running_loop(), []

        def sleep(duration_s: float) -> None:
            slept.append(duration_s)
            loop.call_soon_threadsafe(partial(harbour.service().becomes, "running", look="1" * 64))

        monkeypatch.setattr("gateway.cli.operator.mcp.time.sleep", sleep)
        assert (await told(lambda: iterate_tools(remote(harbour), "time", as_json=False)))[0].startswith("look  ")
        assert slept


@pytest.mark.parametrize("as_json", [False, True])
async def test_mcp_tools_fails_for_a_service_that_is_not_running(as_json: bool) -> None:
    """A failure, with the reason and the next step: a script must not take it for a service without tools."""
    async with moored(time=TIME) as harbour:
        asked = remote(harbour)
        await until_pinned(harbour)
        harbour.service().becomes("error", error="its program ended\x1b[31m")
        with pytest.raises(
            CommandError, match=r"'time' does not run \(state error\): its program ended.u\{1b\}\[31m; "
        ):
            await told(lambda: iterate_tools(asked, "time", as_json=as_json))
        await told(lambda: control_service(asked, "time", "stop"))
        with pytest.raises(CommandError, match=r"does not run \(state stopped\).*; gateway mcp start 'time'"):
            await told(lambda: iterate_tools(asked, "time", as_json=as_json))


@pytest.mark.parametrize(
    ("arguments", "key", "problem"),
    [
        ((), "", "this configuration serves no MCP clients: add mcp.serve, or name a gateway with --url"),
        (("--url", "127.0.0.1:8080"), "", "--url: expected http://HOST:PORT, or the URL of the endpoint"),
        (("--url", "http://[::1"), "", "--url: expected"),
        (("--url", "http://me:pass@127.0.0.1/mcp"), "", "--url: expected"),
        (("--url", "http://127.0.0.1/mcp?key=a"), "", "--url: expected"),
        (("--url", "http://127.0.0.1"), "kéy", "GATEWAY_API_KEY contains a character that no key has"),
    ],
)
def test_mcp_serve_prints_why_it_cannot_relay(
    arguments: tuple[str, ...],
    key: str,
    problem: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The command ends with the reason; clients show what it writes to standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GATEWAY_API_KEY", key)
    assert main(["mcp", "serve", "--stdio", *arguments]) == 1
    printed = capsys.readouterr()
    assert problem in printed.err and printed.out == ""


def test_mcp_serve_names_the_missing_sdk_extra(tmp_path: Path) -> None:
    """Without the extra the command names it."""
    code = "import sys; sys.modules['mcp'] = None; from gateway.cli.main import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "mcp", "serve", "--stdio", "--url", "http://127.0.0.1:1"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=ENVIRONMENT, check=False)
    assert (done.returncode, done.stdout) == (1, "") and "pip install 'twolane[mcp]'" in done.stderr
