"""Thoughts of a model that a client keeps itself, because it lets nothing be stored."""

import pytest

from gateway.contracts.store import Json
from tests.e2e.models import native, says

from .answering import answering

INCLUDE = ["reasoning.encrypted_content"]
LOOK: Json = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}


@pytest.mark.parametrize("lost", ["nothing", "summary", "id"])
async def test_thoughts_come_back_with_the_client(lost: str) -> None:
    """As openai-agents, Codex and the AI SDK send them, whatever else they leave out."""
    thinks = native(("look", {}))
    thinks = thinks.but(pieces=({"reasoning_content": "It is "}, {"reasoning_content": "night."}, *thinks.pieces))
    async with answering(thinks, says("Dark.")) as client:
        events = await client.stream("How is it?", tools=[LOOK], store=False, include=INCLUDE)
        thought, call = events.last["output"]
        (done,) = (
            e["item"] for e in events.read if e["type"] == "response.output_item.done" and e["output_index"] == 0
        )
        assert done == thought and thought["encrypted_content"]
        added = next(e["item"] for e in events.read if e["type"] == "response.output_item.added")
        assert "encrypted_content" not in added, "it is not whole there"
        if lost == "summary":
            thought = {**thought, "summary": []}
        elif lost == "id":
            thought = {"type": "reasoning", "summary": [], "encrypted_content": thought["encrypted_content"]}
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": "dark"}
        history = [{"role": "user", "content": "How is it?"}, thought, call, output]
        again = await client.create(history, tools=[LOOK], store=False, include=INCLUDE)
        assert again.status == 200, again.json
        assert client.sent[1]["reasoning_content"] == "It is night."


async def test_a_client_that_does_not_ask_gets_none() -> None:
    """And thoughts that another server sealed are nothing to the model."""
    thinks = says({"reasoning_content": "Hm."}, "Hi.")
    async with answering(thinks, says("Again.")) as client:
        made = await client.create()
        assert made.json["output"][0].keys() == {"id", "type", "status", "summary"}
        foreign = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAAABo"}
        history = [{"role": "user", "content": "1"}, foreign, {"role": "assistant", "content": "One."}]
        again = await client.create([*history, {"role": "user", "content": "2"}], include=INCLUDE)
        assert again.status == 200 and "reasoning_content" not in client.sent[1]
