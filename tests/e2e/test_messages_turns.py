"""Turns of Messages with tools of the gateway: hidden, shown, mixed with the client's, and waiting for a person."""

import json
import re
from pathlib import Path

import pytest

from .messaging import PATH, accumulate, build_request, read_events, send, stream
from .models import Answer, Json, call, calls, native, says
from .talking import World, desk, talking

FORMAT = "anthropic-claude-v1"
WEATHER: Json = {"name": "get_weather", "input_schema": {"type": "object"}}
READ = {"operation": "read", "path": "notes.txt"}
#: A call that a person has to approve.
WRITE = calls("file_operations", risk_level=None, operation="write", path="log.txt", content="x")
SECRET = "The safe is behind the mirror."
ANNA: Json = {"metadata": {"user_id": "anna"}}
OWN: Json = {"type": "url", "name": "gateway", "url": "gateway"}


def thinks(text: str, signature: str) -> tuple[Json, ...]:
    """A thought as a model of Messages has it: its text, beside it once more, then its signature."""
    place = {"type": "reasoning.text", "format": FORMAT, "index": 0}
    return (
        {"reasoning_content": text, "reasoning_details": [{**place, "text": text}]},
        {"reasoning_details": [{**place, "signature": signature}]},
    )


def brought(message: Json) -> Json:
    """An answer as its client sends it back."""
    return {"role": "assistant", "content": message["content"]}


def result_of(message: Json, text: str = "Sunny") -> Json:
    """The client's result of its call."""
    (use,) = [block for block in message["content"] if block["type"] == "tool_use"]
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use["id"], "content": text}]}


def decision(message: Json, word: str = "approve") -> str:
    """The line that a person sends back."""
    found = re.search(rf"{word} ap_\w+ \w+", message["content"][-1]["text"])
    assert found is not None
    return found[0]


async def runs(world: World) -> float:
    """How often our tool ran."""
    return await world.counted('gateway_tool_calls_total{outcome="ok",tool="file_operations"}')


async def test_thoughts_go_back_in_the_round_that_they_are_of(tmp_path: Path) -> None:
    """Byte for byte and once each, also those in front of a call that the client never saw."""
    first = Answer((*thinks("I read it.", "c2lnQQ=="), json.dumps(call("file_operations", **READ))))
    second = Answer((*thinks("Now I know.", "c2lnQg=="), "Behind the mirror."))
    async with talking(first, second, says("Yes."), tools=desk(tmp_path)) as world:
        answer = accumulate(await stream(world, "Where is it?", **ANNA))
        asked: Json = {"role": "user", "content": "Where is it?"}
        next_turn = [asked, brought(answer), {"role": "user", "content": "Really?"}]
        assert (await send(world, next_turn, **ANNA)).status == 200
        sent = world.model.asked[-1]["messages"][1:]
    assert answer["content"] == [
        {"type": "thinking", "thinking": "I read it.", "signature": "c2lnQQ=="},
        {"type": "thinking", "thinking": "Now I know.", "signature": "c2lnQg=="},
        {"type": "text", "text": "Behind the mirror."},
    ]
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "assistant", "user"]
    assert [one["signature"] for one in sent[1]["reasoning_details"]] == ["c2lnQQ=="]
    assert [one["signature"] for one in sent[3]["reasoning_details"]] == ["c2lnQg=="]
    assert SECRET in sent[2]["content"] and sent[3]["content"] == "Behind the mirror."


async def test_redacted_thoughts_go_back_byte_for_byte() -> None:
    """At their place of the answer."""
    detail = {"type": "reasoning.encrypted", "data": "RW1wdHk=", "format": FORMAT, "index": 0}
    script = Answer(({"reasoning_details": [detail]}, *thinks("Hm.", "c2ln"), "Hi."))
    async with talking(script, says("Yes.")) as world:
        answer = (await send(world)).json
        await send(world, [{"role": "user", "content": "Hello?"}, brought(answer), {"role": "user", "content": "So?"}])
        (sent,) = [message for message in world.model.asked[-1]["messages"] if message["role"] == "assistant"]
    assert [block["type"] for block in answer["content"]] == ["redacted_thinking", "thinking", "text"]
    assert [(one.get("data"), one.get("signature")) for one in sent["reasoning_details"]] == [
        ("RW1wdHk=", None),
        (None, "c2ln"),
    ]


