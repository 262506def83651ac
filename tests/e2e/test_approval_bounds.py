"""What an approval is not: for anybody, for ever, for another call, or for what the operator forbids."""

import asyncio
from pathlib import Path

import pytest
from gateways import key, until_read

from gateway.aio.clock import SystemClock

from .asking import (
    GO,
    HOLD,
    answering,
    asks,
    behind_question,
    birth,
    born,
    held,
    line,
    pending,
    ranch,
    until_asked,
    user,
    whole,
)
from .models import Json, call, says
from .talking import Completed, World, talking

DONE = says("Di is here.")
KEYS: Json = {
    "keys": [
        {**key("asks", "context"), "tenant": "farm"},
        {**key("decides", "approve"), "tenant": "farm"},
        {**key("both", "context", "approve"), "tenant": "farm"},
        {**key("stranger", "context", "approve"), "tenant": "zoo"},
    ]
}


def by(name: str) -> dict[str, str]:
    return {"X-Gateway-Key": name}


async def replied(world: World, first: Completed, word: str, **headers: str) -> Completed:
    """What a client is answered that sends `word` with the id of the first approval."""
    return await world.chat(answering(first, f"{word} {first.asks[0]['id']}"), headers=headers)


# Who.


@pytest.mark.parametrize(
    ("name", "status", "code"),
    [("asks", 403, "scope_missing"), ("stranger", 404, "approval_not_found")],
)
async def test_decision_without_scope_or_tenant_is_refused(tmp_path: Path, name: str, status: int, code: str) -> None:
    """Without the scope 403, of another tenant 404: by chat as by REST; and nothing has changed."""
    async with talking(asks(), tools=ranch(tmp_path), **KEYS) as world:
        first = await world.chat(GO, headers=by("asks"))
        (approval,) = first.asks
        for answer in (
            await replied(world, first, "approve", **by(name)),
            await replied(world, first, "reject", **by(name)),
            await world.decide(approval["id"], key=name),
            await world.decide(approval["id"], "reject", key=name),
        ):
            assert (answer.status, answer.error["code"]) == (status, code)
        assert (await pending(world, **by("decides")), born(tmp_path)) == ([approval["id"]], [])
        assert await pending(world, **by("stranger")) == []
        run = await world.get(f"/context/runs/{approval['run_id']}", **by("stranger"))
        assert (run.status, run.error["code"]) == (404, "run_not_found")


@pytest.mark.parametrize("way", ["rest", "chat"])
async def test_another_key_of_the_tenant_can_decide(tmp_path: Path, way: str) -> None:
    """One key for the agent, which may not approve, and one for the person."""
    async with talking(asks(), DONE, tools=ranch(tmp_path), **KEYS) as world:
        first = await world.chat(GO, headers=by("asks"))
        (approval,) = first.asks
        if way == "rest":
            assert (await world.decide(approval["id"], key="decides")).status == 200
            await settled(world, approval["run_id"])
        else:
            assert "check_word" not in first.text and approval["check_word"] not in first.text
            decided = await world.chat(answering(first, line(approval)), headers=by("both"))
            assert decided.text == "Di is here."
        assert born(tmp_path) == ["Di"]
        shown = (await world.get(f"/context/approvals/{approval['id']}", **by("decides"))).json
        assert (shown["decided_by"], shown["state"]) == (key("decides" if way == "rest" else "both")["name"], "done")


async def settled(world: World, run_id: str) -> Json:
    """The run once it has ended."""
    ended = await until_read(
        lambda: world.get(f"/context/runs/{run_id}", **by("both")), lambda found: found.json["state"] == "completed"
    )
    return dict(ended.json)


async def test_unknown_approval_id_is_answered_with_404() -> None:
    """404, by chat too: no model ever sees it."""
    nobody = "ap_" + "a" * 26
    async with talking() as world:
        for answer in (await world.chat(f"approve {nobody}"), await world.decide(nobody)):
            assert (answer.status, answer.error["code"]) == (404, "approval_not_found")


# When.


class Ahead(SystemClock):
    """A clock that a test sets forward."""

    ahead_s = 0.0

    def time(self) -> float:
        return super().time() + self.ahead_s


@pytest.mark.parametrize("way", ["rest", "chat"])
async def test_expired_approval_is_answered_with_410(tmp_path: Path, way: str) -> None:
    """410; the run has ended, and nothing ran."""
    clock = Ahead()
    async with talking(asks(), tools=ranch(tmp_path), approvals={"expires": "1h"}, clock=clock) as world:
        first = await world.chat(GO)
        (approval,) = first.asks
        clock.ahead_s = 3601.0
        late = await (world.decide(approval["id"]) if way == "rest" else replied(world, first, "approve"))
        assert (late.status, late.error["code"]) == (410, "approval_expired")
        await world.run(approval["run_id"], state="expired")
        assert born(tmp_path) == []


async def test_waiting_stream_ends_when_its_approval_expires(tmp_path: Path) -> None:
    """A normal end that says so."""
    async with talking(asks(), tools=ranch(tmp_path), approvals={"expires": "50ms"}) as world:
        async with world.streaming(GO, headers=HOLD) as stream:
            await held(stream)
            text = await whole(stream)
        assert "No person decided" in text and "Nothing ran." in text and born(tmp_path) == []


