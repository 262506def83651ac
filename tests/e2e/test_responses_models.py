"""Models that speak Responses, behind chats and the Responses API: what they want back, they get back unharmed."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
from gateways import until_read

from gateway.testing.local_gateway import LocalGateway
from tests.api.responses.answering import Client
from tests.responses_server import Answer, Json, ResponsesServer, calls, reasons, says, serving

from .models import Model
from .models import says as chat_says
from .talking import NO_WORKFLOWS, World, desk, stages

KEY: Final = "sk-of-the-gateway"
PIXEL: Final = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
IMAGE: Final[Json] = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
USAGE: Final[Json] = {"enabled": True}
LOOK: Final[Json] = {"name": "look_up", "parameters": {"type": "object", "properties": {"word": {"type": "string"}}}}
READ: Final[Json] = {"operation": "read", "path": "notes.txt"}
WRITE: Final[Json] = {"operation": "write", "path": "new.txt", "content": "x", "risk_level": "high"}


@asynccontextmanager
async def talking(server: ResponsesServer, folder: Path, *others: Json, **settings: Any) -> AsyncIterator[World]:
    """A gateway in front of the server, and of other upstreams. Its `model` is not used."""
    up = {"name": "up", "base_url": server.url, "api": "responses", "api_key": KEY}
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


def kinds(body: Json) -> list[str]:
    """The kinds of the items of the input; the role of a message."""
    return [item["role"] if item["type"] == "message" else item["type"] for item in body["input"]]


def thoughts(items: list[Json]) -> list[Json]:
    """The reasoning items."""
    return [item for item in items if item["type"] == "reasoning"]


async def test_chat_client_brings_back_reasoning_images_and_calls_of_three_rounds(tmp_path: Path) -> None:
    """One round of the gateway's tool, one of the client's, one that a person approves, and all of it again."""
    own = {"type": "function", "function": LOOK}
    first = [
        reasons("I read.", "Then I look."),
        says("Let me see.", phase="commentary"),
        calls("file_operations", READ),
    ]
    second = [reasons(thought="hidden"), calls("look_up", {"word": "safe"})]
    third = [
        *(reasons("I write."), says("I write.", phase="commentary")),
        *(reasons("Carefully.", thought="more"), calls("file_operations", WRITE)),
    ]
    last = [reasons("Done.", thought="done"), says("It is behind the mirror.", phase="final_answer")]
    async with serving(first, second, third, last, [says("Bye.")], key=KEY) as server:
        async with talking(server, tmp_path) as world:
            asks: list[Json] = [
                {"role": "user", "content": [{"type": "text", "text": "Where? Read, and note."}, IMAGE]}
            ]
            called = await world.chat(asks, tools=[own], reasoning_effort="high")
            assert called.finish == "tool_calls"
            (call,) = called.message["tool_calls"]
            found = {"role": "tool", "tool_call_id": call["id"], "content": "A box."}
            asked = await world.chat([*asks, called.message, found], tools=[own])
            (approval,) = asked.asks
            await world.decide(approval["id"])
            await world.run(approval["run_id"], state="completed")
            history = [*asks, called.message, found, {**asked.message}, {"role": "user", "content": "Thanks."}]
            assert (await world.chat(history, tools=[own])).text.endswith("It is behind the mirror.\n\nBye.")
        assert server.refused == []
        for taken in (server.taken[3], server.taken[4]):
            assert thoughts(taken["input"]) == thoughts([*first, *second, *third])
            said = [item for item in taken["input"] if item.get("phase") == "commentary"]
            assert [item["content"] for item in said] == ["Let me see.", "I write."]
            images = [
                part
                for item in taken["input"]
                if isinstance(item.get("content"), list)
                for part in item["content"]
                if part["type"] == "input_image"
            ]
            assert [part["image_url"] for part in images] == [f"data:image/png;base64,{PIXEL}"]
        assert server.taken[0]["reasoning"] == {"effort": "high"}


async def test_responses_client_brings_back_reasoning_in_its_items(tmp_path: Path) -> None:
    """Packed in `encrypted_content`; nothing is stored."""
    first = [reasons("I look."), says("One moment."), calls("look_up", {"word": "safe"})]
    second = [reasons(thought="more"), says("A box.", phase="final_answer")]
    async with serving(first, second, [says("Bye.")], key=KEY) as server:
        async with talking(server, tmp_path) as world:
            client = Client(world)
            fields: Json = {
                "tools": [{"type": "function", **LOOK}],
                "store": False,
                "include": ["reasoning.encrypted_content"],
                "reasoning": {"effort": "high", "summary": "detailed"},
                "truncation": "auto",
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
            *("user", "reasoning", "assistant", "function_call", "function_call_output"),
            *("reasoning", "assistant", "user"),
        ]
        assert server.taken[2]["input"][6]["phase"] == "final_answer"
        assert server.taken[0]["reasoning"] == {"effort": "high", "summary": "detailed"}
        assert server.taken[0]["truncation"] == "auto"


async def test_conversation_moves_between_a_chat_model_and_a_responses_model(tmp_path: Path) -> None:
    """Each gets its own form of the same request; thoughts of the one are nothing to the other."""
    busy = Answer([], status=503, error={"message": "Overloaded", "type": "server_error"})
    async with (
        Model(chat_says({"reasoning_content": "Hm."}, "One.")) as chat,
        serving(busy, [says("Two.")], key=KEY) as server,
    ):
        other = {"name": "other", "base_url": chat.upstream.base_url, "api_key": "k"}
        retry: Json = {"fallback": ["other"], "retry": {"tries": 2}, "breaker": {"failures": 0}}
        async with talking(server, tmp_path, other, upstream=retry, tools={}) as world:
            client = Client(world)
            first = await client.create("Hi.", truncation="auto")
            assert first.json["output"][-1]["content"][0]["text"] == "One."
            history = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "One."}]
            assert (await world.chat([*history, {"role": "user", "content": "And?"}], seed=7)).text == "Two."
        assert "responses_api" not in chat.asked[0]
        assert server.refused == [] and "seed" not in server.taken[1]
        assert kinds(server.taken[1]) == ["user", "assistant", "user"]


async def test_model_that_can_do_less_is_asked_for_less(tmp_path: Path) -> None:
    """Its refusals are learnt: neither reasoning nor a temperature from then on."""
    unknown = ("temperature", "include", "reasoning")
    async with serving([says("Hi.")], unknown=unknown) as server, talking(server, tmp_path, tools={}) as world:
        for _ in range(2):
            assert (await world.chat("Hi.", temperature=0.5, reasoning_effort="low")).text == "Hi."
        assert len(server.heads) == 4 and unknown[0] not in server.taken[1]
        listed = (await world.get("/context/v1/models")).json
        assert [model["id"] for model in listed["data"]] == ["gpt-b"]
        (upstream,) = (await world.get("/context/upstreams")).json["data"]
        assert upstream["endpoints"][0]["learnt_quirks"] == {"m": ["no_reasoning", "no_sampling"]}


async def test_cached_tokens_are_in_the_usage_of_the_answer_and_of_the_gateway(tmp_path: Path) -> None:
    async with serving([says("One.")], key=KEY) as server, talking(server, tmp_path, usage=USAGE, tools={}) as world:
        usage = (await world.chat("Hi.")).json["usage"]
        assert (usage["prompt_tokens"], usage["completion_tokens"]) == (20, 12)
        assert usage["prompt_tokens_details"] == {"cached_tokens": 5}
        assert usage["completion_tokens_details"]["reasoning_tokens"] == 4
        page = await until_read(lambda: world.get("/context/usage"), lambda one: one.json["data"][0]["requests"] == 1)
        assert page.json["data"][0]["cached"] == 5


async def test_refusals_and_failures_of_the_api_reach_the_client_in_its_own_words(tmp_path: Path) -> None:
    long = {"message": "Your input exceeds the context window of this model.", "code": "context_length_exceeded"}
    failed = {"status": "failed", "error": {"code": "rate_limit_exceeded", "message": "Rate limit reached for gpt-b."}}
    cut = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    answers = (
        Answer([], status=400, error={**long, "type": "invalid_request_error", "param": "input"}),
        Answer([], about=failed),
        Answer([says("Half")], about=cut),
        Answer([says("Half")], events=b'event: response.created\ndata: {"type":"response.created","response":{}}\n\n'),
    )
    async with serving(*answers, key=KEY) as server, talking(server, tmp_path, tools={}) as world:
        refused = await world.chat("Hi.")
        assert (refused.status, refused.json["error"]["code"]) == (400, "context_length_exceeded")
        busy = await world.chat("Hi.")
        assert "Rate limit reached" in busy.json["error"]["message"]
        half = await world.chat("Hi.")
        assert (half.text, half.finish) == ("Half", "length")
        assert half.json["choices"][0]["native_finish_reason"] == "max_output_tokens"
        broken = await world.chat("Hi.")
        assert "without `response.completed`" in broken.json["error"]["message"]
    async with serving([says("Hi.")], key="another") as server, talking(server, tmp_path, tools={}) as world:
        wrong = await world.chat("Hi.")
        assert (wrong.status, wrong.json["error"]["code"]) == (401, "upstream_refused")


async def test_explain_names_what_the_model_does_not_get(tmp_path: Path) -> None:
    async with serving([says("Hi.")], key=KEY) as server, talking(server, tmp_path, tools={}) as world:
        body: Json = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stop": "x", "temperature": 0.5}
        explained = (await world.post(body, path="/context/explain")).json
        (candidate,) = explained["candidates"]
        assert (candidate["api"], candidate["not_sent"]) == ("responses", ["stop"])
