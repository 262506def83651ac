"""The scenarios of requirement "agent loop"; each test is named after its scenario."""

import asyncio
import json
from pathlib import Path

import pytest

from .models import Answer, Json, call, calls, native, says
from .talking import desk, talking

NOTES = "The safe is behind the mirror.\n"


def read(**options: object) -> Json:
    """A call that reads the notes."""
    return call("file_operations", operation="read", path="notes.txt", **options)


READ = says(json.dumps(read()))


async def test_valid_json_tool_call(tmp_path: Path) -> None:
    """The prompt asks for `tool`, `parameters`, `terminate`; an answer of that form runs the tool."""
    async with talking(READ, says("Behind the mirror."), tools=desk(tmp_path)) as world:
        answer = await world.chat("Where is the safe?")
        assert (answer.status, answer.text, answer.finish) == (200, "Behind the mirror.", "stop")
        for field in ('"tool"', '"parameters"', '"terminate"'):
            assert field in world.model.prompts[0]
        assert await world.counted('gateway_tool_calls_total{outcome="ok",tool="file_operations"}') == 1


async def test_termination_flag_controls_agent_loop(tmp_path: Path) -> None:
    """`terminate: false`: the result joins the history and the model goes on; the risk level never reaches the tool."""
    async with talking(READ, says("Done."), tools=desk(tmp_path)) as world:
        assert (await world.chat("Where is the safe?")).text == "Done."
        assert len(world.model.asked) == 2
        said, result = world.model.behind()
        (asked,) = said["tool_calls"]
        assert (said["role"], said["content"]) == ("assistant", None)
        assert asked["function"]["name"] == "file_operations"
        assert json.loads(asked["function"]["arguments"]) == {"operation": "read", "path": "notes.txt"}
        assert result == {
            "role": "tool",
            "tool_call_id": asked["id"],
            "name": "file_operations",
            "content": NOTES,
        }


@pytest.mark.parametrize("stream", [False, True])
async def test_termination_flag_stops_agent_loop(tmp_path: Path, *, stream: bool) -> None:
    """`terminate: true`: the tool's result is the answer, and the model is not asked again."""
    final = says(json.dumps(read(terminate=True)))
    async with talking(final, tools=desk(tmp_path)) as world:
        if stream:
            streamed = await world.stream("Show the notes.")
            assert (streamed.text, streamed.finishes) == (NOTES, ["stop"])
        else:
            answer = await world.chat("Show the notes.")
            assert (answer.text, answer.finish) == (NOTES, "stop")
        assert len(world.model.asked) == 1


async def test_tool_definition_includes_calling_convention(tmp_path: Path) -> None:
    """Name, description, parameters with type, required, description; the JSON format; what `terminate` does."""
    async with talking(says("Hi."), tools=desk(tmp_path)) as world:
        await world.chat()
        (prompt,) = world.model.prompts
        assert "<name>execute_sql</name>" in prompt
        assert "<description>Runs one SQL statement on the SQLite database" in prompt
        assert '<parameter name="sql" type="string" required="true">One statement' in prompt
        assert '<parameter name="risk_level" type="string" required="false">' in prompt
        assert 'Set "terminate" to true if this is your final action' in prompt
        assert prompt.index('"terminate": false') < prompt.index("<tool>")


async def test_tool_definitions_are_backend_managed(tmp_path: Path) -> None:
    """A client names a prompt and nothing else: the tools are put in here, and nowhere shown to it."""
    prompts = {"pirate": {"text": "Talk like a pirate."}}
    async with talking(says("Arr."), tools=desk(tmp_path), prompts=prompts) as world:
        answer = await world.chat(headers={"X-Context-Prompt": "pirate"})
        (prompt,) = world.model.prompts
        assert prompt.startswith("Talk like a pirate.") and "<name>file_operations</name>" in prompt
        assert "file_operations" not in json.dumps(answer.json)
        assert "tools" not in world.model.asked[0]
        assert (await world.get("/tools/available")).status == 404


@pytest.mark.parametrize("stream", [False, True])
async def test_multi_step_agent_execution(tmp_path: Path, *, stream: bool) -> None:
    """Results are appended, one round after the other, until the model answers in text."""
    rounds = (READ, calls("execute_sql", sql="SELECT name FROM pets WHERE legs = 4"), says("Ada guards the safe."))
    async with talking(*rounds, tools=desk(tmp_path)) as world:
        ask = world.stream if stream else world.chat
        assert (await ask("Who guards the safe?")).text == "Ada guards the safe."
        assert len(world.model.asked) == 3
        roles = [message["role"] for message in world.model.asked[-1]["messages"]]
        assert roles == ["system", "user", "assistant", "tool", "assistant", "tool"]
        assert "Ada" in world.model.behind()[-1]["content"]
        first, second, third = world.model.asked
        for before, after in ((first, second), (second, third)):
            assert after["messages"][: len(before["messages"])] == before["messages"]