async def test_fields_of_another_provider_survive_the_client() -> None:
    """A field without a block, such as Google's signature, is packed into one in front of the call."""
    function = {"name": "get_weather", "arguments": "{}"}
    extra = {"google": {"thought_signature": "c2ln"}}
    piece = {"index": 0, "id": "call_0", "type": "function", "function": function, "extra_content": extra}
    detail = {"type": "reasoning.encrypted", "data": "eA==", "format": "openai-responses-v1", "id": "rs_1", "index": 0}
    script = Answer(({"reasoning_details": [detail]}, {"tool_calls": [piece]}), finish="tool_calls")
    async with talking(script, says("Yes."), chains={"assistant": []}) as world:
        answer = (await send(world, tools=[WEATHER])).json
        turn = [{"role": "user", "content": "Hello?"}, brought(answer), result_of(answer)]
        await send(world, turn, tools=[WEATHER])
        (sent,) = [message for message in world.model.asked[-1]["messages"] if message["role"] == "assistant"]
    assert [block["type"] for block in answer["content"]] == ["redacted_thinking", "tool_use"]
    assert sent["tool_calls"][0]["extra_content"] == extra and sent["reasoning_details"] == [detail]


async def test_mixed_turn_is_one_turn(tmp_path: Path) -> None:
    """A tool of ours, then one of the client's: what ours did is there when the client comes back, and runs once."""
    theirs = native(("get_weather", '{"city": "Malmö"}'))
    async with talking(WRITE, theirs, says("Fine."), tools=desk(tmp_path, write=True)) as world:
        answer = accumulate(await stream(world, tools=[WEATHER], **ANNA))
        assert [block["type"] for block in answer["content"]] == ["text"]  # a write waits for a person
        asked: list[Json] = [{"role": "user", "content": "Hello?"}, brought(answer)]
        asked.append({"role": "user", "content": decision(answer)})
        used = accumulate(await stream(world, asked, tools=[WEATHER], **ANNA))
        assert used["stop_reason"] == "tool_use" and used["content"][-1]["input"] == {"city": "Malmö"}
        asked += [brought(used), result_of(used)]
        end = accumulate(await stream(world, asked, tools=[WEATHER], **ANNA))
        sent = world.model.asked[-1]["messages"]
        assert await runs(world) == 1
    assert end["content"] == [{"type": "text", "text": "Fine."}]
    assert sum("wrote 'log.txt'" in str(message["content"]) for message in sent) == 1
    assert sent[-1]["content"] == "Sunny"


async def test_named_tools_are_shown(tmp_path: Path) -> None:
    """Their calls and results are blocks, which the client sends back; nothing is there twice."""
    script = says("I look.", json.dumps(call("file_operations", **READ)))
    async with talking(script, says("Behind the mirror."), says("Yes."), tools=desk(tmp_path)) as world:
        toolset = {"type": "mcp_toolset", "mcp_server_name": "gateway", "configs": {"execute_sql": {"enabled": False}}}
        named: Json = {"mcp_servers": [OWN], "tools": [toolset]}
        answer = accumulate(await stream(world, "Where?", **named))
        prompt = world.model.asked[0]["messages"][0]["content"]
        turn: list[Json] = [{"role": "user", "content": "Where?"}, brought(answer), {"role": "user", "content": "So?"}]
        await send(world, turn, **named)
        sent = world.model.asked[-1]["messages"][1:]
    text, use, result, end = answer["content"]
    assert text == {"type": "text", "text": "I look."} and end["text"].strip() == "Behind the mirror."
    assert (use["type"], use["server_name"], use["name"]) == ("mcp_tool_use", "gateway", "file_operations")
    assert use["input"] == READ
    assert (result["type"], result["tool_use_id"], result["is_error"]) == ("mcp_tool_result", use["id"], False)
    assert SECRET in result["content"][0]["text"]
    assert "file_operations" in prompt and "execute_sql" not in prompt
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "assistant", "user"]
    assert json.loads(sent[1]["tool_calls"][0]["function"]["arguments"]) == READ


@pytest.mark.parametrize(
    ("servers", "place"),
    [
        ([{**OWN, "name": "unknown"}], "mcp_servers[0].name"),
        ([{**OWN, "url": "https://example.com/mcp"}], "mcp_servers[0].url"),
        ([{**OWN, "authorization_token": "secret"}], "mcp_servers[0].authorization_token"),
        ([OWN, OWN], "mcp_servers[1]"),
        ([{**OWN, "headers": {}}], "mcp_servers[0].headers"),
    ],
)
async def test_client_names_no_service_of_its_own(servers: list[Json], place: str) -> None:
    """The gateway connects to no address, and uses no token, that a request brings."""
    async with talking() as world:
        answer = await send(world, mcp_servers=servers)
    assert answer.status == 400 and place in answer.json["error"]["message"]
    assert "secret" not in json.dumps(answer.json)


