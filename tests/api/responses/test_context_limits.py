"""The bounds of a request together with the history that it goes on from."""

import pytest

from gateway.contracts.storage.store import Json
from tests.e2e.models import says

from .answering import CONVERSATIONS, Client, answering, text_of
from .test_socket import talking

#: Messages of one value each besides their own fields.
MANY: list[Json] = [{"role": "user", "content": "x"}] * 30
PARTS: list[Json] = [{"type": "input_text", "text": "x"}] * 25


async def before(client: Client, way: str) -> Json:
    """A conversation or a chain of some 300 values, each with a request that is small enough."""
    conversation = (await client.post({}, path=CONVERSATIONS)).json["id"]
    made = await client.create(MANY, **({"conversation": conversation} if way == "conversation" else {}))
    assert made.status == 200
    return {way: conversation if way == "conversation" else made.json["id"]}


@pytest.mark.parametrize("way", ["previous_response_id", "conversation"])
@pytest.mark.parametrize(("limit", "status"), [(250, 413), (300, 413), (500, 200)])
async def test_context_value_limit_counts_request_and_history_together(way: str, limit: int, status: int) -> None:
    """The values of the request count as well: 300 hold those that are stored, and not both."""
    async with answering(says("a"), says("b"), limits={"context_values": limit}) as client:
        made = await client.create([*MANY[:20], {"role": "user", "content": "Hi"}], **await before(client, way))
        assert made.status == status
        if status == 413:
            assert (made.error["code"], made.error["param"]) == ("request_too_large", way)
            assert f"limits.context_values ({limit})" in made.error["message"]
            assert len(client.world.model.asked) == 1


async def test_context_value_limit_ignores_tools_of_earlier_responses() -> None:
    """Each response of a chain has the tools of its request, and no request reads them again."""
    schema: Json = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(40)}}
    tools = [{"type": "function", "name": "get", "parameters": schema}]
    async with answering(*(says("a") for _ in range(6)), limits={"context_values": 300}) as client:
        made = (await client.create("1", tools=tools)).json
        for _ in range(5):
            again = await client.create("2", tools=tools, previous_response_id=made["id"])
            assert again.status == 200, again.json
            made = again.json


@pytest.mark.parametrize(("said", "limits"), [("x" * 9_000, {"context_body": "20KiB"}), (PARTS, {})])
async def test_referenced_items_count_towards_request_limits(said: object, limits: Json) -> None:
    """In bytes and in values: a small request brings no more than a large one may."""
    async with answering(*(says("a") for _ in range(4)), limits={"context_values": 200, **limits}) as client:
        referred: list[Json] = []
        for _ in range(3):
            made = (await client.create([{"role": "user", "content": said}])).json
            (one,) = (await client.get(made["id"], "/input_items")).json["data"]
            referred.append({"type": "item_reference", "id": one["id"]})
        refused = await client.create(referred)
        assert (refused.status, refused.error["code"]) == (413, "request_too_large")
        assert refused.error["param"] == "input[2]"
        assert (await client.create(referred[:2])).status == 200


async def test_repeated_item_references_count_each_time() -> None:
    """Before it is looked at whether an item may be there twice."""
    async with answering(says("a"), limits={"context_body": "20KiB"}) as client:
        made = (await client.create("x" * 9_000)).json
        (one,) = (await client.get(made["id"], "/input_items")).json["data"]
        refused = await client.create([{"type": "item_reference", "id": one["id"]}] * 3)
        assert (refused.status, refused.error["code"], refused.error["param"]) == (413, "request_too_large", "input[0]")


@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.parametrize(
    ("said", "limits"), [("x" * 9_000, {"context_body": "20KiB"}), (PARTS, {"context_values": 200})]
)
async def test_item_references_of_conversations_count_towards_limits(adds: bool, said: object, limits: Json) -> None:
    """Each counts, when a conversation is created and when items are added; nothing is stored then."""
    async with answering(says("a"), limits=limits) as client:
        made = (await client.create([{"role": "user", "content": said}])).json
        (one,) = (await client.get(made["id"], "/input_items")).json["data"]
        conversation = (await client.post({}, path=CONVERSATIONS)).json["id"]
        path = f"{CONVERSATIONS}/{conversation}/items" if adds else CONVERSATIONS
        refused = await client.post({"items": [{"type": "item_reference", "id": one["id"]}] * 20}, path=path)
        assert (refused.status, refused.error["code"], refused.error["param"]) == (413, "request_too_large", "items[0]")
        assert (await client.get(conversation, "/items", path=CONVERSATIONS)).json["data"] == []
        assert (await client.post({"items": [{"type": "item_reference", "id": one["id"]}]}, path=path)).status == 200


async def test_conversation_items_are_checked_against_the_request_size_limit() -> None:
    """An item without an id needs no look at the others."""
    async with answering(limits={"context_body": "20KiB"}) as client:
        conversation = (await client.post({}, path=CONVERSATIONS)).json["id"]
        path, item = f"{CONVERSATIONS}/{conversation}/items", {"role": "user", "content": "x" * 9_000}
        assert (await client.post({"items": [item] * 3}, path=path)).status == 200
        refused = await client.post({"items": [{**item, "id": "msg_1"}]}, path=path)
        assert (refused.status, refused.error["param"]) == (413, "conversation")
        assert (await client.post({"items": [item]}, path=path)).status == 200


async def test_unstored_connection_history_counts_towards_limits() -> None:
    """Responses that are not stored, which only their WebSocket knows."""
    async with answering(says("a"), says("b"), limits={"context_values": 100}) as client, talking(client) as talk:
        first = await talk.response(MANY, store=False)
        assert text_of(first) == "a"
        refused = await talk.refusal("Hi", store=False, previous_response_id=first["id"])
        assert (refused["code"], refused["param"]) == ("request_too_large", "previous_response_id")