async def test_multi_step_agent_execution_until_a_call_that_terminates(tmp_path: Path) -> None:
    """The loop also ends with a later call that says so."""
    last = calls("execute_sql", sql="SELECT count(*) AS n FROM pets", terminate=True)
    async with talking(READ, last, tools=desk(tmp_path)) as world:
        assert "3" in (await world.chat("How many pets?")).text
        assert len(world.model.asked) == 2


@pytest.mark.parametrize("stream", [False, True])
async def test_agent_loop_iteration_limit(tmp_path: Path, caplog: pytest.LogCaptureFixture, *, stream: bool) -> None:
    """After the last call the model may still answer; one more call ends the run with an error and a warning."""
    rounds = [calls("file_operations", operation="exists", path=f"{n}.txt") for n in range(4)]
    async with talking(*rounds, tools=desk(tmp_path), loop={"max_tool_calls": 3}) as world:
        if stream:
            streamed = await world.stream("Go on.")
            assert (streamed.finishes, streamed.events[-1].count(b"agent_iteration_limit")) == ([], 1)
            run_id = streamed.response.headers["X-Context-Run-Id"]
        else:
            answer = await world.chat("Go on.")
            assert (answer.status, answer.error["code"]) == (422, "agent_iteration_limit")
            run_id = answer.headers["x-request-id"]
        assert len(world.model.asked) == 4
        assert await world.counted('gateway_tool_calls_total{outcome="ok",tool="file_operations"}') == 3
        assert await world.counted('gateway_agent_runs_total{outcome="limit"}') == 1
        assert [r.levelname for r in caplog.records if run_id in r.getMessage()] == ["WARNING"]


async def test_agent_loop_iteration_limit_is_ten(tmp_path: Path) -> None:
    """Ten calls and an answer are fine without any setting."""
    rounds = [calls("file_operations", operation="exists", path=f"{n}.txt") for n in range(10)]
    async with talking(*rounds, says("Enough."), tools=desk(tmp_path)) as world:
        assert (await world.chat("Go on.")).text == "Enough."


@pytest.mark.parametrize("stream", [False, True])
async def test_agent_loop_timeout(*, stream: bool) -> None:
    """A run that takes too long is stopped, with an error; the model's connection is closed."""
    never = asyncio.Event()
    async with talking(says("Let me think", never), loop={"timeout": "200ms"}) as world:
        if stream:
            streamed = await world.stream()
            assert streamed.text == "Let me think"
            error = json.loads(streamed.events[-1])["error"]
        else:
            answer = await world.chat()
            assert answer.status == 504
            error = answer.error
        assert (error["code"], error["type"]) == ("agent_timeout", "server_error")
        assert "0.2 s" in error["message"]
        await world.model.upstream.wait_open(0)
        assert await world.counted('gateway_agent_runs_total{outcome="timeout"}') == 1


async def test_agent_loop_timeout_stops_a_tool(tmp_path: Path) -> None:
    """Also within a tool; as something has begun, the status is one that no client tries again."""
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    async with talking(calls("execute_sql", sql=endless), tools=desk(tmp_path), loop={"timeout": "200ms"}) as world:
        answer = await world.chat("Count.")
        assert (answer.status, answer.error["code"]) == (422, "agent_timeout")
        assert answer.headers["x-should-retry"] == "false"
        assert await world.counted('gateway_tool_calls_total{outcome="cancelled",tool="execute_sql"}') == 1


