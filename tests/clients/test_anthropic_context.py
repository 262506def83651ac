"""anthropic-python in the context lane: each body and event is strictly what the SDK's own models say."""

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, get_args, get_origin

import anthropic
import pydantic
import pytest
from anthropic.types import Message, RawMessageStreamEvent
from anthropic.types.beta import BetaMessage, BetaRawMessageStreamEvent
from anthropic.types.shared import ErrorResponse

from tests.clients.lane import NOTE, Lane
from tests.clients.provider import FAILURES, PROVIDER_KEY

pytestmark = pytest.mark.clients

Json = dict[str, Any]
Messages = list[Any]

READ = 'tool file_operations {"operation": "read", "path": "note.txt"}'
WEATHER: Any = {
    "name": "get_weather",
    "description": "The weather of a city",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
}
CALL = 'native get_weather {"city": "Malmö", "days": 1}'
SHOWN: Any = {"mcp_servers": [{"type": "url", "name": "gateway", "url": "gateway"}]}
ROWS = ("anthropic-python", "anthropic-python, asynchronous")
Ask = Callable[..., BetaMessage]


@pytest.fixture
def client(lane: Lane) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=lane.root, api_key=PROVIDER_KEY, max_retries=0) as client:
        yield client


@pytest.fixture
def ask(request: pytest.FixtureRequest, lane: Lane, client: anthropic.Anthropic, *, stream: bool) -> Ask:
    """Sends a conversation, with the synchronous or the asynchronous client, and returns the whole message."""
    row = request.node.callspec.params["row"]

    def send(messages: Messages, **fields: Any) -> BetaMessage:
        fields = {"model": "demo", "max_tokens": 500, "messages": messages, **fields}
        if row == ROWS[0]:
            if not stream:
                return client.beta.messages.create(**fields)
            with client.beta.messages.stream(**fields) as events:
                return events.get_final_message()
        return asyncio.run(_send_asynchronously(lane.root, fields, stream=stream))

    return send


async def _send_asynchronously(root: str, fields: Json, *, stream: bool) -> BetaMessage:
    async with anthropic.AsyncAnthropic(base_url=root, api_key=PROVIDER_KEY, max_retries=0) as client:
        if not stream:
            message: BetaMessage = await client.beta.messages.create(**fields)
            return message
        async with client.beta.messages.stream(**fields) as events:
            return await events.get_final_message()


def words(message: BetaMessage | Message) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


def strictly(model: Any, value: Any, place: str = "") -> None:
    """Check a value against a model of the SDK: no field more, none less, in any depth."""
    pydantic.TypeAdapter(model).validate_python(value)
    found = pydantic.TypeAdapter(model).validate_python(value)
    _refuse_extras(found, place)


def _refuse_extras(found: Any, place: str) -> None:
    if isinstance(found, pydantic.BaseModel):
        assert not found.model_extra, f"{place} has {found.model_extra}"
        for name in type(found).model_fields:
            _refuse_extras(getattr(found, name), f"{place}.{name}")
    elif isinstance(found, list):
        for index, entry in enumerate(found):
            _refuse_extras(entry, f"{place}[{index}]")


def events_of(response: Any) -> list[Json]:
    """The events of a stream as they came."""
    frames = response.read().decode().split("\n\n")[:-1]
    return [json.loads(frame.partition("\ndata: ")[2]) for frame in frames]


@pytest.mark.parametrize("prompt", ["Say hello", "think, say hello", CALL, READ])
@pytest.mark.parametrize("shown", [False, True])
def test_bodies_and_events_are_strictly_the_sdks(client: anthropic.Anthropic, prompt: str, *, shown: bool) -> None:
    """With thoughts, calls of the client's and of the gateway's."""
    fields: Json = {"model": "demo", "max_tokens": 500, "messages": [{"role": "user", "content": prompt}]}
    fields |= {"tools": [WEATHER], **(SHOWN if shown else {})}
    raw = client.beta.messages.with_raw_response.create(**fields)
    strictly(BetaMessage if shown else Message, json.loads(raw.http_response.read()))
    event_model: Any = BetaRawMessageStreamEvent if shown else RawMessageStreamEvent
    assert get_args(event_model) or get_origin(event_model)
    for event in events_of(client.beta.messages.with_raw_response.create(**fields, stream=True).http_response):
        if event["type"] != "ping":
            strictly(event_model, event, event["type"])


