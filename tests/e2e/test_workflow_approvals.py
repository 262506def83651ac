"""Steps that wait for a person: a workflow pauses, is decided on by every way that there is, and goes on to its end."""

import asyncio
import json
from pathlib import Path

import pytest
from cli_cases import told
from gateways import until, until_read

from gateway.cli.operator.approvals import decide_approvals
from gateway.cli.operator.remote import Remote, RemoteError
from gateway.cli.operator.workflows import run_workflow
from gateway.runs import live

from .asking import HOLD, answering, behind_question, born, held, pending, user, whole
from .models import Answer, Json, refuses, says
from .talking import Completed, World
from .test_streams import is_clean
from .workflow_cases import BIRTH, REPORT, folder_of, run, working

WELL = says("Be well.")
DONE = "Di is here. Be well."
CALLED = "/birth name=Di"
#: Two steps that a person must let run.
TWINS: Json = {
    "name": "twins",
    "description": "Writes two pets down.",
    "steps": [
        {"name": name, "tool": "execute_sql", "with": {"sql": f"INSERT INTO pets VALUES ('{pet}', 4)"}}
        for name, pet in (("first", "Di"), ("second", "Ed"))
    ],
}


async def paused(world: World, **more: str) -> Completed:
    """A run by REST that waits for its second step."""
    asked = await run(world, "birth", {"name": "Di"}, **more)
    assert (asked.status, asked.json["state"], asked.json["pending"], asked.json["result"]) == (
        202,
        "awaiting_approval",
        1,
        None,
    )
    return asked


def asks_about(asked: Completed) -> Json:
    """What it waits for."""
    (approval,) = asked.json["approvals"]
    assert approval["state"] == "pending" and approval["arguments"] == {
        "sql": "INSERT INTO pets VALUES (?1, 4)",
        "params": ["Di"],
    }
    found: Json = approval
    return found


async def rule(world: World, approval_id: str, decision: str, *, via: str) -> None:
    """A decision by this way."""
    if via == "rest":
        assert (await world.decide(approval_id, decision)).status == 200
    elif via == "cli":
        remote = Remote(world.gateway.base_url, None)
        await told(lambda: decide_approvals(remote, [approval_id], decision=decision))  # type: ignore[arg-type]
    elif via == "websocket":
        async with world.session.ws_connect("/context/ws") as socket:
            await socket.send_json({"type": "decide", "ref": 1, "id": approval_id, "decision": decision})
            async with asyncio.timeout(120):
                while (answer := await socket.receive_json())["type"] != "decision":
                    pass
        assert answer["status"] == 200
    else:
        assert (await world.chat(f"{decision} {approval_id}")).status == 200


# The same gate.


async def test_risky_workflow_step_pauses_with_202_and_an_approval(tmp_path: Path) -> None:
    """Sync: 202 with where to look and what to decide on; what came before it has run, and nothing else."""
    async with working(tmp_path, WELL) as world:
        asked = await paused(world)
        approval = asks_about(asked)
        assert (
            asked.headers["Location"] == f"/context/runs/{asked.json['id']}"
            and "Preference-Applied" not in asked.headers
        )
        assert (approval["basis"], approval["rule"]) == ("default", "sql.statement")
        assert asked.json["steps"][0]["name"] == "born" and asked.json["steps"][0]["state"] == "requested"
        assert await pending(world) == [approval["id"]]
        assert (born(tmp_path), len(world.model.asked)) == ([], 1)


@pytest.mark.parametrize(("rule", "status"), [("deny", 422), ("confirm", 202), ("floor", 200)])
async def test_operator_rules_apply_to_workflow_steps(tmp_path: Path, rule: str, status: int) -> None:
    """`risk.rules`: what is denied fails its step and nobody is asked; `floor` is about models, and a step has none."""
    async with working(tmp_path, says("Ada."), risk={"rules": {"execute_*": rule}}) as world:
        answer = await run(world, "report", {"legs": 4})
        assert answer.status == status and len(await pending(world)) == (rule == "confirm")
        if rule == "deny":
            assert "'rows'" in answer.error["message"] and "refused by policy" in answer.error["message"]


