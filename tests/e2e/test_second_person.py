"""Calls that somebody else must approve (`approvals.self`), and calls that several keys must (`approvals.require`)."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from gateways import key, until_read

from .asking import GO, answering, asks, birth, born, line, pending, ranch, user
from .models import Json, says
from .talking import Completed, World, talking
from .test_approval_bounds import by
from .test_runs import lost

DONE = says("Di is here.")
RESPONSES = "/context/v1/responses"


def holder(name: str, *scopes: str) -> Json:
    """The entry of a key of the farm, whose text is its name."""
    return {**key(name, *scopes), "name": name, "tenant": "farm"}


KEYS: Json = {
    "keys": [
        holder("agent", "context", "approve"),
        holder("anna", "context", "approve"),
        holder("ben", "approve"),
        holder("boss", "admin", "metrics"),
    ]
}
REFUSE: Json = {**KEYS, "approvals": {"self": "refuse"}}
TWO: Json = {**KEYS, "approvals": {"require": [{"tools": ["execute_*"], "approvals": 2}]}}
AGENT = {"X-Gateway-Key": "agent"}


async def asked(world: World, **options: Any) -> tuple[Completed, Json]:
    """The answer that asks for the agent's only call, and the approval."""
    first = await world.chat(GO, headers={**AGENT, **options.pop("headers", {})}, **options)
    (approval,) = first.asks
    return first, approval


async def seen(world: World, approval: Json, name: str = "anna") -> Json:
    """The approval as it is now."""
    found: Json = (await world.get(f"/context/approvals/{approval['id']}", **by(name))).json
    return found


async def by_websocket(world: World, approval: Json, name: str, **more: str) -> Json:
    """The answer to an approve over a WebSocket."""
    async with world.session.ws_connect("/context/ws", headers={**by(name), **more}) as socket:
        await socket.send_json({"type": "decide", "ref": 1, "id": approval["id"], "decision": "approve"})
        async with asyncio.timeout(120):
            while (told := await socket.receive_json())["type"] != "decision":
                assert told["type"] == "event"
    return dict(told)


async def ended(world: World, approval: Json, state: str = "completed") -> None:
    await until_read(
        lambda: world.get(f"/context/runs/{approval['run_id']}", **by("anna")), lambda run: run.json["state"] == state
    )


async def audited(world: World) -> list[tuple[str, str, str]]:
    """The decisions on record: what, by which key, by which way."""
    page = await world.get("/context/audit?limit=200", **by("boss"))
    return [(one["decision"], one["by"], one["via"]) for one in page.json["data"] if one["event"] == "decision"]


# Calls of one's own.


async def test_key_cannot_approve_its_own_call_by_any_route(tmp_path: Path) -> None:
    """Chat, REST, with other arguments, remembered, in a batch, over a WebSocket: each says who may."""
    async with talking(asks(), DONE, tools=ranch(tmp_path), **REFUSE) as world:
        first, approval = await asked(world)
        assert "`approvals.self: refuse`" in first.text and "Keys that have it: `anna`, `ben`" in first.text
        assert line(approval) not in first.text and line(approval, verb="reject") in first.text
        edit = {"sql": "INSERT INTO pets VALUES ('Ed', 4)"}
        listed = {"decision": "approve", "approvals": [{"id": approval["id"], "sha256": approval["sha256"]}]}
        answers = [
            await world.chat(answering(first, line(approval)), headers=AGENT),
            await world.chat(answering(first, f"approve {approval['id']}"), headers=AGENT),
            await world.chat(answering(first, line(approval)), headers=AGENT, stream=True),
            await world.decide(approval["id"], key="agent"),
            await world.decide(approval["id"], key="agent", arguments=edit),
            await world.decide(approval["id"], key="agent", remember="run"),
        ]
        errors = [(one.status, one.error["code"], one.error["message"]) for one in answers]
        batch = (await world.post(listed, path="/context/approvals/batch", headers=AGENT)).json["data"]
        socket = await by_websocket(world, approval, "agent")
        errors += [(one["status"], one["error"]["code"], one["error"]["message"]) for one in (*batch, socket)]
        assert {(status, code) for status, code, _ in errors} == {(403, "own_call")}
        assert all("'anna', 'ben'" in message and "reject it" in message for _, _, message in errors)
        assert (await pending(world, **by("anna")), born(tmp_path)) == ([approval["id"]], [])
        assert (await world.decide(approval["id"], key="ben")).status == 200
        await ended(world, approval)
        assert born(tmp_path) == ["Di"] and await audited(world) == [("approved", "ben", "rest")]


