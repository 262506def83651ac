"""Whose request goes on with a run: another person who decides takes nothing from who asked, and is told no result."""

import json
from pathlib import Path

import pytest

from .asking import GO, answering, asks, birth, born, line, ranch, user
from .models import Json, says
from .talking import Completed, World, talking
from .test_own_credentials import carried, of
from .test_second_person import KEYS

DONE = says("Di is here.")
RESPONSES = "/context/v1/responses"
TOOLS = [{"type": "mcp", "server_label": "gateway"}]
EVE = {"X-Gateway-Key": "agent", "X-Context-User": "eve"}
ZOE = {"X-Gateway-Key": "agent", "X-Context-User": "zoe"}
#: Whom the answer of eve's run is not for, and a colleague with a key of the tenant, who may look it up.
OTHERS = [ZOE, {"X-Gateway-Key": "agent"}, {"X-Gateway-Key": "anna", "X-Context-User": "zoe"}]
COLLEAGUE = {"X-Gateway-Key": "anna"}


def has_nothing_of_it(answer: Completed) -> bool:
    """Whether the answer says that the decision counts, and nothing of what came of it."""
    is_told = "goes to the person who requested it, and only there" in answer.text
    return is_told and "Di" not in json.dumps(answer.json)


async def ended(world: World, asked: Completed) -> None:
    await world.run(asked.asks[0]["run_id"], state="completed", **COLLEAGUE)


