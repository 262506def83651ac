"""Stages above `agent_loop` that look into answers: they see those behind a tool and behind a decision, too."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from gateways import until_read

from gateway.contracts.errors import GatewayError

from .asking import GO, HOLD, answering, asks, birth, born, held, line, pending, ranch, user
from .messaging import accumulate, send, stream
from .models import Answer, Json, calls, says
from .talking import World, talking

RULE: Json = {"use": "block_list", "with": {"phrases": {"projects": ["blue heron"]}}}
REDACT: Json = {"use": "redact_pii"}
BLOCKED = "This was blocked by a rule of the gateway: projects."
LEAK = says("The project is ", "Blue He", "ron, and more.")
CUT = f"The project is {BLOCKED}"
LOOK = calls("execute_sql", sql="SELECT name FROM pets")
RESPONSES = "/context/v1/responses"
GATEWAY: Json = {"type": "mcp", "server_label": "gateway"}


@asynccontextmanager
async def guarded(tmp_path: Path, *answers: Answer, guard: Json = RULE, **settings: Any) -> AsyncIterator[World]:
    chains = {"assistant": [{"use": "intent"}, guard, {"use": "prompt_enhancer"}, {"use": "agent_loop"}]}
    async with talking(*answers, tools=ranch(tmp_path), chains=chains, **settings) as world:
        yield world


async def test_guard_stage_ends_an_answer_after_a_tool_normally(tmp_path: Path) -> None:
    """With the words of the stage and no failure of the gateway; the run is over, and its model is left."""
    async with guarded(tmp_path, LOOK, LEAK, LOOK, LEAK) as world:
        answer = await world.chat("Which pets?")
        assert (answer.status, answer.text, answer.finish) == (200, CUT, "content_filter")
        stream = await world.stream("Which pets are there?")
        assert (stream.text, stream.finishes) == (CUT, ["content_filter"])
        run = await world.run(answer.headers["X-Context-Run-Id"])
        assert (run["state"], run["error"]) == ("completed", None)
        assert "Traceback" not in world.gateway.get_log()


@pytest.mark.parametrize("guard", [RULE, {"use": "redact_pii"}])
async def test_guard_stage_reads_the_documents_of_messages(tmp_path: Path, guard: Json) -> None:
    """A plain text is a document there, in a message and in a result of the client's tool."""
    text = "Blue heron, anna@example.com"
    document = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": text}}
    use = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [document]}
    answers = [] if guard is RULE else [says("Fine.")] * 3
    async with guarded(tmp_path, *answers, guard=guard) as world:
        for said in ([document], [{"type": "text", "text": "Look."}, document]):
            await send(world, [{"role": "user", "content": said}])
        history: list[Json] = [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
        last = await send(world, [{"role": "user", "content": "Look."}, *history])
        asked = str(world.model.asked)
    assert "anna@" not in asked and ("EMAIL" in asked) == (guard is not RULE)
    assert (BLOCKED in str(last.json)) == (guard is RULE)


async def test_guard_stage_reads_thoughts_that_come_in_pieces(tmp_path: Path) -> None:
    """In the field that clients show, and in the one that goes back; a changed thought has no signature any more."""
    about = {"type": "reasoning.text", "format": "anthropic-claude-v1", "index": 0}
    pieces = ("I write to anna@exa", "mple.com", " now.")
    thought = [{"reasoning_content": text, "reasoning_details": [{**about, "text": text}]} for text in pieces]
    signed = {"reasoning_details": [{**about, "signature": "c2ln"}]}
    async with guarded(tmp_path, Answer((*thought, signed, "Done.")), guard=REDACT) as world:
        message = accumulate(await stream(world, "Write."))
    shown = {"type": "thinking", "thinking": "I write to [EMAIL_1] now.", "signature": ""}
    assert message["content"] == [shown, {"type": "text", "text": "Done."}]


async def test_blocked_question_creates_no_approval(tmp_path: Path) -> None:
    """A person would not see the call."""
    async with guarded(tmp_path, asks(birth("Blue Heron"))) as world:
        answer = await world.chat(GO)
        assert (answer.status, answer.finish) == (200, "content_filter") and "Heron" not in answer.text
        assert (await pending(world), born(tmp_path)) == ([], [])


@pytest.mark.parametrize("stream", [False, True])
async def test_blocked_call_is_hidden_from_the_response(stream: bool, tmp_path: Path) -> None:
    """Its arguments, and its result: in items, as in the text of a question."""
    look = calls("execute_sql", sql="SELECT replace('Blue-Xeron', '-X', ' H')")
    for number, answers in enumerate([(asks(birth("Blue Heron")),), (look, says("Done."))]):
        folder = tmp_path / str(number)
        folder.mkdir()
        async with guarded(folder, *answers) as world:
            body = {"model": "m", "input": GO, "tools": [GATEWAY], "stream": stream}
            async with world.session.post(RESPONSES, json=body) as answered:
                told = await answered.text()
            assert "Heron" not in told and BLOCKED in told and "content_filter" in told


async def test_blocked_call_is_hidden_from_progress_events(tmp_path: Path) -> None:
    """A client that asked for progress events gets the same as one that did not."""
    async with guarded(tmp_path, calls("execute_sql", sql="SELECT 'Blue Heron'"), says("Done.")) as world:
        stream = await world.stream(GO, headers={"X-Context-Events": "1"})
        assert b"Heron" not in b"".join(stream.events)


@pytest.mark.parametrize("stream", [False, True])
async def test_answer_after_a_decision_is_blocked(stream: bool, tmp_path: Path) -> None:
    """Also where it is asked for again, in any way."""
    async with guarded(tmp_path, asks(), LEAK) as world:
        first = await world.chat(GO)
        said = answering(first, line(*first.asks))
        if stream:
            streamed = await world.stream(said)
            assert (streamed.text, streamed.finishes) == (CUT, ["content_filter"])
        else:
            second = await world.chat(said)
            assert (second.status, second.text, second.finish) == (200, CUT, "content_filter")
        again = await world.chat(said)
        assert (again.text, again.finish, born(tmp_path)) == (CUT, "content_filter", ["Di"])
        assert len(world.model.asked) == 2


async def test_answer_of_a_run_decided_elsewhere_is_blocked(tmp_path: Path) -> None:
    """The next request brings it, and a repeated one gets it."""
    async with guarded(tmp_path, asks(), LEAK, asks(), LEAK, says("I see.")) as world:
        first = await world.chat(GO)
        (approval,) = first.asks
        assert (await world.decide(approval["id"])).status == 200
        await world.run(approval["run_id"], state="completed")
        again = await world.chat(GO)
        assert (again.text, again.finish) == (CUT, "content_filter")
        named = {"headers": {"X-Context-User": "anna"}}
        other = await world.chat("Another dog.", **named)
        (approval,) = other.asks
        assert (await world.decide(approval["id"])).status == 200
        await world.run(approval["run_id"], state="completed")
        brought = await world.chat(answering(other, "And now?", question="Another dog."), **named)
        assert "The project is" in brought.text and "Heron" not in brought.text


@pytest.mark.parametrize("more", [{}, {"stream": True}, {"background": True}], ids=["whole", "stream", "background"])
async def test_response_after_a_decision_is_blocked(more: Json, tmp_path: Path) -> None:
    """As it is told, as it is stored, and as it is told again."""
    async with guarded(tmp_path, asks(), LEAK) as world:
        first = (await world.post({"model": "m", "input": GO, "tools": [GATEWAY]}, path=RESPONSES)).json
        question = first["output"][-1]
        decision = {"type": "mcp_approval_response", "approval_request_id": question["id"], "approve": True}
        body = {"model": "m", "previous_response_id": first["id"], "input": [decision], "tools": [GATEWAY]}
        for _ in range(2):
            async with world.session.post(RESPONSES, json={**body, **more}) as answered:
                told = await answered.text()
            assert "Heron" not in told
            (response_id,) = set(re.findall(r"resp_\w+", told)) - {first["id"]}
            read = partial(world.get, f"{RESPONSES}/{response_id}")
            stored = await until_read(read, lambda found: found.json["status"] != "in_progress")
            assert stored.json["output"][-1]["content"][0]["text"] == CUT
            assert (stored.json["status"], stored.json["incomplete_details"]) == (
                "incomplete",
                {"reason": "content_filter"},
            )
        assert born(tmp_path) == ["Di"]


async def test_answer_in_a_waiting_stream_is_blocked(tmp_path: Path) -> None:
    """Behind the decision, in the stream that waited."""
    async with guarded(tmp_path, asks(), LEAK) as world, world.streaming(GO, headers=HOLD) as stream:
        (approval,) = await held(stream)
        await world.decide(approval["id"])
        await stream.rest()
        assert stream.text.endswith(BLOCKED) and "Heron" not in stream.text
        assert stream.finishes == ["content_filter"]


async def test_personal_data_after_a_decision_gets_placeholders(tmp_path: Path) -> None:
    """Other ones than those of the request, which are not put back."""
    answers = (asks(), says("Write to ", "[EMAIL_1] and bo@exa", "mple.com."))
    settings = {"guard": {**REDACT, "with": {"restore": True}}}
    async with guarded(tmp_path, *answers, **settings) as world:
        question = f"{GO} Tell ann@example.com."
        first = await world.chat(question)
        (approval,) = first.asks
        said = [user(question), first.message, user(line(approval))]
        assert (await world.chat(said)).text == "Write to [EMAIL_1] and [EMAIL_2]."
        assert (await world.chat(said)).text == "Write to [EMAIL_1] and [EMAIL_2]."


async def test_blocking_rule_error_applies_after_an_approval(tmp_path: Path) -> None:
    """Of the first request, of one that repeats it, and of a response whose worker was gone: with what came before."""
    guard = {**RULE, "with": {**RULE["with"], "on_block": "error"}}
    async with guarded(tmp_path, asks(), LEAK, guard=guard) as world:
        first = await world.chat(GO)
        said = answering(first, line(*first.asks))
        for _ in range(2):
            answer = await world.chat(said)
            assert answer.error["code"] == "content_blocked" and answer.status in (400, 422)
        run = await world.gateway.gateway._shared.store.run(first.asks[0]["run_id"], tenant="local")
        chunks, error = await world.gateway.gateway._built.resumption.load_answer(run, shows_calls=True, decided=())
        assert isinstance(error, GatewayError) and error.code == "content_blocked"
        assert "Heron" not in str(chunks) and len(world.model.asked) == 2