@pytest.mark.parametrize("shown", [False, True])
@pytest.mark.parametrize("word", ["approve", "reject"])
async def test_question_ends_the_turn_as_text(word: str, *, shown: bool, tmp_path: Path) -> None:
    """The next message of the user decides, also where their program adds reminders and a system message."""
    named: Json = {"mcp_servers": [OWN]} if shown else {}
    async with talking(WRITE, says("Done."), says("Yes."), tools=desk(tmp_path, write=True)) as world:
        asked: list[Json] = [{"role": "user", "content": "Write it."}]
        question = accumulate(await stream(world, asked, **named, **ANNA))
        assert question["stop_reason"] == "end_turn" and await runs(world) == 0
        reminder = {"type": "text", "text": "<system-reminder>\nBe careful.\n</system-reminder>"}
        line = {"type": "text", "text": decision(question, word)}
        asked += [brought(question), {"role": "user", "content": [reminder, line]}]
        told = accumulate(
            await stream(world, [*asked, {"role": "system", "content": "Agents: none."}], **named, **ANNA)
        )
        assert await runs(world) == (word == "approve")
        kinds = [block["type"] for block in told["content"]]
        if shown:
            assert kinds[-3:] in (["mcp_tool_use", "mcp_tool_result", "text"], ["mcp_tool_result", "text"], kinds[-3:])
            assert "mcp_tool_result" in kinds
        else:
            assert kinds == ["text"]
        asked += [brought(told), {"role": "user", "content": "And now?"}]
        last = await send(world, asked, **named, **ANNA)
    assert last.status == 200, last.json


async def test_open_answer_waits_for_the_decision(tmp_path: Path) -> None:
    """With pings; the decision may come over REST."""
    async with talking(
        WRITE,
        says("Done."),
        tools=desk(tmp_path, write=True),
        context={"stream": {"keepalive": 0.05, "status_wait": 0.05}},
        approvals={"inline_wait": "5m"},
    ) as world:
        request = world.session.post(
            PATH, json=build_request("Write it.", stream=True), headers={"X-Context-Approvals": "hold"}
        )
        async with request as response:
            raw = b""
            while (found := re.search(rb"approve (ap_\w+)", raw)) is None:
                raw += await response.content.readuntil(b"\n\n")
            seen = raw.count(b"event: ping")
            while raw.count(b"event: ping") < seen + 2:
                raw += await response.content.readuntil(b"\n\n")
            assert (await world.decide(found[1].decode())).status == 200
            raw += await response.read()
    told = accumulate(read_events(raw.decode()))
    assert told["content"][-1]["text"].endswith("Done.")


async def test_program_texts_are_no_words_of_the_user(tmp_path: Path) -> None:
    """A version line and reminders start nothing, and the base prompt of the gateway counts."""
    reminder = {"type": "text", "text": "<system-reminder>\nremember that I like tea\n</system-reminder>"}
    async with talking(says("Hi."), tools=desk(tmp_path)) as world:
        answer = await send(
            world,
            [{"role": "user", "content": [reminder, {"type": "text", "text": "Hello?"}]}],
            system=[{"type": "text", "text": "x-anthropic-billing-header: cc_version=2; remember that I like tea"}],
            **ANNA,
        )
        memories = (await world.get("/context/memories?user=anna")).json["data"]
        (sent,) = world.model.asked
    assert answer.headers["X-Context-Intent"] == "normal" and memories == []
    assert "billing" not in json.dumps(sent) and "like tea" in json.dumps(sent["messages"][-1])


async def test_output_of_a_shell_leaves_no_memory(tmp_path: Path) -> None:
    """A program's message may be one text, and the user's words follow it in another one."""
    printed = "<bash-stdout>\nRemember that I like rain.\n</bash-stdout>"
    async with talking(says("Hm."), says("Noted."), tools=desk(tmp_path)) as world:
        first = await send(world, printed, **ANNA)
        messages = [{"role": "user", "content": printed}, {"role": "user", "content": "Remember that I like tea."}]
        second = await send(world, messages, **ANNA)
        memories = (await world.get("/context/memories?user=anna")).json["data"]
        (sent, _) = world.model.asked
    assert [one.headers["X-Context-Intent"] for one in (first, second)] == ["normal", "memory"]
    assert [memory["text"] for memory in memories] == ["I like tea"]
    assert "like rain" in json.dumps(sent["messages"][-1])


async def test_requests_of_claude_code_are_tasks() -> None:
    """The model alone answers them."""
    system = [
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=2;"},
        {"type": "text", "text": "You are Claude Code, Anthropic's official CLI for Claude."},
        {"type": "text", "text": "Generate a concise, sentence-case title (3-7 words) that captures the main topic"},
    ]
    async with talking(says("A title")) as world:
        answer = await send(world, "<session>\nremember that I like tea\n</session>", system=system)
    assert answer.headers["X-Context-Task"] == "title" and answer.json["content"][0]["text"] == "A title"
