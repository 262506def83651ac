"""Messages as a client sends and reads them: whole, or as events whose order is checked."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from .models import Json
from .talking import Completed, World

PATH = "/context/v1/messages"
Said = str | Sequence[Json]


def build_request(messages: Said, **body: Any) -> Json:
    """A request with what every one has."""
    said = [{"role": "user", "content": messages}] if isinstance(messages, str) else list(messages)
    return {"model": "m", "max_tokens": 100, "messages": said, **body}


async def send(
    world: World, messages: Said = "Hello?", *, path: str = PATH, headers: Mapping[str, str] | None = None, **body: Any
) -> Completed:
    """A message that is no stream."""
    return await world.post(build_request(messages, **body), path=path, headers=headers)


async def stream(world: World, messages: Said = "Hello?", *, headers: Any = None, **body: Any) -> list[Json]:
    """The events of a stream, each of the type that its name says."""
    content = build_request(messages, stream=True, **body)
    async with world.session.post(PATH, json=content, headers=headers) as response:
        assert response.status == 200, await response.text()
        assert response.headers["request-id"] == response.headers["x-request-id"]
        return read_events((await response.read()).decode())


def read_events(raw: str) -> list[Json]:
    """The events of a stream."""
    events = []
    for frame in raw.split("\n\n")[:-1]:
        name, data = frame.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        events.append(event)
    return events


def accumulate(events: Sequence[Json]) -> Json:
    """The message that the events tell, with a check of their order."""
    told = [event for event in events if event["type"] != "ping"]
    assert events[1]["type"] == "ping" and told[0]["type"] == "message_start"
    assert [event["type"] for event in told[-2:]] == ["message_delta", "message_stop"]
    message: Json = dict(told[0]["message"], content=[])
    is_open = False
    for event in told[1:-2]:
        if event["type"] == "content_block_start":
            assert not is_open and event["index"] == len(message["content"])
            message["content"].append(dict(event["content_block"]))
            is_open, arguments = True, ""
            continue
        assert is_open and event["index"] == len(message["content"]) - 1
        block = message["content"][-1]
        if event["type"] == "content_block_stop":
            is_open = False
            if arguments:
                block["input"] = json.loads(arguments)
        elif event["delta"]["type"] == "input_json_delta":
            arguments += event["delta"]["partial_json"]
        elif event["delta"]["type"] == "citations_delta":
            block.setdefault("citations", []).append(event["delta"]["citation"])
        else:
            (name,) = event["delta"].keys() - {"type"}
            block[name] += event["delta"][name]
    assert not is_open
    return {**message, **told[-2]["delta"], "usage": told[-2]["usage"]}
