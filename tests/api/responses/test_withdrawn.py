"""Responses that are cancelled or deleted while their question waits, or in the middle of a call."""

import asyncio
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from gateways import key, until

from gateway.aio.clock import SystemClock
from gateway.contracts.storage.store import Json
from gateway.runs.taint_marks import Taints
from tests.e2e.models import calls, says
from tests.e2e.talking import desk

from .answering import GATEWAY, RESPONSES, Client, answering, folder_store, text_of
from .test_decisions import asked, decision, write


async def state_of(client: Client, approval_id: str) -> str:
    return str((await client.world.get(f"/context/approvals/{approval_id}")).json["state"])


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("how", ["cancel", "delete"])
async def test_cancelled_response_withdraws_its_approval_request(tmp_path: Path, how: str, background: bool) -> None:
    """No door takes its approval any more, and its call never runs."""
    async with answering(write(), says("Never."), tools=desk(tmp_path, write=True)) as client:
        begun = (await client.create("Write.", tools=[GATEWAY], background=background)).json
        response = await client.until(begun["id"], "completed")
        question = response["output"][-1]
        assert await state_of(client, question["id"]) == "pending"
        if how == "cancel":
            cancelled = await client.post(b"", f"{RESPONSES}/{response['id']}/cancel")
            assert (cancelled.status, cancelled.json) == (200, response), "it has ended as it was told to have"
        else:
            assert (await client.delete(response["id"])).json["deleted"]
            assert (await client.get(response["id"])).status == 404
        assert await state_of(client, question["id"]) == "cancelled"
        refused = await client.world.decide(question["id"])
        assert (refused.status, refused.error["code"]) == (409, "decision_conflict")
        refused = await client.create([decision(question)], tools=[GATEWAY])
        assert (refused.status, refused.error["code"]) == (409, "decision_conflict")
        assert not (tmp_path / "work" / "new.txt").exists() and len(client.world.model.asked) == 1


async def test_deleting_an_answered_response_keeps_the_next_question_pending(tmp_path: Path) -> None:
    """The next question of the same run is that of the next response, and stays."""
    answers = (write("1.txt"), write("2.txt"), says("Both."))
    async with answering(*answers, tools=desk(tmp_path, write=True)) as client:
        first, question = await asked(client)
        second = (await client.create([decision(question)], tools=[GATEWAY])).json
        assert (await client.delete(first["id"])).json["deleted"]
        assert await state_of(client, second["output"][-1]["id"]) == "pending"
        done = await client.create([decision(second["output"][-1])], tools=[GATEWAY])
        assert done.status == 200 and (tmp_path / "work" / "2.txt").exists()


ANNA, BOB = {"X-Context-User": "anna"}, {"X-Context-User": "bob"}


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("how", ["cancel", "delete"])
async def test_removing_an_inquiring_response_keeps_the_question_pending(
    tmp_path: Path, how: str, background: bool
) -> None:
    """Another end user's response shows it, and decides nothing: it goes, and the run waits as before."""
    async with answering(write(), says("Done."), tools=desk(tmp_path, write=True)) as client:
        _, question = await asked(client, headers=ANNA)
        said = f"What is {question['id']}?"
        told = (await client.create(said, tools=[GATEWAY], headers=BOB, background=background)).json
        assert told["status"] == "completed" and told["output"][-1]["id"] == question["id"]
        if how == "cancel":
            refused = await client.post(b"", f"{RESPONSES}/{told['id']}/cancel")
            assert (refused.status, refused.error["code"]) == (400, "invalid_field")
        else:
            assert (await client.delete(told["id"])).json["deleted"]
        assert await state_of(client, question["id"]) == "pending"
        own = (await client.create([decision(question)], tools=[GATEWAY], headers=ANNA)).json
        assert own["status"] == "completed" and (tmp_path / "work" / "new.txt").exists()


async def test_colleagues_deletion_does_not_end_the_run(tmp_path: Path) -> None:
    """Of another key, which decided and saw the next question: that waits for the one who asked as before."""
    keys = [{**key(name, "context", "approve"), "tenant": "acme"} for name in ("ann", "boss")]
    answers, upstream = (write("1.txt"), write("2.txt"), says("Both.")), {"api_key": "sk-upstream"}
    tools = desk(tmp_path, write=True)
    async with answering(*answers, tools=tools, key="ann", keys=keys, upstream=upstream) as client:
        _, question = await asked(client)
        boss = client.of("boss")
        told = (await boss.create([decision(question)], tools=[GATEWAY])).json
        following = told["output"][-1]
        assert following["type"] == "mcp_approval_request" and (await boss.delete(told["id"])).json["deleted"]
        assert (await boss.get(told["id"])).status == 404
        done = (await client.create([decision(following)], tools=[GATEWAY])).json
        assert text_of(done) == "Both." and (tmp_path / "work" / "2.txt").exists()