@pytest.mark.parametrize("row", ROWS)
def test_turn_is_answered_with_a_tool_of_the_gateway(ask: Ask, row: str) -> None:
    """The client sees the answer alone, or the call, too, if it names the tools."""
    del row
    hidden = ask([{"role": "user", "content": READ}])
    assert [block.type for block in hidden.content] == ["text"] and NOTE in words(hidden)
    shown = ask([{"role": "user", "content": READ}], **SHOWN)
    assert [block.type for block in shown.content] == ["mcp_tool_use", "mcp_tool_result", "text"]
    assert hidden.usage.input_tokens > 0 and hidden.usage.output_tokens > 0


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.cell("mixed")
def test_mixed_turn_goes_on_with_both_results(ask: Ask, row: str) -> None:
    """A tool of the gateway, then one of the client's."""
    del row
    conversation: Messages = [{"role": "user", "content": f"{READ}, {CALL}"}]
    answer = ask(conversation, tools=[WEATHER], metadata={"user_id": "anna"})
    if answer.stop_reason != "tool_use":  # the script calls one tool in a turn
        conversation += [{"role": "assistant", "content": answer.content}, {"role": "user", "content": CALL}]
        answer = ask(conversation, tools=[WEATHER], metadata={"user_id": "anna"})
    (use,) = [block for block in answer.content if block.type == "tool_use"]
    result = {"type": "tool_result", "tool_use_id": use.id, "content": "Sunny"}
    conversation += [{"role": "assistant", "content": answer.content}, {"role": "user", "content": [result]}]
    assert "Sunny" in words(ask(conversation, tools=[WEATHER], metadata={"user_id": "anna"}))


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("decision", ["approve", "reject"])
@pytest.mark.cell("approval")
def test_question_is_answered_in_the_chat(
    ask: Ask, lane: Lane, client_id: str, row: str, decision: str, *, stream: bool
) -> None:
    """Its line is the next message; the call runs once, or never."""
    del row, stream
    conversation: Messages = [{"role": "user", "content": lane.insertion(client_id).removeprefix("risk_level low, ")}]
    question = ask(conversation)
    found = re.search(rf"{decision} ap_\w+ \w+", words(question))
    assert found is not None and lane.count(client_id) == 0
    conversation += [{"role": "assistant", "content": question.content}, {"role": "user", "content": found[0]}]
    assert words(ask(conversation)) and lane.count(client_id) == (decision == "approve")


def test_tool_runner_runs_the_clients_tool(client: anthropic.Anthropic) -> None:
    """The SDK calls it, and sends its result by itself."""
    called: list[str] = []

    @anthropic.beta_tool
    def get_weather(city: str, days: int) -> str:
        """The weather of a city."""
        called.append(f"{city} {days}")
        return "Sunny"

    prompt: Any = [{"role": "user", "content": CALL}]
    runner = client.beta.messages.tool_runner(model="demo", max_tokens=500, tools=[get_weather], messages=prompt)
    assert "Sunny" in words(runner.until_done()) and called == ["Malmö 1"]


def test_tokens_are_counted_and_models_are_listed(client: anthropic.Anthropic) -> None:
    """With what the lane adds to a request; in the forms of the SDK."""
    counted = client.messages.count_tokens(model="demo", messages=[{"role": "user", "content": "Say hello"}])
    assert counted.input_tokens > 100
    assert "demo" in [model.id for model in client.models.list()]
    assert client.models.retrieve("demo").display_name == "demo"


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"max_tokens": 0.5}, anthropic.BadRequestError),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, anthropic.BadRequestError),
        ({"extra_headers": {FAILURES: "9"}}, anthropic.RateLimitError),
    ],
)
def test_errors_are_those_of_the_sdk(
    client: anthropic.Anthropic, fields: Json, kind: type[anthropic.APIStatusError]
) -> None:
    """Its exception by the status, with the id of the request; the body is strictly its model."""
    asked: Json = {"model": "demo", "max_tokens": 9, "messages": [{"role": "user", "content": "Say hello"}], **fields}
    with pytest.raises(kind) as caught:
        client.messages.create(**asked)
    assert caught.value.request_id and caught.value.request_id in caught.value.message
    strictly(ErrorResponse, caught.value.body)


def test_wrong_key_and_unknown_model_are_errors_of_the_sdk(lane: Lane, client: anthropic.Anthropic) -> None:
    """Also where a page of the gateway refuses them."""
    with (
        anthropic.Anthropic(base_url=lane.root, api_key="wrong", max_retries=0) as other,
        pytest.raises(anthropic.AuthenticationError) as refused,
    ):
        other.messages.create(model="demo", max_tokens=9, messages=[{"role": "user", "content": "Say hello"}])
    with pytest.raises(anthropic.NotFoundError) as missing:
        client.models.retrieve("unheard-of")
    for caught in (refused, missing):
        strictly(ErrorResponse, caught.value.body)