async def test_workflow_step_is_audited_before_it_runs(tmp_path: Path) -> None:
    """Verdict, decision with who decided by which way, start, end."""
    async with working(tmp_path, WELL) as world:
        asked = await paused(world)
        await world.decide(asks_about(asked)["id"])
        await world.run(asked.json["id"], state="completed")
        lines = (await world.get("/context/audit?limit=200")).json["data"]
        assert [(line["event"], line["decision"], line["via"], line["by"]) for line in lines] == [
            ("verdict", "confirm", "", ""),
            ("decision", "approved", "rest", "local"),
            ("started", "confirm", "", ""),
            ("finished", "finished", "", ""),
        ]
        assert {line["run_id"] for line in lines} == {asked.json["id"]}


# By every way.


@pytest.mark.parametrize("via", ["chat", "rest", "cli", "websocket"])
@pytest.mark.parametrize("how", ["rest", "async", "chat"])
async def test_approved_workflow_run_continues_to_its_end(tmp_path: Path, via: str, how: str) -> None:
    """However it was begun, by whichever way it is decided: the steps behind it run, once."""
    async with working(tmp_path, WELL) as world:
        if how == "chat":
            (approval,) = (await world.chat(CALLED)).asks
        else:
            prefer = {"Prefer": "respond-async"} if how == "async" else {}
            run_id = (await run(world, "birth", {"name": "Di"}, **prefer)).json["id"]
            (approval,) = (await world.run(run_id, state="awaiting_approval"))["approvals"]
        await rule(world, approval["id"], "approve", via=via)
        done = await world.run(approval["run_id"], state="completed")
        assert (done["result"], born(tmp_path), len(world.model.asked)) == (DONE, ["Di"], 1)
        assert done["approvals"][0]["via"] == via
        assert await world.counted('gateway_workflow_runs_total{outcome="completed",workflow="birth"}') == 1


@pytest.mark.parametrize("via", ["chat", "rest", "cli"])
@pytest.mark.parametrize("on_reject", ["abort", "continue"])
async def test_a_rejection_ends_the_run(tmp_path: Path, via: str, on_reject: str) -> None:
    """Whatever `approvals.on_reject` says of models: a workflow without one of its steps is none."""
    async with working(tmp_path, WELL, approvals={"on_reject": on_reject}) as world:
        asked = await paused(world)
        await rule(world, asks_about(asked)["id"], "reject", via=via)
        done = await world.run(asked.json["id"], state="rejected")
        assert "was rejected" in done["result"] and "Nothing ran." in done["result"]
        assert (born(tmp_path), len(world.model.asked)) == ([], 1)
        assert await world.counted('gateway_workflow_runs_total{outcome="rejected",workflow="birth"}') == 1


async def test_chat_approval_answers_with_the_workflow_result(tmp_path: Path) -> None:
    """Of a run that was begun in the chat, and of one that was begun over REST."""
    async with working(tmp_path, WELL, WELL) as world:
        first = await world.chat(CALLED)
        (approval,) = first.asks
        assert "INSERT INTO pets VALUES (?1, 4)" in first.text and '"Di"' in first.text and first.finish == "stop"
        second = await world.chat(answering(first, f"approve {approval['id']}", question=CALLED))
        assert (second.text, second.finish) == (DONE, "stop")
        assert second.headers["X-Context-Run-Id"] == approval["run_id"]
        asked = await paused(world)
        stream = await world.stream(f"approve {asks_about(asked)['id']}")
        is_clean(stream)
        assert (stream.text, stream.finishes, born(tmp_path)) == (DONE, ["stop"], ["Di", "Di"])
        assert stream.response.headers["X-Context-Run-Id"] == asked.json["id"]


async def test_streamed_chat_is_held_for_a_workflow_step(tmp_path: Path) -> None:
    """As for a call of a model: the question and an event, and then the result in the same, clean stream."""
    async with working(tmp_path, WELL) as world, world.streaming(CALLED, headers=HOLD) as stream:
        (approval,) = await held(stream)
        assert behind_question(stream.text) == "" and born(tmp_path) == []
        await world.decide(approval["id"])
        assert behind_question(await whole(stream)) == DONE and born(tmp_path) == ["Di"]


