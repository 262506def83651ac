"""Questions that somebody answers elsewhere, and clients that ask the same again: one effect, one answer."""

from pathlib import Path

import pytest
from gateways import key

from .asking import GO, answering, asks, birth, born, line, pending, ranch, user
from .models import Json, says
from .talking import World, talking

DONE = says("Di is here.")
KEYS: Json = {
    "keys": [
        {**key("agent", "context"), "tenant": "farm"},
        {**key("anna", "context", "approve"), "tenant": "farm"},
        {**key("other", "context"), "tenant": "farm"},
    ]
}
AGENT, ANNA = {"X-Gateway-Key": "agent"}, {"X-Gateway-Key": "anna"}
TALK = {"X-Context-Conversation": "talk"}
MEANWHILE = "It was decided meanwhile. What came of it:\n\n"


async def decided(world: World, approval_id: str, decision: str, *, key: str, state: str) -> None:
    """By REST, and the run has come to this."""
    approval = (await world.decide(approval_id, decision, key=key)).json
    async with world.session.get(f"/context/approvals/{approval_id}", headers=ANNA) as response:
        run_id = (await response.json())["run_id"]
    while (await world.get(f"/context/runs/{run_id}", **ANNA)).json["state"] != state:
        assert approval["state"] in ("approved", "rejected")


# A key that may not decide.


@pytest.mark.parametrize("stream", [False, True])
async def test_agent_without_decision_scope_sees_which_keys_check_decision(tmp_path: Path, *, stream: bool) -> None:
    """Not what to type, which would be refused; a message that names the call is answered in the same way."""
    async with talking(asks(), tools=ranch(tmp_path), **KEYS) as world:
        text = (await (world.stream if stream else world.chat)(GO, headers=AGENT)).text
        (waiting,) = await pending(world, **ANNA)
        said = [user(GO), {"role": "assistant", "content": text}, user(f"Is {waiting} approved?")]
        answer = await world.chat(said, headers=AGENT)
        assert answer.text.startswith("Your message decided nothing.") and len(world.model.asked) == 1
        for told in (text, answer.text):
            assert "Keys that have it: `" in told and f"gateway approvals approve {waiting}" in told
            assert f"\napprove {waiting}" not in told and "of the tenant `farm`" in told
        refused = await world.chat([*said[:2], user(f"approve {waiting}")], headers=AGENT)
        assert (refused.status, refused.error["code"]) == (403, "scope_missing")
        assert "Keys of its tenant that have it: '" in refused.error["message"] and born(tmp_path) == []


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("decision", ["approve", "reject"])
async def test_repeated_request_receives_the_answer_of_the_decided_run(
    tmp_path: Path, decision: str, *, stream: bool
) -> None:
    """While nobody has decided the same question, without a call of the model; then the answer, once; then it is a
    new request.
    """
    approves = decision == "approve"
    answers = (asks(), DONE, says("Anew.")) if approves else (asks(), says("Anew."))
    async with talking(*answers, tools=ranch(tmp_path), **KEYS) as world:
        ask = world.stream if stream else world.chat
        first = (await ask(GO, headers=AGENT)).text
        assert [(await ask(GO, headers=AGENT)).text for _ in range(2)] == [first, first]
        (waiting,) = await pending(world, **ANNA)
        assert len(world.model.asked) == 1
        await decided(world, waiting, decision, key="anna", state="completed" if approves else "rejected")
        answer = (await ask(GO, headers=AGENT)).text
        assert answer == "Di is here." if approves else "was rejected" in answer
        assert (await ask(GO, headers=AGENT)).text == "Anew."
        assert born(tmp_path) == (["Di"] if approves else [])


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("decision", ["approve", "reject"])
async def test_next_message_receives_the_answer_of_the_decided_run(
    tmp_path: Path, decision: str, *, stream: bool
) -> None:
    """In front of what the model says to it, and once: the message behind that is an ordinary one."""
    approves = decision == "approve"
    later = (says("Anything else?"), says("Bye."))
    async with talking(asks(), *([DONE] if approves else []), *later, tools=ranch(tmp_path), **KEYS) as world:
        first = await world.chat(GO, headers=AGENT)
        (waiting,) = await pending(world, **ANNA)
        await decided(world, waiting, decision, key="anna", state="completed" if approves else "rejected")
        said = answering(first, "And?")
        second = await (world.stream if stream else world.chat)(said, headers=AGENT)
        assert second.text.startswith(MEANWHILE) and second.text.endswith("\n\nAnything else?")
        assert ("Di is here." if approves else "was rejected") in second.text
        assert born(tmp_path) == (["Di"] if approves else [])
        third = await world.chat([*said, {"role": "assistant", "content": second.text}, user("No.")], headers=AGENT)
        assert third.text == "Bye."


async def test_next_message_before_the_decision_is_answered_normally(tmp_path: Path) -> None:
    """And another key's conversation that shows the same question is brought nothing."""
    async with talking(asks(), says("Wait."), DONE, says("No idea."), tools=ranch(tmp_path), **KEYS) as world:
        first = await world.chat(GO, headers=AGENT)
        assert (await world.chat(answering(first, "And?"), headers=AGENT)).text == "Wait."
        (waiting,) = await pending(world, **ANNA)
        await decided(world, waiting, "approve", key="anna", state="completed")
        stranger = await world.chat(answering(first, "And?"), headers={"X-Gateway-Key": "other"})
        assert stranger.text == "No idea." and born(tmp_path) == ["Di"]


