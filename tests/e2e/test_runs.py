"""Runs as their tenant sees and steers them: listed, followed, cancelled, settled; and what is never kept of them."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from gateways import key, until, until_read

from gateway.agent import call_execution
from gateway.runs.run_resolution import DONE, FAILED

from .asking import GO, HOLD, answering, asks, birth, born, held, ranch, until_asked
from .models import Json, calls, refuses, says
from .talking import Completed, World, talking

READ = calls("file_operations", operation="read", path="notes.txt")
DONE_TEXT = says("Di is here.")


async def events(world: World, run_id: str, *, last: int | None = None) -> list[tuple[int, str, Json]]:
    """The events of a run that has ended, behind the event `last`."""
    headers = {} if last is None else {"Last-Event-ID": str(last)}
    async with world.session.get(f"/context/runs/{run_id}/events", headers=headers) as response:
        assert (response.status, response.content_type) == (200, "text/event-stream")
        blocks = (await response.text()).split("\n\n")[:-1]
    told = []
    for block in blocks:
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        assert fields.keys() == {"id", "event", "data"}
        told.append((int(fields["id"]), fields["event"], json.loads(fields["data"])))
    return told


async def cancel(world: World, run_id: str) -> Completed:
    return await world.post({}, path=f"/context/runs/{run_id}/cancel")


async def resume(world: World, run_id: str, **finding: object) -> Completed:
    return await world.post(finding, path=f"/context/runs/{run_id}/resume")


# What is shown.


async def test_runs_are_listed(tmp_path: Path) -> None:
    """Newest first, by state and conversation; a run that called nothing is none."""
    async with talking(READ, says("One."), says("Two."), asks(), tools=ranch(tmp_path)) as world:
        await world.chat("Read.", headers={"X-Context-Conversation": "c"})
        await world.chat("Nothing.")
        (approval,) = (await world.chat(GO)).asks
        listed = (await world.get("/context/runs")).json
        assert listed["object"] == "list"
        shown = [(run["state"], run["conversation"], run["effects"], run["pending"]) for run in listed["data"]]
        assert shown == [("awaiting_approval", None, False, 1), ("completed", "c", True, 0)]
        for query, expected in (("state=awaiting_approval", 0), ("state=completed", 1), ("conversation=c", 1)):
            page = (await world.get(f"/context/runs?{query}")).json["data"]
            assert page == [listed["data"][expected]]
        assert listed["data"][0]["id"] == approval["run_id"]


async def test_run_page_shows_steps_approvals_and_answer(tmp_path: Path) -> None:
    """Its steps with their verdicts and results, its approvals, its answer with its usage."""
    async with talking(READ, asks(), DONE_TEXT, tools=ranch(tmp_path)) as world:
        first = await world.chat(GO)
        second = await world.chat(answering(first, f"approve {first.asks[0]['id']}"))
        run = (await world.get(f"/context/runs/{second.headers['X-Context-Run-Id']}")).json
        assert second.headers["X-Context-Run-Id"] == first.headers["X-Context-Run-Id"]
        assert second.headers["x-request-id"] != first.headers["x-request-id"]
        told = [(s["tool"], s["decision"], s["basis"], s["state"], s["round"]) for s in run["steps"]]
        assert told == [
            ("file_operations", "auto", "llm", "finished", 0),
            ("execute_sql", "confirm", "llm", "finished", 1),
        ]
        assert "mirror" in run["steps"][0]["result"] and run["steps"][1]["approval_id"] == first.asks[0]["id"]
        assert [approval["state"] for approval in run["approvals"]] == ["done"]
        assert (run["state"], run["error"], run["answer"]["content"]) == ("completed", None, "Di is here.")
        assert run["answer"]["usage"] == second.json["usage"]


async def test_run_event_stream_resumes_after_the_last_event_seen(tmp_path: Path) -> None:
    """In order; a client that comes back gets those behind the last one it saw, and no other."""
    async with talking(asks(), DONE_TEXT, tools=ranch(tmp_path)) as world:
        (approval,) = (await world.chat(GO)).asks
        following = asyncio.create_task(events(world, approval["run_id"]))
        await world.decide(approval["id"])
        told = await following
        assert [kind for _, kind, _ in told] == [
            "approval.required",
            "run.parked",
            "approval.resolved",
            "tool.started",
            "tool.finished",
            "run.finished",
        ]
        assert [seq for seq, _, _ in told] == sorted({seq for seq, _, _ in told})
        assert {data["run_id"] for _, _, data in told} == {approval["run_id"]}
        assert await events(world, approval["run_id"], last=told[2][0]) == told[3:]
        assert await events(world, approval["run_id"], last=told[-1][0]) == []


# The end of a run.


async def test_run_awaiting_approval_can_be_cancelled(tmp_path: Path) -> None:
    """Nothing ran; cancelled again it is as it was; one that has ended otherwise cannot be."""
    async with talking(asks(), READ, says("Read."), tools=ranch(tmp_path)) as world:
        run_id = (await world.chat(GO)).asks[0]["run_id"]
        answers = [await cancel(world, run_id) for _ in range(2)]
        assert [(answer.status, answer.json["state"]) for answer in answers] == [(200, "cancelled")] * 2
        run = await world.run(run_id)
        assert [approval["state"] for approval in run["approvals"]] == ["cancelled"] and born(tmp_path) == []
        assert (await events(world, run_id))[-1][1:] == ("run.finished", {"run_id": run_id, "state": "cancelled"})
        done = await cancel(world, (await world.chat("Read.")).headers["X-Context-Run-Id"])
        assert (done.status, done.error["code"]) == (409, "run_ended")


async def test_cancelled_run_ends_its_waiting_stream(tmp_path: Path) -> None:
    """Its client hears of it at once."""
    async with talking(asks(), tools=ranch(tmp_path)) as world, world.streaming(GO, headers=HOLD) as stream:
        (approval,) = await held(stream)
        assert (await cancel(world, approval["run_id"])).status == 200
        async with asyncio.timeout(120):
            await stream.rest()
        assert "was cancelled together with its run. Nothing ran." in stream.text
        assert (await world.run(approval["run_id"]))["state"] == "cancelled"
        assert (born(tmp_path), len(world.model.asked)) == ([], 1)


async def test_cancelled_run_stops_its_running_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tool is stopped, and the client told with a status that no SDK tries again."""
    monkeypatch.setattr(call_execution, "TOOL_GRACE_S", 0.05)
    tools: Json = {"execute_command": {"cwd": str(tmp_path), "sandbox": "none"}}
    async with talking(calls("execute_command", command=SLOW, risk_level="low"), tools=tools) as world:
        asking = asyncio.create_task(world.chat("Wait."))
        await until((tmp_path / "begun").exists)
        run_id = await started(world)
        assert (await cancel(world, run_id)).json["state"] == "cancelled"
        answer = await asking
        assert answer.status == 422 and answer.headers["x-should-retry"] == "false"
        assert answer.error["code"] == "run_cancelled"
        assert await world.counted('gateway_tool_calls_total{outcome="cancelled",tool="execute_command"}') == 1
        assert (await world.run(run_id))["state"] == "cancelled"
        assert len(world.model.asked) == 1


