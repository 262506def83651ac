"""Responses as they begin: what they go on from, what is kept of them, and requests that come again."""

import asyncio
from pathlib import Path

import pytest

from gateway.contracts.storage.store import Json
from gateway.contracts.tools import encode_model_name
from gateway.dialects.registry import build_paths
from tests.e2e.models import Cut, calls, native, refuses, says
from tests.e2e.serving import behaving, until
from tests.e2e.talking import desk

from .answering import CONVERSATIONS, GATEWAY, KEYS, answering, kinds, text_of

#: Runs at once, and is on record; the other one waits for a person.
RUNS = calls("file_operations", operation="write", path="new.txt", content="x")
WRITE = calls("file_operations", operation="write", path="new.txt", content="x", risk_level=None)
WEATHER: Json = {"type": "function", "name": "get_weather", "parameters": {"type": "object", "properties": {}}}


def user(text: str) -> Json:
    return {"role": "user", "content": text}


def assistant(text: str) -> Json:
    return {"role": "assistant", "content": text}


@pytest.mark.parametrize("path", build_paths("responses"))
async def test_each_response_path_creates_a_response(path: str) -> None:
    """Below the context lane's base URL, and with a context header at the plain path."""
    async with answering(says("Hel", "lo")) as client:
        made = await client.create(path=path, headers={"X-Context-Mode": "context"})
        assert made.status == 200 and text_of(made.json) == "Hello"
        assert made.json["status"] == "completed" and made.json["usage"]["total_tokens"] == 18
        request_id = made.headers["x-request-id"]
        assert made.json["id"] == "resp_" + request_id.removeprefix("run_") == "resp_" + request_id[4:]
        assert made.headers["X-Context-Run-Id"] == request_id
        assert client.sent == [user("Hi")]


async def test_response_stream_ends_with_the_stored_response() -> None:
    """Its last one has the same object that a GET returns."""
    async with answering(says("Hel", "lo")) as client:
        events = await client.stream()
        assert events.numbers == list(range(len(events.read))) and events.done
        assert events.kinds[:2] == ["response.created", "response.in_progress"]
        assert events.kinds[-1] == "response.completed" and events.text == "Hello"
        assert (await client.get(events.last["id"])).json == events.last


async def test_model_gets_a_response_chain_oldest_first() -> None:
    """With instructions of the new request alone, and without those of earlier ones."""
    async with answering(says("one"), says("two"), says("three")) as client:
        first = await client.create("1", instructions="Be terse.")
        second = await client.create("2", previous_response_id=first.json["id"], instructions="Be kind.")
        assert client.world.model.prompts[-1].startswith("Be kind.") and "terse" not in client.world.model.prompts[-1]
        third = await client.create("3", previous_response_id=second.json["id"])
        assert third.json["previous_response_id"] == second.json["id"]
        assert client.sent == [user("1"), assistant("one"), user("2"), assistant("two"), user("3")]


async def test_response_chain_branches_are_independent() -> None:
    """Two responses that go on from the same one do not see each other."""
    async with answering(says("one"), says("two"), says("three")) as client:
        first = await client.create("1")
        await client.create("2", previous_response_id=first.json["id"])
        await client.create("3", previous_response_id=first.json["id"])
        assert client.sent == [user("1"), assistant("one"), user("3")]


@pytest.mark.parametrize("which", [0, 1])
async def test_chain_with_a_deleted_response_is_refused(which: int) -> None:
    """Whether the first or the last one is gone: half a history would be another conversation."""
    async with answering(says("one"), says("two")) as client:
        first = (await client.create("1")).json["id"]
        second = (await client.create("2", previous_response_id=first)).json["id"]
        gone = (first, second)[which]
        assert (await client.delete(gone)).json == {"id": gone, "object": "response", "deleted": True}
        refused = await client.create("3", previous_response_id=second)
        assert (refused.status, refused.error["code"]) == (400, "previous_response_not_found")
        assert refused.error["param"] == "previous_response_id" and gone in refused.error["message"]
        assert second in refused.error["message"], "it names the response that the request goes on from"
        assert len(client.world.model.asked) == 2


