"""MCP servers that die, hang, and come back, behind a whole gateway: the conversation goes on, and so do all others."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from gateways import until_read

from gateway.testing import processes

from .models import Json, says
from .serving import (
    asked_of,
    asks,
    behaving,
    called,
    result,
    seen,
    serving,
    started,
    told,
    until,
    until_changed,
    until_pinned,
)
from .talking import World, talking

#: The connections themselves are tested on both loops.
pytestmark = pytest.mark.asyncio(loop_factories=["uvloop"])

#: Servers that have no tools yet when the gateway is asked for the first time.
SLOW = pytest.mark.parametrize("behaviour", [("silent",), ("slow-start", 600), ("exits",)])


@asynccontextmanager
async def calling(world: World, name: str, **arguments: object) -> AsyncIterator[asyncio.Task[str]]:
    """A call that the server has not answered yet, and its conversation, which ends with the result."""
    world.model.then(asks(name, **arguments), says("I see."))
    async with world.streaming(f"use {name}") as stream:
        await started(world, stream)

        async def ended() -> str:
            assert (await stream.rest()).text == "I see."
            return result(world)

        yield asyncio.create_task(ended())


async def until_wrong(world: World, name: str, error: str) -> None:
    """Returns once this is wrong with a service: before it runs again, nothing else is."""
    await until_read(lambda: seen(world, name), lambda service: service["error"] == error)


# The start.


async def test_unresponsive_server_fails_at_its_start_limit() -> None:
    """M2: and not only that: another server answers."""
    servers = {"mute": behaving("silent", start_timeout=0.5), "box": behaving()}
    async with talking(mcp={"servers": servers}) as world:
        await until_wrong(world, "mute", "did not answer within 0.5 s of its start")
        await until(world, "box")
        assert await called(world, "box.echo", text="hello") == "hello"
        assert "'mute' is not running" in await called(world, "mute.echo", text="hello")


@SLOW
async def test_badly_starting_server_delays_nothing_else(behaviour: tuple[object, ...]) -> None:
    """M2: neither the start of the gateway, nor a client, nor another server, nor the end of the gateway."""
    servers = {"box": behaving(*behaviour, start_timeout=600), "other": behaving()}
    async with asyncio.timeout(None) as limit:
        async with talking(says("Hi."), mcp={"servers": servers}) as world:
            assert (await world.chat("Hello?")).text == "Hi."
            await until(world, "other")
            assert await called(world, "other.echo", text="hello") == "hello"
            assert (await seen(world, "box"))["state"] in ("starting", "error")
            limit.reschedule(asyncio.get_running_loop().time() + 60)


async def test_server_start_failure_is_reported_and_retried(tmp_path: Path) -> None:
    """Its operator reads the reason; what helps it is enough to have it back."""
    async with talking(mcp={"servers": {"box": behaving("exits-first", tmp_path / "starts", 2)}}) as world:
        found = await until(world, "box", "error")
        ended = "its program ended with exit code 1; its last line on standard error: misbehaving: not yet"
        assert found["error"] == ended and found["stderr"] == ["misbehaving: not yet"]
        assert (await until(world, "box"))["restarts"] == 2
        assert await called(world, "box.echo", text="hello") == "hello"


# Death.


async def test_server_killed_during_a_call_fails_it_and_restarts() -> None:
    """M3: the call fails before its time is over and is not made again; the loop goes on; the server comes back."""
    async with serving(servers={"box": behaving(), "other": behaving()}) as world:
        pid = int(await called(world, "box.pid"))
        async with calling(world, "box.sleep", seconds=30) as ended:
            os.kill(pid, signal.SIGKILL)
            text = await ended
        assert "the service 'box' ended while it ran the tool 'sleep'" in text and "is not known" in text
        assert await called(world, "other.echo", text="hello") == "hello"
        assert (await until(world, "box", restarts=1))["error"] is None
        assert await called(world, "box.calls") == "1"
        assert int(await called(world, "box.pid")) != pid
        assert await world.counted('gateway_mcp_server_restarts_total{server="box"}') == 1


async def test_server_death_between_calls_refuses_the_second_call() -> None:
    """The second call does not run, the model is told why, and the conversation goes on."""
    group = [
        {"tool": f"box.{tool}", "parameters": {"risk_level": "low", **with_}, "terminate": False}
        for tool, with_ in (("crash", {}), ("echo", {"text": "hello"}))
    ]
    async with serving(says(json.dumps(group)), says("I see."), servers={"box": behaving()}) as world:
        answer = await world.chat("use the box service")
        assert (answer.status, answer.text) == (200, "I see.")
        first, second = world.model.behind()[-2:]
        assert "ended while it ran the tool 'crash'" in first["content"]
        assert "its service is not running any more" in second["content"]
        run = await world.run(answer.headers["X-Context-Run-Id"], state="completed")
        assert [step["state"] for step in run["steps"]] == ["failed", "refused"]


async def test_tool_changed_between_calls_requires_approval(tmp_path: Path) -> None:
    """What was judged as it was does not run as it is now: it asks a person."""
    box = behaving("changed", tmp_path / "starts")
    servers = {"box": box, "other": behaving()}
    waits = {"tool": "other.sleep", "parameters": {"risk_level": "low", "seconds": 600}, "terminate": False}
    then = {"tool": "box.echo", "parameters": {"risk_level": "low", "text": "hello"}, "terminate": False}
    async with serving(servers=servers) as world:
        await until_pinned(world, "box")
        pid = int(await called(world, "other.pid"))
        world.model.then(says(json.dumps([waits, then])))
        async with world.streaming("use the box service") as stream:
            await started(world, stream)
            await asked_of(world, "/box/restart")
            await until_changed(world, "box")
            os.kill(pid, signal.SIGKILL)
            await stream.rest()
        (approval,) = (await world.get("/context/approvals")).json["data"]
        assert (approval["tool"], approval["rule"]) == ("box.echo", "definition_changed")


async def test_idempotent_tool_call_is_retried_after_server_death() -> None:
    """M3: where the operator says so; its caller only sees that it took longer."""
    async with serving(servers={"box": behaving(idempotent=["sleep"])}) as world:
        pid = int(await called(world, "box.pid"))
        async with calling(world, "box.sleep", seconds=0.3) as ended:
            os.kill(pid, signal.SIGKILL)
            assert await ended == "slept"
        assert await called(world, "box.calls") == "2"


async def test_killed_idle_server_is_reported_and_restarted() -> None:
    """A call before it is back reads a friendly text, a later one its answer."""
    async with serving(servers={"box": behaving("slow-start", 3)}) as world:
        assert await world.counted('gateway_mcp_server_up{server="box"}') == 1
        pid = int(await called(world, "box.pid"))
        os.kill(pid, signal.SIGKILL)
        await until_wrong(world, "box", "its program ended with exit code 137")
        assert await world.counted('gateway_mcp_server_up{server="box"}') == 0
        assert "'box' is not running just now" in await called(world, "box.echo", text="hello")
        await until(world, "box")
        assert await called(world, "box.echo", text="hello") == "hello"


@pytest.mark.parametrize(
    ("behaviour", "text"), [("crash-in-call", "ended while it ran"), ("closes-stdout", "ended while it ran")]
)
async def test_server_ending_in_every_call_is_restarted(behaviour: str, text: str) -> None:
    """However it ends: the model is told, and the next conversation finds the server again."""
    async with serving(servers={"box": behaving(behaviour)}) as world:
        for _ in range(2):
            assert text in await called(world, "box.echo", text="hello")
            await until(world, "box", "error")
            await until(world, "box")


# Patience.


async def test_endless_progress_stops_at_the_maximum_timeout() -> None:
    """M5: progress extends the time of a call, up to its limit; the server is told that nobody waits any more."""
    box = behaving("progress-forever", timeout=1, max_timeout=2)
    async with serving(servers={"box": box}) as world:
        text = await called(world, "box.echo", text="hello")
        assert "did not answer within 2 s and was stopped" in text


async def test_progress_keeps_a_call_alive() -> None:
    """A call that takes longer than its timeout is no dead one while it says so."""
    async with serving(servers={"box": behaving(timeout=1)}) as world:
        assert await called(world, "box.progress", steps=8, pause=0.2) == "done"


async def test_hanging_tool_does_not_delay_other_calls() -> None:
    """Neither another call of the same server nor one of another; the server learns of the cancellation."""
    servers = {"box": behaving(timeouts={"sleep": 4.0}), "other": behaving()}
    async with serving(servers=servers, upstreams=[]) as world:
        hanging = asyncio.create_task(told(world, "box.sleep", seconds=600))
        asked = 1
        while int(await told(world, "box.calls")) == asked:  # until the server has the call that hangs, too
            asked += 1
        assert await told(world, "other.echo", text="a") == "a" and await told(world, "box.echo", text="b") == "b"
        assert not hanging.done()
        assert "the tool 'sleep' of the service 'box' did not answer within 4 s" in await hanging
        assert await told(world, "box.cancelled") == "1"


async def test_server_that_stops_reading_fails_only_its_own_calls() -> None:
    """Its calls end at their limit; another server's calls do not wait for that."""
    servers = {"deaf": behaving("deaf", timeout=3), "box": behaving()}
    async with serving(servers=servers, upstreams=[]) as world:
        waiting = [asyncio.create_task(told(world, "deaf.echo", text="x" * 10_000)) for _ in range(10)]
        assert await told(world, "box.echo", text="a") == "a"
        assert not any(call.done() for call in waiting)
        assert all("did not answer within 3 s" in text for text in await asyncio.gather(*waiting))