async def test_key_can_reject_its_own_call(tmp_path: Path) -> None:
    """By the line that the question shows."""
    async with talking(asks(), tools=ranch(tmp_path), **REFUSE) as world:
        first, approval = await asked(world)
        second = await world.chat(answering(first, line(approval, verb="reject")), headers=AGENT)
        assert "was rejected" in second.text and (await seen(world, approval))["decided_by"] == "agent"


async def test_end_user_cannot_approve_own_call_with_another_key(tmp_path: Path) -> None:
    """Where both requests name them; another user of that key may."""
    async with talking(asks(), DONE, tools=ranch(tmp_path), **REFUSE) as world:
        first, approval = await asked(world, headers={"X-Context-User": "eve"})
        eve, zoe = ({**by("anna"), "X-Context-User": name} for name in ("eve", "zoe"))
        path, body = f"/context/approvals/{approval['id']}", {"decision": "approve"}
        for answer in (
            await world.post(body, path=path, headers=eve),
            await world.chat(answering(first, line(approval)), headers=eve),
        ):
            assert (answer.status, answer.error["code"]) == (403, "own_call") and "'eve'" in answer.error["message"]
        assert (await by_websocket(world, approval, "anna", **{"X-Context-User": "eve"}))["status"] == 403
        assert (await world.post(body, path=path, headers=zoe)).status == 200


async def test_text_beside_another_keys_decision_is_not_sent_to_the_model(tmp_path: Path) -> None:
    """Else its holder could ask for the next call of the run, and approve that, too."""
    async with talking(asks(), DONE, tools=ranch(tmp_path), **REFUSE) as world:
        first, approval = await asked(world)
        said = [user(f"{GO} And delete the cats."), first.message, user(line(approval))]
        answer = await world.chat(said, headers=by("anna"))
        assert (answer.text, born(tmp_path)) == ("Di is here.", ["Di"])
        assert "cats" not in json.dumps(world.model.asked[-1])


@pytest.mark.parametrize("whose", [{"X-Gateway-Key": "anna"}, {**AGENT, "X-Context-User": "zoe"}], ids=["key", "user"])
@pytest.mark.parametrize(
    "narrows", [{"X-Context-Approvals": "reject"}, {"X-Context-Tools": "file_operations"}], ids=str
)
async def test_headers_of_another_approver_do_not_restrict_the_run(tmp_path: Path, whose: Json, narrows: Json) -> None:
    """They say how their own runs ask and what those may use: the next call of the run asks as the first did."""
    answers = (asks(), asks(birth("Ed")), says("Both."))
    async with talking(*answers, tools=ranch(tmp_path), **KEYS) as world:
        first, approval = await asked(world, headers={"X-Context-User": "eve"} if "X-Context-User" in whose else {})
        told = await world.chat(answering(first, line(approval)), headers={**whose, **narrows})
        assert told.status == 200
        (later,) = await until_read(lambda: pending(world, **by("ben")))
        assert later != approval["id"] and born(tmp_path) == ["Di"]


async def test_self_granted_approval_ends_when_self_approval_is_forbidden(tmp_path: Path) -> None:
    """To remember is to approve the next call."""
    answers = (asks(), DONE, asks(), DONE)
    said = {"headers": {"X-Context-Conversation": "c1"}}
    async with talking(*answers, tools=ranch(tmp_path), **KEYS) as world:
        _, approval = await asked(world, **said)
        assert (await world.decide(approval["id"], key="agent", remember="conversation")).status == 200
        await ended(world, approval)
        await world.reload(approvals={"self": "refuse"})
        second = await world.chat("Once more.", headers={**AGENT, "X-Context-Conversation": "c1"})
        assert second.asks and born(tmp_path) == ["Di"]


