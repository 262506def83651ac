"""Chat completions over a real socket."""

import aiohttp
import pytest

from .talk import chat, chat_stream, user

WEATHER = 'native get_weather {"city": "Köln"}'


async def test_chat_completion_is_deterministic_with_usage(client: aiohttp.ClientSession) -> None:
    """A completion has usage, one choice and ids that only depend on the request."""
    answer = await chat(client, "hello", model="any-name")
    assert (answer["object"], answer["model"]) == ("chat.completion", "any-name")
    assert answer["usage"]["total_tokens"] == answer["usage"]["prompt_tokens"] + answer["usage"]["completion_tokens"]
    (choice,) = answer["choices"]
    assert (choice["index"], choice["finish_reason"], choice["message"]["role"]) == (0, "stop", "assistant")
    assert answer == await chat(client, "hello", model="any-name")
    assert answer["id"] != (await chat(client, "hello!", model="any-name"))["id"]


async def test_chat_stream_chunks_follow_the_protocol(client: aiohttp.ClientSession) -> None:
    """One id, created and model; the role first, one finish_reason last, then [DONE], and no usage unasked."""
    *chunks, done = await chat_stream(client, "long 5")
    assert done == "[DONE]"
    assert len({(chunk["id"], chunk["created"], chunk["model"], chunk["object"]) for chunk in chunks}) == 1
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    assert len(choices) == len(chunks) == 7 and all("usage" not in chunk for chunk in chunks)
    assert [choice["delta"].get("role") for choice in choices] == ["assistant"] + [None] * 6
    assert [choice["finish_reason"] for choice in choices] == [None] * 6 + ["stop"]
    assert "".join(choice["delta"].get("content", "") for choice in choices) == "word1 word2 word3 word4 word5 "


async def test_usage_frame_is_sent_only_when_requested(client: aiohttp.ClientSession) -> None:
    """Usage comes in a last frame without choices, only when it is asked for, and is that of the plain answer."""
    *_, usage, done = await chat_stream(client, "long 5", stream_options={"include_usage": True})
    assert done == "[DONE]"
    assert (usage["choices"], usage["usage"]) == ([], (await chat(client, "long 5"))["usage"])


async def test_reasoning_content_precedes_the_text(client: aiohttp.ClientSession) -> None:
    """Reasoning has its own field and comes before the text."""
    message = (await chat(client, "think hello"))["choices"][0]["message"]
    assert message["reasoning_content"] and "<think>" not in message["content"]
    chunks = (await chat_stream(client, "think hello"))[:-1]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    kinds = [next(iter(delta)) for delta in deltas[1:-1]]
    assert kinds == sorted(kinds, reverse=True) and set(kinds) == {"reasoning_content", "content"}


async def test_native_tool_calls_have_the_api_shape(client: aiohttp.ClientSession) -> None:
    """Native calls have an id, a type, a name and arguments as JSON text, and finish_reason tool_calls."""
    (choice,) = (await chat(client, WEATHER))["choices"]
    (call,) = choice["message"]["tool_calls"]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("tool_calls", None)
    assert call["function"] == {"name": "get_weather", "arguments": '{"city": "Köln"}'} and call["type"] == "function"
    result = {"role": "tool", "tool_call_id": call["id"], "content": "sunny"}
    answer = await chat(client, WEATHER, choice["message"], result)
    assert "sunny" in answer["choices"][0]["message"]["content"]


async def test_streamed_tool_calls_carry_index_id_and_name(client: aiohttp.ClientSession) -> None:
    """Streamed calls carry their index in each delta, and id, type and name in the first of each call only."""
    chunks = (await chat_stream(client, f"{WEATHER} native other {{}}"))[:-1]
    calls = [call for chunk in chunks for call in chunk["choices"][0]["delta"].get("tool_calls", [])]
    heads = [call for call in calls if "id" in call]
    assert [(call["index"], call["type"], call["function"]["name"]) for call in heads] == [
        (0, "function", "get_weather"),
        (1, "function", "other"),
    ]
    assert len({call["id"] for call in heads}) == 2
    texts = ["".join(call["function"]["arguments"] for call in calls if call["index"] == index) for index in (0, 1)]
    assert texts == ['{"city": "Köln"}', "{}"]
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"


async def test_client_function_is_called_as_tool_choice_allows(client: aiohttp.ClientSession) -> None:
    """A message about a function of the request is answered with its call, as far as tool_choice lets it."""
    prompt = "What's the weather like in San Francisco?"
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    tools = [{"type": "function", "function": {"name": "get_weather", "parameters": parameters}}]
    message = (await chat(client, prompt, tools=tools))["choices"][0]["message"]
    (call,) = message["tool_calls"]
    assert call["function"] == {"name": "get_weather", "arguments": '{"city":"San Francisco"}'}
    result = {"role": "tool", "tool_call_id": call["id"], "content": "sunny"}
    answer = await chat(client, prompt, message, result, tools=tools)
    assert "sunny" in answer["choices"][0]["message"]["content"]
    assert (await chat(client, prompt, tools=tools, tool_choice="none"))["choices"][0]["message"]["content"]
    named = {"type": "function", "function": {"name": "get_weather"}}
    for choice in ("required", named):
        (forced,) = (await chat(client, "hello", tools=tools, tool_choice=choice))["choices"]
        assert forced["message"]["tool_calls"][0]["function"]["arguments"] == '{"city":"hello"}'


async def test_system_and_developer_messages_are_not_prompts(client: aiohttp.ClientSession) -> None:
    """System and developer messages are not prompts; parts without text are left out."""
    image = {"type": "image_url", "image_url": {"url": "data:,"}}
    prompt = {"role": "user", "content": [{"type": "text", "text": "hello"}, image]}
    system = [{"role": "system", "content": "long 1"}, {"role": "developer", "content": "long 1"}]
    answer = await chat(client, *system, prompt)
    assert '"hello"' in answer["choices"][0]["message"]["content"]


async def test_malformed_call_in_the_history_is_retried(client: aiohttp.ClientSession) -> None:
    """A malformed native call that the client kept is retried after the complaint."""
    prompt = "malformed native x {}"
    message = (await chat(client, prompt))["choices"][0]["message"]
    complaint = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "not JSON"}
    retried = (await chat(client, prompt, message, complaint))["choices"][0]["message"]
    assert message["tool_calls"][0]["function"]["arguments"] == "{"
    assert retried["tool_calls"][0]["function"]["arguments"] == "{}"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"messages": []},
        {"messages": "hello"},
        {"messages": ["hello"]},
        {"messages": [user("hello")], "model": 3},
        {"messages": [{"role": "robot", "content": "hello"}]},
        {"messages": [{"role": ["user"], "content": "hello"}]},
        {"messages": [{"role": "user", "content": 3}]},
        {"messages": [{"role": "assistant", "tool_calls": "x"}]},
        {"messages": [user("hello")], "max_tokens": 0},
    ],
)
async def test_invalid_chat_bodies_return_400(client: aiohttp.ClientSession, body: object) -> None:
    """Bodies of the wrong shape are a 400 that names the field."""
    async with client.post("/v1/chat/completions", json=body) as response:
        error = (await response.json())["error"]
    assert (response.status, error["type"]) == (400, "invalid_request_error")
    assert error["param"] in ("messages", "model", "max_tokens") and error["message"]
