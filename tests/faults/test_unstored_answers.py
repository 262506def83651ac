"""The store fails behind a call that ran: its client is told so, gets the answer later, and nothing runs again."""

import asyncio
import errno
import json
import re
from pathlib import Path

import pytest
from crash.disk import SYNC, WRITE, Disk
from crash.doors import ASKING, DECIDING, Client, Told, asked, client_of
from crash.reading import RESPONSES
from gateways import until, until_read

from tests.support.gateway_process import GatewayProcess

from .stored import Lane, running

DOORS = ("response", "response, streamed", "response, WebSocket")


async def told_while_it_fails(lane: Lane, disk: Disk, name: str, answer: "asyncio.Task[Told]") -> Told:
    """The disk is full from the effect of the call on, and has room again once its client was answered."""
    await until(lambda: lane.done(name), timeout_s=120)
    disk.fail(what=WRITE, error=errno.ENOSPC)
    told = await answer
    disk.heal()
    return told


async def is_completed(client: Client, told: Told, run_id: str) -> None:
    """The response is found as its run ended, and a stream did not say otherwise."""
    assert "response.failed" not in told.text and "response.completed" not in told.text
    response_id = run_id.replace("run_", "resp_")
    read = lambda: client.send("GET", f"{RESPONSES}/{response_id}")  # noqa: E731
    found = await until_read(read, lambda one: one.status == 200 and json.loads(one.text)["status"] == "completed")
    assert "wrote 1" in found.text


@pytest.mark.parametrize("door", DOORS)
async def test_repeated_request_after_store_failure_joins_the_run(tmp_path: Path, door: str) -> None:
    """Not 507, by which clients send it again: the same request joins the run, and its tool ran once."""
    disk = Disk(tmp_path / "gateway.db", tmp_path)
    async with running(tmp_path, env=disk.env) as lane, client_of(lane.gateway) as client:
        told = await told_while_it_fails(lane, disk, "one", asyncio.ensure_future(ASKING[door](client, "one")))
        assert (told.code, told.settled) == ("store_full", True), told
        assert told.status == 422 or door != "response"
        (run_id,) = set(re.findall(r"run_[0-9a-f]{24}", told.text))
        again = await ASKING[door](client, "one")
        assert again.is_done and "wrote 1" in again.text and lane.done("one") == 1
        await is_completed(client, told, run_id)


@pytest.mark.parametrize("door", DOORS)
async def test_decision_in_effect_is_not_refused_when_its_answer_fails(tmp_path: Path, door: str) -> None:
    """It is in effect, so it is not told as refused; the same request gets what came of it."""
    disk = Disk(tmp_path / "gateway.db", tmp_path)
    async with running(tmp_path, env=disk.env) as lane, client_of(lane.gateway) as client:
        question = await asked(client, "one", door=door)
        decide = DECIDING[door]
        told = await told_while_it_fails(lane, disk, "one", asyncio.ensure_future(decide(client, question, "approve")))
        assert (told.code, told.settled) == ("store_full", True), told
        again = await decide(client, question, "approve")
        assert again.is_done and lane.done("one") == 1
        await until_read(lambda: lane.state_of(question.id), lambda state: state == "done")


async def test_response_is_stored_once_the_store_recovers(tmp_path: Path) -> None:
    """Without a further request: its conversation has the call, too."""
    disk = Disk(tmp_path / "gateway.db", tmp_path)
    async with running(tmp_path, env=disk.env) as lane, client_of(lane.gateway) as client:
        conversation = json.loads((await client.post("/context/v1/conversations", {})).text)["id"]
        said = {"model": "demo", "input": 'tool ledger {"run": "one", "n": 1}', "conversation": conversation}
        asking = client.post(RESPONSES, {**said, "tools": [{"type": "mcp", "server_label": "gateway"}]})
        told = await told_while_it_fails(lane, disk, "one", asyncio.ensure_future(asking))
        assert (told.status, told.settled) == (422, True)

        async def kinds() -> list[str]:
            found = await client.get(f"/context/v1/conversations/{conversation}/items")
            return [item["type"] for item in found["data"]]

        assert "mcp_call" in await until_read(kinds, lambda found: "mcp_call" in found)


async def failed_twice(client: Client, disk: Disk, what: int, door: str) -> tuple[Told, str]:
    """The answer while the store fails at the beginning of a run and again as that is undone, and its response's id."""
    assert (await ASKING["response"](client, "warm")).is_done
    disk.fail(what=what, error=errno.ENOSPC)
    told = await ASKING[door](client, "one")
    assert told.code == "store_uncertain", told
    (found,) = set(re.findall(r"(?:resp|run)_([0-9a-f]{24})", told.text))
    return told, f"{RESPONSES}/resp_{found}"


@pytest.mark.parametrize("what", [SYNC, WRITE])
@pytest.mark.parametrize("door", ["response, streamed", "response, WebSocket"])
async def test_failed_response_stays_failed_after_recovery_and_restart(tmp_path: Path, door: str, what: int) -> None:
    """While the store still fails, once it works, and after a restart. Its call did not run."""
    disk = Disk(tmp_path / "gateway.db", tmp_path)
    async with running(tmp_path, env=disk.env) as lane:
        async with client_of(lane.gateway) as client:
            _, path = await failed_twice(client, disk, what, door)
            while_failing = json.loads((await client.send("GET", path)).text)
            assert (while_failing["status"], while_failing["error"]["type"]) == ("failed", "store_uncertain")
            disk.heal()
            assert json.loads((await client.send("GET", path)).text) == while_failing
        await restart(lane.gateway)
        async with client_of(lane.gateway) as client:
            assert await client.get(path) == while_failing
        assert lane.done("one") == 0


@pytest.mark.parametrize("what", [SYNC, WRITE])
async def test_response_with_uncertain_end_is_marked_failed(tmp_path: Path, what: int) -> None:
    """In the background: its run may be in the store, or its end begins it there."""
    disk = Disk(tmp_path / "gateway.db", tmp_path)
    async with running(tmp_path, env=disk.env) as lane, client_of(lane.gateway) as client:
        _, path = await failed_twice(client, disk, what, "response, background")
        disk.heal()
        found = await until_read(
            lambda: client.send("GET", path), lambda one: one.status not in (200, 404) or '"failed"' in one.text
        )
        assert (found.status, json.loads(found.text)["error"]["type"]) == (200, "store_uncertain")
        assert lane.done("one") == 0


async def test_deleted_failed_response_stays_deleted_after_restart(tmp_path: Path) -> None:
    """Its end, which the store takes later, does not bring it back; neither does its run."""
    disk = Disk(tmp_path / "gateway.db", tmp_path)
    async with running(tmp_path, env=disk.env) as lane:
        async with client_of(lane.gateway) as client:
            _, path = await failed_twice(client, disk, WRITE, "response, streamed")
            disk.heal()
            assert (await client.send("DELETE", path)).status == 200
        await restart(lane.gateway)
        async with client_of(lane.gateway) as client:
            assert (await client.send("GET", path)).status == 404


async def restart(gateway: GatewayProcess) -> None:
    await gateway.stop()
    await gateway.start()
