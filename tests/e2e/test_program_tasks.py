"""What chat programs ask for by themselves quotes a chat, and none of what it quotes is obeyed."""

import json
from pathlib import Path

import pytest

from .models import Json, calls, says
from .talking import desk, talking

LINES = (Path(__file__).parents[1] / "data" / "program_tasks.jsonl").read_text(encoding="utf-8").splitlines()
TASKS: list[Json] = [case for case in map(json.loads, LINES) if case["task"]]
WRITE = calls("file_operations", operation="write", path="log.txt", content="x")
TITLE: Json = {"role": "system", "content": "You are a title generator. You output ONLY a thread title."}
FOUR = '{"title": "Bo"}'


async def test_program_task_request_triggers_no_tool_or_memory(tmp_path: Path) -> None:
    """No memory is kept or forgotten, no tool is offered or run, no base prompt is added: the model gets what came."""
    async with talking(says("Noted."), tools=desk(tmp_path, write=True)) as world:
        await world.chat("Remember that my cat is called Ada.")
        for case in TASKS:
            world.model.then(WRITE)  # as a model would that obeys what is quoted
            answer = await world.chat(case["messages"])
            assert json.loads(answer.text)["tool"] == "file_operations" and answer.finish == "stop"
            assert answer.headers["X-Context-Task"] == case["task"] and "X-Context-Intent" not in answer.headers
            assert world.model.asked[-1]["messages"] == case["messages"]
        world.model.then(says("Ada."))
        await world.chat("What do you remember about me?")
        assert "Ada" in world.model.prompts[-1] and "Bo" not in world.model.prompts[-1]
        assert await world.counted('gateway_tool_calls_total{outcome="ok",tool="file_operations"}') == 0
        assert (await world.get("/context/approvals")).json["data"] == []


async def test_program_task_stream_passes_through(tmp_path: Path) -> None:
    """The same, with the client's own tools as they came."""
    tool = {"type": "function", "function": {"name": "title", "parameters": {"type": "object"}}}
    async with talking(says('{"ti', 'tle": "Bo"}'), tools=desk(tmp_path)) as world:
        streamed = await world.stream(TASKS[0]["messages"], tools=[tool])
        assert (streamed.text, streamed.finishes) == (FOUR, ["stop"])
        assert streamed.response.headers["X-Context-Task"] == "title" and world.model.asked[0]["tools"] == [tool]


async def test_program_task_with_a_quoted_decision_decides_nothing(tmp_path: Path) -> None:
    """A program that wants a title for `approve ap_...` or for `/report` gets one, and the question stays open."""
    ask = calls("file_operations", risk_level=None, operation="write", path="log.txt", content="x")
    async with talking(ask, says("Bo"), tools=desk(tmp_path, write=True)) as world:
        asked = await world.chat("Write it down.")
        (approval,) = asked.asks
        decision = {"role": "user", "content": f"approve {approval['id']}"}
        assert (await world.chat([TITLE, decision])).text == "Bo"
        (pending,) = (await world.get("/context/approvals")).json["data"]
        assert pending["state"] == "pending"


async def test_guards_of_the_chain_see_a_task(tmp_path: Path) -> None:
    """It quotes the user's chat, and a client can call any request a task. Its answer is guarded, too."""
    stages = [{"use": "intent"}, {"use": "redact_pii"}, {"use": "memory"}, {"use": "agent_loop"}]
    said = [TITLE, {"role": "user", "content": "Remember: write to ada@example.com"}]
    async with talking(says("To b", "o@example.com"), chains={"assistant": stages}, tools=desk(tmp_path)) as world:
        explained = (await world.post({"messages": said}, path="/context/explain")).json
        answer = await world.chat(said)
        (sent,) = world.model.asked
    assert (answer.headers["X-Context-Task"], answer.text) == ("title", "To [EMAIL_2]")
    assert sent["messages"] == [TITLE, {"role": "user", "content": "Remember: write to [EMAIL_1]"}]
    assert (explained["stages"], explained["messages"]) == (["redact_pii"], sent["messages"])


async def test_task_header_overrides_task_detection(tmp_path: Path) -> None:
    """A word makes any request one; `none` makes it a user's own, and so does nothing where a program fills it in."""
    title = TASKS[0]["messages"]
    async with talking(says("1"), says("2"), says("3"), tools=desk(tmp_path)) as world:
        answer = await world.chat("Remember that I like tea.", headers={"X-Context-Task": "tags_generation"})
        assert answer.headers["X-Context-Task"] == "tags_generation" and len(world.model.asked[0]["messages"]) == 1
        answer = await world.chat(title, headers={"X-Context-Task": "none"})
        assert "X-Context-Task" not in answer.headers and "file_operations" in world.model.prompts[1]
        answer = await world.chat("Hello", headers={"X-Context-Task": ""})
        assert "X-Context-Task" not in answer.headers and "file_operations" in world.model.prompts[2]
        assert (await world.chat(title, headers={"X-Context-Task": "a b"})).error["param"] == "x-context-task"


@pytest.mark.parametrize("tasks", ["plain", "off"])
async def test_explain_reports_a_program_task(tmp_path: Path, tasks: str) -> None:
    """And that no stage sees it; `context.tasks: off` does not look for any."""
    body = {"model": "m", "messages": TASKS[0]["messages"]}
    async with talking(tools=desk(tmp_path), context={"tasks": tasks}) as world:
        told = (await world.post(body, path="/context/explain")).json
        if tasks == "plain":
            assert (told["task"], told["stages"], told["tools"], told["prompt"]) == ("title", [], [], None)
            assert told["messages"] == TASKS[0]["messages"]
        else:
            assert told["task"] is None and len(told["stages"]) == 4 and told["tools"]
