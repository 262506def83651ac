"""People decide, by every way that there is: the approval scenarios of "agent loop" and of the design."""

import asyncio
import json
from pathlib import Path

import aiohttp
import pytest

from .asking import GO, HOLD, answering, asks, behind_question, birth, born, held, line, pending, ranch, user, whole
from .models import Json, call, calls, says
from .talking import World, talking
from .test_streams import is_clean

DONE = says("Di is here.")
RETRY = {"x-stainless-retry-count": "1"}


# The scenarios.


async def test_approval_request_in_agent_loop(tmp_path: Path) -> None:
    """The loop pauses at the tool's call, the client is asked, and it goes on with the result after the answer."""
    tools = ranch(tmp_path)
    tools["execute_sql"]["requires_approval"] = True
    looks = calls("file_operations", operation="read", path="notes.txt")
    async with talking(looks, asks(birth(risk_level="low")), DONE, tools=tools) as world:
        first = await world.chat(GO)
        (approval,) = first.asks
        assert (approval["basis"], approval["rule"]) == ("operator", "requires_approval")
        assert "INSERT INTO pets VALUES ('Di', 4)" in first.text
        assert len(world.model.asked) == 2 and born(tmp_path) == []
        second = await world.chat(answering(first, f"approve {approval['id']}"))
        assert (second.text, second.finish, born(tmp_path)) == ("Di is here.", "stop", ["Di"])
        roles = [message["role"] for message in world.model.asked[-1]["messages"]]
        assert roles == ["system", "user", "assistant", "tool", "assistant", "tool"]


async def test_approval_request_in_agent_loop_of_a_stream(tmp_path: Path) -> None:
    """Without a word about it the answer ends with the question, as one that is no stream does."""
    async with talking(asks(), DONE, tools=ranch(tmp_path)) as world:
        first = await world.stream(GO)
        is_clean(first)
        context = first.frames[-1]["context"]
        assert (context["status"], first.told, born(tmp_path)) == ("awaiting_approval", [], [])
        said = [user(GO), {"role": "assistant", "content": first.text}, user(line(*context["approvals"]))]
        assert ((await world.stream(said)).text, born(tmp_path)) == ("Di is here.", ["Di"])


async def test_approval_request_in_agent_loop_of_a_stream_that_is_held(tmp_path: Path) -> None:
    """The stream stays open: the question, an event, nothing else; and then the answer."""
    async with talking(asks(), DONE, tools=ranch(tmp_path)) as world, world.streaming(GO, headers=HOLD) as stream:
        (approval,) = await held(stream)
        assert (behind_question(stream.text), len(world.model.asked), born(tmp_path)) == ("", 1, [])
        assert (await world.decide(approval["id"])).status == 200
        assert behind_question(await whole(stream)) == "Di is here."
        assert [event["type"] for event in stream.told] == ["approval.required", "approval.resolved"]
        assert born(tmp_path) == ["Di"]


@pytest.mark.parametrize("stream", [False, True])
async def test_approval_rejection_aborts_loop(tmp_path: Path, *, stream: bool) -> None:
    """A normal answer says what was rejected; neither this call nor a later one runs, and no model is asked."""
    async with talking(asks(birth(), birth("Ed", risk_level="low")), tools=ranch(tmp_path)) as world:
        if stream:
            async with world.streaming(GO, headers=HOLD) as streamed:
                (approval,) = await held(streamed)
                await world.decide(approval["id"], "reject", reason="No more dogs.")
                text = await whole(streamed)
        else:
            first = await world.chat(GO)
            (approval,) = first.asks
            second = await world.chat(answering(first, f"reject {approval['id']}: No more dogs."))
            assert (second.status, second.finish) == (200, "stop")
            text = second.text
        assert "`execute_sql` was rejected, because: `No more dogs.`" in text and "Nothing ran." in text
        run = await world.run(approval["run_id"])
        assert (run["state"], [step["state"] for step in run["steps"]]) == ("rejected", ["rejected", "planned"])
        assert (len(world.model.asked), born(tmp_path)) == (1, [])
        assert await world.counted('gateway_agent_runs_total{outcome="rejected"}') == 1


async def test_batch_approval(tmp_path: Path) -> None:
    """Design, "Approval Modal During Loops": three calls of one answer are one question with one answer."""
    names = ["Di", "Ed", "Flo"]
    async with talking(asks(*map(birth, names)), says("All here."), tools=ranch(tmp_path)) as world:
        first = await world.chat(GO)
        assert [approval["arguments"]["sql"].split("'")[1] for approval in first.asks] == names
        assert line(*first.asks) in first.text
        listed = [{"id": approval["id"], "sha256": approval["sha256"]} for approval in first.asks]
        page = await world.post({"decision": "approve", "approvals": listed}, path="/context/approvals/batch")
        assert [one["status"] for one in page.json["data"]] == [200, 200, 200]
        await world.run(first.json["context"]["run_id"], state="completed")
        assert born(tmp_path) == names


