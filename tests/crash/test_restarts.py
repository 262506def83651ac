"""A gateway that is stopped or killed while something is under way goes on where it was."""

import asyncio
import json
import signal
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import aiohttp
import pytest
from gateways import Stopwatch, until

from gateway.testing import processes
from tests.support.gateway_process import GatewayProcess

from .effects import ASKS, Json, Stored, effects, settings, stored
from .talk import Stream, approval_asked, post, session_with, told

DRAIN_S = 1.0
#: From the effect to the end of a call: longer than the drain, shorter than that and the grace of a tool (2 s).
ENDS_S = 2.0
RECOVERS_S = 30.0


def run_of(folder: Path, name: str) -> Stored:
    (run,) = stored(folder / "gateway.db", name)
    return run


def slow(folder: Path) -> Json:
    """A configuration whose ledger takes its time, and that runs commands."""
    config = settings(folder, limits={"drain": f"{DRAIN_S:g}s"})
    config["tools"]["ledger"]["with"]["after_s"] = ENDS_S
    (folder / "work").mkdir()
    config["tools"]["execute_command"] = {"cwd": str(folder / "work"), "sandbox": "none", "timeout": "10m"}
    return config


def line(run: str, n: int = 1) -> str:
    return f'tool ledger {{"run": "{run}", "n": {n}}}'


async def test_sigterm_keeps_pending_approvals_and_records_running_tools(tmp_path: Path) -> None:
    """N10: approvals stay, a tool has its grace, what became of it is written down, nobody is left; then it goes on."""
    async with GatewayProcess(json.dumps(slow(tmp_path))) as gateway:
        async with session_with(gateway) as session:
            parked = await approval_asked(session, line("parked", ASKS))
            held = await Stream.ask(session, line("held", ASKS))
            await held.until_asked()
            running = asyncio.create_task(told(session, line("running")))
            command = 'risk_level low tool execute_command {"command": "sleep 600"}'
            sleeping = asyncio.create_task(told(session, command))
            await until(lambda: effects(tmp_path) and children(gateway, "sleep"))
            family = children(gateway, "")
            gateway.signal(signal.SIGTERM)
            assert await gateway.wait() == 0  # before the command would end by itself, which takes longer than the wait
            assert processes.list_living(set(family)) == []
            for talk in (running, sleeping, asyncio.create_task(held.rest())):
                with suppress(aiohttp.ClientError, AssertionError):  # how it hears of it is another test's business
                    await talk
        assert run_of(tmp_path, "parked").approvals == {parked: "pending"}
        assert run_of(tmp_path, "held").approvals == {held.approval_id: "pending"}
        assert [step.state for step in run_of(tmp_path, "running").steps] == ["finished"]
        await gateway.start()
        async with session_with(gateway) as session:
            for approval_id in (parked, held.approval_id):
                status, view = await post(session, f"/context/approvals/{approval_id}", {"decision": "approve"})
                assert status == 200, view
            names = ("parked", "held", "running")
            await until(lambda: all(run_of(tmp_path, name).state == "completed" for name in names))
            async with session.get("/context/runs?state=unknown") as response:
                (unknown,) = (await response.json())["data"]
            async with session.get(f"/context/runs/{unknown['id']}") as response:
                (step,) = (await response.json())["steps"]
        assert (step["tool"], step["state"]) == ("execute_command", "unknown")
    assert sorted(effect.run for effect in effects(tmp_path)) == ["held", "parked", "running"]


def children(gateway: GatewayProcess, name: str) -> list[processes.Process]:
    """The living children of a gateway, those of this name."""
    leader = processes.find_living_process(gateway.pid)
    family = set() if leader is None else processes.list_family(leader) - {leader}
    return [process for process in family if name in process.name]


async def killed_while_starting(gateway: GatewayProcess, times: int, starts_s: float) -> None:
    """Starts it, and kills it before it is through; each time a little later."""
    for i in range(times):
        start = asyncio.create_task(gateway.start())
        await asyncio.sleep(0.05 + starts_s * i / times)  # the moment of the kill is the case
        await gateway.kill()
        with suppress(RuntimeError):
            await start


async def died_often(folder: Path, *, times: int) -> None:
    """Half of the deaths without a store, half with one in which somebody is asked."""
    watch = Stopwatch()
    async with GatewayProcess(json.dumps(settings(folder))) as gateway:
        starts_s = watch.s
        await gateway.kill()
        for file in folder.glob("gateway.db*"):
            file.unlink()
        await killed_while_starting(gateway, times // 2, starts_s)
        await gateway.start()
        async with session_with(gateway) as session:
            approval_id = await approval_asked(session, line("asked", ASKS))
        await gateway.kill()
        await killed_while_starting(gateway, times // 2, starts_s)
        await gateway.start()
        async with session_with(gateway) as session:
            status, view = await post(session, f"/context/approvals/{approval_id}", {"decision": "approve"})
            assert status == 200, view
            await until(lambda: run_of(folder, "asked").state == "completed")
    assert [effect.run for effect in effects(folder)] == ["asked"]


async def test_sigterm_releases_every_lease(tmp_path: Path) -> None:
    """A run that was taken up and did not go on yet is the next process's at once, not after its lease."""
    place = tmp_path / "gateway.db"

    def told_of_run(sql: str) -> object:
        with closing(sqlite3.connect(place)) as connection, connection:
            return next(iter(connection.execute(sql).fetchall()), None)

    async with GatewayProcess(json.dumps(slow(tmp_path))) as gateway:
        async with session_with(gateway) as session:
            await approval_asked(session, line("parked", ASKS))
        gateway.signal(signal.SIGTERM)
        assert await gateway.wait() == 0
        told_of_run("UPDATE runs SET state = 'running', progress = x'00'")
        await gateway.start()
        await until(lambda: told_of_run("SELECT 1 FROM runs WHERE fence > 0"))
        gateway.signal(signal.SIGTERM)
        assert await gateway.wait() == 0
        assert told_of_run("SELECT state, owner, lease_s FROM runs") == ("running", None, 0)


async def test_gateway_starts_after_kills_during_startup(tmp_path: Path) -> None:
    """N7, a few times: no lock is in the way, no store is half there, what was asked is still asked."""
    await died_often(tmp_path, times=4)


@pytest.mark.crash
async def test_gateway_starts_after_twenty_kills_during_startup(tmp_path: Path) -> None:
    """N7: twenty times in a row, at twenty points of a start."""
    await died_often(tmp_path, times=20)


async def test_reload_keeps_the_tools_of_a_running_run(tmp_path: Path) -> None:
    """A run that nobody's request drives keeps the configuration that it goes on with until it has ended."""
    async with GatewayProcess(json.dumps(slow(tmp_path))) as gateway, session_with(gateway) as session:
        approval_id = await approval_asked(session, line("r", ASKS))
        await post(session, f"/context/approvals/{approval_id}", {"decision": "approve"})
        await until(lambda: effects(tmp_path))
        gateway.signal(signal.SIGHUP)
        await until(lambda: run_of(tmp_path, "r").state == "completed")
        assert [step.state for step in run_of(tmp_path, "r").steps] == ["finished"]