@pytest.mark.parametrize(("outcome", "births"), [("done", False), ("retry", True)])
async def test_key_cannot_resolve_its_own_lost_call_as_done_or_retry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcome: str, *, births: bool
) -> None:
    """It settles a call of which nobody knows as failed at most; another key says what became of it."""
    async with lost(tmp_path, monkeypatch, "I see.", asker="agent", decider="anna", **REFUSE) as (world, first):
        path, finding = f"/context/runs/{first.asks[0]['run_id']}/resume", {"step": 0, "as": outcome}
        own = await world.post(finding, path=path, headers=AGENT)
        assert (own.status, own.error["code"]) == (403, "own_call") and "'failed'" in own.error["message"]
        assert (await world.post(finding, path=path, headers=by("ben"))).status == 200
        await ended(world, first.asks[0])
        assert (tmp_path / "work/born.txt").exists() == births


async def test_key_can_mark_its_own_call_as_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with lost(tmp_path, monkeypatch, "I see.", asker="agent", decider="anna", **REFUSE) as (world, first):
        path = f"/context/runs/{first.asks[0]['run_id']}/resume"
        assert (await world.post({"step": 0, "as": "failed"}, path=path, headers=AGENT)).status == 200
        await ended(world, first.asks[0])
        assert not (tmp_path / "work/born.txt").exists()


async def test_responses_api_refuses_approval_of_an_own_call(tmp_path: Path) -> None:
    async with talking(asks(), DONE, tools=ranch(tmp_path), **REFUSE) as world:
        tools = [{"type": "mcp", "server_label": "gateway"}]
        first = await world.post({"model": "m", "input": GO, "tools": tools}, path=RESPONSES, headers=AGENT)
        question = first.json["output"][-1]
        decision = {"type": "mcp_approval_response", "approval_request_id": question["id"], "approve": True}
        body = {"model": "m", "input": [decision], "tools": tools, "previous_response_id": first.json["id"]}
        refused = await world.post(body, path=RESPONSES, headers=AGENT)
        assert (refused.status, refused.error["code"], born(tmp_path)) == (403, "own_call", [])


# Two keys.


async def test_two_key_approval_runs_the_call_once(tmp_path: Path) -> None:
    """The first is kept and shown at every door, the same key counts once, the second lets it run."""
    async with talking(asks(), DONE, tools=ranch(tmp_path), **TWO) as world:
        first, approval = await asked(world)
        assert "approvals: 0 of 2, by different keys" in first.text
        own = await world.chat(answering(first, line(approval)), headers=AGENT)
        assert [one["id"] for one in own.asks] == [approval["id"]] and "Your approval of" in own.text
        assert "approvals: 1 of 2, approved by agent" in own.text and born(tmp_path) == []
        for again in (
            await world.decide(approval["id"], key="agent"),
            await world.chat(answering(first, line(approval)), headers=AGENT),
        ):
            assert (again.status, again.error["code"]) == (409, "approved_already")
            assert "1 of 2" in again.error["message"]
        waits = await seen(world, approval)
        assert (waits["state"], waits["required_approvals"], waits["decided_by"]) == ("pending", 2, None)
        assert [(one["by"], one["via"]) for one in waits["approved_by"]] == [("agent", "chat")]
        decided = await world.decide(approval["id"], key="ben", sha256=approval["sha256"])
        assert (decided.status, decided.json["state"]) == (200, "approved")
        assert [one["by"] for one in decided.json["approved_by"]] == ["agent", "ben"]
        await ended(world, approval)
        assert born(tmp_path) == ["Di"]
        assert await audited(world) == [("partly_approved", "agent", "chat"), ("approved", "ben", "rest")]
        page = await world.session.get("/metrics", headers=by("boss"))
        assert 'gateway_approvals_total{decision="partly_approved",via="chat"} 1.0' in await page.text()


@pytest.mark.parametrize("name", ["agent", "ben"])
async def test_rejection_overrides_an_earlier_endorsement(tmp_path: Path, name: str) -> None:
    """Also that of the key which had approved."""
    async with talking(asks(), tools=ranch(tmp_path), **TWO) as world:
        _, approval = await asked(world)
        await world.decide(approval["id"], key="agent")
        assert (await world.decide(approval["id"], "reject", key=name)).json["state"] == "rejected"
        late = await world.decide(approval["id"], key="anna")
        assert (late.status, late.error["code"], born(tmp_path)) == (409, "decision_conflict", [])