@pytest.mark.parametrize(
    "written",
    [
        "{call}",
        "```json\n{call}\n```",
        "I will look it up.\n\n```json\n{call}\n```\n",
        "First the notes: {call}",
        "<think>Shall I use {{}}?</think>\n{call}",
    ],
)
async def test_extract_json_from_llm_response(tmp_path: Path, written: str) -> None:
    """Alone, fenced, behind prose, behind thoughts: the object is found, and nothing of it is shown."""
    answer = says(written.format(call=json.dumps(read())))
    async with talking(answer, says("Done."), tools=desk(tmp_path)) as world:
        text = (await world.chat("Where is the safe?")).text
        assert world.model.behind()[-1]["content"] == NOTES
        assert text.endswith("Done.") and "file_operations" not in text


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"tool": "file_operations", "parameters": {}}, "'terminate'"),
        ({"tool": "file_operations", "terminate": False}, "'parameters'"),
        ({"tool": "file_operations", "parameters": {}, "terminate": "no"}, "'terminate'"),
        ({"tool": "file_operations", "parameters": [], "terminate": False}, "'parameters'"),
        ({"tool": 1, "parameters": {}, "terminate": False}, "'tool'"),
        ({"parameters": {}, "terminate": False}, "'tool'"),
    ],
)
async def test_extract_json_validates_the_required_fields(tmp_path: Path, wrong: Json, reason: str) -> None:
    """A field that is missing or of another type: the model is told which one, and nothing runs."""
    async with talking(says(json.dumps(wrong)), says("Sorry."), tools=desk(tmp_path)) as world:
        assert (await world.chat("Go.")).text == "Sorry."
        complaint = world.model.asked[-1]["messages"][-1]
        assert reason in complaint["content"]
        assert await world.counted('gateway_tool_calls_total{outcome="ok",tool="file_operations"}') == 0


ITS_OWN: Json = {"type": "function", "function": {"name": "its_own", "parameters": {"type": "object"}}}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "text",
    [
        '{"tool": "file_operations"}',
        '{"tool": "file_operations", "arguments": {"operation": "read", "path": "notes.txt"}}',
        '```json\n{"tool": "file_operations"}\n```',
        '{"tool": "its_own"}',
    ],
)
async def test_incomplete_tool_call_goes_back_to_the_model(tmp_path: Path, text: str, *, stream: bool) -> None:
    """The tool exists, the gateway's or the client's, and fields are missing: the client never sees the attempt."""
    async with talking(says(text), says("Sorry."), tools=desk(tmp_path)) as world:
        asking = world.stream if stream else world.chat
        assert (await asking("Go.", tools=[ITS_OWN])).text == "Sorry."
        complaint = world.model.asked[-1]["messages"][-1]
        assert complaint["role"] == "user" and "'parameters'" in complaint["content"]


BROKEN = '{"tool": "file_operations", "parameters": {"operation": "read", "path": "notes.txt"}, "terminate": fal'


async def test_handle_malformed_json(tmp_path: Path) -> None:
    """The model is told what is wrong and asked again; its broken answer is kept from history and client."""
    async with talking(says(BROKEN), READ, says("Found."), tools=desk(tmp_path)) as world:
        assert (await world.chat("Where is the safe?")).text == "Found."
        (complaint,) = world.model.asked[1]["messages"][1:]
        assert complaint["role"] == "user" and "not valid JSON" in complaint["content"]
        assert complaint["content"].startswith("Where is the safe?\n\n")
        assert '{"tool": "<name>", "parameters": {...}, "terminate": false}' in complaint["content"]
        assert "fal" not in complaint["content"].replace("false", "")
        assert [message["role"] for message in world.model.behind()] == ["assistant", "tool"]


@pytest.mark.parametrize("stream", [False, True])
async def test_handle_malformed_json_gives_up_after_three(tmp_path: Path, *, stream: bool) -> None:
    """The third unreadable answer in a row is the last."""
    async with talking(*[says(BROKEN)] * 3, tools=desk(tmp_path)) as world:
        if stream:
            streamed = await world.stream("Go.")
            assert (streamed.text, streamed.finishes) == ("", [])
            error = json.loads(streamed.events[-1])["error"]
        else:
            answer = await world.chat("Go.")
            assert answer.status == 422
            error = answer.error
        assert error["code"] == "agent_malformed_tool_call"
        assert len(world.model.asked) == 3
        assert await world.counted("gateway_agent_parse_failures_total") == 3


async def test_handle_malformed_json_counts_anew_after_a_valid_call(tmp_path: Path) -> None:
    """Only failures in a row count."""
    broken = says(BROKEN)
    async with talking(broken, broken, READ, broken, broken, says("Puh."), tools=desk(tmp_path)) as world:
        assert (await world.chat("Go.")).text == "Puh."


@pytest.mark.parametrize(
    "text",
    [
        "Behind the mirror.",
        'The format is `{"tool": "x", "parameters": {}, "terminate": false}`.',
        '{"tool": "hammer"}',
        "{} and [1, 2]",
        "",
    ],
)
async def test_handle_text_response(tmp_path: Path, text: str) -> None:
    """Without a tool call the text is the answer: no second request, no tool."""
    async with talking(says(text), tools=desk(tmp_path)) as world:
        answer = await world.chat("Where is the safe?")
        assert (answer.text, answer.finish) == (text, "stop")
        assert len(world.model.asked) == 1
        assert await world.counted('gateway_agent_run_steps_bucket{le="0.0"}') == 1


