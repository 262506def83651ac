"""One turn calls a tool of ours, then one of the client's: what ours did is still there when the client comes back."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from .models import Json, call, calls, native, says
from .talking import World, desk, talking

TOOL: Json = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}
ASKED: Json = {"role": "user", "content": "Note the weather."}
#: Ours, which changes something; then the client's, in both ways that a model may call it.
NOTE = calls("file_operations", operation="write", path="log.txt", content="x")
NOTE_OF_NO_RISK_SAID = calls("file_operations", risk_level=None, operation="write", path="log.txt", content="x")
THEIRS = says(json.dumps(call("get_weather", risk_level=None, city="Malmö", days=1)))
THEIRS_NATIVE = native(("get_weather", '{"city": "Malmö", "days": 1.0}'))


def told(message: Json, text: str = "Sunny") -> Json:
    """The client's result of its call."""
    return {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": text}


def plain(message: Json) -> Json:
    """The answer as it came."""
    return message


def anew(message: Json) -> Json:
    """The arguments in another spelling, as LangChain and programs in JavaScript write them."""
    (call_,) = message["tool_calls"]
    function = {**call_["function"], "arguments": json.dumps(json.loads(call_["function"]["arguments"]), indent=1)}
    return {"tool_calls": [{**call_, "function": function}], "role": "assistant", "content": "", "refusal": None}


def with_defaults(message: Json) -> Json:
    """The arguments with what a schema adds to them."""
    (call_,) = message["tool_calls"]
    arguments = {**json.loads(call_["function"]["arguments"]), "unit": "celsius"}
    function = {**call_["function"], "arguments": json.dumps(arguments)}
    return {**message, "tool_calls": [{**call_, "function": function}]}


def as_text(message: Json) -> Json:
    """As smolagents writes it."""
    return {"role": "assistant", "content": f"Calling tools:\n{message['tool_calls']}"}


async def runs(world: World) -> float:
    """How often our tool ran."""
    return await world.counted('gateway_tool_calls_total{outcome="ok",tool="file_operations"}')


@pytest.mark.parametrize("rewrite", [plain, anew, with_defaults, as_text])
@pytest.mark.parametrize("native_call", [False, True])
@pytest.mark.parametrize("stream", [False, True])
async def test_what_ours_did_is_still_there(
    tmp_path: Path, rewrite: Callable[[Json], Json], *, native_call: bool, stream: bool
) -> None:
    """However the client writes what it sends back. An id that the model counts up is nobody's own: only its words."""
    if native_call and rewrite in (with_defaults, as_text):
        return
    script = (NOTE, THEIRS_NATIVE if native_call else THEIRS, says("Sunny, noted."))
    async with talking(*script, tools=desk(tmp_path, write=True)) as world:
        if stream:
            streamed = await world.stream([ASKED], tools=[TOOL])
            (delta,) = [delta for delta in streamed.deltas if "tool_calls" in delta]
            message: Json = {"role": "assistant", "content": None, "tool_calls": delta["tool_calls"]}
        else:
            message = (await world.chat([ASKED], tools=[TOOL])).message
        again = [ASKED, rewrite(message), told(message)]
        assert (await world.chat(again, tools=[TOOL])).text == "Sunny, noted."
        user, ours, result, *theirs = world.model.asked[-1]["messages"][1:]
        assert (user, theirs) == (ASKED, again[1:]) and await runs(world) == 1
        assert ours["tool_calls"][0]["function"]["name"] == "file_operations" and result["role"] == "tool"


async def test_it_is_still_there_if_a_person_was_asked(tmp_path: Path) -> None:
    """The question is put once, the tool runs once, and the model sees all of it in its order."""
    script = (NOTE_OF_NO_RISK_SAID, THEIRS, says("Sunny, noted."))
    async with talking(*script, tools=desk(tmp_path, write=True)) as world:
        asked = await world.chat([ASKED], tools=[TOOL])
        (approval,) = asked.asks
        said = [ASKED, asked.message, {"role": "user", "content": f"approve {approval['id']}"}]
        answer = await world.chat(said, tools=[TOOL])
        assert answer.finish == "tool_calls"
        theirs = [answer.message, told(answer.message)]
        assert (await world.chat([*said, *theirs], tools=[TOOL])).text == "Sunny, noted."
        sent = world.model.asked[-1]["messages"][1:]
        assert [*sent[:3], *sent[5:]] == [*said, *theirs] and await runs(world) == 1
        assert sent[4]["role"] == "tool" and sent[4]["tool_call_id"] == sent[3]["tool_calls"][0]["id"]


async def test_what_came_of_a_question_stands_behind_it(tmp_path: Path) -> None:
    """Decided elsewhere: the model sees the question, the call, the result and its answer in this order."""
    read = calls("file_operations", operation="read", path="notes.txt")
    script = (read, NOTE_OF_NO_RISK_SAID, says("Noted."), says("As I said."), says("Yes."))
    async with talking(*script, tools=desk(tmp_path, write=True)) as world:
        asked = await world.chat([ASKED])
        said = [ASKED, asked.message, {"role": "user", "content": "And?"}]
        # Nobody decided yet: what was done before the question is there.
        assert (await world.chat(said)).text == "Noted."
        assert [m["role"] for m in world.model.behind(0)] == ["user", "assistant", "tool", "assistant", "user"]
        await world.decide(asked.asks[0]["id"])
        await world.run(asked.headers["X-Context-Run-Id"], state="completed")
        assert (await world.chat(said)).text == "Yes."
        sent = world.model.behind(0)
        roles = ["user", "assistant", "tool", "assistant", "assistant", "tool", "assistant", "user"]
        assert [message["role"] for message in sent] == roles
        assert [sent[3], sent[6]["content"], sent[7]] == [said[1], "As I said.", said[2]]


async def test_another_conversation_gets_nothing_of_it(tmp_path: Path) -> None:
    """The same words, in a conversation in which the client's call is another one."""
    async with talking(NOTE, THEIRS, says("I see."), tools=desk(tmp_path, write=True)) as world:
        message = (await world.chat([ASKED], tools=[TOOL])).message
        other = {**message, "tool_calls": [{**message["tool_calls"][0], "id": "call_000000000000000000000000"}]}
        other["tool_calls"][0]["function"] = {"name": "get_weather", "arguments": '{"city": "Lund"}'}
        said = [ASKED, other, told(other)]
        await world.chat(said, tools=[TOOL])
        assert world.model.asked[-1]["messages"][1:] == said