# The end.


@pytest.mark.parametrize("behaviour", ["grandchild", "grandchild-away"])
@pytest.mark.parametrize("way", ["stop", "close"])
async def test_stopped_server_leaves_no_processes(tmp_path: Path, behaviour: str, way: str) -> None:
    """M19: neither it nor what it started, by its operator and by the end of the gateway."""
    file = tmp_path / "child"
    async with serving(servers={"box": behaving(behaviour, file)}) as world:
        family = left_by(int(await called(world, "box.pid")), int(file.read_text()))
        if way == "stop":
            assert (await asked_of(world, "/box/stop")).json["state"] == "stopped"
            assert not processes.list_living(family)
            assert (await asked_of(world, "/box/start")).json["state"] in ("starting", "running")
            await until(world, "box")
            assert await called(world, "box.echo", text="hello") == "hello"
            family = left_by(int(await called(world, "box.pid")), int(file.read_text()))
    assert not processes.list_living(family)


async def test_server_ignoring_sigterm_is_killed() -> None:
    """M19: input closed, then SIGTERM, then SIGKILL."""
    async with serving(servers={"box": behaving("ignores-term")}) as world:
        family = left_by(int(await called(world, "box.pid")))
        await asked_of(world, "/box/stop")
        assert not processes.list_living(family)


