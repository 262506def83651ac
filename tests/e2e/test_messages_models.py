"""Models that speak Messages, behind chats and the Responses API: what they want back, they get back unharmed."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
from collector import Collector
from gateways import until_read

from gateway.testing.local_gateway import LocalGateway
from tests.api.responses.answering import Client
from tests.messages_server import Answer, Json, MessagesServer, calls, hides, says, serving, thinks

from .models import Model
from .models import says as chat_says
from .talking import NO_WORKFLOWS, World, desk, stages

THOUGHTS: Final = ("thinking", "redacted_thinking")
KEY: Final = "sk-of-the-gateway"
PIXEL: Final = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
IMAGE: Final[Json] = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
LOOK: Final[Json] = {"name": "look_up", "parameters": {"type": "object", "properties": {"word": {"type": "string"}}}}
READ: Final[Json] = {"operation": "read", "path": "notes.txt"}
WRITE: Final[Json] = {"operation": "write", "path": "new.txt", "content": "x", "risk_level": "high"}
EFFORT: Final[Json] = {"reasoning_effort": "high", "max_tokens": 20_000}


@asynccontextmanager
async def talking(server: MessagesServer, folder: Path, *others: Json, **settings: Any) -> AsyncIterator[World]:
    """A gateway in front of the server, and of other upstreams. Its `model` is not used."""
    up = {"name": "up", "base_url": server.url, "api": "messages", "api_key": KEY, "messages": {"thinking": "budget"}}
    config: Json = {
        "upstreams": [{**up, **settings.pop("upstream", {})}, *others],
        "store": "sqlite:///:memory:",
        "chains": stages(loop={"tool_format": "native"}),
        "workflows": NO_WORKFLOWS,
        **({} if "tools" in settings else {"tools": desk(folder, write=True)}),
        **settings,
    }
    async with LocalGateway(config) as gateway, aiohttp.ClientSession(gateway.base_url) as session:
        yield World(gateway, Model(), session, config)


def kinds(body: Json) -> list[list[str]]:
    """The kinds of the blocks of each turn."""
    return [[block["type"] for block in turn["content"]] for turn in body["messages"]]


def blocks(body: Json) -> list[Json]:
    """All blocks of all turns, without marks."""
    found = [block for turn in body["messages"] for block in turn["content"]]
    return [{name: value for name, value in block.items() if name != "cache_control"} for block in found]


async def test_chat_client_brings_back_thoughts_images_and_calls_of_three_rounds(tmp_path: Path) -> None:
    """One round of the gateway's tool, one of the client's, one that a person approves, and all of it again."""
    own = {"type": "function", "function": LOOK}
    first = [thinks("I read."), says("Let me see."), calls("file_operations", READ)]
    second = [hides("c2VjcmV0"), calls("look_up", {"word": "safe"})]
    third = [thinks(""), says("I write."), thinks("Carefully."), calls("file_operations", WRITE)]
    last = [thinks("Done."), says("It is behind the mirror.")]
    async with serving(first, second, third, last, [says("Bye.")], key=KEY) as server:
        async with talking(server, tmp_path) as world:
            asks: list[Json] = [
                {"role": "user", "content": [{"type": "text", "text": "Where? Read, and note."}, IMAGE]}
            ]
            called = await world.chat(asks, tools=[own], **EFFORT)
            assert called.finish == "tool_calls"
            (call,) = called.message["tool_calls"]
            found = {"role": "tool", "tool_call_id": call["id"], "content": "A box."}
            asked = await world.chat([*asks, called.message, found], tools=[own], **EFFORT)
            (approval,) = asked.asks
            await world.decide(approval["id"])
            await world.run(approval["run_id"], state="completed")
            history = [*asks, called.message, found, {**asked.message}, {"role": "user", "content": "Thanks."}]
            assert (await world.chat(history, tools=[own], **EFFORT)).text.endswith("It is behind the mirror.\n\nBye.")
        assert server.refused == []
        for taken in (server.taken[3], server.taken[4]):
            sent = blocks(taken)
            thoughts = [one for answer in (first, second, third) for one in answer if one["type"] in THOUGHTS]
            assert [one for one in sent if one["type"] in THOUGHTS] == thoughts
            texts = [one for answer in (first, second, third) for one in answer if one["type"] == "text"]
            assert all(one in sent for one in texts)
            assert {"type": "base64", "media_type": "image/png", "data": PIXEL} in [one.get("source") for one in sent]
        assert server.taken[0]["thinking"] == {"type": "enabled", "budget_tokens": 16_384}


async def test_responses_client_brings_back_thoughts_in_its_items(tmp_path: Path) -> None:
    """Sealed in `encrypted_content`; nothing is stored."""
    first = [thinks("I look."), says("One moment."), calls("look_up", {"word": "safe"})]
    async with serving(first, [hides("eHg="), says("A box.")], [says("Bye.")], key=KEY) as server:
        async with talking(server, tmp_path) as world:
            client = Client(world)
            fields: Json = {
                "tools": [{"type": "function", **LOOK}],
                "store": False,
                "include": ["reasoning.encrypted_content"],
                "reasoning": {"effort": "high"},
            }
            history: list[Json] = [{"role": "user", "content": "How is it?"}]
            made = await client.create(history, **fields)
            history += made.json["output"]
            (call,) = (item for item in history if item.get("type") == "function_call")
            history.append({"type": "function_call_output", "call_id": call["call_id"], "output": "dark"})
            again = await client.create(history, **fields)
            history += [*again.json["output"], {"role": "user", "content": "Thanks."}]
            assert (await client.create(history, **fields)).status == 200
        assert server.refused == []
        assert kinds(server.taken[2]) == [
            ["text"],
            ["thinking", "text", "tool_use"],
            ["tool_result"],
            ["redacted_thinking", "text"],
            ["text"],
        ]


async def test_conversation_moves_between_a_chat_model_and_a_messages_model(tmp_path: Path) -> None:
    """Each gets its own form of the same request; thoughts of the one are nothing to the other."""
    busy = Answer([], status=529, error={"type": "overloaded_error", "message": "Overloaded"})
    async with (
        Model(chat_says({"reasoning_content": "Hm."}, "One.")) as chat,
        serving(busy, [says("Two.")], key=KEY) as server,
    ):
        other = {"name": "other", "base_url": chat.upstream.base_url, "api_key": "k"}
        retry: Json = {"fallback": ["other"], "retry": {"tries": 2}, "breaker": {"failures": 0}}
        async with talking(server, tmp_path, other, upstream=retry, tools={}) as world:
            first = await world.chat("Hi.", seed=7)
            assert first.text == "One."
            history = [{"role": "user", "content": "Hi."}, first.message, {"role": "user", "content": "And?"}]
            assert (await world.chat(history, seed=7)).text == "Two."
        assert chat.asked[0]["seed"] == 7 and chat.asked[0]["stream_options"] == {"include_usage": True}
        assert server.refused == [] and "seed" not in server.taken[1]
        assert kinds(server.taken[1]) == [["text"], ["text"], ["text"]]


async def test_cached_tokens_are_in_the_usage_of_the_answer_and_of_the_gateway(tmp_path: Path) -> None:
    """The first request writes the cache, and the second one reads it."""
    text = "Tell me all about mirrors. " * 40
    async with serving([says("One.")], [says("Two.")], key=KEY) as server:
        async with talking(server, tmp_path, usage={"enabled": True}) as world:
            first = await world.chat([{"role": "user", "content": text}])
            usage = first.json["usage"]
            assert usage["cache_creation_input_tokens"] > 200 and usage["prompt_tokens_details"] == {"cached_tokens": 0}
            history = [{"role": "user", "content": text}, first.message, {"role": "user", "content": "More."}]
            stream = await world.stream(history, stream_options={"include_usage": True})
            told = stream.frames[-1]["usage"]
            assert told["prompt_tokens_details"]["cached_tokens"] == usage["cache_creation_input_tokens"]
            page = await until_read(
                lambda: world.get("/context/usage"), lambda one: one.json["data"][0]["requests"] == 2
            )
            (row,) = page.json["data"]
            assert row["cached"] == usage["cache_creation_input_tokens"]
        assert [len(marks(body)) for body in server.taken] == [3, 4]
    async with serving([says("One.")], key=KEY) as server:
        async with talking(server, tmp_path, tools={}, upstream={"messages": {"prompt_caching": False}}) as world:
            await world.chat("Hi.")
        assert marks(server.taken[0]) == []


def marks(body: Json) -> list[Json]:
    """The marks of a request."""
    system: list[Json] = body.get("system", [])
    every = [*body.get("tools", []), *system, *(block for turn in body["messages"] for block in turn["content"])]
    return [block["cache_control"] for block in every if "cache_control" in block]


async def test_list_of_models_health_and_traces_use_the_api(tmp_path: Path) -> None:
    """The key goes by its header, and a span names the path that was called."""
    health = {"path": "/models", "interval": "100ms", "timeout": "2s"}
    async with Collector() as collector, serving([says("Hi.")], key=KEY) as server:
        tracing = {"endpoint": collector.url}
        async with talking(server, tmp_path, tools={}, tracing=tracing, upstream={"health": health}) as world:
            listed = (await world.get("/context/v1/models")).json
            assert listed["object"] == "list" and {model["object"] for model in listed["data"]} == {"model"}
            assert [model["id"] for model in listed["data"]] == ["claude-b", "claude-a"]
            assert (await world.chat("Hi.")).text == "Hi."
            assert await world.counted('gateway_upstream_endpoint_healthy{endpoint="x",upstream="up"}') == 0
        urls = [one.attributes.get("url.full") for one in collector.spans if one.name == "POST"]
        assert urls == [f"{server.url}/v1/messages"]
        assert {"limit": "1000"} in server.pages


async def test_refusals_of_the_api_reach_the_client_in_its_own_words(tmp_path: Path) -> None:
    refusal = {"type": "invalid_request_error", "message": "prompt is too long: 250000 tokens > 200000 maximum"}
    limited = {"type": "rate_limit_error", "message": "Number of request tokens has exceeded your limit"}
    answers = Answer([], status=400, error=refusal), Answer([], status=429, error=limited)
    async with serving(*answers, key=KEY) as server, talking(server, tmp_path, tools={}) as world:
        long = await world.chat("Hi.")
        assert (long.status, long.json["error"]["code"]) == (400, "context_length_exceeded")
        assert "prompt is too long" in long.json["error"]["message"]
        busy = await world.chat("Hi.")
        assert busy.status == 429 and "has exceeded your limit" in busy.json["error"]["message"]
    async with serving([says("Hi.")], key="another") as server, talking(server, tmp_path, tools={}) as world:
        refused = await world.chat("Hi.")
        assert (refused.status, refused.json["error"]["code"]) == (401, "upstream_refused")
        assert KEY not in refused.json["error"]["message"]


async def test_explain_names_what_the_model_does_not_get(tmp_path: Path) -> None:
    async with serving([says("Hi.")], key=KEY) as server, talking(server, tmp_path, tools={}) as world:
        body: Json = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "seed": 7, "temperature": 0.5}
        explained = (await world.post(body, path="/context/explain")).json
        (candidate,) = explained["candidates"]
        assert (candidate["api"], candidate["not_sent"]) == ("messages", ["seed"])


async def test_messages_client_loses_nothing_over_a_messages_model(tmp_path: Path) -> None:
    """The version of its program, an effort in the middle, and how long an instruction counts."""
    line = {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1; cc_entrypoint=cli;"}
    asks: list[Json] = [
        {"role": "user", "content": "Hi."},
        {"role": "system", "content": "It is late.", "clear_at": "next_user_message"},
        {"role": "assistant", "content": "Good night."},
        {"role": "user", "content": "And now?"},
        {"role": "system", "output_config": {"effort": "low"}},
    ]
    async with serving([says("Bye.")], key=KEY) as server:
        async with talking(server, tmp_path, tools={}) as world:
            prompt = {"type": "text", "text": "Be brief."}
            body: Json = {"model": "m", "max_tokens": 99, "system": [line, prompt], "messages": asks}
            answer = await world.post(body, path="/context/v1/messages")
            assert answer.json["content"][0]["text"] == "Bye."
        assert server.refused == []
        (sent,) = server.taken
    assert [block["text"] for block in sent["system"]] == [line["text"], "Be brief."]
    assert [turn for turn in sent["messages"] if turn["role"] == "system"] == [
        {"role": "system", "content": [{"type": "text", "text": "It is late."}], "clear_at": "next_user_message"},
        {"role": "system", "content": [], "output_config": {"effort": "low"}},
    ]


@pytest.mark.parametrize("field", ["output_config", "output_format"])
async def test_wanted_format_holds_behind_a_tool_of_the_gateway(tmp_path: Path, field: str) -> None:
    """The model calls in its own words, and then answers in the format."""
    schema = {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}
    wanted = {"type": "json_schema", "schema": schema}
    body: Json = {"model": "m", "max_tokens": 99, "messages": [{"role": "user", "content": "Where?"}]}
    body[field] = {"format": wanted, "effort": "low"} if field == "output_config" else wanted
    named = {"X-Context-Tools": "file_operations"}  # an answer in a format has the tools that its client names
    answers = [calls("file_operations", READ)], [says("Behind the mirror.")], [says('{"place": "mirror"}')]
    async with serving(*answers, key=KEY) as server, talking(server, tmp_path) as world:
        answer = await world.post(body, path="/context/v1/messages", headers=named)
        assert [block["text"] for block in answer.json["content"]] == ['{"place": "mirror"}']
        assert server.refused == []
    assert [sent.get("output_config", {}).get("format") for sent in server.taken] == [None, None, wanted]


async def test_refused_turns_of_the_system_are_text_from_then_on(tmp_path: Path) -> None:
    """The client notices nothing."""
    asks: list[Json] = [{"role": "user", "content": "Hi."}, {"role": "system", "content": "It is late."}]
    async with serving([says("Bye.")], key=KEY, knows_system=False) as server:
        async with talking(server, tmp_path, tools={}) as world:
            for _ in range(2):
                assert (await world.chat(asks)).text == "Bye."
            explained = (await world.post({"model": "m", "messages": asks}, path="/context/explain")).json
            assert explained["candidates"][0]["quirks"] == ["no_system_role"]
        assert [fault for _, fault in server.refused] == ["role 'system' is not supported on this model"]
        assert kinds(server.taken[1]) == [["text", "text"]]