async def test_approval_of_a_cancelled_run_is_answered_with_409(tmp_path: Path) -> None:
    """409: what it was for is over."""
    async with talking(asks(), tools=ranch(tmp_path)) as world:
        first = await world.chat(GO)
        (approval,) = first.asks
        cancelled = await world.post({}, path=f"/context/runs/{approval['run_id']}/cancel")
        assert (cancelled.status, cancelled.json["state"]) == (200, "cancelled")
        for answer in (await world.decide(approval["id"]), await replied(world, first, "approve")):
            assert (answer.status, answer.error["code"]) == (409, "decision_conflict")
        assert (await pending(world), born(tmp_path)) == ([], [])


# For what.


@pytest.mark.parametrize("way", ["rest", "chat"])
async def test_approval_is_invalid_after_a_policy_change(tmp_path: Path, way: str) -> None:
    """409 after a reload that changes it, and a new approval, which does."""
    async with talking(asks(), DONE, tools=ranch(tmp_path)) as world:
        first = await world.chat(GO)
        (approval,) = first.asks
        await world.reload(risk={"profile": "hardened"})
        stale = await (world.decide(approval["id"]) if way == "rest" else replied(world, first, "approve"))
        assert (stale.status, stale.error["code"]) == (409, "approval_stale")
        (fresh,) = await pending(world)
        assert fresh != approval["id"] and fresh in stale.error["message"] and born(tmp_path) == []
        shown = await world.chat(answering(first, f"approve {fresh}"))  # nobody was shown it yet
        assert (await world.chat(answering(first, line(*shown.asks)))).text == "Di is here."
        assert born(tmp_path) == ["Di"]


@pytest.mark.parametrize("tool", ["execute_sql", "file_operations", "execute_command"])
async def test_approval_is_invalid_after_a_change_of_the_tool_target(tmp_path: Path, tool: str) -> None:
    """Another database, or another folder, that the configuration names meanwhile: nothing happens there."""
    here, there = tmp_path / "here", tmp_path / "there"
    for place in (here, there):
        place.mkdir()
    tools, others = (
        {**ranch(place), "execute_command": {"cwd": str(place / "work"), "sandbox": "none"}} for place in (here, there)
    )
    wanted = {
        "execute_sql": birth(),
        "file_operations": call("file_operations", risk_level="high", operation="write", path="new.txt", content="x"),
        "execute_command": call("execute_command", risk_level="high", command="touch new.txt"),
    }
    async with talking(asks(wanted[tool]), DONE, tools=tools) as world:
        (approval,) = (await world.chat(GO)).asks
        await world.reload(tools={**tools, tool: others[tool]})
        stale = await world.decide(approval["id"])
        assert (stale.status, stale.error["code"]) == (409, "approval_stale")
        (fresh,) = await pending(world)
        assert born(here) == born(there) == [] and not list(tmp_path.rglob("new.txt"))
        assert (await world.decide(fresh)).status == 200
        await world.run(approval["run_id"], state="completed")
        new = there / "work" / "new.txt"
        assert born(there) == ["Di"] if tool == "execute_sql" else list(tmp_path.rglob("new.txt")) == [new]


async def test_waiting_stream_continues_with_the_reissued_approval(tmp_path: Path) -> None:
    """Its run waits for whichever approval takes the place of the first."""
    async with talking(asks(), DONE, tools=ranch(tmp_path)) as world, world.streaming(GO, headers=HOLD) as stream:
        (approval,) = await held(stream)
        await world.reload(risk={"profile": "hardened"})
        assert (await world.decide(approval["id"])).status == 409
        (fresh,) = await pending(world)
        assert (await world.decide(fresh)).status == 200
        assert (behind_question(await whole(stream)), born(tmp_path)) == ("Di is here.", ["Di"])


async def test_approval_remembered_for_the_run_covers_the_same_call(tmp_path: Path) -> None:
    """The same call of the same run asks nobody again; another one does, and so does another run."""
    answers = (asks(), asks(), asks(birth("Ed")), says("Both."), asks())
    async with talking(*answers, tools=ranch(tmp_path)) as world:
        (approval,) = (await world.chat(GO)).asks
        assert (await world.decide(approval["id"], remember="run")).status == 200
        (second,) = await until_asked(world)
        run = await world.run(approval["run_id"])
        assert [step["state"] for step in run["steps"]] == ["finished", "finished", "requested"]
        assert born(tmp_path) == ["Di", "Di"]
        await world.decide(second)
        await world.run(approval["run_id"], state="completed")
        assert len((await world.chat("Again.")).asks) == 1
        assert born(tmp_path) == ["Di", "Di", "Ed"]


def talk(name: str) -> dict[str, str]:
    return {"X-Context-Conversation": name}


