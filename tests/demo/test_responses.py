"""OpenAI's Responses over a real socket."""

import aiohttp
import pytest

from .talk import Json, post, post_stream, user

PATH = "/v1/responses"


async def ask(client: aiohttp.ClientSession, prompt: str | list[Json], **more: object) -> Json:
    return await post(client, PATH, {"model": "demo", "input": prompt, **more})


async def ask_stream(client: aiohttp.ClientSession, prompt: str, **more: object) -> list[Json]:
    events = await post_stream(client, PATH, {"model": "demo", "input": prompt, **more})
    assert all(isinstance(event, dict) for event in events)
    return events


async def test_response_has_a_message_and_usage(client: aiohttp.ClientSession) -> None:
    """A response is completed, has one message and usage."""
    answer = await ask(client, "hello", instructions="Be kind.")
    (message,) = answer["output"]
    assert (answer["object"], answer["status"], answer["error"]) == ("response", "completed", None)
    assert answer["completed_at"] == answer["created_at"]
    assert '"hello"' in message["content"][0]["text"]
    assert answer["usage"]["total_tokens"] == answer["usage"]["input_tokens"] + answer["usage"]["output_tokens"]


async def test_response_stream_events_are_ordered_and_numbered(client: aiohttp.ClientSession) -> None:
    """The events come in order, numbered from 0, and end with the whole response."""
    events = await ask_stream(client, "long 2")
    assert [event["sequence_number"] for event in events] == list(range(10))
    assert [event["type"] for event in events] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert events[-1]["response"]["output"] == [events[-2]["item"]]
    assert events[0]["response"]["completed_at"] is None
    assert events[2]["item"] == {**events[-2]["item"], "status": "in_progress", "content": []}


async def test_reasoning_item_precedes_the_message(client: aiohttp.ClientSession) -> None:
    """Thinking is an item of its own before the message."""
    assert [item["type"] for item in (await ask(client, "think hello"))["output"]] == ["reasoning", "message"]
    events = await ask_stream(client, "think hello")
    reasoning = [event for event in events if "reasoning" in event["type"]]
    text = "".join(event["delta"] for event in reasoning if event["type"].endswith("delta"))
    assert reasoning[-1]["part"]["text"] == text
    assert {event["output_index"] for event in reasoning} == {0}


async def test_function_call_items_and_results_are_answered(client: aiohttp.ClientSession) -> None:
    """Calls are items; their results, sent back with them, are mentioned in the answer."""
    prompt = 'native a {"x": 1} native b {}'
    calls = (await ask(client, prompt))["output"]
    assert [(call["type"], call["name"], call["arguments"]) for call in calls] == [
        ("function_call", "a", '{"x": 1}'),
        ("function_call", "b", "{}"),
    ]
    outputs = [
        {"type": "function_call_output", "call_id": call["call_id"], "output": f"from {call['name']}"} for call in calls
    ]
    reasoning = {"type": "reasoning", "summary": []}
    answer = await ask(client, [{"type": "message", **user(prompt)}, reasoning, *calls, *outputs])
    assert "from a" in answer["output"][0]["content"][0]["text"]
    assert "from b" in answer["output"][0]["content"][0]["text"]


async def test_client_function_is_called_as_tool_choice_allows(client: aiohttp.ClientSession) -> None:
    """A message about a function of the request is answered with its call, as far as tool_choice lets it."""
    prompt = "What's the weather like in San Francisco?"
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    tools = [{"type": "function", "name": "get_weather", "parameters": parameters}]
    (call,) = (await ask(client, prompt, tools=tools))["output"]
    assert (call["type"], call["name"]) == ("function_call", "get_weather")
    assert call["arguments"] == '{"city":"San Francisco"}'
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}
    (message,) = (await ask(client, [user(prompt), call, output], tools=tools))["output"]
    assert "sunny" in message["content"][0]["text"]
    assert (await ask(client, prompt, tools=tools, tool_choice="none"))["output"][0]["type"] == "message"
    for choice in ("required", {"type": "function", "name": "get_weather"}):
        (forced,) = (await ask(client, "hello", tools=tools, tool_choice=choice))["output"]
        assert forced["arguments"] == '{"city":"hello"}'


async def test_streamed_argument_deltas_add_up_to_the_item(client: aiohttp.ClientSession) -> None:
    """The deltas of the arguments add up to the finished item's."""
    events = await ask_stream(client, 'native a {"city": "Köln"}')
    deltas = [event["delta"] for event in events if event["type"] == "response.function_call_arguments.delta"]
    assert "".join(deltas) == events[-2]["item"]["arguments"] == '{"city": "Köln"}'
    assert len(deltas) > 1


async def test_token_limit_makes_the_response_incomplete(client: aiohttp.ClientSession) -> None:
    """A limit makes the response incomplete, and the stream's last event says so."""
    answer = await ask(client, "hello", max_output_tokens=2)
    assert (answer["status"], answer["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert (await ask_stream(client, "hello", max_output_tokens=2))[-1]["type"] == "response.incomplete"


async def test_earlier_turns_do_not_affect_the_answer(client: aiohttp.ClientSession) -> None:
    """An earlier turn stays in the past."""
    output = (await ask(client, "hello"))["output"]
    answer = await ask(client, [user("long 5"), *output, {"role": "developer", "content": "long 7"}, user("thanks")])
    assert '"thanks"' in answer["output"][0]["content"][0]["text"]


@pytest.mark.parametrize("value", [None, [], [3], [{"role": "robot", "content": ""}], [{"type": 3}]])
async def test_invalid_input_returns_400(client: aiohttp.ClientSession, value: object) -> None:
    """An input of the wrong shape is a 400 that names it."""
    async with client.post(PATH, json={"input": value}) as response:
        assert (response.status, (await response.json())["error"]["param"]) == (400, "input")
