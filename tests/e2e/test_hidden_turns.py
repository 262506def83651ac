"""The work behind an answer comes back to the person and the conversation that it is of, and to no other one."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.api.responses.answering import CONVERSATIONS, Client, answering

from .models import Answer, Json, call, calls, says
from .talking import desk, talking

READ: Final = calls("file_operations", operation="read", path="notes.txt")
SECRET: Final = "The safe is behind the mirror."
HELLO: Final[Json] = {"role": "user", "content": "Hello"}
ANSWER: Final[Json] = {"role": "assistant", "content": "Done."}
NEXT: Final[Json] = {"role": "user", "content": "And now?"}
GIVEN: Final = (READ, says("Done."))


def headers(user: str | None = None, conversation: str | None = None) -> dict[str, str]:
    named = {"X-Context-User": user, "X-Context-Conversation": conversation}
    return {name: value for name, value in named.items() if value is not None}


#: Who asks, and who brings that answer back: whether the work behind it is there.
PEOPLE: Final = [
    (headers("anna", "a"), headers("anna", "a"), True),
    (headers("anna", "a"), headers("bob", "b"), False),
    (headers("anna", "a"), headers("bob", "a"), False),
    (headers("anna", "a"), headers("anna", "b"), False),
    (headers("anna", "a"), headers("anna"), False),
    (headers("anna", "a"), headers(conversation="a"), False),
    (headers("anna"), headers("anna"), True),
    (headers("anna"), headers("bob"), False),
    (headers("anna"), headers(), False),
    (headers(conversation="a"), headers(conversation="a"), True),
    (headers(conversation="a"), headers(conversation="b"), False),
    (headers(), headers("bob"), False),
    (headers(), headers(), False),
]


@pytest.mark.parametrize(("anna", "bob", "is_back"), PEOPLE)
@pytest.mark.parametrize("stream", [False, True])
async def test_hidden_turns_are_restored_only_for_their_own_user(
    tmp_path: Path, anna: Mapping[str, str], bob: Mapping[str, str], *, is_back: bool, stream: bool
) -> None:
    """One key, the same words, forged or met by chance."""
    async with talking(*GIVEN, says("Yes."), tools=desk(tmp_path)) as world:
        ask = world.stream if stream else world.chat
        assert (await ask([HELLO], headers=anna)).text == "Done."
        await ask([HELLO, ANSWER, NEXT], headers=bob)
        assert (SECRET in json.dumps(world.model.asked[-1])) is is_back


async def test_ambiguous_answer_restores_no_hidden_turns(tmp_path: Path) -> None:
    """Two turns of one person with the same words: neither is put back, whichever of them hid something."""
    for script in ((*GIVEN, says("Done.")), (says("Done."), *GIVEN), (*GIVEN, *GIVEN)):
        async with talking(*script, says("Yes."), tools=desk(tmp_path)) as world:
            for _ in range(2):
                assert (await world.chat([HELLO], headers=headers("anna"))).text == "Done."
            await world.chat([HELLO, ANSWER, NEXT], headers=headers("anna"))
            assert SECRET not in json.dumps(world.model.asked[-1])
            assert await world.counted('gateway_hidden_turns_total{outcome="ambiguous"}') == 1
        (tmp_path / "pets.db").unlink()


async def test_user_field_of_the_body_identifies_the_end_user(tmp_path: Path) -> None:
    """As LibreChat names them."""
    async with talking(*GIVEN, says("Yes."), says("Yes."), tools=desk(tmp_path)) as world:
        await world.chat([HELLO], user="anna")
        for user in ("anna", "bob"):
            await world.chat([HELLO, ANSWER, NEXT], user=user)
            assert (SECRET in json.dumps(world.model.asked[-1])) is (user == "anna")


THEIRS: Final = says(json.dumps(call("get_weather", risk_level=None)))
TOOL: Final[Json] = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}


@pytest.mark.parametrize(("anna", "bob", "is_back"), [(*people[:2], people[0] == people[1]) for people in PEOPLE])
async def test_call_id_restores_hidden_turns_only_for_its_own_user(
    tmp_path: Path, anna: Mapping[str, str], bob: Mapping[str, str], *, is_back: bool
) -> None:
    """Another one who learned it gets nothing. Where neither names a person or a conversation, the id is enough."""
    is_back = is_back or (anna == headers("anna", "a") and bob == headers("anna"))
    async with talking(READ, THEIRS, says("Yes."), tools=desk(tmp_path)) as world:
        message = (await world.chat([HELLO], headers=anna, tools=[TOOL])).message
        result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "Sunny"}
        await world.chat([{**HELLO, "content": "Summary."}, message, result], headers=bob, tools=[TOOL])
        assert (SECRET in json.dumps(world.model.asked[-1])) is is_back


async def test_a_random_id_of_the_model_is_replaced(tmp_path: Path) -> None:
    """A model server may give an id twice, so the gateway gives its own where it hides something."""
    theirs = {"id": "call_0a1b2c3d4e5f6a7b8c9d0e1f", "type": "function"}
    theirs["function"] = {"name": "get_weather", "arguments": "{}"}  # type: ignore[assignment]
    native = Answer(({"tool_calls": [{"index": 0, **theirs}]},), finish="tool_calls")
    async with talking(READ, native, native, tools=desk(tmp_path)) as world:
        ids = [(await world.chat([HELLO], tools=[TOOL])).message["tool_calls"][0]["id"] for _ in range(2)]
        assert ids[0].startswith("call_") and ids[0] != theirs["id"] == ids[1]


async def test_explain_reports_restored_hidden_turns(tmp_path: Path) -> None:
    """And why nothing is."""
    async with talking(*GIVEN, tools=desk(tmp_path)) as world:
        await world.chat([HELLO], headers=headers("anna"))
        content = {"messages": [HELLO, ANSWER, NEXT]}
        told = await world.post(content, path="/context/explain", headers=headers("anna"))
        assert told.json["remarks"] == ["hidden turns: 1 put back"]
        told = await world.post(content, path="/context/explain")
        assert "X-Context-User" in told.json["remarks"][1] and SECRET not in json.dumps(told.json)


# Responses.


async def goes_on(client: Client, made: Json, way: str, items: list[Json], **named: str) -> Json:
    """The next response, which goes on in this way."""
    before: Json = {}
    if way == "chain":
        before = {"previous_response_id": made["id"]}
    elif way == "conversation":
        before = {"conversation": made["conversation"]["id"]}
    elif way == "replayed":
        items = [HELLO, *made["output"], *items]
    return (await client.create(items, headers=named, **before)).json


@pytest.mark.parametrize("way", ["chain", "conversation", "replayed"])
@pytest.mark.parametrize("store", [True, False])
async def test_response_id_restores_the_hidden_turns_of_the_response(tmp_path: Path, way: str, *, store: bool) -> None:
    """Without a name, and where an equal answer was given to another one; nothing of that one is there."""
    if not store and way != "replayed":
        return
    other = calls("file_operations", operation="list", path=".")
    async with answering(*GIVEN, other, says("Done."), says("Yes."), says("Yes."), tools=desk(tmp_path)) as client:
        made = []
        for _ in range(2):
            before: Json = {}
            if way == "conversation":
                before = {"conversation": (await client.post({}, CONVERSATIONS)).json["id"]}
            made.append((await client.create("Hello", store=store, **before)).json)
        for response, is_anna in zip(made, (True, False), strict=True):
            await goes_on(client, response, way, [NEXT])
            sent = client.world.model.asked[-1]["messages"]
            assert [one["role"] for one in sent[1:]] == ["user", "assistant", "tool", "assistant", "user"]
            assert (SECRET in sent[3]["content"]) is is_anna


@pytest.mark.parametrize("way", ["chain", "replayed"])
async def test_response_id_restores_nothing_for_another_end_user(tmp_path: Path, way: str) -> None:
    """Another one who learned it gets nothing of the work behind it."""
    async with answering(*GIVEN, says("Yes."), tools=desk(tmp_path)) as client:
        made = (await client.create("Hello", headers=headers("anna"))).json
        await goes_on(client, made, way, [NEXT], **headers("bob"))
        assert SECRET not in json.dumps(client.world.model.asked[-1])