@pytest.mark.parametrize("stream", [False, True])
async def test_answer_of_a_decided_run_is_withheld_from_another_conversation(tmp_path: Path, *, stream: bool) -> None:
    """Many people may share a key: what came of a question belongs to the conversation that it was asked in."""
    one, two = ({**ANNA, "X-Context-Conversation": name} for name in ("one", "two"))
    answers = (asks(), DONE, *[says("No idea.")] * 2, says("Bye."))
    async with talking(*answers, tools=ranch(tmp_path), **KEYS) as world:
        first = await world.chat(GO, headers=one)
        (waiting,) = await pending(world, **ANNA)
        await decided(world, waiting, "approve", key="anna", state="completed")
        said = answering(first, "And?")
        for headers in (two, ANNA):
            assert (await (world.stream if stream else world.chat)(said, headers=headers)).text == "No idea."
        own = await world.chat(said, headers=one)
        assert own.text.startswith(MEANWHILE) and own.text.endswith("Bye.") and born(tmp_path) == ["Di"]


async def test_repeated_request_after_cancellation_starts_a_new_run(tmp_path: Path) -> None:
    """A client that repeats its request is asked again."""
    async with talking(asks(), asks(), tools=ranch(tmp_path)) as world:
        (first,) = (await world.chat(GO)).asks
        assert (await world.post(b"", path=f"/context/runs/{first['run_id']}/cancel")).status == 200
        (second,) = (await world.chat(GO)).asks
        assert second["id"] != first["id"] and len(world.model.asked) == 2


async def test_different_idempotency_keys_share_one_pending_approval(tmp_path: Path) -> None:
    """Another one is another request; its call is the same, and so is the approval."""
    async with talking(asks(), asks(), DONE, tools=ranch(tmp_path)) as world:
        (first,) = (await world.chat(GO, headers={**TALK, "Idempotency-Key": "one"})).asks
        second = await world.chat(GO, headers={**TALK, "Idempotency-Key": "two"})
        assert second.json["context"]["approvals"] == [first] and len(world.model.asked) == 2
        assert "was requested before and is still pending" in second.text and line(first) in second.text


# The same call.


async def test_identical_calls_share_one_approval(tmp_path: Path) -> None:
    """An agent that asks in other words: one question, one effect, and each of its requests can be answered."""
    async with talking(asks(), asks(), asks(), DONE, tools=ranch(tmp_path)) as world:
        first = await world.chat(GO, headers=TALK)
        second = await world.stream("Once more: a dog is born.", headers=TALK)
        third = await world.chat("It was born, I said.", headers=TALK)
        (waiting,) = first.asks
        for text, context in ((second.text, second.frames[-1]["context"]), (third.text, third.json["context"])):
            assert text.startswith("The approval of this call was requested before") and line(waiting) in text
            assert (context["run_id"], context["approvals"]) == (waiting["run_id"], [waiting])
        assert await pending(world) == [waiting["id"]]
        approved = await world.chat(answering(third, line(waiting), question="It was born, I said."), headers=TALK)
        assert (approved.text, born(tmp_path)) == ("Di is here.", ["Di"])


async def test_repeat_of_a_request_that_joined_an_approval_gets_its_answer(tmp_path: Path) -> None:
    """It was the other request's call that ran."""
    async with talking(asks(), asks(), DONE, tools=ranch(tmp_path)) as world:
        (waiting,) = (await world.chat(GO, headers=TALK)).asks
        await world.chat("Once more.", headers=TALK)
        await world.decide(waiting["id"])
        await world.run(waiting["run_id"], state="completed")
        assert (await world.chat("Once more.", headers=TALK)).text == "Di is here." and born(tmp_path) == ["Di"]


@pytest.mark.parametrize("what", ["conversation", "caller", "arguments"])
async def test_different_calls_need_separate_approvals(tmp_path: Path, what: str) -> None:
    """Of another conversation, of another key, or with other arguments."""
    other = asks(birth("Ed")) if what == "arguments" else asks()
    async with talking(asks(), other, tools=ranch(tmp_path), **KEYS) as world:
        await world.chat(GO, headers={**ANNA, "X-Context-Conversation": "one"})
        headers = {**(AGENT if what == "caller" else ANNA), "X-Context-Conversation": "one"}
        if what == "conversation":
            headers["X-Context-Conversation"] = "two"
        await world.chat("Once more.", headers=headers)
        assert len(await pending(world, **ANNA)) == 2


async def test_answer_names_the_calls_left_out_of_a_shared_approval(tmp_path: Path) -> None:
    """What is not asked for is not lost without a word."""
    async with talking(asks(), asks(birth(), birth("Ed")), tools=ranch(tmp_path)) as world:
        (waiting,) = (await world.chat(GO, headers=TALK)).asks
        second = await world.chat("Once more, and Ed.", headers=TALK)
        assert "No approval was requested for its other calls (`execute_sql`)" in second.text
        assert await pending(world) == [waiting["id"]]