def left_by(*pids: int) -> set[processes.Process]:
    found = {processes.find_living_process(pid) for pid in pids}
    assert None not in found
    return {process for process in found if process is not None}


async def test_server_stopped_during_a_call_fails_that_call() -> None:
    """By its operator: the call fails, the conversation goes on, and so do the calls of others."""
    async with serving(servers={"box": behaving(), "other": behaving()}) as world:
        async with calling(world, "box.sleep", seconds=30) as ended:
            await asked_of(world, "/box/stop")
            assert "the service 'box' ended while it ran the tool 'sleep'" in await ended
        assert await called(world, "other.echo", text="hello") == "hello"


async def test_unchanged_server_keeps_running_through_a_reload() -> None:
    """Another one beside it changes nothing for it; one that changed is another process."""
    async with serving(servers={"box": behaving()}) as world:
        pid = await called(world, "box.pid")
        await world.reload(mcp={"servers": {"box": behaving(), "other": behaving()}})
        await until(world, "other")
        assert await called(world, "box.pid") == pid
        await world.reload(mcp={"servers": {"box": behaving(env={"A": "b"})}})
        await until(world, "box")
        assert await called(world, "box.pid") != pid and json.loads(await called(world, "box.env"))["A"] == "b"
        gone: Json = await seen(world, "other")
        assert gone["error"]["code"] == "service_not_found"


@pytest.mark.parametrize("changes", ["policy", "definition", "nothing"])
async def test_retried_call_requires_unchanged_policy_and_definition(changes: str, tmp_path: Path) -> None:
    """While its server is away, an operator may deny its tool, and the tool may come back as another one."""
    go = tmp_path / "go"
    box = behaving("crash-once", tmp_path / "starts", go, idempotent=["echo"])
    async with serving(servers={"box": box}) as world:
        await until_pinned(world, "box")
        async with calling(world, "box.echo", text="hello") as ended:
            await until(world, "box", "starting")
            if changes == "policy":
                await world.reload(risk={"rules": {"box.echo": "deny"}})
            go.write_text("Says the text to all." if changes == "definition" else "")
            said = await ended
        is_sent = changes == "nothing"
        assert (said == "hello") == is_sent and ("whether it had an effect is not known" in said) != is_sent
        assert await called(world, "box.calls") == ("2" if is_sent else "1")
