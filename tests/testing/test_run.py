"""A gateway process is awaited, signalled and stopped, and nobody of its family outlives it."""

import os
import re
import signal
import sys
from pathlib import Path

import pytest
from gateways import until

from gateway.testing.processes import find_living_process
from gateway.testing.raw_connection import connect
from gateway.testing.run import GatewayProcess

STAND_IN = (sys.executable, str(Path(__file__).with_name("stand_in.py")))


async def test_gateway_process_is_ready_on_entry_and_gone_on_exit() -> None:
    """With its configuration, arguments and environment; what it wrote can be read afterwards."""
    gateway = GatewayProcess("listen: here\n", command=STAND_IN, env={"GREETING": "hello", "NOT_READY": "2"})
    async with gateway:
        assert gateway.base_url == f"http://127.0.0.1:{gateway.port}"
        assert find_living_process(gateway.pid) is not None
        folder = gateway.folder
        assert folder.joinpath("gateway.yaml").read_text() == "listen: here\n"
    assert gateway.returncode == 0 and find_living_process(gateway.pid) is None and not folder.exists()
    assert gateway.read_stdout() == "listen: here\n hello\n"
    assert gateway.read_stderr().count("503") == 2
    with pytest.raises(ConnectionRefusedError):
        await connect("127.0.0.1", gateway.port)


async def test_signals_reach_the_gateway_process() -> None:
    """SIGHUP is answered, SIGTERM awaited."""
    async with GatewayProcess("", command=STAND_IN) as gateway:
        gateway.signal(signal.SIGHUP)
        await until(lambda: "reloaded" in gateway.read_stdout())
        gateway.signal(signal.SIGTERM)
        assert await gateway.wait(5) == 0


async def test_killed_gateway_process_can_be_restarted() -> None:
    """On the same port, with the same file."""
    async with GatewayProcess("", command=STAND_IN) as gateway:
        first = gateway.pid
        with pytest.raises(RuntimeError, match=f"process {first} is running: stop"):
            await gateway.start()
        gateway.signal(signal.SIGKILL)
        assert await gateway.wait(5) == -signal.SIGKILL
        await gateway.start()
        assert gateway.pid != first and gateway.returncode is None


async def test_early_process_exit_is_reported_with_code_and_stderr() -> None:
    """The exit code and stderr, without waiting for the limit."""
    gateway = GatewayProcess("", command=STAND_IN, args=["--misbehave", "exit"])
    with pytest.raises(RuntimeError, match=r"(?s)exited with 3 before it was ready.*cannot start: no such thing"):
        await gateway.__aenter__()


async def test_a_process_that_never_gets_ready_is_stopped() -> None:
    """TimeoutError, and it is gone; whether it heard the signal or was too young for it."""
    gateway = GatewayProcess("", command=STAND_IN, args=["--misbehave", "never-ready"], ready_timeout_s=0.5)
    with pytest.raises(TimeoutError, match=r"/health/ready did not answer 200 within 0.5 s"):
        await gateway.__aenter__()
    assert gateway.returncode in (0, -signal.SIGTERM)


async def test_wait_timeout_names_the_process() -> None:
    """With what it wrote."""
    async with GatewayProcess("", command=STAND_IN) as gateway:
        with pytest.raises(TimeoutError, match=f"process {gateway.pid} still runs after 0.01 s"):
            await gateway.wait(0.01)


async def test_a_process_that_ignores_sigterm_is_killed_and_an_error() -> None:
    """Nothing is left either way."""
    gateway = GatewayProcess("", command=STAND_IN, args=["--misbehave", "deaf"], stop_timeout_s=0.2)
    await gateway.__aenter__()
    with pytest.raises(AssertionError, match=r"SIGTERM did not end everything, killed: \d+ 'python"):
        await gateway.__aexit__(None, None, None)
    assert gateway.returncode == -signal.SIGKILL


async def test_surviving_child_process_is_killed_and_reported() -> None:
    """Even one that left its session."""
    gateway = GatewayProcess("", command=STAND_IN, args=["--misbehave", "child"], leftovers_grace_s=0.1)
    await gateway.__aenter__()
    found = re.search(r"child (\d+)", gateway.read_stdout())
    assert found is not None
    with pytest.raises(AssertionError, match=f"killed: {found[1]} "):
        await gateway.__aexit__(None, None, None)
    await until(lambda: find_living_process(int(found[1])) is None)


async def test_gateway_output_is_added_as_a_note_to_test_exceptions() -> None:
    """As a note on its own exception."""

    async def test() -> None:
        async with GatewayProcess("", command=STAND_IN):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine") as caught:
        await test()
    assert '"GET /health/ready HTTP/1.1" 200' in caught.value.__notes__[0]


def test_gateway_process_outside_async_with_raises_runtime_error() -> None:
    """The error says how to get one."""
    gateway = GatewayProcess("")
    assert gateway.returncode is None and gateway.read_stdout() == ""
    with pytest.raises(RuntimeError, match="use it with `async with`"):
        os.kill(gateway.pid, 0)
    with pytest.raises(RuntimeError, match="inside `async with` only"):
        _ = gateway.folder


def test_gateway_process_refuses_non_loopback_host() -> None:
    """Other addresses are refused before anything starts."""
    with pytest.raises(ValueError, match="loopback only"):
        GatewayProcess("", host="0.0.0.0")
