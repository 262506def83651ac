"""Steers of a response over a WebSocket, and lanes: each event as openai-python's models have it, where installed."""

import asyncio
import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.api.responses.socket import WAITING
from gateway.api.responses.steering import STEER_BYTES
from gateway.contracts.storage.store import Json
from tests.e2e.models import calls, says
from tests.e2e.talking import desk

from .answering import CONVERSATIONS, GATEWAY, answering, text_of
from .test_socket import Talk, assistant, talking, user

FUNCTION: Json = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}


def check_server_event(event: Json) -> None:
    """Check an event of a WebSocket: strictly, and without unknown fields."""
    if importlib.util.find_spec("openai") is None:
        return
    from openai.types.responses.responses_server_event import ResponsesServerEvent
    from pydantic import TypeAdapter

    TypeAdapter(ResponsesServerEvent).validate_python(event)


async def steer(talk: Talk, response_id: str, said: object, **fields: object) -> None:
    message = {"type": "response.steer", "previous_response_id": response_id, "input": said, **fields}
    await talk.socket.send_json(message)


async def heard(talk: Talk, kind: str) -> Json:
    """Read until an event of this type, and return it."""
    while (event := await talk.hear())["type"] != kind:
        check_server_event(event)
    check_server_event(event)
    return event


async def test_steer_is_accepted_and_begins_a_successor() -> None:
    """At once; the response ends as it would, and the next one goes on from it with the settings of the first."""
    gate = asyncio.Event()
    async with answering(says("one ", gate, "two"), says("three")) as client, talking(client) as talk:
        await talk.say("1", temperature=0.5, store=False)
        first = (await heard(talk, "response.created"))["response"]
        await heard(talk, "response.output_text.delta")
        await steer(talk, first["id"], "In French.")
        accepted = await heard(talk, "response.steer.accepted")
        assert accepted["steer"]["previous_response_id"] == first["id"] and accepted["sequence_number"] == 0
        gate.set()
        await heard(talk, "response.completed")
        second = (await heard(talk, "response.created"))["response"]
        assert second["previous_response_id"] == first["id"] and second["temperature"] == 0.5
        assert text_of((await heard(talk, "response.completed"))["response"]) == "three"
        assert client.sent == [user("1"), assistant("one two"), user("In French.")]


async def test_steers_of_one_response_keep_their_order() -> None:
    """As many as messages may wait are the input of one successor."""
    gate = asyncio.Event()
    async with answering(says("one", gate), says("two")) as client, talking(client) as talk:
        await talk.say("1")
        first = (await heard(talk, "response.created"))["response"]
        for number in range(WAITING):
            await steer(talk, first["id"], [user(str(number))])
            await heard(talk, "response.steer.accepted")
        gate.set()
        await heard(talk, "response.completed")
        await heard(talk, "response.completed")
        assert [one["content"] for one in client.sent if one["role"] == "user"][-1].endswith("3")
        assert len(client.world.model.asked) == 2


async def test_steer_waits_while_a_call_waits_for_approval(tmp_path: Path) -> None:
    """`pending` has the stub of the decision, and the words reach the model with the decision."""
    gate = asyncio.Event()
    write = calls("file_operations", risk_level="high", operation="write", path="new.txt", content="x")
    gated = replace(write, pieces=({"reasoning_content": "Hm"}, gate, *write.pieces))
    tools = desk(tmp_path, write=True)
    async with answering(gated, says("done"), tools=tools) as client, talking(client) as talk:
        await talk.say("Write it", tools=[GATEWAY])
        first = (await heard(talk, "response.created"))["response"]
        await steer(talk, first["id"], "Use capitals.")
        await heard(talk, "response.steer.accepted")
        gate.set()
        pending = await heard(talk, "response.steer.pending")
        (stub,) = pending["required_input"]
        assert stub["type"] == "mcp_approval_response" and pending["reason"] == "waiting_for_required_input"
        await talk.say([{**stub, "approve": True}], previous_response_id=first["id"], tools=[GATEWAY])
        assert text_of((await heard(talk, "response.completed"))["response"]) == "done"
        assert (tmp_path / "work" / "new.txt").exists()
        assert "Use capitals." in str(client.world.model.asked[-1]["messages"][-1])


async def test_steer_that_cannot_be_applied_returns_its_input() -> None:
    """With the code that its client knows; the WebSocket goes on."""
    gate = asyncio.Event()
    async with answering(says("one", gate)) as client, talking(client) as talk:
        await steer(talk, "resp_" + "0" * 24, "Hi")
        failed = await heard(talk, "response.steer.failed")
        assert failed["error"]["code"] == "response_not_found" and failed["steer"]["input"] == "Hi"
        await talk.say("1")
        first = (await heard(talk, "response.created"))["response"]
        for said in ("", [assistant("x")], [{"type": "item_reference", "id": "x"}], 7):
            await steer(talk, first["id"], said)
            assert (await heard_failure(talk))["error"]["code"] == "invalid_input"
        gate.set()
        await heard(talk, "response.completed")
        await steer(talk, first["id"], "Hi")
        assert (await heard(talk, "response.steer.failed"))["error"]["code"] == "response_already_completed"
        await talk.socket.send_json({"type": "response.steer", "input": "x" * STEER_BYTES})
        assert (await talk.hear())["error"]["param"] == "type"


async def heard_failure(talk: Talk) -> Json:
    """An event that may have no valid input, which models would refuse."""
    while (event := await talk.hear())["type"] != "response.steer.failed":
        pass
    return event


@pytest.mark.parametrize("field", ["conversation", "context_management"])
async def test_response_that_takes_no_steers_says_so(field: str) -> None:
    gate = asyncio.Event()
    async with answering(says("one", gate)) as client, talking(client) as talk:
        made = (await client.post({}, CONVERSATIONS)).json["id"]
        fields = {"conversation": made, "context_management": [{"type": "compaction", "compact_threshold": 9000}]}
        await talk.say("1", **{field: fields[field]})
        first = (await heard(talk, "response.created"))["response"]
        await steer(talk, first["id"], "Hi")
        assert (await heard(talk, "response.steer.failed"))["error"]["code"] == "steering_not_supported"
        gate.set()
        await heard(talk, "response.completed")


async def test_steer_of_another_socket_is_not_found() -> None:
    """Each WebSocket steers its own responses alone."""
    gate = asyncio.Event()
    async with answering(says("one", gate)) as client, talking(client) as talk, talking(client) as other:
        await talk.say("1")
        first = (await heard(talk, "response.created"))["response"]
        await steer(other, first["id"], "Hi")
        assert (await heard(other, "response.steer.failed"))["error"]["code"] == "response_not_found"
        gate.set()
        await heard(talk, "response.completed")
        assert len(client.world.model.asked) == 1


async def test_lane_is_on_each_event_of_its_response() -> None:
    """Also on errors; other responses have none."""
    async with answering(says("one"), says("two")) as client, talking(client) as talk:
        for lane in ("a", None):
            events = await talk.turn("1", **({} if lane is None else {"stream_id": lane}))
            assert {event.get("stream_id") for event in events} == {lane}
        (refused,) = await talk.turn("1", stream_id="a", top_p=7)
        assert refused["stream_id"] == "a" and refused["error"]["param"] == "top_p"
        for wrong in ("", 7, "x" * 65):
            assert (await talk.refusal("1", stream_id=wrong))["param"] == "stream_id"
