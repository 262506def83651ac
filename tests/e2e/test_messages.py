"""Messages in context mode over real sockets: what a client sends reaches the model, and its answer comes back."""

import asyncio
import base64
import gzip
import hashlib
import json
from pathlib import Path

import pytest

from .messaging import PATH, accumulate, build_request, read_events, send, stream
from .models import CUT, Answer, Json, native, refuses, says
from .talking import desk, talking

PNG = base64.b64encode(b"\x89PNG").decode()
WEATHER: Json = {"name": "get_weather", "description": "The weather", "input_schema": {"type": "object"}}
MARK = {"type": "ephemeral"}
ASKED: Json = {"role": "user", "content": "The weather?"}
USE: Json = {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Malmö"}}


@pytest.mark.parametrize("path", [PATH, "/context/messages", "/v1/messages", f"{PATH}?beta=true", f"{PATH}/"])
async def test_message_is_answered_on_each_path(path: str) -> None:
    """Without `/context` by a header of the lane; with the query of the beta client, too."""
    async with talking(says("Hi ", "there.")) as world:
        answer = await send(world, path=path, headers={"X-Context-Mode": "context"})
    assert answer.status == 200 and answer.headers["request-id"] == answer.headers["x-request-id"]
    assert answer.json == {
        "id": "msg_" + answer.headers["request-id"].removeprefix("run_"),
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": "Hi there."}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 11,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 7,
        },
    }


async def test_stream_tells_the_same_message() -> None:
    """Thoughts, a text and two calls, each a block; the tokens come with the end."""
    begun = [
        {"tool_calls": [{"index": i, "id": f"call_{i}", "function": {"name": "get_weather", "arguments": ""}}]}
        for i in range(2)
    ]
    arguments = [{"tool_calls": [{"index": 0, "function": {"arguments": part}}]} for part in ('{"city": ', '"Malmö"}')]
    thoughts = ({"reasoning_content": "Let me "}, {"reasoning_content": "think."})
    script = Answer((*thoughts, "I look", begun[0], *arguments, begun[1]), finish="tool_calls")
    async with talking(script, script, chains={"assistant": []}, tools={}) as world:
        whole = (await send(world, tools=[WEATHER])).json
        told = accumulate(await stream(world, tools=[WEATHER]))
    assert (
        told["content"]
        == whole["content"]
        == [
            {"type": "thinking", "thinking": "Let me think.", "signature": "unsigned"},
            {"type": "text", "text": "I look"},
            {"type": "tool_use", "id": "call_0", "name": "get_weather", "input": {"city": "Malmö"}},
            {"type": "tool_use", "id": "call_1", "name": "get_weather", "input": {}},
        ]
    )
    assert told["stop_reason"] == whole["stop_reason"] == "tool_use"
    assert told["usage"] == whole["usage"] and told["usage"]["output_tokens"] == 7