@pytest.mark.parametrize("which", [0, 1])
async def test_deleted_response_is_not_rebuilt_from_its_stored_run(tmp_path: Path, which: int) -> None:
    """A call with an effect leaves a run behind; the response is not made of it again."""
    answers = (RUNS, says("one"), says("two"))
    async with answering(*answers, tools=desk(tmp_path, write=True)) as client:
        first = await client.create("1")
        assert text_of(first.json) == "one"
        second = await client.create("2", previous_response_id=first.json["id"])
        gone = (first.json["id"], second.json["id"])[which]
        assert (await client.delete(gone)).status == 200
        assert (await client.get(gone)).error["code"] == "response_not_found"
        refused = await client.create("3", previous_response_id=second.json["id"])
        assert refused.error["code"] == "previous_response_not_found"


@pytest.mark.parametrize("previous", ["resp_x", "resp_" + "0" * 24, "msg_" + "0" * 24, "x"])
async def test_unknown_previous_response_is_refused(previous: str) -> None:
    """Before the model is asked."""
    async with answering() as client:
        for stream in (False, True):
            refused = await client.create(previous_response_id=previous, stream=stream)
            assert (refused.status, refused.error["code"]) == (400, "previous_response_not_found")


async def test_incomplete_response_can_be_continued() -> None:
    """One that the model's limit cut, with what it has said."""
    async with answering(says("half", finish="length"), says("two")) as client:
        first = await client.create("1")
        assert first.json["status"] == "incomplete"
        assert first.json["incomplete_details"] == {"reason": "max_output_tokens"}
        await client.create("2", previous_response_id=first.json["id"])
        assert client.sent == [user("1"), assistant("half"), user("2")]


async def test_client_tool_calls_can_be_continued_with_outputs() -> None:
    """The chain has the call, and the request its output."""
    async with answering(native(("get_weather", {"city": "Oslo"})), says("Cold.")) as client:
        asked = (await client.create("Oslo?", tools=[WEATHER])).json
        (call,) = asked["output"]
        assert (call["type"], call["name"]) == ("function_call", "get_weather")
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": "-3"}
        await client.create([output], previous_response_id=asked["id"], tools=[WEATHER])
        question, called, answered = client.sent
        assert question == user("Oslo?") and called["tool_calls"][0]["id"] == call["call_id"]
        assert answered == {"role": "tool", "tool_call_id": call["call_id"], "content": "-3"}


async def test_a_conversation_grows_with_its_responses() -> None:
    """Items of the request first, then those of the answer; each once."""
    async with answering(says("one"), says("two"), says("three")) as client:
        made = await client.post({"items": [user("0")]}, CONVERSATIONS)
        conversation = made.json["id"]
        first = await client.create("1", conversation=conversation)
        assert first.json["conversation"] == {"id": conversation}
        await client.stream("2", conversation={"id": conversation})
        assert client.sent == [user("0"), user("1"), assistant("one"), user("2")]
        items = (await client.get(conversation, "/items?order=asc", path=CONVERSATIONS)).json["data"]
        assert [item["content"][0]["text"] for item in items] == ["0", "1", "one", "2", "two"]
        await client.create("3", conversation=conversation, store=False)
        assert client.sent[-2:] == [assistant("two"), user("3")]


async def test_a_failed_response_leaves_its_conversation_as_it_is() -> None:
    """The client sends the same again, and the conversation has it once."""
    async with answering(refuses(400), says("one", Cut(), finish=None), says("one")) as client:
        conversation = (await client.post({}, CONVERSATIONS)).json["id"]
        assert (await client.create("1", conversation=conversation)).status == 400
        assert (await client.stream("1", conversation=conversation)).kinds[-1] == "response.failed"
        assert (await client.get(conversation, "/items", path=CONVERSATIONS)).json["data"] == []
        await client.create("1", conversation=conversation)
        items = (await client.get(conversation, "/items?order=asc", path=CONVERSATIONS)).json["data"]
        assert [item["content"][0]["text"] for item in items] == ["1", "one"]


