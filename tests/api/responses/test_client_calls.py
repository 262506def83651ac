"""Calls of the client's own tools on their way from the model to the client: exactly what the model wrote, or none."""

import json
from dataclasses import replace

import pytest

from gateway.contracts.storage.store import Json
from tests.e2e.models import Answer, calls, native, says

from .answering import GATEWAY, answering, kinds, text_of

SHELL: Json = {"type": "shell"}
LOCAL_SHELL: Json = {"type": "local_shell"}
PATCH: Json = {"type": "apply_patch"}
SQL: Json = {"type": "custom", "name": "sql"}
LOOK: Json = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}
#: A chain without an agent loop.
CHAINS: Json = {"assistant": [{"use": "prompt_enhancer"}]}
#: What each tool cannot show, and an action that it can.
UNFIT = [
    (SHELL, "shell", {"command": "rm -rf /tmp/x"}, {"commands": ["ls"]}),
    (LOCAL_SHELL, "local_shell", {"command": ["ls"], "env": {"A": "b"}}, {"command": ["ls"]}),
    (PATCH, "apply_patch", {"path": "a"}, {"type": "delete_file", "path": "a"}),
    (PATCH, "apply_patch", {"type": "delete_everything", "path": "a"}, {"type": "delete_file", "path": "a"}),
    (PATCH, "apply_patch", {"type": "create_file", "path": "a"}, {"type": "create_file", "path": "a", "diff": "+x"}),
    (SQL, "sql", {"input": "SELECT 1", "timeout": 5}, {"input": "SELECT 1"}),
]


@pytest.mark.parametrize(("tool", "name", "unfit", "fits"), UNFIT)
@pytest.mark.parametrize("offers", [(), (GATEWAY,)])
async def test_invalid_client_call_is_returned_to_the_model(
    tool: Json, name: str, unfit: Json, fits: Json, offers: tuple[Json, ...]
) -> None:
    """The client gets the call that the model then makes, and nothing of the first one."""
    async with answering(native((name, unfit)), native((name, fits))) as client:
        answer = await client.create(tools=[tool, *offers])
        item = answer.json["output"][-1]
        assert item["type"] == ("custom_tool_call" if name == "sql" else f"{name}_call")
        shown = item.get("action") or item.get("operation") or {"input": item.get("input")}
        assert {key: shown[key] for key in fits} == fits
        assert sum(kind.endswith("_call") for kind in kinds(answer.json["output"])) == 1
        complaint = client.world.model.asked[-1]["messages"][-1]["content"]
        assert f"The arguments of '{name}' do not fit" in complaint


async def test_invalid_shell_call_in_text_is_returned_to_the_model() -> None:
    """Models without native calls write them so."""
    wrong = calls("shell", risk_level=None, command="ls")
    async with answering(wrong, calls("shell", risk_level=None, commands=["ls"])) as client:
        events = await client.stream(tools=[SHELL])
        (item,) = events.last["output"]
        assert (item["type"], item["action"]["commands"]) == ("shell_call", ["ls"])


async def test_group_with_one_invalid_call_is_sent_back_entirely() -> None:
    """Half of it is another action."""
    both = native(("look", {}), ("shell", {"cmd": "ls"}))
    async with answering(both, says("I give up.")) as client:
        answer = await client.create(tools=[SHELL, LOOK])
        assert kinds(answer.json["output"]) == ["message"] and text_of(answer.json) == "I give up."


@pytest.mark.parametrize("written", ['{"at":  1.50, "n": 1E5, "t": "\\u00e9"}', '{"z": 1, "a": 2}', "{ }"])
async def test_functions_get_their_arguments_byte_for_byte(written: str) -> None:
    """Numbers, blanks and escapes are as the model wrote them, in a stream, too."""
    async with answering(native(("look", written)), native(("look", written))) as client:
        answer = await client.create(tools=[LOOK, GATEWAY])
        assert answer.json["output"][-1]["arguments"] == written
        events = await client.stream(tools=[LOOK])
        assert events.last["output"][-1]["arguments"] == written