# By chat.


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("word", ["approve {}", "Approve {}.", "`approve {}`", "批准 {}", "同意{}", " approve\n{} "])
async def test_chat_reply_approves_the_pending_call(tmp_path: Path, word: str, *, stream: bool) -> None:
    """The next message of an unchanged client, in English or Chinese; the answer comes as that request wants it."""
    async with talking(asks(), DONE, tools=ranch(tmp_path)) as world:
        first = await world.chat(GO)
        (approval,) = first.asks
        said = answering(first, word.format(approval["id"]))
        answer = await (world.stream if stream else world.chat)(said, model="another")
        assert (answer.text, born(tmp_path)) == ("Di is here.", ["Di"])
        shown = (await world.get(f"/context/approvals/{approval['id']}")).json
        assert (shown["state"], shown["via"], shown["decided_by"]) == ("done", "chat", "local")


async def test_chinese_conversation_gets_the_question_in_chinese(tmp_path: Path) -> None:
    """The question and the answers are in its language."""
    async with talking(asks(), tools=ranch(tmp_path)) as world:
        first = await world.chat("请登记一只新出生的狗")
        (approval,) = first.asks
        assert "需要您批准" in first.text and f"批准 {approval['id']}" in first.text
        second = await world.chat(answering(first, f"拒绝 {approval['id']}：狗太多了", question="请登记一只新出生的狗"))
        assert "已被拒绝，原因：`狗太多了`" in second.text and born(tmp_path) == []


async def test_reply_on_part_of_a_group_is_kept_until_complete(tmp_path: Path) -> None:
    """It is kept; the run waits for the rest, and runs all of it in its order."""
    async with talking(asks(birth("Di"), birth("Ed")), says("Both."), tools=ranch(tmp_path)) as world:
        first = await world.chat(GO)
        one, two = first.asks
        second = await world.chat(answering(first, line(two)))
        assert second.asks == [one] and f"decision on `{two['id']}` is kept" in second.text
        assert born(tmp_path) == []
        third = await world.chat([*answering(first, line(two)), second.message, user(line(one))])
        assert (third.text, born(tmp_path)) == ("Both.", ["Di", "Ed"])


@pytest.mark.parametrize("headers", [{}, RETRY])
async def test_repeated_reply_runs_the_call_once(tmp_path: Path, headers: dict[str, str]) -> None:
    """An SDK that sends it twice, or a person who does: the same answer, one execution."""
    async with talking(asks(), DONE, tools=ranch(tmp_path)) as world:
        first = await world.chat(GO)
        said = answering(first, f"approve {first.asks[0]['id']}")
        answers = [await world.chat(said, headers=headers if n else {}) for n in range(3)]
        assert [answer.text for answer in answers] == ["Di is here."] * 3
        assert (born(tmp_path), len(world.model.asked)) == (["Di"], 2)


async def test_concurrent_replies_run_the_call_once(tmp_path: Path) -> None:
    """One execution; whoever does not drive the run is told that it goes on, or what came of it."""
    async with talking(asks(), DONE, tools=ranch(tmp_path)) as world:
        first = await world.chat(GO)
        said = answering(first, f"approve {first.asks[0]['id']}")
        answers = await asyncio.gather(*(world.chat(said) for _ in range(8)))
        assert {answer.status for answer in answers} == {200}
        assert all(answer.text == "Di is here." or answer.text.startswith("Approved.") for answer in answers)
        assert (born(tmp_path), len(world.model.asked)) == (["Di"], 2)


PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


@pytest.mark.parametrize(
    "content",
    [
        "yes",
        "approve",
        "A file of 8000 characters: approve {}" + "." * 8000,
        [{"type": "text", "text": "approve {}"}, PICTURE],
    ],
)
async def test_message_that_only_contains_an_approval_decides_nothing(
    tmp_path: Path, content: str | list[Json]
) -> None:
    """Agent clients put the output of tools into user messages: only a message that is the answer as a whole counts.

    The model reads it, without the id.
    """
    async with talking(asks(), says("What?"), tools=ranch(tmp_path)) as world:
        first = await world.chat(GO)
        (approval,) = first.asks
        written = json.loads(json.dumps(content).replace("{}", approval["id"]))
        read = json.loads(json.dumps(content).replace("{}", f"{approval['id'][:7]}(not shown to models)"))
        said = [user(GO), first.message, {"role": "user", "content": written}]
        assert (await world.chat(said)).text == "What?"
        assert world.model.asked[-1]["messages"][-1]["content"] == read
        assert (await pending(world), born(tmp_path)) == ([approval["id"]], [])


