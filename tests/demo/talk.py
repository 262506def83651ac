"""The words with which the tests talk to the demo model."""

from typing import Any

import aiohttp
import orjson

Json = dict[str, Any]


def user(text: str) -> Json:
    return {"role": "user", "content": text}


async def post(client: aiohttp.ClientSession, path: str, body: Json) -> Json:
    async with client.post(path, json=body) as response:
        assert response.status == 200, await response.text()
        answer: Json = await response.json()
        return answer


async def post_stream(client: aiohttp.ClientSession, path: str, body: Json) -> list[Json | str]:
    """The events of a stream: parsed, or the bare text where it is not JSON."""
    async with client.post(path, json={**body, "stream": True}) as response:
        assert response.status == 200
        assert response.content_type == "text/event-stream"
        return read_events(await response.text())


def read_events(text: str) -> list[Json | str]:
    """Each event must be complete: `event:` names the type that the JSON has, and data is one line."""
    assert text.endswith("\n\n")
    events: list[Json | str] = []
    for block in text.removesuffix("\n\n").split("\n\n"):
        *names, data = block.split("\n")
        payload = data.removeprefix("data: ")
        event = orjson.loads(payload) if payload.startswith("{") else payload
        assert not names or names == [f"event: {event['type']}"]
        events.append(event)
    return events


async def chat(client: aiohttp.ClientSession, *messages: str | Json, **more: object) -> Json:
    body = {"model": "demo", "messages": [user(m) if isinstance(m, str) else m for m in messages], **more}
    return await post(client, "/v1/chat/completions", body)


async def chat_stream(client: aiohttp.ClientSession, *messages: str | Json, **more: object) -> list[Json | str]:
    body = {"model": "demo", "messages": [user(m) if isinstance(m, str) else m for m in messages], **more}
    return await post_stream(client, "/v1/chat/completions", body)