async def test_unknown_conversation_returns_404() -> None:
    """404, and the model is not asked."""
    async with answering() as client:
        for conversation in ("conv_x", {"id": "conv_x"}):
            refused = await client.create(conversation=conversation)
            assert (refused.status, refused.error["code"]) == (404, "conversation_not_found")
            assert refused.error["param"] == "conversation"


async def test_items_are_referred_to_by_their_ids() -> None:
    """Messages of either side and calls, of responses that are stored."""
    async with answering(says("one"), native(("get_weather", {"city": "Oslo"})), says("three")) as client:
        first = (await client.create("1")).json
        (own,) = (await client.get(first["id"], "/input_items")).json["data"]
        second = (await client.create("2", tools=[WEATHER])).json
        (call,) = second["output"]
        referred = [{"type": "item_reference", "id": one} for one in (own["id"], first["output"][0]["id"], call["id"])]
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": "-3"}
        third = await client.create([*referred[:2], {"id": call["id"]}, output])
        assert third.status == 200
        question, said, told = client.sent
        assert question == user("1") and said["content"] == "one" and told["content"] == "-3"
        assert said["tool_calls"][0]["function"]["name"] == "get_weather"
        listed = (await client.get(third.json["id"], "/input_items?order=asc")).json["data"]
        assert kinds(listed) == ["message", "message", "function_call", "function_call_output"]


async def test_approval_request_can_be_referenced_by_id(tmp_path: Path) -> None:
    """AI SDK sends the reference and the decision, and nothing else of the question."""
    async with answering(WRITE, says("Written."), tools=desk(tmp_path, write=True)) as client:
        asked = (await client.create("Write.", tools=[GATEWAY])).json
        question = asked["output"][-1]
        assert question["type"] == "mcp_approval_request" and question["server_label"] == "gateway"
        reference = {"type": "item_reference", "id": question["id"]}
        decision = {"type": "mcp_approval_response", "approval_request_id": question["id"], "approve": True}
        answer = (await client.create([user("Write."), reference, decision], tools=[GATEWAY])).json
        assert text_of(answer) == "Written." and (tmp_path / "work" / "new.txt").read_text() == "x"


@pytest.mark.parametrize("item_id", ["msg_x", "msg_" + "0" * 24 + "0000", "ap_" + "0" * 16, "é", "x" * 64])
async def test_unknown_item_reference_returns_404_with_its_place(item_id: str) -> None:
    """404 with its place."""
    async with answering() as client:
        refused = await client.create([user("1"), {"type": "item_reference", "id": item_id}])
        assert (refused.status, refused.error["code"]) == (404, "item_not_found")
        assert refused.error["param"] == "input[1].id"


async def test_store_false_response_and_items_are_not_stored(tmp_path: Path) -> None:
    """Neither the response nor its items; not even where its run is on record."""
    answers = (says("one"), RUNS, says("two"))
    async with answering(*answers, tools=desk(tmp_path, write=True)) as client:
        for said in ("1", "2"):
            made = (await client.create(said, store=False)).json
            assert made["status"] == "completed" and made["store"] is False
            assert (await client.get(made["id"])).error["code"] == "response_not_found"
            assert (await client.get(made["id"], "/input_items")).status == 404
            assert (await client.delete(made["id"])).status == 404
            refused = await client.create("3", previous_response_id=made["id"])
            assert refused.error["code"] == "previous_response_not_found"
            refused = await client.create([{"type": "item_reference", "id": made["output"][0]["id"]}])
            assert refused.error["code"] == "item_not_found"


async def test_reconnecting_client_with_the_same_key_joins_its_response(tmp_path: Path) -> None:
    """With the same key: the same id, and the events from the first one; no tool runs twice."""
    gate, headers = asyncio.Event(), {"Idempotency-Key": "k1"}
    answers = (RUNS, says("one ", gate, "two"), says("one two"))  # the call of a client that left is dropped
    async with answering(*answers, tools=desk(tmp_path, write=True)) as client:
        async with client.streaming("1", headers=headers) as broken:
            await broken.until("response.output_text.delta")
        gate.set()
        events = await client.stream("1", headers=headers)
        assert events.read[0]["response"]["id"] == broken.read[0]["response"]["id"]
        assert text_of(events.last) == "one two" and events.numbers == list(range(len(events.read)))
        assert (await client.get(events.last["id"])).json == events.last