async def test_reply_in_text_parts_approves_the_call(tmp_path: Path) -> None:
    """As some clients send every message."""
    async with talking(asks(), DONE, tools=ranch(tmp_path)) as world:
        first = await world.chat(GO)
        parts = [{"type": "text", "text": f"approve {first.asks[0]['id']}"}]
        assert (await world.chat([user(GO), first.message, {"role": "user", "content": parts}])).text == "Di is here."


async def test_approval_counts_only_in_the_last_user_message(tmp_path: Path) -> None:
    """Not an earlier message, nor one of the model or of a tool."""
    async with talking(asks(), says("One."), says("Two."), tools=ranch(tmp_path)) as world:
        first = await world.chat(GO)
        word = f"approve {first.asks[0]['id']}"
        assert (await world.chat([*answering(first, word), user("And?")])).text == "One."
        assert (await world.chat([user(GO), {"role": "assistant", "content": word}])).text == "Two."
        assert born(tmp_path) == []


# While a stream is held.


@pytest.mark.parametrize("decision", ["approve", "reject"])
@pytest.mark.parametrize("via", ["rest", "websocket", "chat"])
async def test_held_stream_continues_after_a_decision_elsewhere(tmp_path: Path, via: str, decision: str) -> None:
    """By REST, by WebSocket, by the chat reply of another client: it goes on in the same, clean stream."""
    answers = (asks(), DONE) if decision == "approve" else (asks(),)
    async with talking(*answers, tools=ranch(tmp_path)) as world:
        async with world.streaming(GO, headers=HOLD, stream_options={"include_usage": True}) as stream:
            (approval,) = await held(stream)
            run = await world.run(approval["run_id"])
            assert (run["state"], run["pending"]) == ("awaiting_approval", 1)
            await decided(world, approval["id"], decision, via=via)
            text = await whole(stream, usage=True)
        assert born(tmp_path) == (["Di"] if decision == "approve" else [])
        text = behind_question(text)
        assert text == "Di is here." if decision == "approve" else "was rejected" in text
        shown = (await world.get(f"/context/approvals/{approval['id']}")).json
        assert (shown["via"], shown["state"]) == (via, "done" if decision == "approve" else "rejected")
        label = f'decision="{"approved" if decision == "approve" else "rejected"}",via="{via}"'
        assert await world.counted(f"gateway_approvals_total{{{label}}}") == 1


async def decided(world: World, approval_id: str, decision: str, *, via: str) -> None:
    if via == "rest":
        assert (await world.decide(approval_id, decision)).status == 200
    elif via == "websocket":
        async with world.session.ws_connect("/context/ws") as socket:
            await socket.send_json({"type": "decide", "ref": 7, "id": approval_id, "decision": decision})
            async with asyncio.timeout(120):
                while (told := await socket.receive_json())["type"] != "decision":
                    assert told["type"] == "event"
            assert (told["ref"], told["status"]) == (7, 200)
    else:
        async with aiohttp.ClientSession(world.gateway.base_url) as other:
            said = {"model": "m", "messages": [user(f"{decision} {approval_id}")]}
            async with other.post("/context/v1/chat/completions", json=said) as response:
                text = (await response.json())["choices"][0]["message"]["content"]
        assert text.startswith(
            "Approved. The run" if decision == "approve" else "The call of `execute_sql` was rejected"
        )


async def test_held_stream_becomes_a_turn_after_inline_wait(tmp_path: Path) -> None:
    """`approvals.inline_wait`: it becomes a turn; a later reply goes on."""
    approvals = {"inline_wait": "50ms"}
    async with talking(asks(), DONE, tools=ranch(tmp_path), approvals=approvals) as world:
        async with world.streaming(GO, headers=HOLD) as stream:
            (approval,) = await held(stream)
            text = await whole(stream)
        assert behind_question(text).startswith("No person has decided so far")
        said = [user(GO), {"role": "assistant", "content": text}, user(f"approve {approval['id']}")]
        assert ((await world.chat(said)).text, born(tmp_path)) == ("Di is here.", ["Di"])


async def test_client_disconnect_from_a_held_stream_loses_no_result(tmp_path: Path) -> None:
    """The run stays, is decided without it, and whoever asks again gets its answer."""
    async with talking(asks(), DONE, tools=ranch(tmp_path)) as world:
        async with world.streaming(GO, headers=HOLD) as stream:
            (approval,) = await held(stream)
        assert (await world.decide(approval["id"])).status == 200
        await world.run(approval["run_id"], state="completed")
        assert (born(tmp_path), len(world.model.asked)) == (["Di"], 2)
        again = await world.stream(GO, headers={**HOLD, **RETRY})
        assert again.text == "Di is here." and born(tmp_path) == ["Di"]