async def test_chat_model_gets_nothing_that_only_messages_have() -> None:
    """Blocks become parts, results messages; marks, extras and the API's own fields stay here."""
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
    messages: list[Json] = [
        {"role": "user", "content": [{"type": "text", "text": "Look:", "cache_control": MARK}, picture]},
        {"role": "user", "content": "The weather?"},
        {
            "role": "assistant",
            "content": [{"type": "thinking", "thinking": "Hm.", "signature": "unsigned"}, USE],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "is_error": True, "content": [picture]},
                {"type": "text", "text": "And now?"},
            ],
        },
    ]
    async with talking(says("Fine."), chains={"assistant": []}) as world:
        answer = await send(
            world,
            messages,
            system=[
                {"type": "text", "text": "x-anthropic-billing-header: cc_version=2;"},
                {"type": "text", "text": "Be brief.", "cache_control": MARK},
                {"type": "text", "text": "Be kind."},
            ],
            tools=[{**WEATHER, "cache_control": MARK, "input_examples": [{}]}],
            tool_choice={"type": "auto", "disable_parallel_tool_use": True},
            stop_sequences=["END"],
            metadata={"user_id": "anna"},
            thinking={"type": "enabled", "budget_tokens": 5000},
            top_k=5,
            service_tier="auto",
            output_config={"effort": "high"},
        )
        (sent,) = world.model.asked
    assert answer.status == 200, answer.json
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
    arguments = '{"city":"Malmö"}'
    call = {"id": "toolu_1", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}
    function = {"name": "get_weather", "description": "The weather", "parameters": {"type": "object"}}
    assert sent == {
        "model": "m",
        "max_tokens": 100,
        "stop": ["END"],
        "user": "anna",
        "parallel_tool_calls": False,
        "reasoning_effort": "medium",
        "tools": [{"type": "function", "function": function}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [
            {"role": "system", "content": "Be brief.\n\nBe kind."},
            {
                "role": "user",
                "content": [{"type": "text", "text": "Look:"}, image, {"type": "text", "text": "The weather?"}],
            },
            {"role": "assistant", "content": None, "reasoning_content": "Hm.", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "toolu_1", "content": "Error: The output is in the next message."},
            {"role": "user", "content": [image, {"type": "text", "text": "And now?"}]},
        ],
    }


@pytest.mark.parametrize(
    ("finish", "further", "reason", "sequence"),
    [
        ("stop", {}, "end_turn", None),
        ("length", {}, "max_tokens", None),
        ("length", {"native_finish_reason": "model_context_window_exceeded"}, "model_context_window_exceeded", None),
        ("content_filter", {}, "refusal", None),
        ("stop", {"native_finish_reason": "pause_turn"}, "pause_turn", None),
        ("stop", {"native_finish_reason": "refusal"}, "refusal", None),
        ("stop", {"stop_reason": "END"}, "stop_sequence", "END"),
        ("stop", {"stop_sequence": "END"}, "stop_sequence", "END"),
        ("stop", {"stop_reason": "other"}, "end_turn", None),
        ("stop", {"native_finish_reason": "tool_use"}, "end_turn", None),
    ],
)
async def test_stop_reasons(finish: str, further: Json, reason: str, sequence: str | None) -> None:
    """In the words of Messages, as far as a model's server tells them."""
    last = json.dumps({"choices": [{"index": 0, "delta": {}, "finish_reason": finish, **further}]}).encode()
    async with talking(says("Hi", last, finish=None)) as world:
        told = accumulate(await stream(world, stop_sequences=["END"]))
    assert (told["stop_reason"], told["stop_sequence"]) == (reason, sequence)


async def test_cached_tokens_count_apart() -> None:
    """Input is what no cache gave or took."""
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 9,
        "prompt_tokens_details": {"cached_tokens": 60},
        "cache_creation_input_tokens": 30,
        "completion_tokens_details": {"reasoning_tokens": 4},
    }
    last = json.dumps({"choices": [], "usage": usage}).encode()
    async with talking(says("Hi", usage=None).but(pieces=("Hi", last))) as world:
        told = (await send(world)).json["usage"]
    assert told == {
        "input_tokens": 10,
        "cache_creation_input_tokens": 30,
        "cache_read_input_tokens": 60,
        "output_tokens": 9,
        "output_tokens_details": {"thinking_tokens": 4},
    }


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (402, "billing_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (413, "request_too_large"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (504, "timeout_error"),
        (529, "overloaded_error"),
    ],
)
async def test_error_of_the_model_has_the_type_of_its_status(status: int, kind: str) -> None:
    """In Anthropic's envelope, with the gateway's code in the text."""
    async with talking(refuses(status, "No.")) as world:
        answer = await send(world)
    assert answer.status == status and answer.headers["request-id"] == answer.headers["x-request-id"]
    assert answer.json.keys() == {"type", "error", "request_id"} and answer.json["type"] == "error"
    assert answer.json["request_id"] == answer.headers["request-id"]
    assert answer.json["error"]["type"] == kind
    assert "upstream_" in answer.json["error"]["message"] and "No." in answer.json["error"]["message"]


async def test_error_in_a_stream_ends_it() -> None:
    """As an event of its own, without an end of the message."""
    async with talking(says("Hi", CUT)) as world:
        events = await stream(world)
    assert [event["type"] for event in events][-1] == "error"
    assert events[-1]["error"]["type"] == "api_error" and events[-1]["request_id"].startswith("run_")


@pytest.mark.parametrize(
    ("method", "path", "status", "kind"),
    [
        ("GET", PATH, 405, "invalid_request_error"),
        ("POST", PATH, 401, "authentication_error"),
        ("POST", f"{PATH}/count_tokens", 401, "authentication_error"),
    ],
)
async def test_refusals_before_the_request_is_read_have_the_envelope_too(
    method: str, path: str, status: int, kind: str
) -> None:
    """A wrong method, no key."""
    keys = [{"name": "anna", "sha256": hashlib.sha256(b"gw-secret").hexdigest(), "scopes": ["context"]}]
    async with talking(keys=keys) as world:
        headers = {} if status == 401 else {"X-Gateway-Key": "gw-secret"}
        answer = await world.post(build_request("Hi"), path=path, method=method, headers=headers)
    assert (answer.status, answer.json["type"], answer.json["error"]["type"]) == (status, "error", kind)
    assert answer.json["request_id"] == answer.headers["request-id"]


