"""Clients of two dialects, with four kinds of tools and long histories, in front of each room of the museum."""

import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Final

import aiohttp
import pytest

from gateway.testing.local import LocalGateway
from tests.e2e.talking import CHAT, NO_WORKFLOWS, desk, stages

from .rooms import ROOMS, Json, Room
from .serving import ANSWER, LOOK, READ, serving

RESPONSES: Final = "/context/v1/responses"
SCHEMA: Final[Json] = {"type": "object", "properties": {"word": {"type": "string"}}}
FUNCTION: Final[Json] = {"name": "look_up", "description": "Looks a word up.", "parameters": SCHEMA}
ARGUMENTS: Final = '{"word": "key"}'
_CALLED: Final[Json] = {"id": "call_0", "type": "function", "function": {"name": "look_up", "arguments": ARGUMENTS}}
HISTORIES: Final[dict[str, list[Json]]] = {
    "none": [],
    "system": [{"role": "system", "content": "Be brief."}, {"role": "system", "content": "Be kind."}],
    "turns": [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello."}],
    "cut turn": [{"role": "user", "content": "Tell me."}],
    "tool round": [
        {"role": "user", "content": "Find the key."},
        {"role": "assistant", "content": None, "tool_calls": [_CALLED]},
        {"role": "tool", "tool_call_id": "call_0", "content": "It is here."},
        {"role": "assistant", "content": "It is here."},
    ],
    "reasoning": [
        {"role": "user", "content": "Hi."},
        {"role": "assistant", "content": "Hello.", "reasoning_content": "A greeting."},
    ],
}
#: Whose tools the answer is about, and what the user says. The gateway's are always there.
ASKED: Final = (("none", "Where?"), ("gateway", READ), ("client", LOOK), ("mixed", READ), ("mixed", LOOK))


def _items(history: list[Json]) -> Iterator[Json]:
    """Yield a history as items of Responses; they have no reasoning in clear."""
    for message in history:
        if message["role"] == "tool":
            yield {"type": "function_call_output", "call_id": "call_0", "output": message["content"]}
        elif message.get("tool_calls"):
            yield {"type": "function_call", "call_id": "call_0", "name": "look_up", "arguments": ARGUMENTS}
        else:
            yield {"role": message["role"], "content": message["content"]}


def _request(dialect: str, history: list[Json], said: str, *, tools: bool, stream: bool) -> Json:
    user = {"role": "user", "content": said}
    body: Json = {"model": "m", "stream": stream}
    if dialect == "chat":
        declared: Json = {"type": "function", "function": FUNCTION}
        body["messages"] = [*history, user]
    else:
        declared = {"type": "function", **FUNCTION}
        body |= {"input": [*_items(history), user], "store": False}
    return {**body, "tools": [declared]} if tools else body


def _events(raw: str) -> list[Json]:
    data = [line[6:] for line in raw.splitlines() if line.startswith("data: ")]
    return [json.loads(one) for one in data if one != "[DONE]"]


def _answered(dialect: str, raw: str, *, stream: bool) -> tuple[str, list[str]]:
    """Return the text of an answer, and the arguments of the calls that are the client's."""
    if dialect == "responses":
        response = _events(raw)[-1]["response"] if stream else json.loads(raw)
        output = response["output"]
        texts = [part["text"] for one in output if one["type"] == "message" for part in one["content"]]
        return "".join(texts), [one["arguments"] for one in output if one["type"] == "function_call"]
    frames = _events(raw) if stream else [json.loads(raw)]
    messages = [one.get("delta") or one.get("message") or {} for each in frames for one in each.get("choices", ())]
    calls = [call["function"]["arguments"] for message in messages for call in message.get("tool_calls") or ()]
    return "".join(message.get("content") or "" for message in messages), calls


@pytest.mark.parametrize("dialect", ["chat", "responses"])
@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.name)
async def test_each_client_gets_its_answer_from_each_room(room: Room, dialect: str, tmp_path: Path) -> None:
    """Texts arrive whole, calls of the client's tools go to it, and the gateway's own run; a failure names its case."""
    failures = []
    async with serving(room) as server:
        upstream = {"name": "up", "base_url": server.url}
        common = {"upstreams": [upstream], "store": "sqlite:///:memory:", "chains": stages()}
        config = {**common, "workflows": NO_WORKFLOWS, "tools": desk(tmp_path)}
        async with LocalGateway(config) as gateway, aiohttp.ClientSession(gateway.base_url) as session:
            for number, (name, (owner, said), stream) in enumerate(product(HISTORIES, ASKED, (False, True))):
                tools = owner in ("client", "mixed")
                request = _request(dialect, HISTORIES[name], f"{said} ({number})", tools=tools, stream=stream)
                async with session.post(CHAT if dialect == "chat" else RESPONSES, json=request) as response:
                    raw = await response.text()
                wanted = ("", ['{"word": "safe"}']) if said == LOOK else (ANSWER, [])
                got = _answered(dialect, raw, stream=stream) if response.status == 200 else raw
                if got != wanted:
                    failures.append((name, owner, said, stream, got))
                elif said == READ and "behind the mirror" not in server.taken[-1]["messages"][-1]["content"]:
                    failures.append((name, owner, said, stream, server.taken[-1]["messages"][-1]))
    assert failures == []
    assert bool(server.refused) == room.refuses, "a room that never refuses shows nothing of what it refuses"
