"""One turn calls a tool of ours, then one of the client's: what ours did is still there when the client comes back."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from .models import Json, call, calls, native, says
from .talking import World, desk, talking

#: What real clients sent behind a call of their own tool, as `python -m tests.clients.mixed` recorded it.
RECORDED: Json = json.loads((Path(__file__).parents[1] / "data" / "mixed_turns.json").read_text(encoding="utf-8"))
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


def shown(*messages: Json) -> list[str]:
    """Texts in front of what only a person sees: how to answer a question."""
    return [message["content"].partition("To answer")[0] for message in messages]


async def runs(world: World) -> float:
    """How often our tool ran."""
    return await world.counted('gateway_tool_calls_total{outcome="ok",tool="file_operations"}')


@pytest.mark.parametrize("rewrite", [plain, anew, with_defaults, as_text])
@pytest.mark.parametrize("native_call", [False, True])
@pytest.mark.parametrize("stream", [False, True])
async def test_gateway_tool_call_survives_the_client_tool_round(
    tmp_path: Path, rewrite: Callable[[Json], Json], *, native_call: bool, stream: bool
) -> None:
    """However the client writes what it sends back. An id that the model counts up is none's own: only its words."""
    if native_call and rewrite in (with_defaults, as_text):
        return
    named = {"X-Context-User": "ann"} if native_call else {}
    script = (NOTE, THEIRS_NATIVE if native_call else THEIRS, says("Sunny, noted."))
    async with talking(*script, tools=desk(tmp_path, write=True)) as world:
        if stream:
            streamed = await world.stream([ASKED], tools=[TOOL], headers=named)
            (delta,) = [delta for delta in streamed.deltas if "tool_calls" in delta]
            message: Json = {"role": "assistant", "content": None, "tool_calls": delta["tool_calls"]}
        else:
            message = (await world.chat([ASKED], tools=[TOOL], headers=named)).message
        again = [ASKED, rewrite(message), told(message)]
        assert (await world.chat(again, tools=[TOOL], headers=named)).text == "Sunny, noted."
        user, ours, result, *theirs = world.model.asked[-1]["messages"][1:]
        assert (user, theirs) == (ASKED, again[1:]) and await runs(world) == 1
        assert ours["tool_calls"][0]["function"]["name"] == "file_operations" and result["role"] == "tool"


def with_id(messages: list[Json], call_id: str) -> list[Json]:
    """A recording as it would be with the id that this gateway gave to the call."""
    found: list[Json] = json.loads(json.dumps(messages).replace(RECORDED["call_id"], call_id))
    return found


@pytest.mark.parametrize("prepared", ["as it came", "another beginning", "another result", "another id"])
@pytest.mark.parametrize("client", RECORDED["clients"])
async def test_history_sent_back_by_clients_runs_no_tool_again(tmp_path: Path, client: str, prepared: str) -> None:
    """In the same turn and in the next one, with the whole history; also by clients that change more than this one."""
    first, second, third = RECORDED["clients"][client]
    named = {"X-Context-Conversation": "talk"}
    theirs = says(json.dumps(call("get_weather", risk_level=None, **json.loads(RECORDED["arguments"]))))
    script = (NOTE, theirs, says(RECORDED["answer"]), says("Done."))
    async with talking(*script, tools=desk(tmp_path, write=True)) as world:
        asked = await world.chat(first, tools=[RECORDED["tool"]], headers=named)
        (call_,) = asked.message["tool_calls"]
        call_id = "call_9" if prepared == "another id" else call_["id"]
        again, later = with_id(second, call_id), with_id(third, call_id)
        if prepared == "another beginning":
            again = [{"role": "user", "content": "<context>Rain is wet.</context>" + again[0]["content"]}, *again[1:]]
        answer = await world.chat(again, tools=[RECORDED["tool"]], headers=named)
        assert answer.text == RECORDED["answer"]
        if prepared == "another result":
            (at,) = [i for i, message in enumerate(later) if message["role"] == "tool"]
            later[at]["content"] = "[cleared]"
        assert (await world.chat(later, tools=[RECORDED["tool"]], headers=named)).text == "Done."
        for sent, visible in ((world.model.asked[-2], again), (world.model.asked[-1], later)):
            messages = sent["messages"][1:]
            ours = [i for i, m in enumerate(messages) if m.get("tool_calls") and m["tool_calls"][0]["id"] != call_id]
            assert [*messages[:1], *messages[3:]] == visible and ours == [1] and messages[2]["role"] == "tool"
        assert await runs(world) == 1


