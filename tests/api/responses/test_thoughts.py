"""Items that a model must see again: thoughts that a client keeps itself, and fields that only a provider reads."""

import pytest

from gateway.contracts.storage.store import Json
from tests.e2e.models import Answer, native, says

from .answering import GATEWAY, answering, kinds, text_of

INCLUDE = ["reasoning.encrypted_content"]
LOOK: Json = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}


@pytest.mark.parametrize("lost", ["nothing", "summary", "id"])
async def test_reasoning_returned_by_the_client_reaches_the_model(lost: str) -> None:
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


async def test_reasoning_is_omitted_unless_included() -> None:
    """And thoughts that another server sealed are nothing to the model."""
    thinks = says({"reasoning_content": "Hm."}, "Hi.")
    async with answering(thinks, says("Again.")) as client:
        made = await client.create()
        assert made.json["output"][0].keys() == {"id", "type", "status", "summary"}
        foreign = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAAABo"}
        history = [{"role": "user", "content": "1"}, foreign, {"role": "assistant", "content": "One."}]
        again = await client.create([*history, {"role": "user", "content": "2"}], include=INCLUDE)
        assert again.status == 200 and "reasoning_content" not in client.sent[1]


#: As Gemini signs a call, and OpenRouter a thought; a signature may come in pieces, and behind the call.
SIGNED: Json = {"google": {"thought_signature": "c2lnbmVk"}}
DETAILS: Json = {"reasoning_details": [{"type": "reasoning.text", "text": "Hm.", "signature": "sig", "index": 0}]}
CHAINS: Json = {"assistant": [{"use": "prompt_enhancer"}]}


def signed(*, late: bool = False) -> Answer:
    """Two calls, of which one is signed, behind a thought with details."""
    first, begun, ended, *rest = native(("look", {"at": 1}), ("look", {"at": 2})).pieces
    assert isinstance(first, dict) and isinstance(ended, dict)
    (ended if late else first)["tool_calls"][0]["extra_content"] = SIGNED
    thought = {"reasoning": "Hm.", "reasoning_details": [{"type": "reasoning.text", "text": "Hm.", "index": 0}]}
    end = {"reasoning_details": [{"type": "reasoning.text", "signature": "sig", "index": 0}]}
    return Answer((thought, end, first, begun, ended, *rest), finish="tool_calls")


@pytest.mark.parametrize("chains", [None, CHAINS])
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("way", ["previous_response_id", "input", "conversation"])
async def test_provider_fields_return_to_the_provider(chains: Json | None, late: bool, way: str) -> None:
    """Without them Gemini refuses the turn after a call. Stored, or kept by the client."""
    settings = {} if chains is None else {"chains": chains}
    async with answering(signed(late=late), says("ok"), **settings) as client:
        stored = way != "input"
        fields: Json = {"tools": [LOOK]} if stored else {"tools": [LOOK], "store": False, "include": INCLUDE}
        if way == "conversation":
            made = await client.post({}, "/context/v1/conversations")
            fields["conversation"] = made.json["id"]
        events = await client.stream("How is it?", **fields)
        items = events.last["output"]
        calls = [item for item in items if item["type"] == "function_call"]
        outputs = [{"type": "function_call_output", "call_id": call["call_id"], "output": "dark"} for call in calls]
        if way == "previous_response_id":
            fields["previous_response_id"] = events.last["id"]
        history = outputs if stored else [{"role": "user", "content": "How is it?"}, *items, *outputs]
        again = await client.create(history, **fields)
        assert text_of(again.json) == "ok", again.json
        (message,) = [one for one in client.sent if one["role"] == "assistant"]
        assert message["reasoning_content"] == "Hm." and message["reasoning_details"] == DETAILS["reasoning_details"]
        first, second = message["tool_calls"]
        assert first["extra_content"] == SIGNED and "extra_content" not in second


async def test_provider_fields_without_reasoning_get_their_own_item() -> None:
    """In front of the call, and of a text and a call of the gateway, too."""
    sealed = {"reasoning_details": [{"type": "reasoning.encrypted", "data": "c2VhbGVk"}]}
    answer = native(("look", {"at": 1}), text="Let me see.")
    answer = answer.but(pieces=(sealed, *answer.pieces))
    async with answering(answer, says("ok")) as client:
        first = await client.create(tools=[LOOK, GATEWAY])
        thought, message, call = [item for item in first.json["output"] if item["type"] != "mcp_list_tools"]
        assert thought["summary"] == [] and thought["encrypted_content"]
        assert kinds([message, call]) == ["message", "function_call"]
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": "dark"}
        await client.create([output], previous_response_id=first.json["id"], tools=[LOOK, GATEWAY])
        (message,) = [one for one in client.sent if one["role"] == "assistant"]
        assert message["content"] == "Let me see." and message["reasoning_details"] == sealed["reasoning_details"]


async def test_text_message_stays_the_last_output_item() -> None:
    """Clients read it there, so fields behind it are left out."""
    async with answering(says("Hi.", {"extra_content": SIGNED})) as client:
        assert kinds((await client.create()).json["output"]) == ["message"]