@pytest.mark.parametrize("other", [*OTHERS, COLLEAGUE])
async def test_requester_gets_the_answer_after_another_user_decides(tmp_path: Path, other: Json) -> None:
    """Her repeated request begins no second run, and the words of the other person reach no model."""
    async with talking(asks(), DONE, tools=ranch(tmp_path), **KEYS) as world:
        first = await world.chat(GO, headers=EVE)
        await world.chat([user("the secret of zoe"), *answering(first, line(*first.asks))], headers=other)
        await ended(world, first)
        assert (await world.chat(GO, headers=EVE)).text == "Di is here."
        assert "secret of zoe" not in json.dumps(world.model.asked) and born(tmp_path) == ["Di"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("other", OTHERS)
async def test_approving_end_user_does_not_see_the_result(tmp_path: Path, other: Json, *, stream: bool) -> None:
    """Neither at once nor with the same line again; the next message of who asked brings it."""
    async with talking(asks(), DONE, says("Bye."), tools=ranch(tmp_path), **KEYS) as world:
        first = await world.chat(GO, headers=EVE)
        decision = [user("Hi"), first.message, user(line(*first.asks))]
        for _ in range(2):
            if stream:
                told = await world.stream(decision, headers=other)
                assert "and only there" in told.text and "Di" not in json.dumps(told.frames)
            else:
                assert has_nothing_of_it(await world.chat(decision, headers=other))
            await ended(world, first)
        own = await world.chat(answering(first, "And?"), headers=EVE)
        assert "Di is here." in own.text and own.text.endswith("Bye.") and born(tmp_path) == ["Di"]


async def test_another_key_of_the_tenant_receives_the_answer_after_deciding(tmp_path: Path) -> None:
    """The key sees the runs of its tenant anyway, and names no end user who is another."""
    async with talking(asks(), DONE, tools=ranch(tmp_path), **KEYS) as world:
        first = await world.chat(GO, headers=EVE)
        assert (await world.chat(answering(first, line(*first.asks)), headers=COLLEAGUE)).text == "Di is here."


async def test_rejecting_end_user_is_informed_without_the_result(tmp_path: Path) -> None:
    async with talking(asks(), tools=ranch(tmp_path), **KEYS) as world:
        first = await world.chat(GO, headers=EVE)
        told = await world.chat(answering(first, line(*first.asks, verb="reject")), headers=ZOE)
        assert told.text.startswith("Rejected.") and has_nothing_of_it(told)
        await world.run(first.asks[0]["run_id"], state="rejected", **COLLEAGUE)
        assert "was rejected" in (await world.chat(GO, headers=EVE)).text and born(tmp_path) == []


async def test_partial_decision_by_another_end_user_shows_pending_calls(tmp_path: Path) -> None:
    """The calls that wait, and what came of none."""
    async with talking(asks(birth(), birth("Ed")), DONE, tools=ranch(tmp_path), **KEYS) as world:
        first = await world.chat(GO, headers=EVE)
        one, two = first.asks
        part = await world.chat(answering(first, line(one)), headers=ZOE)
        assert part.asks == [two] and "Your decision on" in part.text
        assert has_nothing_of_it(await world.chat(answering(first, line(two)), headers=ZOE))
        await ended(world, first)
        assert (await world.chat(GO, headers=EVE)).text == "Di is here." and born(tmp_path) == ["Di", "Ed"]


@pytest.mark.parametrize("background", [False, True])
async def test_responses_api_hides_the_result_from_another_approver(tmp_path: Path, *, background: bool) -> None:
    """Nor does the response that is stored for it, once the run has ended."""
    async with talking(asks(), DONE, tools=ranch(tmp_path), **KEYS) as world:
        asked = {"model": "m", "input": GO, "tools": TOOLS}
        first = await world.post(asked, path=RESPONSES, headers=EVE)
        question = first.json["output"][-1]
        decision = {"type": "mcp_approval_response", "approval_request_id": question["id"], "approve": True}
        body = {"model": "m", "input": [question, decision], "tools": TOOLS, "background": background}
        second = await world.post(body, path=RESPONSES, headers=ZOE)
        approval = await world.get(f"/context/approvals/{question['id']}", **COLLEAGUE)
        await world.run(approval.json["run_id"], state="completed", **COLLEAGUE)
        stored = await world.get(f"{RESPONSES}/{second.json['id']}", **ZOE)
        assert stored.json["status"] == "completed" and "and only there" in json.dumps(stored.json["output"])
        outputs = json.dumps([second.json["output"], stored.json["output"]])
        assert "Di is here" not in outputs and born(tmp_path) == ["Di"]
        again = await world.post(asked, path=RESPONSES, headers=EVE)
        assert "Di is here." in json.dumps(again.json["output"])


async def test_decision_from_another_conversation_gets_no_answer_or_credential(tmp_path: Path) -> None:
    """Where no end user is named, the name of the conversation stands for its people, and for the answer, too."""
    async with talking(asks(), DONE, tools=ranch(tmp_path), **KEYS) as world:
        eve, zoe = (of(who, **{"X-Context-Conversation": f"{who}s"}) for who in ("eve", "zoe"))
        first = await world.chat(GO, headers=eve)
        assert has_nothing_of_it(await world.chat(answering(first, line(*first.asks)), headers=zoe))
        await ended(world, first)
        assert carried(world.model) == [([b"Bearer of-eve"], [b"eves"]), ([], [])] and born(tmp_path) == ["Di"]


async def test_requester_gets_the_answer_after_a_restart(tmp_path: Path) -> None:
    """Another process knows from the store whom it is for: the decision that comes again is told nothing of it."""
    store = f"sqlite:///{tmp_path / 'gateway.db'}"
    tools = ranch(tmp_path)
    async with talking(asks(), DONE, tools=tools, store=store, **KEYS) as world:
        first = await world.chat(GO, headers=EVE)
        await world.chat(answering(first, line(*first.asks)), headers=ZOE)
        await ended(world, first)
    async with talking(says("No idea."), says("Bye."), tools=tools, store=store, **KEYS) as world:
        assert has_nothing_of_it(await world.chat(answering(first, line(*first.asks)), headers=ZOE))
        assert (await world.chat(answering(first, "And?"), headers=ZOE)).text == "No idea."
        own = await world.chat(answering(first, "And?"), headers=EVE)
        assert "Di is here." in own.text and own.text.endswith("Bye.")
