"""Conversations: created, changed, listed in pages, deleted; their items by id."""

import pytest

from gateway.contracts.storage.store import Json
from gateway.dialects.registry import build_paths
from tests.e2e.models import says

from .answering import CONVERSATIONS, KEYS, RESPONSES, Client, answering


def user(text: str) -> Json:
    return {"role": "user", "content": text}


async def made(client: Client, *texts: str, **fields: object) -> str:
    """The id of a conversation with these messages."""
    answer = await client.post({"items": [user(text) for text in texts], **fields}, CONVERSATIONS)
    assert answer.status == 200, answer.json
    conversation_id: str = answer.json["id"]
    return conversation_id


async def texts(client: Client, conversation_id: str, query: str = "?order=asc") -> list[str]:
    listed = (await client.get(conversation_id, f"/items{query}", path=CONVERSATIONS)).json
    return [item["content"][0]["text"] for item in listed["data"]]


@pytest.mark.parametrize("path", build_paths("conversations"))
async def test_conversation_lifecycle_works_on_each_path(path: str) -> None:
    """Created, read, changed, deleted, as OpenAI's API has them."""
    async with answering() as client:
        client.world.session.headers["X-Context-Mode"] = "context"
        conversation = (await client.post({"metadata": {"topic": "x"}}, path)).json
        assert conversation.keys() == {"id", "object", "created_at", "metadata"}
        assert conversation["object"] == "conversation" and conversation["metadata"] == {"topic": "x"}
        one = conversation["id"]
        assert one.startswith("conv_") and (await client.get(one, path=path)).json == conversation
        changed = (await client.post({"metadata": {"topic": "y"}}, f"{path}/{one}")).json
        assert changed == {**conversation, "metadata": {"topic": "y"}} == (await client.get(one, path=path)).json
        added = (await client.post({"items": [user("1")]}, f"{path}/{one}/items")).json
        (item,) = added["data"]
        assert (await client.get(one, f"/items/{item['id']}", path=path)).json == item
        assert (await client.delete(f"{one}/items/{item['id']}", path=path)).json == changed
        assert (await client.get(one, f"/items/{item['id']}", path=path)).error["code"] == "item_not_found"
        assert (await client.delete(one, path=path)).json == {
            "id": one,
            "object": "conversation.deleted",
            "deleted": True,
        }
        assert (await client.get(one, path=path)).error["code"] == "conversation_not_found"


@pytest.mark.parametrize("body", [b"", b"{}", b'{"items": null, "metadata": null}', b'{"items": []}'])
async def test_empty_conversation_has_no_items_and_empty_metadata(body: bytes) -> None:
    """Whatever way a client says so; its metadata is an empty object."""
    async with answering() as client:
        conversation = (await client.post(body, CONVERSATIONS)).json
        assert conversation["metadata"] == {}
        listed = (await client.get(conversation["id"], "/items", path=CONVERSATIONS)).json
        assert listed == {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}


async def test_items_come_in_pages() -> None:
    """The newest first unless the client wants another order, behind any item."""
    async with answering() as client:
        one = await made(client, "1", "2", "3", "4", "5")
        assert await texts(client, one) == ["1", "2", "3", "4", "5"]
        assert await texts(client, one, "") == await texts(client, one, "?order=desc") == ["5", "4", "3", "2", "1"]
        page = (await client.get(one, "/items?order=asc&limit=2", path=CONVERSATIONS)).json
        assert [page["first_id"], page["last_id"]] == [item["id"] for item in page["data"]] and page["has_more"]
        behind = (await client.get(one, f"/items?order=asc&after={page['last_id']}&limit=3", path=CONVERSATIONS)).json
        assert [item["content"][0]["text"] for item in behind["data"]] == ["3", "4", "5"] and not behind["has_more"]
        assert await texts(client, one, f"?order=asc&after={behind['last_id']}") == []
        assert await texts(client, one, f"?after={page['last_id']}") == ["1"]