async def test_client_disconnect_from_a_held_step_loses_no_result(tmp_path: Path) -> None:
    """The run waits in the store, is decided without it, and whoever asks again gets its answer."""
    async with working(tmp_path, WELL) as world:
        async with world.streaming(CALLED, headers=HOLD) as stream:
            (approval,) = await held(stream)
        await world.decide(approval["id"])
        await world.run(approval["run_id"], state="completed")
        again = await world.stream(CALLED, headers={**HOLD, "x-stainless-retry-count": "1"})
        assert (again.text, born(tmp_path), len(world.model.asked)) == (DONE, ["Di"], 1)


async def test_chinese_chat_receives_the_approval_request_in_chinese(tmp_path: Path) -> None:
    """The language of the message that calls it."""
    async with working(tmp_path, WELL) as world:
        first = await world.chat("/birth 一只叫小白的小狗")
        assert "需要您批准" in first.text and len(first.asks) == 1


async def test_next_message_contains_the_result_of_a_decided_run(tmp_path: Path) -> None:
    """Decided by REST: its client never saw the answer, and the model of the next message does."""
    async with working(tmp_path, WELL, says("She is.")) as world:
        first = await world.chat(CALLED)
        await world.decide(first.asks[0]["id"])
        await world.run(first.asks[0]["run_id"], state="completed")
        assert (await world.chat(answering(first, "Is she there?", question=CALLED))).text.endswith("\n\nShe is.")
        assert DONE in [message["content"] for message in world.model.asked[-1]["messages"]]


async def test_workflow_steps_request_approval_one_after_the_other(tmp_path: Path) -> None:
    """The second only once the first has run."""
    async with working(tmp_path, workflows=(TWINS,)) as world:
        first = await world.chat("/twins")
        second = await world.chat(answering(first, f"approve {first.asks[0]['id']}", question="/twins"))
        assert born(tmp_path) == ["Di"] and second.asks[0]["step"] == 1
        assert second.asks[0]["run_id"] == first.asks[0]["run_id"]
        said = [user("/twins"), second.message, user(f"approve {second.asks[0]['id']}")]
        assert "changed" in (await world.chat(said)).text and born(tmp_path) == ["Di", "Ed"]


async def test_rejected_second_step_keeps_the_effect_of_the_first(tmp_path: Path) -> None:
    """And says so."""
    async with working(tmp_path, workflows=(TWINS,)) as world:
        asked = await run(world, "twins", {})
        await world.decide(asked.json["approvals"][0]["id"])
        ids = await until_read(lambda: pending(world))
        await world.decide(ids[0], "reject")
        done = await world.run(asked.json["id"], state="rejected")
        assert "was rejected" in done["result"] and "Nothing ran." not in done["result"]
        assert born(tmp_path) == ["Di"] and [step["name"] for step in done["steps"]] == ["first", "second"]


async def test_edited_workflow_step_runs_with_edited_arguments(tmp_path: Path) -> None:
    """What later steps see is the result of what ran."""
    async with working(tmp_path, WELL) as world:
        asked = await paused(world)
        edited = {"sql": "INSERT INTO pets VALUES ('Dina', 4)"}
        assert (await world.decide(asks_about(asked)["id"], arguments=edited)).status == 200
        done = await world.run(asked.json["id"], state="completed")
        assert done["steps"][0]["arguments"] == edited and born(tmp_path) == ["Dina"]


async def test_approvals_reject_header_rejects_the_step_without_running_it(tmp_path: Path) -> None:
    """`X-Context-Approvals: reject` answers as a rejection does; `hold` holds nothing that nobody reads as a stream."""
    async with working(tmp_path, WELL, WELL) as world:
        refused = await run(world, "birth", {"name": "Di"}, X_Context_Approvals="reject")
        assert (refused.status, refused.json["state"], born(tmp_path)) == (200, "rejected", [])
        assert "nobody" in refused.json["result"].lower() or "not" in refused.json["result"].lower()
        await paused(world, X_Context_Approvals="hold")


