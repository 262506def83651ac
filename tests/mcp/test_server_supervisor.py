"""The owner of a server: it starts, lists, notices the end, starts anew, and leaves nothing behind."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from gateway.mcp.server_facts import Config
from gateway.mcp.transport.start_limit import Starts
from tests.mcp.mcp_host import Stand, stands
from tests.mcp.test_connection import FRESH, newer

# Ends itself when it is asked for the newer era, as servers in Rust do.
STRICT = """
import os, sys
sys.path.insert(0, sys.argv[1])
from tests.mcp.behaving import Server
class Strict(Server):
    def asked(self, request_id, method, params):
        if method == "server/discover":
            os._exit(1)
        super().asked(request_id, method, params)
Strict([]).run()
"""
# Does not answer what it does not know.
MUTE = STRICT.replace("os._exit(1)", "return")


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(("behaviour", "protocol"), [("ok", "2025-11-25"), ("modern", "2026-07-28")])
async def test_both_protocol_eras_are_supported(behaviour: str, protocol: str) -> None:
    """The newer one where the server has it; its tools are listed, and answer."""
    async with stands(behaviour) as stand:
        assert stand.session.get_condition().state == "starting"
        await stand.running()
        condition = stand.session.get_condition()
        assert (condition.state, condition.protocol, condition.transport) == ("running", protocol, "stdio")
        assert "echo" in stand.session.definitions.tools
        assert await stand.said("echo", text="hello") == "hello"
        assert await stand.said("structured") == '{"sum":3}'
        assert stand.counters.errors("tools/list") == [""]
    assert stand.session.get_condition().state == "stopped"


@pytest.mark.parametrize("program", [STRICT, MUTE], ids=["ends", "does not answer"])
async def test_server_without_the_newer_era_is_served(program: str) -> None:
    """Whether they end themselves or say nothing when they are asked for it."""
    argv = (sys.executable, "-c", program, str(Path(__file__).parents[2]))
    async with stands(argv=argv, start_timeout=12.0) as stand:
        await stand.running()
        assert await stand.said("echo", text="hello") == "hello"
        assert stand.session.get_condition().protocol == "2025-11-25"


async def test_silent_server_fails_at_the_timeout_without_delaying_others() -> None:
    """M2: `start` returns at once, and another server serves meanwhile."""
    async with stands("silent", start_timeout=0.5) as silent, stands("ok") as other:
        await other.running()
        assert await other.said("echo", text="x") == "x"
        await silent.changes.until(lambda: silent.session.get_condition().state == "error")
        assert silent.session.get_condition().error == "did not answer within 0.5 s of its start"
        assert "is not running just now" in await silent.said("echo", text="x")


async def test_start_limit_starts_programs_in_turn() -> None:
    """The next one begins when one before it is ready, however quick it is."""
    starts = Starts(1, place_s=600.0)
    order: list[str] = []
    async with stands("slow-start", 1, starts=starts, start_timeout=60.0) as slow:
        async with asyncio.timeout(120):
            while slow.session._open.channel is None:
                await asyncio.sleep(0)
        async with stands("ok", starts=starts, start_timeout=60.0) as quick:

            async def note(name: str, stand: Stand) -> None:
                await stand.running()
                order.append(name)

            await asyncio.gather(note("quick", quick), note("slow", slow))
    assert order == ["slow", "quick"]


async def test_start_timeout_begins_with_the_program() -> None:
    """One that waited for its place for longer is no error."""
    starts = Starts(1, place_s=600.0)
    server = Config(name="box", command="box", start_timeout=1.0)
    stand = Stand(server, lambda _: newer(tools_list={"tools": [], **FRESH}), starts=starts)
    async with starts.place() as leave, stand:
        asyncio.get_running_loop().call_later(1.5, leave)
        await stand.running()
        assert stand.session.get_condition().restarts == 0


async def test_start_slot_is_released_after_its_maximum_time() -> None:
    """A silent program keeps no other one waiting until its own time is over."""
    starts = Starts(1, place_s=0.05)
    async with stands("silent", starts=starts, start_timeout=600.0), stands("ok", starts=starts) as quick:
        await quick.running()
        assert starts.waiting == 0


async def test_stop_while_waiting_takes_no_start_slot() -> None:
    """The place of others stays theirs, and the next one gets one."""
    starts = Starts(1, place_s=600.0)
    async with starts.place() as leave:
        async with stands("ok", starts=starts) as stand:
            async with asyncio.timeout(120):
                while not starts.waiting:
                    await asyncio.sleep(0)
        assert starts.waiting == 0 and stand.session.get_condition().state == "stopped"
        leave()
        async with stands("ok", starts=starts) as other:
            await other.running()


async def test_hung_program_is_restarted() -> None:
    """It answers neither a call nor whether it lives; further calls wait for that, and not for their own time."""
    async with stands("ok", timeout=600.0, timeouts={"echo": 0.2}) as stand:
        await stand.running()
        pid = int(await stand.said("pid"))
        os.kill(pid, signal.SIGSTOP)
        assert "did not answer within 0.2 s and was stopped" in await stand.said("echo", text="x")
        others = await asyncio.gather(*(stand.said("add", a=1, b=2) for _ in range(3)))
        assert all("is not running just now" in text for text in others)
        assert "neither a call in time nor" in (stand.session.get_condition().error or "")
        await stand.running()
        assert not is_alive(pid) and int(await stand.said("pid")) != pid
        assert stand.session.get_condition().restarts == 1


async def test_program_with_a_slow_tool_is_not_restarted() -> None:
    """A call beside the question whether it lives is answered, in both eras."""
    for behaviour in ("ok", "modern"):
        async with stands(behaviour, timeouts={"sleep": 0.1}) as stand:
            await stand.running()
            pid = await stand.said("pid")
            assert "did not answer within 0.1 s" in await stand.said("sleep", seconds=600)
            assert [await stand.said("pid") for _ in range(3)] == [pid] * 3
            assert stand.session.get_condition().restarts == 0


async def test_crash_during_a_call_fails_the_call_and_restarts_the_server() -> None:
    """M3: the call fails before its time is over, the server comes back by itself, and the call is not made again."""
    async with stands("ok", timeout=600.0) as stand:
        await stand.running()
        assert "ended while it ran the tool 'crash'" in await stand.said("crash")
        await stand.changes.until(lambda: stand.session.get_condition().state == "error")
        assert not stand.session.is_running
        await stand.running()
        assert await stand.said("calls") == "1"
        assert stand.session.get_condition().restarts == 1


async def test_idle_server_that_is_killed_is_restarted() -> None:
    """Its end is noticed, without a call that would find out."""
    async with stands("ok") as stand:
        await stand.running()
        os.kill(int(await stand.said("pid")), 9)
        await stand.changes.until(lambda: not stand.session.is_running)
        await stand.running()


async def test_crash_fails_all_concurrent_calls() -> None:
    """All of them end, each with its own text."""
    async with stands("ok") as stand:
        await stand.running()
        calls = [asyncio.create_task(stand.said("sleep", seconds=30)) for _ in range(5)]
        await stand.said("echo", text="after them")
        await stand.said("crash")
        assert all("ended while it ran the tool 'sleep'" in text for text in await asyncio.gather(*calls))


async def test_an_idempotent_call_survives_a_crash() -> None:
    """It is asked again once the server is back."""
    async with stands("ok", idempotent=frozenset({"sleep"})) as stand:
        await stand.running()
        call = asyncio.create_task(stand.said("sleep", seconds=0.3))
        await stand.said("echo", text="after it")
        await stand.said("crash")
        assert await call == "slept"


async def test_hundred_concurrent_calls_get_their_own_answers() -> None:
    """None is lost, and none has another one's answer."""
    async with stands("ok") as stand:
        await stand.running()
        texts = [str(number) for number in range(100)]
        assert await asyncio.gather(*(stand.said("echo", text=text) for text in texts)) == texts