@pytest.mark.parametrize("said", ["What is {}?", "approve {}"])
async def test_response_of_another_user_never_gets_the_answer(tmp_path: Path, said: str) -> None:
    """Also if its worker died between its first row and its end, and the call was decided on since."""
    answers = (write(), says("Anna's secret is safe."))
    async with answering(*answers, tools=desk(tmp_path, write=True)) as client:
        _, question = await asked(client, headers=ANNA)
        told = (await client.create(said.format(question["id"]), tools=[GATEWAY], headers=BOB)).json
        row = await client.store.get_response(told["id"], tenant="local")
        assert row is not None and await client.store.delete_response(row.id, tenant=row.tenant)
        assert await Taints(client.store, SystemClock()).is_any_marked([row.run_id], tenant=row.tenant), (
            "it shows the call"
        )
        await client.store.put_response(replace(row, state="in_progress", output=None))
        own = (await client.create([decision(question)], tools=[GATEWAY], headers=ANNA)).json
        assert own["status"] == "completed" and text_of(own) == "Anna's secret is safe."
        found = (await client.get(row.id)).json
        assert (found["status"], found["output"]) == ("failed", [])


@pytest.mark.parametrize("call", ["a question", "a call that needs none"])
async def test_cancelled_response_withdraws_an_approval_still_being_written(tmp_path: Path, call: str) -> None:
    """Another process holds the store: the first line of the run waits there, and the record knows of no run yet."""
    made, loose = tmp_path / "work" / "new.txt", {"execute_command": {"cwd": str(tmp_path), "sandbox": "none"}}
    asks = write() if call == "a question" else calls("execute_command", command=f"touch {made}", risk_level="low")
    tools = {**desk(tmp_path, write=True), **loose}
    async with answering(says("Hi."), asks, says("Never."), tools=tools, **folder_store(tmp_path)) as client:
        await client.create("Hi.")  # a first response stores the secret of its tenant
        with closing(sqlite3.connect(tmp_path / "gateway.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            async with client.streaming("Write.", tools=[GATEWAY]) as events:
                response_id = (await events.until("response.created"))["response"]["id"]
                await events.until("response.output_item.added")
                gone = asyncio.create_task(client.delete(response_id))
                await until(lambda: len(client.world.model.asked) == 2)
                await asyncio.wait({gone}, timeout=0.5)  # as long as the store is held it cannot end
                other.execute("ROLLBACK")
                assert (await gone).json["deleted"]
                await events.rest()
        assert (await client.get(response_id)).status == 404
        runs = (await client.world.get("/context/runs")).json["data"]
        assert {run["state"] for run in runs} <= {"cancelled", "interrupted"}
        asked = (await client.world.get("/context/approvals")).json["data"]
        assert {approval["state"] for approval in asked} <= {"cancelled"}
        assert not made.exists() and len(client.world.model.asked) == 2


async def test_next_turn_reports_an_interrupted_call_as_unknown(tmp_path: Path) -> None:
    """With an outcome that is unknown: its effect is there, and the model must not make it again unseen."""
    made = tmp_path / "made"
    slow = calls("execute_command", command=f"touch {made}; sleep 60", risk_level="low")
    tools = {"execute_command": {"cwd": str(tmp_path), "sandbox": "none"}}
    async with answering(slow, says("I look first."), tools=tools) as client:
        begun = (await client.create("Go.", tools=[GATEWAY], background=True)).json
        await until(made.exists, timeout_s=120)
        cancelled = (await client.post(b"", f"{RESPONSES}/{begun['id']}/cancel")).json
        assert (cancelled["status"], cancelled["output"][-1]["status"]) == ("cancelled", "incomplete")
        after = await client.create("And now?", previous_response_id=begun["id"])
        assert after.status == 200
        assert_is_told_unknown(client.sent)


def assert_is_told_unknown(messages: list[Json]) -> None:
    (call,) = [call for message in messages for call in message.get("tool_calls", ())]
    (result,) = [message for message in messages if message["role"] == "tool"]
    assert (call["function"]["name"], call["id"]) == ("execute_command", result["tool_call_id"])
    assert "unknown: it may have run or not" in result["content"]