async def test_silence_is_filled_with_pings() -> None:
    """Until the model goes on."""
    goes_on = asyncio.Event()
    async with talking(
        says("Hi", goes_on, " there."), context={"stream": {"keepalive": 0.05, "status_wait": 0.05}}
    ) as world:
        request = world.session.post(PATH, json=build_request("Hello?", stream=True))
        async with request as response:
            raw = b""
            while raw.count(b"event: ping") < 4:
                raw += await response.content.readuntil(b"\n\n")
            goes_on.set()
            raw += await response.read()
    assert accumulate(read_events(raw.decode()))["content"] == [{"type": "text", "text": "Hi there."}]


async def test_compressed_body_is_read() -> None:
    """As gzip; another coding is named in the refusal."""
    content = gzip.compress(json.dumps(build_request("Hello?")).encode())
    async with talking(says("Hi")) as world:
        answer = await world.post(content, path=PATH, headers={"Content-Encoding": "gzip"})
        other = await world.post(content, path=PATH, headers={"Content-Encoding": "zstd"})
    assert answer.json["content"] == [{"type": "text", "text": "Hi"}]
    assert (other.status, other.headers["Accept-Encoding"]) == (415, "gzip, identity")


async def test_format_of_an_answer_reaches_a_chat_model() -> None:
    """With the name that chat completions require."""
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    wanted = {"format": {"type": "json_schema", "schema": schema}}
    async with talking(says('{"city": "Malmö"}')) as world:
        answer = await send(world, output_config=wanted)
        (sent,) = world.model.asked
    assert answer.json["content"] == [{"type": "text", "text": '{"city": "Malmö"}'}]
    assert sent["response_format"]["json_schema"] == {"name": "answer", "schema": schema, "strict": True}


async def test_models_are_listed_in_the_form_of_the_client() -> None:
    """By the version that clients of Messages send; other clients get the upstream's list as it is."""
    listed = {"object": "list", "data": [{"id": "a", "created": 1767225600}, {"id": "b", "object": "model"}]}
    version = {"anthropic-version": "2023-06-01"}
    async with talking(*[Answer(content=json.dumps(listed).encode())] * 4) as world:
        plain = await world.get("/context/v1/models")
        page = await world.get("/context/v1/models?limit=1", **version)
        one = await world.get("/context/v1/models/b", **version)
        none = await world.get("/context/v1/models/c", **version)
    assert plain.json == listed
    a = {"type": "model", "id": "a", "display_name": "a", "created_at": "2026-01-01T00:00:00Z", "lifecycle": "active"}
    assert page.json == {"data": [a], "has_more": True, "first_id": "a", "last_id": "a"}
    assert one.json == {**a, "id": "b", "display_name": "b", "created_at": "1970-01-01T00:00:00Z"}
    assert (none.status, none.json["error"]["type"]) == (404, "not_found_error")


async def test_tokens_are_counted_with_what_the_lane_adds(tmp_path: Path) -> None:
    """By an estimate; no model is called."""
    async with talking(tools=desk(tmp_path)) as world:
        counts = [
            (await world.post(content, path=f"{PATH}/count_tokens")).json["input_tokens"]
            for content in (
                {"model": "m", "messages": [{"role": "user", "content": "Hi"}]},
                {"model": "m", "messages": [{"role": "user", "content": "Hi" * 400}]},
            )
        ]
        refused = await world.post({"model": "m", "messages": []}, path=f"{PATH}/count_tokens")
        assert world.model.asked == []
    assert counts[0] > 100 and 195 <= counts[1] - counts[0] <= 205
    assert (refused.status, refused.json["error"]["type"]) == (400, "invalid_request_error")


async def test_known_betas_go_on_to_the_model() -> None:
    """A feature that the gateway does not know is left out, and the request is answered."""
    async with talking(says("Hi")) as world:
        headers = {"anthropic-beta": "context-1m-2025-08-07, compact-2026-09-04,unheard-of-2030-01-01"}
        answer = await send(world, headers=headers)
        (request,) = world.model.upstream.requests
    assert answer.status == 200
    assert b"anthropic-beta: context-1m-2025-08-07\r\n" in request.raw_head


async def test_large_call_of_the_client_is_not_cut() -> None:
    """Its arguments come as they were written."""
    async with talking(native(("get_weather", {"text": "x" * 100_000}))) as world:
        told = accumulate(await stream(world, tools=[WEATHER]))
    assert told["content"][0]["input"] == {"text": "x" * 100_000} and told["stop_reason"] == "tool_use"