async def test_unanswered_approval_expires_and_ends_the_run(tmp_path: Path) -> None:
    """`approvals.expires`."""
    async with working(tmp_path, WELL, approvals={"expires": "100ms"}) as world:
        async with world.streaming(CALLED, headers=HOLD) as stream:
            (approval,) = await held(stream)
            assert "expired" in await whole(stream) or "in time" in stream.text
        assert (await world.run(approval["run_id"]))["state"] == "expired" and born(tmp_path) == []


# What people wanted to be asked, or not any more.


async def test_ask_before_applies_to_workflow_steps(tmp_path: Path) -> None:
    """A conversation whose user wants to be asked before every call: a harmless step of a workflow asks, too."""
    talk = {"X-Context-Conversation": "one"}
    async with working(tmp_path, says("I will.")) as world:
        await world.chat("Ask me before you do anything.", headers=talk)
        (approval,) = (await world.chat("/report legs=4", headers=talk)).asks
        assert (approval["basis"], approval["rule"], approval["conversation"]) == ("operator", "asked_for", "one")
        for beside in ({"body": {"conversation": "one"}}, {"X_Context_Conversation": "one"}):
            asked = await run(world, "report", {"legs": 4}, **beside)
            assert (asked.status, asked.json["approvals"][0]["rule"]) == (202, "asked_for")
        assert len(world.model.asked) == 1


async def test_ask_before_does_not_apply_to_other_conversations(tmp_path: Path) -> None:
    """Nor for a run without one."""
    talk = {"X-Context-Conversation": "one"}
    async with working(tmp_path, says("I will."), says("Ada."), says("Ada.")) as world:
        await world.chat("Ask me before you do anything.", headers=talk)
        assert (await run(world, "report", {"legs": 4})).status == 200
        assert (await run(world, "report", {"legs": 4}, body={"conversation": "two"})).status == 200


async def test_remembered_workflow_call_needs_no_second_approval(tmp_path: Path) -> None:
    """`remember: conversation` of a step: the same step of a later run in it."""
    talk = {"body": {"conversation": "one"}}
    async with working(tmp_path, WELL, WELL, WELL) as world:
        asked = await run(world, "birth", {"name": "Di"}, **talk)
        await world.decide(asks_about(asked)["id"], remember="conversation")
        await world.run(asked.json["id"], state="completed")
        assert (await run(world, "birth", {"name": "Di"}, **talk)).json["result"] == DONE
        assert (await run(world, "birth", {"name": "Ed"}, **talk)).status == 202
        assert born(tmp_path) == ["Di", "Di"]


# What a run keeps.


async def test_paused_run_keeps_its_workflow_definition(tmp_path: Path) -> None:
    """A file that changes, or is gone, while a person is waited for changes nothing of what they decided on."""
    async with working(tmp_path, WELL, workflows=(BIRTH, REPORT)) as world:
        asked = await paused(world)
        changed = {**BIRTH, "steps": [{"name": "end", "prompt": "Other."}]}
        folder_of(tmp_path, changed)
        await world.reload()
        assert (await run(world, "birth", {"name": "Di"})).json["result"] == "Other."
        (tmp_path / "flows" / "birth.yaml").unlink()
        await world.reload()
        assert (await run(world, "birth", {"name": "Di"})).status == 404
        await world.decide(asks_about(asked)["id"])
        assert (await world.run(asked.json["id"], state="completed"))["result"] == DONE
        assert born(tmp_path) == ["Di"]


@pytest.mark.parametrize("via", ["chat", "rest"])
async def test_paused_workflow_run_survives_a_gateway_restart(tmp_path: Path, via: str) -> None:
    """Begun in one process, decided and carried out in another: the model is not asked again for what it said."""
    store: Json = {"store": f"sqlite:///{tmp_path}/gateway.db"}
    async with working(tmp_path, WELL, **store) as world:
        asked = await paused(world)
    tools = {"execute_sql": {"url": f"sqlite:///{tmp_path}/pets.db", "read_only": False}}
    async with working(tmp_path, tools=tools, **store) as world:
        await rule(world, asks_about(asked)["id"], "approve", via=via)
        assert (await world.run(asked.json["id"], state="completed"))["result"] == DONE
        assert (born(tmp_path), world.model.asked) == (["Di"], [])