HELD = [
    pytest.param(READ, {"requires_approval": True}, id="the operator asks for it"),
    pytest.param(
        calls("file_operations", operation="read", path="notes.txt", risk_level="high"), {}, id="the model does"
    ),
    pytest.param(
        calls("file_operations", operation="write", path="new.txt", content="x", risk_level=None), {}, id="nobody knows"
    ),
]


@pytest.mark.parametrize(("asked", "tool"), HELD)
async def test_call_needing_approval_pauses_the_run(tmp_path: Path, asked: Answer, tool: Json) -> None:
    """The turn ends with the question; nothing ran, and the model is not asked again."""
    tools = desk(tmp_path, write=True)
    tools["file_operations"] |= tool
    async with talking(asked, tools=tools) as world:
        answer = await world.chat("Go.")
        (approval,) = answer.asks
        assert (approval["tool"], approval["state"]) == ("file_operations", "pending")
        assert f"approve {approval['id']}" in answer.text and approval["reason"] in answer.text
        assert len(world.model.asked) == 1
        assert await world.counted('gateway_tool_calls_total{outcome="ok",tool="file_operations"}') == 0
    assert sorted(path.name for path in (tmp_path / "work").iterdir()) == ["notes.txt"]


async def test_approved_terminating_call_returns_its_result(tmp_path: Path) -> None:
    """Not before it ran: the turn that waits shows nothing of it, the one that goes on is its result."""
    held = calls("file_operations", operation="read", path="notes.txt", risk_level="high", terminate=True)
    async with talking(held, tools=desk(tmp_path)) as world:
        first = await world.chat("Go.")
        (approval,) = first.asks
        assert NOTES not in first.text
        assert (await world.chat(f"approve {approval['id']}")).text == NOTES
        assert len(world.model.asked) == 1


async def test_native_tool_calls(tmp_path: Path) -> None:
    """`tool_format: native`: tools go out in the API's own field, and calls come back in it."""
    asked = native(("file_operations", {"operation": "read", "path": "notes.txt"}))
    async with talking(asked, says("Done."), tools=desk(tmp_path), loop={"tool_format": "native"}) as world:
        assert (await world.chat("Where is the safe?")).text == "Done."
        offered = {tool["function"]["name"]: tool["function"] for tool in world.model.asked[0]["tools"]}
        assert offered.keys() == {"file_operations", "execute_sql", "read_result"}
        assert offered["execute_sql"]["parameters"]["properties"]["risk_level"]["enum"] == ["low", "medium", "high"]
        said, result = world.model.behind()
        assert said["tool_calls"][0]["id"] == result["tool_call_id"] == "call_model_0"
        assert result["content"] == NOTES


async def test_hidden_tool_turns_are_restored_in_the_next_request(tmp_path: Path) -> None:
    """The model remembers what it did: calls and results stand before the answer that the client sends back."""
    async with talking(READ, says("Behind the mirror."), says("Yes."), tools=desk(tmp_path)) as world:
        ann = {"X-Context-User": "ann"}
        answer = await world.chat("Where is the safe?", headers=ann)
        hidden = world.model.behind()
        said = [{"role": "user", "content": "Where is the safe?"}, answer.message]
        await world.chat([*said, {"role": "user", "content": "Sure?"}], headers=ann)
        assert [message["role"] for message in hidden] == ["assistant", "tool"]
        assert world.model.asked[2]["messages"][1:] == [said[0], *hidden, said[1], {"role": "user", "content": "Sure?"}]


async def test_hidden_tool_turns_are_not_restored_in_another_conversation(tmp_path: Path) -> None:
    """A conversation that was edited is another one."""
    async with talking(READ, says("Behind the mirror."), says("Yes."), tools=desk(tmp_path)) as world:
        answer = await world.chat("Where is the safe?")
        said = [{"role": "user", "content": "Where is the key?"}, answer.message, {"role": "user", "content": "Sure?"}]
        await world.chat(said)
        assert world.model.asked[2]["messages"][1:] == said


@pytest.mark.parametrize("stream", [False, True])
async def test_text_of_each_round_begins_a_paragraph(tmp_path: Path, *, stream: bool) -> None:
    """What the model says before a call stays in the answer, apart from what it says after it."""
    looks = says("I will look.", json.dumps(read()))
    async with talking(looks, says("Behind ", "the mirror."), tools=desk(tmp_path)) as world:
        answer = await (world.stream if stream else world.chat)("Where is the safe?")
        assert answer.text == "I will look.\n\nBehind the mirror."
