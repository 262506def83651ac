"""Anthropic's Messages over a real socket."""

import aiohttp
import pytest

from .talk import Json, post, post_stream, user

PATH = "/v1/messages?beta=true"


async def ask(client: aiohttp.ClientSession, *messages: str | Json, **more: object) -> Json:
    return await post(client, PATH, body_of(*messages, **more))


def body_of(*messages: str | Json, **more: object) -> Json:
    return {
        "model": "demo",
        "max_tokens": 1000,
        "messages": [user(m) if isinstance(m, str) else m for m in messages],
        **more,
    }


async def test_message_has_content_stop_reason_and_usage(client: aiohttp.ClientSession) -> None:
    """A message has content blocks, a stop reason and usage."""
    answer = await ask(client, "hello", system=[{"type": "text", "text": "Be kind."}])
    (block,) = answer["content"]
    assert (answer["type"], answer["role"], answer["stop_reason"]) == ("message", "assistant", "end_turn")
    assert '"hello"' in block["text"]
    assert answer["usage"]["input_tokens"] > 0 and answer["usage"]["output_tokens"] > 0


async def test_message_stream_events_follow_the_api_order(client: aiohttp.ClientSession) -> None:
    """The events come in the API's order and add up to the message."""
    events = await post_stream(client, PATH, body_of("long 2"))
    assert [event["type"] for event in events] == [
        "message_start",
        "ping",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert (events[0]["message"]["content"], events[0]["message"]["stop_reason"]) == ([], None)
    assert events[6]["delta"]["stop_reason"] == "end_turn" and events[6]["usage"]["output_tokens"] == 2


async def test_signed_thinking_block_precedes_the_text(client: aiohttp.ClientSession) -> None:
    """Thinking is a signed block before the text, in a stream as well."""
    assert [block["type"] for block in (await ask(client, "think hello"))["content"]] == ["thinking", "text"]
    events = await post_stream(client, PATH, body_of("think hello"))
    deltas = [event["delta"]["type"] for event in events if event["type"] == "content_block_delta"]
    assert list(dict.fromkeys(deltas)) == ["thinking_delta", "signature_delta", "text_delta"]


async def test_tool_use_result_is_mentioned_in_the_answer(client: aiohttp.ClientSession) -> None:
    """A call is a tool_use block; its result is mentioned, also when a reminder follows it."""
    prompt = 'native a {"city": "Köln"}'
    first = await ask(client, prompt)
    (use,) = first["content"]
    assert (first["stop_reason"], use["type"], use["name"], use["input"]) == (
        "tool_use",
        "tool_use",
        "a",
        {"city": "Köln"},
    )
    result = {"type": "tool_result", "tool_use_id": use["id"], "content": [{"type": "text", "text": "sunny"}]}
    reminder = {"type": "text", "text": "<system-reminder>be kind</system-reminder>"}
    turn = {"role": "assistant", "content": first["content"]}
    for content in ([result], [result, reminder]):
        answer = await ask(client, prompt, turn, {"role": "user", "content": content})
        assert "sunny" in answer["content"][0]["text"]


async def test_client_tool_is_called_as_tool_choice_allows(client: aiohttp.ClientSession) -> None:
    """A message about a tool with a schema is answered with its call, as far as tool_choice lets it."""
    prompt = "What's the weather like in San Francisco?"
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    tools = [{"type": "weather_20260101", "name": "weather"}, {"name": "get_weather", "input_schema": schema}]
    first = await ask(client, prompt, tools=tools)
    (use,) = first["content"]
    assert (first["stop_reason"], use["name"], use["input"]) == ("tool_use", "get_weather", {"city": "San Francisco"})
    result = {"type": "tool_result", "tool_use_id": use["id"], "content": "sunny"}
    turn = {"role": "assistant", "content": first["content"]}
    answer = await ask(client, prompt, turn, {"role": "user", "content": [result]}, tools=tools)
    assert "sunny" in answer["content"][0]["text"]


@pytest.mark.parametrize(
    ("choice", "kind"),
    [
        (None, "text"),
        ({"type": "auto"}, "text"),
        ({"type": "none"}, "text"),
        ({"type": "any"}, "tool_use"),
        ({"type": "tool", "name": "get_weather"}, "tool_use"),
        ({"type": "tool", "name": "other"}, "text"),
    ],
)
async def test_tool_choice_any_forces_a_tool_call(
    client: aiohttp.ClientSession, choice: Json | None, kind: str
) -> None:
    """`any` and a named tool call one that no word fits."""
    tools = [{"type": "custom", "name": "get_weather", "input_schema": {"type": "object"}}]
    (block,) = (await ask(client, "hello", tools=tools, tool_choice=choice))["content"]
    assert block["type"] == kind
    (block,) = (await ask(client, "weather", tools=tools, tool_choice={"type": "none"}))["content"]
    assert block["type"] == "text"


async def test_streamed_tool_input_deltas_add_up(client: aiohttp.ClientSession) -> None:
    """The pieces of JSON add up to the input; a malformed call's do not make JSON."""
    for prompt, whole in (('native a {"b": 1}', '{"b": 1}'), ('malformed native a {"b": 1}', '{"b": 1')):
        events = await post_stream(client, PATH, body_of(prompt))
        deltas = [event["delta"]["partial_json"] for event in events if event["type"] == "content_block_delta"]
        assert "".join(deltas) == whole


async def test_malformed_tool_call_is_retried(client: aiohttp.ClientSession) -> None:
    """A malformed call is recognised in the history and retried."""
    prompt = 'malformed native a {"b": 1}'
    first = await ask(client, prompt)
    turn = {"role": "assistant", "content": first["content"]}
    complaint = {"type": "tool_result", "tool_use_id": first["content"][0]["id"], "content": "bad input"}
    retried = await ask(client, prompt, turn, {"role": "user", "content": [complaint]})
    assert first["content"][0]["input"] != {"b": 1} and retried["content"][0]["input"] == {"b": 1}


async def test_token_limit_stops_with_max_tokens(client: aiohttp.ClientSession) -> None:
    """A limit ends the message with max_tokens."""
    assert (await ask(client, "hello", max_tokens=2))["stop_reason"] == "max_tokens"


async def test_earlier_turns_and_system_messages_are_not_prompts(client: aiohttp.ClientSession) -> None:
    """An earlier turn stays in the past, and a system message is no prompt."""
    said = {"role": "assistant", "content": "Done."}
    answer = await ask(client, "long 5", said, {"role": "system", "content": "long 9"}, "thanks")
    assert '"thanks"' in answer["content"][0]["text"]


async def test_token_count_equals_usage_of_the_answer(client: aiohttp.ClientSession) -> None:
    """The count of a prompt is the usage of its answer."""
    count = await post(client, "/v1/messages/count_tokens", body_of("hello there"))
    assert count == {"input_tokens": (await ask(client, "hello there"))["usage"]["input_tokens"]}


@pytest.mark.parametrize(
    ("prompt", "status", "kind"),
    [("error 400", 400, "invalid_request_error"), ("error 429", 429, "rate_limit_error"),
     ("error 500", 500, "api_error"), ("error 529", 529, "overloaded_error")],
)  # fmt: skip
async def test_errors_have_anthropic_shape_and_type(
    client: aiohttp.ClientSession, prompt: str, status: int, kind: str
) -> None:
    """Errors have Anthropic's shape and types."""
    async with client.post(PATH, json=body_of(prompt)) as response:
        body = await response.json()
    assert (response.status, body["type"], body["error"]["type"]) == (status, "error", kind)


async def test_unknown_role_returns_400(client: aiohttp.ClientSession) -> None:
    """A role that the API does not know is refused."""
    async with client.post(PATH, json=body_of({"role": "robot", "content": "hello"})) as response:
        assert response.status == 400