async def started(world: World) -> str:
    """The id of the only run, once a tool of it was started."""

    async def found() -> str | None:
        for run in (await world.get("/context/runs")).json["data"]:
            if any(step["state"] == "started" for step in (await world.run(run["id"]))["steps"]):
                return str(run["id"])
        return None

    return str(await until_read(found))


# Calls of which nobody knows what became.


#: It waits for the file `go` before it does anything but say that it runs.
SLOW = "touch begun; until test -e go; do sleep 0.02; done; echo Di is born | tee -a born.txt"


@asynccontextmanager
async def lost(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *answers: str, asker: str = "", decider: str = "", **more: Any
) -> AsyncIterator[tuple[World, Completed]]:
    """A gateway that takes up a run whose approved call was stopped in the middle together with another gateway.

    `asker` and `decider` are the keys that began it and approved the call, "" without keys. `more` are settings.
    """
    monkeypatch.setattr(call_execution, "TOOL_GRACE_S", 0.01)
    work = folder / "work"
    work.mkdir()
    tools: Json = {"execute_command": {"cwd": str(work), "sandbox": "none"}}
    settings: Json = {"tools": tools, "store": f"sqlite:///{folder}/gateway.db", **more}
    own = {"X-Gateway-Key": asker} if asker else {}
    async with talking(calls("execute_command", command=SLOW, risk_level="high"), **settings) as world:
        first = await world.chat(GO, headers=own)
        await world.decide(first.asks[0]["id"], key=decider)
        await until((work / "begun").exists)
        await world.gateway.gateway.close()
    (work / "go").touch()
    async with talking(*map(says, answers), **settings) as world:
        await world.run(first.asks[0]["run_id"], state="unknown", **own)
        yield world, first


@pytest.mark.parametrize(
    ("finding", "told", "births"),
    [
        ({"as": "done"}, DONE, False),
        ({"as": "done", "result": "one row was there already"}, "one row was there already", False),
        ({"as": "failed"}, FAILED, False),
        ({"as": "retry"}, "Di is born", True),
    ],
)
async def test_resolution_of_a_lost_call_determines_how_the_run_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finding: Json, told: str, *, births: bool
) -> None:
    """The run waits until then, runs nothing by itself, and goes on with what they say."""
    async with lost(tmp_path, monkeypatch, "I see.") as (world, first):
        (approval,) = first.asks
        (run,) = (await world.get("/context/runs?state=unknown")).json["data"]
        assert run["id"] == approval["run_id"] and not (tmp_path / "work/born.txt").exists()
        asked = await world.chat(answering(first, f"approve {approval['id']}"))
        assert "what became of it is unknown" in asked.text and f"/context/runs/{run['id']}/resume" in asked.text
        assert (await resume(world, run["id"], step=0, **finding)).status == 200
        whole = await world.run(run["id"], state="completed")
        assert whole["answer"]["content"] == "I see." and (tmp_path / "work/born.txt").exists() == births
        assert told in world.model.asked[-1]["messages"][-1]["content"]
        again = await resume(world, run["id"], step=0, **finding)
        assert (again.status, again.error["code"]) == (409, "run_not_waiting")
        assert (await world.chat(answering(first, f"approve {approval['id']}"))).text == "I see."
        lines = (await world.get("/context/audit?limit=200")).json["data"]
        assert [line["decision"] for line in lines if line["event"] == "resolved"] == [finding["as"]]