async def test_approval_remembered_for_the_conversation_covers_the_same_call(tmp_path: Path) -> None:
    """Its later requests ask nobody for the same call, until the grant is taken back; another conversation does."""
    answers = (asks(), DONE, asks(), says("Twins."), asks(), asks())
    async with talking(*answers, tools=ranch(tmp_path)) as world:
        (approval,) = (await world.chat(GO, headers=talk("one"))).asks
        assert (await world.decide(approval["id"], remember="conversation")).status == 200
        await world.run(approval["run_id"], state="completed")
        (grant,) = (await world.get("/context/grants")).json["data"]
        assert (grant["conversation"], grant["run_id"], grant["sha256"]) == ("one", None, approval["sha256"])
        assert (await world.chat("Again.", headers=talk("one"))).text == "Twins."
        assert born(tmp_path) == ["Di", "Di"]
        assert len((await world.chat("Again.", headers=talk("two"))).asks) == 1
        async with world.session.delete(f"/context/grants/{grant['id']}") as response:
            assert response.status == 204
        assert len((await world.chat("And again.", headers=talk("one"))).asks) == 1
        assert born(tmp_path) == ["Di", "Di"]


async def test_remember_for_conversation_without_a_conversation_is_refused(tmp_path: Path) -> None:
    """400, and nothing is decided."""
    async with talking(asks(), tools=ranch(tmp_path)) as world:
        (approval,) = (await world.chat(GO)).asks
        refused = await world.decide(approval["id"], remember="conversation")
        assert (refused.status, refused.error["code"]) == (400, "invalid_field")
        assert await pending(world) == [approval["id"]]


# How the client is asked.


async def test_non_stream_client_can_wait_for_the_decision(tmp_path: Path) -> None:
    """`X-Context-Approvals: hold`: its answer comes after the decision."""
    async with talking(asks(), DONE, tools=ranch(tmp_path)) as world:
        asking = asyncio.create_task(world.chat(GO, headers=HOLD))
        (waiting,) = await until_asked(world)
        assert not asking.done()
        await world.decide(waiting)
        answer = await asking
        assert (behind_question(answer.text), born(tmp_path)) == ("Di is here.", ["Di"])


async def test_turn_header_ends_the_stream_with_its_question(tmp_path: Path) -> None:
    """`X-Context-Approvals: turn`: it ends with the question, and names what waits in its last chunk."""
    async with talking(asks(), DONE, tools=ranch(tmp_path)) as world:
        headers = {"X-Context-Approvals": "turn"}
        async with world.streaming(GO, headers=headers, stream_options={"include_usage": True}) as stream:
            text = await whole(stream, usage=True)
        context = stream.frames[-2]["context"]
        assert (context["status"], stream.told) == ("awaiting_approval", [])
        (approval,) = context["approvals"]
        said = [user(GO), {"role": "assistant", "content": text}, user(f"approve {approval['id']}")]
        assert ((await world.stream(said)).text, born(tmp_path)) == ("Di is here.", ["Di"])


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("header", "mode"),
    [("reject", "turn"), ("reject", "hold"), ("hold", "reject"), ("turn", "reject"), (None, "reject")],
)
async def test_reject_mode_refuses_risky_calls_without_an_approval(
    tmp_path: Path, header: str | None, mode: str, *, stream: bool
) -> None:
    """A header may say so, and cannot loosen what the operator says; a normal answer tells what was refused."""
    headers = {} if header is None else {"X-Context-Approvals": header}
    async with talking(asks(), tools=ranch(tmp_path), approvals={"mode": mode}) as world:
        answer = await (world.stream if stream else world.chat)(GO, headers=headers)
        assert "no person can approve it here" in answer.text and "INSERT INTO pets" in answer.text
        assert (await pending(world), born(tmp_path)) == ([], [])
        assert await world.counted('gateway_agent_runs_total{outcome="rejected"}') == 1


@pytest.mark.parametrize("where", ["mode", "chain", "key"])
async def test_operator_configures_the_default_approval_delivery(tmp_path: Path, where: str) -> None:
    """For clients that send no header: for all, for those of a chain, for those of a key."""
    said: Json = {"mode": {"mode": "hold"}, "chain": {"chains": {"assistant": "hold"}}, "key": {}}[where]
    approvals = {"inline_wait": "50ms", **said}
    keys = [{**key("both", "context", "approve"), **({"approvals": "hold"} if where == "key" else {})}]
    async with talking(asks(), asks(birth("Ed")), tools=ranch(tmp_path), approvals=approvals, keys=keys) as world:
        streamed = await world.stream(GO, headers=by("both"))
        assert [event["type"] for event in streamed.told] == ["approval.required"]
        assert behind_question(streamed.text).startswith("No person has decided")
        answer = await world.chat("Another dog is born.", headers={**by("both"), "X-Context-Approvals": "turn"})
        assert answer.asks and "gateway approvals" not in answer.text


async def test_call_refused_by_the_tool_requests_no_approval(tmp_path: Path) -> None:
    """A database that is read-only: the model is told at once."""
    tools = ranch(tmp_path)
    tools["execute_sql"]["read_only"] = True
    async with talking(asks(), says("I cannot."), tools=tools) as world:
        assert (await world.chat(GO)).text == "I cannot."
        assert await pending(world) == []