async def test_a_timeout_cancels_the_call_in_the_server() -> None:
    """The server is told, and goes on with others."""
    async with stands("ok", timeouts={"sleep": 0.1}) as stand:
        await stand.running()
        assert "did not answer within 0.1 s" in await stand.said("sleep", seconds=5)
        async with asyncio.timeout(120):
            while await stand.said("cancelled") != "1":
                pass


async def test_endless_progress_ends_at_the_maximum_timeout() -> None:
    """M5: with a real server."""
    async with stands("progress-forever", timeout=1, max_timeout=2) as stand:
        await stand.running()
        assert "did not answer within 2 s" in await stand.said("echo", text="x")


async def test_server_that_stops_reading_blocks_no_caller() -> None:
    """A full pipe holds up no caller, and no stop."""
    async with stands("deaf", timeout=0.2) as stand:
        await stand.running()
        texts = await asyncio.gather(*(stand.said("echo", text="x" * 100_000) for _ in range(5)))
        assert all("did not answer within 0.2 s" in text for text in texts)


async def test_list_changed_notification_reloads_the_tools() -> None:
    """`notifications/tools/list_changed`."""
    async with stands("list-changed") as stand:
        await stand.running()
        assert "grown_1" not in stand.session.definitions.tools
        await stand.said("grow")
        await stand.changes.until(lambda: "grown_1" in stand.session.definitions.tools)