@pytest.mark.parametrize(
    ("query", "code", "param"),
    [
        ("?limit=0", "invalid_field", "limit"),
        ("?limit=x", "invalid_field", "limit"),
        ("?order=up", "invalid_field", "order"),
        ("?after=msg_x", "invalid_field", "after"),
        ("?after=", "invalid_field", "after"),
        ("?before=x", "unknown_field", "before"),
        ("?include[]=secrets", "invalid_field", "include[]"),
    ],
)
async def test_invalid_item_query_is_refused_with_its_name(query: str, code: str, param: str) -> None:
    """400, with its name."""
    async with answering() as client:
        one = await made(client, "1")
        refused = await client.get(one, f"/items{query}", path=CONVERSATIONS)
        assert (refused.status, refused.error["code"], refused.error["param"]) == (400, code, param)


async def test_item_query_accepts_repeated_bracketed_include() -> None:
    """As SDKs write them; what they name is shown in any case."""
    async with answering() as client:
        one = await made(client, "1")
        (item,) = (await client.get(one, "/items", path=CONVERSATIONS)).json["data"]
        query = "?include[]=reasoning.encrypted_content&include%5B%5D=message.input_image.image_url"
        assert await texts(client, one, query) == ["1"]
        assert (await client.get(one, f"/items/{item['id']}{query}", path=CONVERSATIONS)).json == item
        assert (await client.post({"items": [user("2")]}, f"{CONVERSATIONS}/{one}/items{query}")).status == 200


async def test_repeated_items_keep_their_ids_and_order() -> None:
    """One that is there already, just so, stays where it is: a client may repeat its request."""
    async with answering() as client:
        one = await made(client)
        path = f"{CONVERSATIONS}/{one}/items"
        await client.post({"items": [{"id": "msg_mine", **user("1")}, user("2")]}, path)
        added = await client.post({"items": [{"id": "msg_mine", **user("1")}, user("3")]}, path)
        assert added.json["data"][0]["id"] == "msg_mine"
        assert await texts(client, one) == ["1", "2", "3"]
        listed = (await client.get(one, "/items", path=CONVERSATIONS)).json["data"]
        assert len({item["id"] for item in listed}) == 3 and all(item["status"] == "completed" for item in listed)


async def test_conversation_copies_a_referenced_response_item() -> None:
    """It is copied; without it the request adds nothing."""
    async with answering(says("one")) as client:
        item = (await client.create("1")).json["output"][0]
        one = await made(client, "0")
        path = f"{CONVERSATIONS}/{one}/items"
        reference = {"type": "item_reference", "id": item["id"]}
        added = (await client.post({"items": [reference]}, path)).json
        assert added["data"] == [item] and await texts(client, one) == ["0", "one"]
        refused = await client.post({"items": [user("2"), {"type": "item_reference", "id": "msg_x"}]}, path)
        assert (refused.status, refused.error["code"], refused.error["param"]) == (
            404,
            "item_not_found",
            "items[1].id",
        )
        assert await texts(client, one) == ["0", "one"]