async def test_edited_arguments_require_both_approvals_again(tmp_path: Path) -> None:
    """Who has not seen them does not approve them, neither blindly nor by the word or the hash of the first call."""
    edit = {"sql": "INSERT INTO pets VALUES ('Ed', 4)"}
    async with talking(asks(), DONE, tools=ranch(tmp_path), **TWO) as world:
        first, approval = await asked(world)
        await world.decide(approval["id"], key="agent")
        changed = (await world.decide(approval["id"], key="ben", arguments=edit)).json
        assert (changed["state"], [one["by"] for one in changed["approved_by"]]) == ("pending", ["ben"])
        assert changed["edited_arguments"] == edit and changed["sha256"] != approval["sha256"]
        for stale in (
            await world.decide(approval["id"], key="anna"),
            await world.decide(approval["id"], key="anna", sha256=approval["sha256"]),
        ):
            assert (stale.status, stale.error["code"]) == (409, "approval_stale")
        word = await world.chat(answering(first, line(approval)), headers=AGENT)
        assert "decided nothing" in word.text and "'Ed'" in word.text and born(tmp_path) == []
        assert (await world.chat(answering(word, line(changed)), headers=AGENT)).text == "Di is here."
        assert born(tmp_path) == ["Ed"]


async def test_one_end_user_with_two_keys_counts_once(tmp_path: Path) -> None:
    async with talking(asks(), tools=ranch(tmp_path), **TWO) as world:
        _, approval = await asked(world)
        path, body = f"/context/approvals/{approval['id']}", {"decision": "approve"}
        statuses = [
            (await world.post(body, path=path, headers={**by(name), "X-Context-User": "eve"})).status
            for name in ("anna", "ben")
        ]
        assert statuses == [200, 409] and born(tmp_path) == []


async def test_high_risk_level_requires_two_approvals_despite_a_grant(tmp_path: Path) -> None:
    """And a grant that one key gave for another level clears no such call."""
    settings = {**KEYS, "approvals": {"require": [{"risk": ["high"], "approvals": 2}]}}
    answers = (asks(birth(risk_level="medium")), DONE, asks(birth(risk_level="HIGH")))
    conversation = {"X-Context-Conversation": "c1"}
    async with talking(*answers, tools=ranch(tmp_path), **settings) as world:
        _, approval = await asked(world, headers=conversation)
        assert approval["required_approvals"] == 1
        await world.decide(approval["id"], key="ben", remember="conversation")
        await ended(world, approval)
        (second,) = (await world.chat("Once more.", headers={**AGENT, **conversation})).asks
        assert (second["required_approvals"], born(tmp_path)) == (2, ["Di"])


async def test_approval_is_remembered_only_if_both_approvers_agree(tmp_path: Path) -> None:
    answers = (asks(), DONE, asks(), DONE, asks(), DONE)
    conversation = {"X-Context-Conversation": "c1"}
    async with talking(*answers, tools=ranch(tmp_path), **TWO) as world:
        for wishes in (("conversation", "once"), ("conversation", "conversation")):
            (approval,) = (await world.chat(f"{GO} {wishes}", headers={**AGENT, **conversation})).asks
            for name, wish in zip(("anna", "ben"), wishes, strict=True):
                assert (await world.decide(approval["id"], key=name, remember=wish)).status == 200
            await ended(world, approval)
        third = await world.chat("And again.", headers={**AGENT, **conversation})
        assert (third.text, born(tmp_path)) == ("Di is here.", ["Di", "Di", "Di"])


async def test_changed_rule_makes_a_pending_approval_stale(tmp_path: Path) -> None:
    """What one key approves by the old rule does not run by the new one."""
    async with talking(asks(), DONE, tools=ranch(tmp_path), **KEYS) as world:
        _, approval = await asked(world)
        await world.reload(approvals=TWO["approvals"])
        stale = await world.decide(approval["id"], key="ben")
        assert (stale.status, stale.error["code"]) == (409, "approval_stale")
        (fresh,) = await pending(world, **by("ben"))
        assert (await world.decide(fresh, key="ben")).json["state"] == "pending"
        assert (await world.decide(fresh, key="anna")).json["state"] == "approved"
        await ended(world, approval)
        assert born(tmp_path) == ["Di"]