@pytest.mark.parametrize(
    ("behaviour", "error", "tools"),
    [
        ("endless-cursor", "its list of tools is longer than 500 tools or 100 pages", 100),
        ("same-cursor", "its list of tools has no end", 14),
        ("many-tools", "the list has 10,", 500),
        ("bad-tool", "the tool 'odd' is left out", 14),
    ],
)
async def test_excess_definitions_are_dropped_and_reported(behaviour: str, error: str, tools: int) -> None:
    """M12: the server serves what is left, and its operator can read what is not."""
    async with stands(behaviour) as stand:
        await stand.running()
        condition = stand.session.get_condition()
        assert condition.state == "running" and condition.error is not None and error in condition.error
        assert len(stand.session.definitions.tools) == tools


@pytest.mark.parametrize("behaviour", ["wrong-content", "wrong-shape", "error-and-result", "string-id", "duplicate"])
async def test_malformed_response_ends_at_most_one_call(behaviour: str) -> None:
    """M8: there is a result or an error for that call, and the next one is served."""
    async with stands(behaviour, timeout=2.0) as stand:
        await stand.running()
        assert await stand.said("echo", text="x")
        assert stand.session.is_running


async def test_missing_program_is_reported_and_retried() -> None:
    """Its name and what to do; it is tried again, for it may be installed meanwhile."""
    async with stands(argv=("no-such-program-xyz",)) as stand:
        await stand.changes.until(lambda: stand.session.get_condition().restarts == 2)
        error = stand.session.get_condition().error
        assert error is not None and "'no-such-program-xyz'" in error and "install it" in error


async def test_exit_code_and_last_stderr_line_are_reported() -> None:
    """Exit code and last words stand in its condition."""
    async with stands("exits", 3) as stand:
        await stand.changes.until(lambda: "exit code 3" in (stand.session.get_condition().error or ""))
        condition = stand.session.get_condition()
        assert condition.stderr == ("misbehaving: cannot go on",)
        assert condition.error == (
            "its program ended with exit code 3; its last line on standard error: misbehaving: cannot go on"
        )