CALL: Json = {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"}
OUTPUT: Json = {"type": "function_call_output", "call_id": "call_1", "output": "sunny"}
#: Items that break or fool each later request, behind a conversation with the message "msg_mine", and their places.
BROKEN: list[tuple[list[Json], str]] = [
    ([user("2"), {"type": "compaction", "encrypted_content": "x"}], "items[1].encrypted_content"),
    ([{"type": "compaction_summary", "encrypted_content": "x.y"}], "items[0].encrypted_content"),
    ([OUTPUT], "items[0].call_id"),
    ([OUTPUT, CALL], "items[0].call_id"),
    ([CALL, {**OUTPUT, "type": "custom_tool_call_output"}], "items[1].call_id"),
    ([CALL, OUTPUT, OUTPUT], "items[2].call_id"),
    ([{"type": "local_shell_call_output", "id": "call_1", "output": "x"}], "items[0].call_id"),
    (
        [user("2"), {"type": "mcp_approval_response", "approval_request_id": "ap_1", "approve": True}],
        "items[1].approval_request_id",
    ),
    ([{"id": "msg_mine", **user("2")}], "items[0].id"),
    ([{"id": "msg_a", **user("2")}, {"id": "msg_mine", **user("1")}, {"id": "msg_a", **user("3")}], "items[2].id"),
]


@pytest.mark.parametrize(("items", "param"), BROKEN)
async def test_invalid_item_sequences_are_not_added(items: list[Json], param: str) -> None:
    """400 with the place, and none is added."""
    async with answering() as client:
        one = await made(client)
        path = f"{CONVERSATIONS}/{one}/items"
        await client.post({"items": [{"id": "msg_mine", **user("1")}]}, path)
        refused = await client.post({"items": items}, path)
        assert (refused.status, refused.error["code"], refused.error["param"]) == (400, "invalid_field", param)
        assert await texts(client, one) == ["1"]


@pytest.mark.parametrize(("items", "param"), BROKEN[:-2])
async def test_conversation_with_an_invalid_item_sequence_is_refused(items: list[Json], param: str) -> None:
    """Such a conversation is not created either."""
    async with answering() as client:
        refused = await client.post({"items": items}, CONVERSATIONS)
        assert (refused.status, refused.error["code"], refused.error["param"]) == (400, "invalid_field", param)


async def test_call_output_may_be_added_after_its_call() -> None:
    """With further items, or with a request that goes on from the conversation."""
    async with answering(says("It is sunny."), says("Rainy.")) as client:
        for later in (True, False):
            one = (await client.post({"items": [user("How is it?"), CALL]}, CONVERSATIONS)).json["id"]
            if later:
                added = await client.post({"items": [OUTPUT]}, f"{CONVERSATIONS}/{one}/items")
                assert added.status == 200, added.json
            answer = await client.create("Well?" if later else [OUTPUT], conversation=one)
            assert answer.status == 200, answer.json
            assert [message["role"] for message in client.sent][:3] == ["user", "assistant", "tool"]


async def test_conversation_accepts_only_summaries_of_its_tenant() -> None:
    """Another tenant's is refused, and so is one that was changed."""
    async with answering(says("They like tea."), says("Tea."), **KEYS) as client:
        ann, eve = client.of("ann"), client.of("eve")
        *_, item = (await ann.post({"model": "m", "input": "I like tea"}, f"{RESPONSES}/compact")).json["output"]
        content = item["encrypted_content"]
        changed = {**item, "encrypted_content": content[:4] + ("A" if content[4] != "A" else "B") + content[5:]}
        for asks, sent in ((ann, changed), (eve, item)):
            refused = await asks.post({"items": [user("1"), sent]}, CONVERSATIONS)
            assert (refused.status, refused.error["param"]) == (400, "items[1].encrypted_content")
        one = (await ann.post({"items": [item]}, CONVERSATIONS)).json["id"]
        assert (await ann.create("What do I like?", conversation=one)).status == 200
        assert "They like tea." in str(client.world.model.asked[-1]["messages"][:-1])


async def test_approval_response_item_is_stored_as_history_only() -> None:
    """Behind its request it may be added, as openai-agents does. Without it, it is refused, also by its id."""
    question = {"type": "mcp_approval_request", "id": "ap_1", "server_label": "gateway", "name": "f", "arguments": ""}
    decided = {"type": "mcp_approval_response", "approval_request_id": "AP_1", "approve": True}
    async with answering(says("one"), says("two")) as client:
        created = await client.create([question, decided, {"role": "assistant", "content": "No."}, user("Well?")])
        listed = (await client.get(created.json["id"], "/input_items?order=asc")).json["data"]
        reference = {"type": "item_reference", "id": listed[1]["id"]}
        refused = await client.post({"items": [reference]}, CONVERSATIONS)
        assert (refused.status, refused.error["param"]) == (400, "items[0].approval_request_id")
        one = await made(client)
        assert (await client.post({"items": [question]}, f"{CONVERSATIONS}/{one}/items")).status == 200
        assert (await client.post({"items": [decided]}, f"{CONVERSATIONS}/{one}/items")).status == 200
        assert (await client.create("And?", conversation=one)).json["status"] == "completed"


WRONG = [
    (b"{", "invalid_json", None),
    (b"[]", "invalid_json", None),
    (b"\xff", "invalid_json", None),
    (b'{"nope": 1}', "unknown_parameter", "nope"),
]
OF_ITEMS = [
    (b'{"items": {}}', "invalid_field", "items"),
    (b'{"items": ""}', "invalid_field", "items"),
    (b'{"items": [5]}', "invalid_field", "items[0]"),
    (b'{"items": [{"role": "user"}]}', "missing_field", "items[0].content"),
    (b'{"items": [{"type": "nope"}]}', "invalid_field", "items[0].type"),
    (b'{"items": [' + b",".join([b'{"role": "user", "content": "x"}'] * 21) + b"]}", "invalid_field", "items"),
    (b'{"items": [{"id": "' + b"x" * (1 << 20) + b'", "role": "user", "content": "x"}]}', "invalid_field",
     "items[0].id"),
]  # fmt: skip
OF_METADATA = [
    (b'{"metadata": 5}', "invalid_field", "metadata"),
    (b'{"metadata": "x"}', "invalid_field", "metadata"),
    (b'{"metadata": []}', "invalid_field", "metadata"),
    (b'{"metadata": {"x": 5}}', "invalid_field", "metadata.x"),
    (b'{"metadata": {"x": "' + b"y" * 513 + b'"}}', "invalid_field", "metadata.x"),
]


@pytest.mark.parametrize(("body", "code", "param"), [*WRONG, *OF_ITEMS, *OF_METADATA])
async def test_invalid_conversation_is_refused(body: bytes, code: str, param: str | None) -> None:
    """400 with the place, and nothing is created."""
    async with answering() as client:
        refused = await client.post(body, CONVERSATIONS)
        assert (refused.status, refused.error["code"], refused.error["param"]) == (400, code, param)


@pytest.mark.parametrize(
    ("body", "code", "param"), [*WRONG, *OF_METADATA, (b"{}", "missing_field", "metadata"),
    (b'{"items": []}', "unknown_parameter", "items")]
)  # fmt: skip
async def test_invalid_conversation_update_changes_nothing(body: bytes, code: str, param: str | None) -> None:
    """The conversation stays as it is."""
    async with answering() as client:
        one = await made(client, metadata={"a": "b"})
        refused = await client.post(body, f"{CONVERSATIONS}/{one}")
        assert (refused.status, refused.error["code"], refused.error["param"]) == (400, code, param)
        assert (await client.get(one, path=CONVERSATIONS)).json["metadata"] == {"a": "b"}


@pytest.mark.parametrize(
    ("body", "code", "param"), [*WRONG, *OF_ITEMS, (b"{}", "missing_field", "items"),
    (b'{"metadata": {}}', "unknown_parameter", "metadata")]
)  # fmt: skip
async def test_invalid_items_are_not_added(body: bytes, code: str, param: str | None) -> None:
    """None of them is added."""
    async with answering() as client:
        one = await made(client, "1")
        refused = await client.post(body, f"{CONVERSATIONS}/{one}/items")
        assert (refused.status, refused.error["code"], refused.error["param"]) == (400, code, param)
        assert await texts(client, one) == ["1"]


async def test_conversation_body_over_the_limit_returns_413() -> None:
    """Of bytes, and of JSON values."""
    async with answering() as client:
        for body in (b" " * (11 << 20), b'{"items": [' + b"1," * 200_000 + b"1]}"):
            refused = await client.post(body, CONVERSATIONS)
            assert (refused.status, refused.error["code"]) == (413, "request_too_large")


async def test_conversations_require_the_context_scope() -> None:
    """401 and 403 for others; each key of the tenant has its conversations."""
    async with answering(**KEYS) as client:
        one = await made(client.of("ann"), "1")
        for name, code in (("", "missing_api_key"), ("nobody", "invalid_api_key"), ("con", "scope_missing")):
            asks = client.of(name)
            assert (await asks.post({}, CONVERSATIONS)).error["code"] == code
            assert (await asks.get(one, path=CONVERSATIONS)).error["code"] == code
        assert await texts(client.of("bob"), one) == ["1"]