async def test_another_body_with_the_same_key_is_refused() -> None:
    """While the first one is there."""
    gate, headers = asyncio.Event(), {"Idempotency-Key": "k1"}
    async with answering(says("one ", gate)) as client, client.streaming("1", headers=headers) as events:
        await events.until("response.output_text.delta")
        for fields in ({"stream": True}, {}):
            other = await client.create("2", headers=headers, **fields)
            assert (other.status, other.error["code"]) == (409, "idempotency_mismatch")
        gate.set()
        assert (await events.rest()).kinds[-1] == "response.completed"


async def test_response_creation_requires_a_key_with_the_context_scope() -> None:
    """As for chat completions; another key of the tenant reads the response."""
    async with answering(says("one"), **KEYS) as client:
        for name, code in (("", "missing_api_key"), ("nobody", "invalid_api_key"), ("low", "scope_missing")):
            assert (await client.of(name).create()).error["code"] == code
        assert not client.world.model.asked
        made = (await client.of("ann").create()).json
        assert (await client.of("bob").get(made["id"])).json == made


async def test_upstream_error_keeps_its_status_in_stream_and_plain_requests() -> None:
    """In a stream, too, as long as nothing has come of it; nothing is stored."""
    async with answering(refuses(429), refuses(429)) as client:
        for stream in (False, True):
            refused = await client.create(stream=stream)
            assert (refused.status, refused.error["code"]) == (429, "upstream_limited")


async def test_error_after_output_is_sent_as_an_event() -> None:
    """`error`, and then the response that failed, as it is stored.

    What was cut stays open: programs take an item that ended for a part of the conversation, and ask again behind it.
    """
    cut = says("one", Cut(), finish=None)
    async with answering(cut, cut) as client:
        events = await client.stream()
        assert events.kinds[-2:] == ["error", "response.failed"] and events.done
        failed = events.last
        assert failed["error"]["type"] == events.read[-2]["code"] == "upstream_error"
        assert failed["output"][0]["status"] == "incomplete" and text_of(failed) == "one"
        assert (await client.get(failed["id"])).json == failed
        later = (await client.create(background=True)).json["id"]
        await client.until(later, "failed")
        again = await client.followed(later)
        for told in (events, again):
            assert "response.output_text.delta" in told.kinds
            assert not any(kind.endswith("done") for kind in told.kinds)


async def test_invalid_response_body_is_refused_before_the_model_call() -> None:
    """With the place of what is wrong."""
    async with answering() as client:
        for fields, code, param in (
            ({"foo": 1}, "unknown_parameter", "foo"),
            ({"input": [{"role": "user", "content": [{"type": "input_text", "text": 5}]}]}, "invalid_field",
             "input[0].content[0].text"),
            ({"input": []}, "missing_field", "input"),
            ({"temperature": "hot"}, "invalid_field", "temperature"),
            ({"messages": []}, "unsupported_parameter", "messages"),
            ({"background": True, "store": False}, "invalid_field", "background"),
            ({"conversation": "conv_1", "previous_response_id": "resp_1"}, "invalid_field", "conversation"),
            ({"tools": [{"type": "mcp", "server_label": "nope"}]}, "invalid_field", "tools[0].server_label"),
        ):  # fmt: skip
            refused = await client.create(**fields) if "input" not in fields else await client.create(fields["input"])
            assert (refused.status, refused.error["code"], refused.error["param"]) == (400, code, param), fields