@pytest.mark.parametrize(
    ("line", "is_hinted"),
    [
        ("ModuleNotFoundError: No module named 'mcp.server.fastmcp'", True),
        ("ImportError: cannot import name 'FastMCP' from 'mcp.server' (/x/__init__.py)", True),
        ("AttributeError: 'Server' object has no attribute 'list_resources'", True),
        ("ModuleNotFoundError: No module named 'requests'", False),
        ("AttributeError: 'Database' object has no attribute 'x'", False),
    ],
)
async def test_sdk_version_mismatch_adds_a_start_hint(line: str, is_hinted: bool) -> None:
    """Many packages want any version of the SDK, and end at their start with the newest."""
    async with stands(argv=(sys.executable, "-I", "-S", "-c", f"import sys; sys.exit({line!r})")) as stand:
        await stand.changes.until(lambda: "exit code 1" in (stand.session.get_condition().error or ""))
        error = stand.session.get_condition().error or ""
        assert error.endswith(line) and ("uvx --with 'mcp<2' PACKAGE" in error) == is_hinted


async def test_start_timeout_error_includes_the_last_stderr_line() -> None:
    """`uvx` tells what it fetches: its last line stands beside the limit."""
    code = "import sys, time; print('fetching', file=sys.stderr, flush=True); time.sleep(600)"
    async with stands(argv=(sys.executable, "-I", "-S", "-c", code), start_timeout=2.0) as stand:
        await stand.changes.until(lambda: "within 2 s" in (stand.session.get_condition().error or ""))
        assert (stand.session.get_condition().error or "").endswith("; its last line on standard error: fetching")


async def test_log_masks_secrets_in_the_exit_reason(caplog: pytest.LogCaptureFixture) -> None:
    """Values of its environment are masked before they reach the log."""
    code = 'import os, sys; sys.exit(f\'the key {os.environ["TOKEN"]} of {os.environ["SHORT"]} is wrong\')'
    env = {"TOKEN": "tk-0123456789", "SHORT": "eu"}
    async with stands(argv=(sys.executable, "-I", "-S", "-c", code), env=env) as stand:
        await stand.changes.until(lambda: stand.session.get_condition().restarts == 1)
    said = (
        "service 'box': its program ended with exit code 1; its last line on standard error: the key *** of eu is wrong"
    )
    assert said in caplog.messages


async def test_server_that_fails_its_first_starts_runs_eventually(tmp_path: Path) -> None:
    """It is running in the end."""
    async with stands("exits-first", tmp_path / "starts", 3) as stand:
        await stand.running()
        assert stand.session.get_condition().restarts == 3


async def test_stopped_server_leaves_no_process_and_can_restart() -> None:
    """Twice is once, and a stopped server starts again."""
    async with stands("ok") as stand:
        await stand.running()
        pid = int(await stand.said("pid"))
        await asyncio.gather(stand.session.stop(), stand.session.stop())
        assert not is_alive(pid) and stand.session.get_condition().state == "stopped"
        assert "is not running" in await stand.said("pid")
        stand.session.start()
        stand.session.start()
        await stand.running()
        assert int(await stand.said("pid")) != pid


@pytest.mark.parametrize("behaviour", ["silent", "exits"])
async def test_stop_during_start_returns_at_once(behaviour: str) -> None:
    """Stopping does not wait for the limit of the start, or for the next try."""
    async with stands(behaviour, start_timeout=600.0) as stand:
        if behaviour == "exits":
            await stand.changes.until(lambda: stand.session.get_condition().state == "error")
    assert stand.session.get_condition().state == "stopped"


async def test_calls_under_way_end_when_the_server_is_stopped() -> None:
    """Calls that would take ten minutes end with the stop."""
    async with stands("ok", timeout=600.0) as stand:
        await stand.running()
        call = asyncio.create_task(stand.said("sleep", seconds=600))
        await stand.said("echo", text="after it")
        await stand.session.stop()
        assert "ended while it ran" in await call


async def test_library_loggers_do_not_log_server_output(caplog: pytest.LogCaptureFixture) -> None:
    """Neither their lines nor addresses; what matters is said here."""
    async with stands("garbage") as stand:
        await stand.running()
        await stand.said("echo", text="x")
        assert stand.session.get_condition().skipped_lines > 0
    assert {record.name for record in caplog.records} <= {"asyncio", "gateway"}


def test_session_repr_contains_name_and_state() -> None:
    """For a debugger."""
    assert repr(stands("ok").session) == "<Session of 'box': stopped>"