async def test_open_webui_history_runs_no_tool_again(tmp_path: Path) -> None:
    """It rewrites the user's message with what it looked up, in the middle of a turn, and joins two answers to one."""
    tools = [{"type": "function", "function": {"name": f"tool_{n}", "parameters": {}}} for n in range(35)] + [TOOL]
    script = (NOTE, THEIRS, says("Sunny, noted."), says("Yes."))
    async with talking(*script, tools=desk(tmp_path, write=True)) as world:
        streamed = await world.stream([ASKED], tools=tools)
        (delta,) = [delta for delta in streamed.deltas if "tool_calls" in delta]
        (call_,) = [{k: v for k, v in c.items() if k != "index"} for c in delta["tool_calls"]]
        looked = {
            "role": "user",
            "content": f"### Task:\nRespond to the user query using the context.\n{ASKED['content']}",
        }
        result = {"role": "tool", "tool_call_id": call_["id"], "content": "Sunny"}
        asked = [looked, {"role": "assistant", "content": "", "tool_calls": [call_]}, result]
        assert (await world.stream(asked, tools=tools)).text == "Sunny, noted."
        assert [m["role"] for m in world.model.behind(0)] == ["user", "assistant", "tool", "assistant", "tool"]
        details = f'<details type="tool_calls" done="true" id="{call_["id"]}" name="get_weather">Sunny</details>'
        joined = {"role": "assistant", "content": f"{details}\nSunny, noted."}
        assert (await world.stream([ASKED, joined, {"role": "user", "content": "Sure?"}], tools=tools)).text == "Yes."
        assert [m["role"] for m in world.model.behind(0)] == ["user", "assistant", "tool", "assistant", "user"]
        assert await runs(world) == 1


async def test_approved_gateway_call_survives_the_client_tool_round(tmp_path: Path) -> None:
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
        assert [m["role"] for m in sent[:5]] == ["user", "assistant", "user", "assistant", "tool"]
        assert shown(*sent[:2]) == shown(*said[:2]) and sent[5:] == theirs and await runs(world) == 1
        assert sent[4]["role"] == "tool" and sent[4]["tool_call_id"] == sent[3]["tool_calls"][0]["id"]


async def test_decided_call_result_is_placed_in_the_history(tmp_path: Path) -> None:
    """Decided elsewhere: the model sees the call, the result and its answer, and no two answers in a row."""
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
        assert (await world.chat(said)).text.endswith("As I said.\n\nYes.")
        sent = world.model.behind(0)
        roles = ["user", "assistant", "tool", "assistant", "tool", "assistant", "user"]
        assert [message["role"] for message in sent] == roles
        assert [sent[5]["content"], sent[6]] == ["As I said.", said[2]]


async def test_hidden_turn_is_not_restored_in_another_conversation(tmp_path: Path) -> None:
    """The same words, in a conversation in which the client's call is another one."""
    async with talking(NOTE, THEIRS, says("I see."), tools=desk(tmp_path, write=True)) as world:
        message = (await world.chat([ASKED], tools=[TOOL])).message
        other = {**message, "tool_calls": [{**message["tool_calls"][0], "id": "call_000000000000000000000000"}]}
        other["tool_calls"][0]["function"] = {"name": "get_weather", "arguments": '{"city": "Lund"}'}
        said = [ASKED, other, told(other)]
        await world.chat(said, tools=[TOOL])
        assert world.model.asked[-1]["messages"][1:] == said