@pytest.mark.parametrize("written", ["", " \n\t"])
@pytest.mark.parametrize("chains", [None, CHAINS])
async def test_a_call_without_arguments_has_an_empty_object(written: str, chains: Json | None) -> None:
    """Clients read arguments as JSON, and so do model servers that get the call back; events and item agree."""
    settings = {} if chains is None else {"chains": chains}
    called = native(("look", written))
    async with answering(called, called, says("ok"), says("ok"), **settings) as client:
        answer = (await client.create(tools=[LOOK])).json
        events = await client.stream(tools=[LOOK])
        streamed = events.last["output"]
        assert [item["arguments"] for item in (*answer["output"], *streamed)] == ["{}", "{}"]
        deltas = [event["delta"] for event in events.read if event["type"].endswith("arguments.delta")]
        assert "".join(deltas) == "{}"
        for arguments in ("{}", written):
            call = {**streamed[0], "arguments": arguments}
            output = {"type": "function_call_output", "call_id": call["call_id"], "output": "x"}
            await client.create([call, output], tools=[LOOK])
            (sent,) = client.world.model.asked[-1]["messages"][-2]["tool_calls"]
            assert sent["function"]["arguments"] == "{}"


async def test_leading_whitespace_of_arguments_is_kept() -> None:
    """Also where they come in a piece of their own."""
    written = "   {}"
    async with answering(native(("look", written)), chains=CHAINS) as client:
        events = await client.stream(tools=[LOOK])
        deltas = [event["delta"] for event in events.read if event["type"].endswith("arguments.delta")]
        assert "".join(deltas) == events.last["output"][0]["arguments"] == written


async def test_invalid_shell_call_without_agent_loop_becomes_a_function_call() -> None:
    """No model can be asked again. Its client knows no function of this name, and runs nothing."""
    written = '{"command": "ls"}'
    async with answering(native(("shell", written)), says("ok"), chains=CHAINS) as client:
        first = await client.create(tools=[SHELL])
        (item,) = first.json["output"]
        assert (item["type"], item["name"], item["arguments"]) == ("function_call", "shell", written)
        output = {"type": "function_call_output", "call_id": item["call_id"], "output": "There is no such function."}
        second = await client.create([output], previous_response_id=first.json["id"], tools=[SHELL])
        assert text_of(second.json) == "ok"


def twice(name: str, *arguments: Json) -> Answer:
    """Calls that all have the same id, as llama.cpp and others give it."""
    pieces = [
        {"tool_calls": [{"index": i, "id": "call_same", "function": {"name": name, "arguments": json.dumps(one)}}]}
        for i, one in enumerate(arguments)
    ]
    return Answer(tuple(pieces), finish="tool_calls")


@pytest.mark.parametrize("chains", [None, CHAINS])
async def test_calls_with_duplicate_ids_get_distinct_ids(chains: Json | None) -> None:
    """The second has an id of its own, by which its model knows its output; with an agent loop or without."""
    settings = {} if chains is None else {"chains": chains}
    async with answering(twice("look", {"at": 1}, {"at": 2}), says("ok"), **settings) as client:
        events = await client.stream(tools=[LOOK])
        first, second = events.last["output"]
        assert [json.loads(item["arguments"]) for item in (first, second)] == [{"at": 1}, {"at": 2}]
        assert first["call_id"] == "call_same" != second["call_id"]
        outputs = [
            {"type": "function_call_output", "call_id": item["call_id"], "output": item["arguments"]}
            for item in (first, second)
        ]
        after = await client.create(outputs, previous_response_id=events.last["id"], tools=[LOOK])
        assert text_of(after.json) == "ok"
        ids = [call["id"] for message in client.sent for call in message.get("tool_calls", ())]
        assert ids == [first["call_id"], second["call_id"]]
        assert [message["tool_call_id"] for message in client.sent if message["role"] == "tool"] == ids


@pytest.mark.parametrize("offers", [(), (GATEWAY,)])
async def test_call_cut_by_the_token_limit_is_dropped(offers: tuple[Json, ...]) -> None:
    """The response is incomplete and says why, with the text so far; the model is asked once."""
    cut = replace(native(("look", '{"at": "Os'), text="I look."), finish="length")
    async with answering(cut, cut) as client:
        answer = await client.create(tools=[LOOK, *offers])
        events = await client.stream(tools=[LOOK, *offers])
        assert events.kinds[-1] == "response.incomplete"
        for response in (answer.json, events.last):
            assert (response["status"], text_of(response)) == ("incomplete", "I look.")
            assert response["incomplete_details"] == {"reason": "max_output_tokens"}
            assert not any(kind.endswith("_call") for kind in kinds(response["output"]))
        assert len(client.world.model.asked) == 2