async def test_function_named_like_an_offered_tool_is_refused(tmp_path: Path) -> None:
    """Whether the service of the tool runs or not: each name means one tool."""
    servers = {"box": behaving(), "off": behaving(enabled=False), "my off": behaving(enabled=False)}
    async with answering(says("Hi"), says("Hi"), tools=desk(tmp_path), mcp={"servers": servers}) as client:
        await until(client.world, "box")
        names = {"box.echo": "box__echo", "file_operations": "file_operations", "off": "off__any"}
        names["my off"] = encode_model_name("my off.any")
        for offered, name in names.items():
            label = "gateway" if offered == "file_operations" else offered.partition(".")[0]
            own = {"type": "function", "name": name, "parameters": {"type": "object"}}
            refused = await client.create(tools=[own, {"type": "mcp", "server_label": label}])
            error = refused.error
            assert (refused.status, error["code"]) == (400, "invalid_field")
            assert error["param"] == "tools[1].allowed_tools"
            assert repr(offered) in error["message"] and repr(name) in error["message"]
            refused = await client.create(tools=[own, {"type": "mcp", "server_label": label, "allowed_tools": ["any"]}])
            assert refused.status == 400
        own = {"type": "function", "name": "box__echo", "parameters": {"type": "object"}}
        offer = {"type": "mcp", "server_label": "box"}
        assert (await client.create(tools=[own, {**offer, "allowed_tools": ["add"]}])).status == 200
        assert (await client.create(tools=[own, offer], tool_choice="none")).status == 200
        assert len(client.world.model.asked) == 2


async def test_stopped_service_is_listed_with_an_error() -> None:
    """In each response, and in a stream; the tools are listed once it runs."""
    servers = {"box": behaving(), "off": behaving(enabled=False)}
    async with answering(*[says("Hi")] * 4, mcp={"servers": servers}) as client:
        await until(client.world, "box")
        off = [{"type": "mcp", "server_label": "off"}]
        first = (await client.create(tools=off)).json
        listed, message = first["output"]
        error = "The service 'off' is not running just now."
        assert message["type"] == "message"
        assert listed == {**listed, "type": "mcp_list_tools", "server_label": "off", "tools": [], "error": error}
        again = (await client.create(tools=off, previous_response_id=first["id"])).json
        assert kinds(again["output"]) == ["mcp_list_tools", "message"]
        streamed = await client.stream(tools=off)
        assert [kind for kind in streamed.kinds if "list_tools" in kind] == [
            "response.mcp_list_tools.in_progress",
            "response.mcp_list_tools.failed",
        ]
        failed = {"id": "mcpl_1", "type": "mcp_list_tools", "server_label": "box", "tools": [], "error": error}
        said = [failed, {"role": "user", "content": "Hi"}]
        found = (await client.create(said, tools=[{"type": "mcp", "server_label": "box"}])).json["output"][0]
        assert found["type"] == "mcp_list_tools" and found["tools"] and "error" not in found


@pytest.mark.parametrize("way", ["previous_response_id", "conversation"])
async def test_continued_history_counts_towards_the_body_limit(way: str) -> None:
    """What it goes on from counts against the limit of a body."""
    async with answering(says("a"), says("b"), says("c"), limits={"context_body": "20KiB"}) as client:
        conversation = (await client.post({}, path=CONVERSATIONS)).json["id"]
        before: Json = {"conversation": conversation} if way == "conversation" else {}
        for _ in range(2):
            made = await client.create(input="x" * 12_000, **before)
            assert made.status == 200
            before = before if way == "conversation" else {"previous_response_id": made.json["id"]}
        refused = await client.create(input="Hi", **before)
        assert (refused.status, refused.json["error"]["param"]) == (413, way)


@pytest.mark.parametrize("path", [f"{path}/" for path in build_paths("responses")])
async def test_trailing_slash_of_a_path_is_ignored(path: str) -> None:
    """Some programs put one behind each path; that of chats and conversations may have one, too."""
    context = {"X-Context-Mode": "context"}
    async with answering(says("one"), says("two")) as client:
        answer = await client.create("1", path=path, headers=context)
        assert (answer.status, text_of(answer.json)) == (200, "one")
        chat = path.replace("responses", "chat/completions")
        assert (await client.world.chat(path=chat, headers=context)).text == "two"
        made = await client.post({}, path.replace("responses", "conversations"), headers=context)
        assert (made.status, made.json["object"]) == (200, "conversation")