async def test_run_that_needs_the_client_key_waits_for_the_client(tmp_path: Path) -> None:
    """Nobody kept the key: the step runs, and the client brings the key with its next word on it."""
    late = {**BIRTH, "steps": [BIRTH["steps"][1], BIRTH["steps"][0]]}
    keyed: tuple[Answer, ...] = (refuses(401), WELL)
    headers = {"Authorization": "Bearer of-the-client"}
    async with working(tmp_path, *keyed, workflows=(late,)) as world:
        asked = await run(world, "birth", {"name": "Di"}, Authorization="Bearer of-the-client")
        approval = asks_about(asked)
        await world.decide(approval["id"])
        await world.run(asked.json["id"], state="awaiting_client")
        assert born(tmp_path) == ["Di"]
        assert (await world.chat(f"approve {approval['id']}", headers=headers)).text == "Be well."
        sent = [request.list_values(b"authorization") for request in world.model.upstream.requests]
        assert sent == [[], [b"Bearer of-the-client"]] and born(tmp_path) == ["Di"]
        assert (await world.run(asked.json["id"]))["state"] == "completed"


async def test_client_disconnect_after_an_effect_interrupts_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has run is on record; the run is interrupted, and no model goes on talking to nobody."""
    monkeypatch.setattr(live, "GRACE_S", 0.05)
    never = asyncio.Event()
    async with working(tmp_path, says("Ad", never)) as world:
        asking = asyncio.create_task(run(world, "report", {"legs": 4}))
        await until(lambda: world.model.asked)
        (there,) = (await world.get("/context/runs")).json["data"]
        asking.cancel()
        done = await world.run(there["id"], state="interrupted")
        assert [step["state"] for step in done["steps"]] == ["finished"]


# At the command line.


async def test_workflow_run_command_names_parameter_or_result(tmp_path: Path) -> None:
    """`gateway workflows run`: the result, or what it waits for; errors name parameter and step."""
    async with working(tmp_path, WELL, says("Ada."), says("Bo.")) as world:
        remote = Remote(world.gateway.base_url, None)

        async def command(workflow: str, *, wait: bool = True, **written: str) -> list[str]:
            return await told(lambda: run_workflow(remote, workflow, pairs=[*written.items()], given={}, wait=wait))

        lines = await command("birth", name="Di")
        (approval_id,) = await pending(world)
        assert f"  to decide: gateway approvals show {approval_id}" in lines and lines[0].endswith(
            "  awaiting_approval"
        )
        await told(lambda: decide_approvals(remote, [approval_id], decision="approve"))
        await world.run(lines[0].split()[0], state="completed")
        assert await command("report", legs="4", title="Four legs") == ["# Four legs", "Ada."]
        (line,) = await command("report", wait=False, legs="2")
        assert (await world.run(line.split()[0], state="completed"))["result"] == "# Pets\nBo."
        for written, why in (({"legs": "four"}, "Parameter 'legs': it must be a whole number"), ({}, "it is required")):
            with pytest.raises(RemoteError, match=why):
                await command("report", **written)


async def test_events_report_a_paused_workflow_run(tmp_path: Path) -> None:
    """The same as of any run, in order: whoever follows it sees what it waits for and how it ended."""
    async with working(tmp_path, WELL) as world:
        asked = await paused(world)
        await world.decide(asks_about(asked)["id"])
        await world.run(asked.json["id"], state="completed")
        async with world.session.get(f"/context/runs/{asked.json['id']}/events") as response:
            text = await response.text()
        kinds = [line.removeprefix("event: ") for line in text.splitlines() if line.startswith("event: ")]
        assert kinds == [
            *("approval.required", "run.parked", "approval.resolved", "tool.started", "tool.finished", "run.finished")
        ]
        data = [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: ")]
        assert {one["run_id"] for one in data} == {asked.json["id"]}