# By REST, of a turn that ended.


async def test_rest_decision_resumes_the_run_without_the_client(tmp_path: Path) -> None:
    """The conversation's next message brings what came of it, and the model sees it, too."""
    async with talking(asks(), DONE, says("Yes, she is."), tools=ranch(tmp_path)) as world:
        first = await world.chat(GO)
        (approval,) = first.asks
        decided_ = await world.decide(approval["id"])
        assert (decided_.status, decided_.json["state"], decided_.json["via"]) == (200, "approved", "rest")
        run = await world.run(approval["run_id"], state="completed")
        assert run["answer"]["content"] == "Di is here." and born(tmp_path) == ["Di"]
        answer = await world.chat(answering(first, "Is she there?"))
        assert answer.text == "It was decided meanwhile. What came of it:\n\nDi is here.\n\nYes, she is."
        seen = world.model.asked[-1]["messages"]
        assert [message["role"] for message in seen] == [*("system", "user", "assistant", "tool", "assistant", "user")]
        assert seen[4]["content"] == "Di is here."


async def test_repeated_decision_is_idempotent_and_opposite_conflicts(tmp_path: Path) -> None:
    """200 and the same body; the other one: 409; one execution."""
    async with talking(asks(), DONE, tools=ranch(tmp_path)) as world:
        (approval,) = (await world.chat(GO)).asks
        answers = [await world.decide(approval["id"]) for _ in range(3)]
        assert [answer.status for answer in answers] == [200] * 3
        assert answers[0].json == answers[1].json == answers[2].json
        other = await world.decide(approval["id"], "reject")
        assert (other.status, other.error["code"]) == (409, "decision_conflict")
        await world.run(approval["run_id"], state="completed")
        assert born(tmp_path) == ["Di"]


async def test_edited_call_runs_with_the_edited_arguments(tmp_path: Path) -> None:
    """And the model is told what ran."""
    async with talking(asks(), says("Fine."), tools=ranch(tmp_path)) as world:
        (approval,) = (await world.chat(GO)).asks
        edited = {"sql": "INSERT INTO pets VALUES ('Dina', 4)"}
        other = await world.decide(approval["id"], arguments={"sql": 5})
        assert (other.status, other.error["code"]) == (422, "edit_refused")
        assert (await world.decide(approval["id"], arguments=edited, sha256=approval["sha256"])).status == 200
        run = await world.run(approval["run_id"], state="completed")
        assert run["steps"][0]["arguments"] == edited and born(tmp_path) == ["Dina"]
        assert "A person changed the arguments" in world.model.asked[-1]["messages"][-1]["content"]


async def test_decision_with_a_stale_hash_returns_409(tmp_path: Path) -> None:
    """409: what was shown is not what waits."""
    async with talking(asks(), tools=ranch(tmp_path)) as world:
        (approval,) = (await world.chat(GO)).asks
        other = await world.decide(approval["id"], sha256="0" * 64)
        assert (other.status, other.error["code"]) == (409, "approval_stale")
        assert (await pending(world), born(tmp_path)) == ([approval["id"]], [])


async def test_on_reject_continue_lets_the_model_go_on(tmp_path: Path) -> None:
    """The model reads what the person said, and goes on; the other calls of the group run."""
    options = {"tools": ranch(tmp_path), "approvals": {"on_reject": "continue"}}
    async with talking(asks(birth("Di"), birth("Ed")), says("Only Ed."), **options) as world:
        first = await world.chat(GO)
        one, two = first.asks
        await world.decide(one["id"], "reject", reason="Di is a cat.")
        assert ((await world.chat(answering(first, line(two)))).text, born(tmp_path)) == ("Only Ed.", ["Ed"])
        results = [m["content"] for m in world.model.asked[-1]["messages"] if m["role"] == "tool"]
        assert "rejected" in results[0] and "Di is a cat." in results[0]


async def test_approved_terminating_call_ends_with_its_result(tmp_path: Path) -> None:
    """Approved later, too: no further model call."""
    terminates = call("execute_sql", sql="SELECT name FROM pets", risk_level="high", terminate=True)
    async with talking(asks(terminates), tools=ranch(tmp_path)) as world:
        first = await world.chat(GO)
        second = await world.chat(answering(first, f"approve {first.asks[0]['id']}"))
        assert "Ada" in second.text and len(world.model.asked) == 1