@pytest.mark.parametrize(
    ("finding", "code"),
    [
        ({"step": 0, "as": "perhaps"}, "invalid_field"),
        ({"step": 7, "as": "done"}, "invalid_field"),
        ({"step": 0, "as": "retry", "result": "x"}, "invalid_field"),
        ({"step": 0, "as": "done", "more": 1}, "unknown_field"),
    ],
)
async def test_invalid_resolution_leaves_the_run_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finding: Json, code: str
) -> None:
    """400, and the run waits as before."""
    async with lost(tmp_path, monkeypatch) as (world, first):
        answer = await resume(world, first.asks[0]["run_id"], **finding)
        assert (answer.status, answer.error["code"]) == (400, code)
        assert (await world.run(first.asks[0]["run_id"]))["state"] == "unknown"


# What outlives the gateway.


async def test_approval_survives_a_gateway_restart(tmp_path: Path) -> None:
    """Asked for by one process, decided and carried out in another."""
    settings: Json = {"tools": ranch(tmp_path), "store": f"sqlite:///{tmp_path}/gateway.db"}
    async with talking(READ, asks(), **settings) as world:
        first = await world.chat(GO)
    async with talking(DONE_TEXT, **settings) as world:
        assert (await world.chat(answering(first, f"approve {first.asks[0]['id']}"))).text == "Di is here."
        roles = [message["role"] for message in world.model.asked[0]["messages"]]
        assert roles == ["system", "user", "assistant", "tool", "assistant", "tool"] and born(tmp_path) == ["Di"]


async def test_run_of_a_waiting_stream_survives_a_gateway_restart(tmp_path: Path) -> None:
    """Its run waits in the store, and can be decided elsewhere."""
    settings: Json = {"tools": ranch(tmp_path), "store": f"sqlite:///{tmp_path}/gateway.db"}
    async with talking(asks(), **settings) as world, world.streaming(GO, headers=HOLD) as stream:
        (approval,) = await held(stream)
        await world.gateway.gateway.close()
    async with talking(DONE_TEXT, **settings) as world:
        assert await until_asked(world) == [approval["id"]]
        await world.decide(approval["id"])
        await world.run(approval["run_id"], state="completed")
        assert born(tmp_path) == ["Di"]


# Secrets.


async def test_credentials_are_never_stored_or_logged(tmp_path: Path) -> None:
    """Neither the client's nor the gateway's own key is in the store or the log; the model got the client's."""
    settings: Json = {
        "tools": ranch(tmp_path),
        "store": f"sqlite:///{tmp_path}/gateway.db",
        "keys": [key("canary-of-the-gateway", "context", "approve")],
    }
    headers = {"Authorization": "Bearer canary-of-the-client", "X-Gateway-Key": "canary-of-the-gateway"}
    async with talking(asks(), DONE_TEXT, asks(birth("Ed")), says("Ed is here."), **settings) as world:
        first = await world.chat(GO, headers=headers)
        second = await world.chat(answering(first, f"approve {first.asks[0]['id']}"), headers=headers)
        assert second.text == "Di is here."
        (approval,) = (await world.chat("Ed, too.", headers=headers)).asks
        assert (await world.decide(approval["id"], key="canary-of-the-gateway")).status == 200
        await until(lambda: born(tmp_path) == ["Di", "Ed"])
        sent = [request.list_values(b"authorization") for request in world.model.upstream.requests]
        assert sent[:3] == [[b"Bearer canary-of-the-client"]] * 3
        assert not any(request.list_values(b"x-gateway-key") for request in world.model.upstream.requests)
        assert "canary" not in world.gateway.get_log()
        stored = b"".join(path.read_bytes() for path in tmp_path.glob("gateway.db*"))
    assert b"Ed, too." in stored and b"canary" not in stored


async def test_run_without_its_client_credential_waits_for_the_client(tmp_path: Path) -> None:
    """Decided by REST, its tool runs, but the model wants the client's key, which nobody kept: the client brings it."""
    headers = {"Authorization": "Bearer of-the-client"}
    async with talking(asks(), refuses(401), DONE_TEXT, tools=ranch(tmp_path)) as world:
        first = await world.chat(GO, headers=headers)
        (approval,) = first.asks
        await world.decide(approval["id"])
        await world.run(approval["run_id"], state="awaiting_client")
        assert born(tmp_path) == ["Di"]
        second = await world.chat(answering(first, f"approve {approval['id']}"), headers=headers)
        assert (second.text, born(tmp_path)) == ("Di is here.", ["Di"])
        sent = [request.list_values(b"authorization") for request in world.model.upstream.requests]
        assert sent == [[b"Bearer of-the-client"], [], [b"Bearer of-the-client"]]
