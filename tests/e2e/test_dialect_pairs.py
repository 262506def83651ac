"""Every API of clients over every API of models: what a model wants back, it gets back from the client's history.

One turn has an image, thoughts, a call of the client's tool, and a call of the gateway's that a person approves. The
next turn brings the history of the client alone. Each server records what it gets, and compares it field by field.
"""

import hashlib
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final, Protocol

import aiohttp
import pytest

from gateway.testing.local_gateway import LocalGateway
from tests import messages_server, responses_server
from tests.api.responses.answering import Client

from . import messaging
from .models import Answer, Json, Model, says
from .talking import NO_WORKFLOWS, Completed, World, desk, stages

PIXEL: Final = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
URL: Final = f"data:image/png;base64,{PIXEL}"
SCHEMA: Final[Json] = {"type": "object", "properties": {"word": {"type": "string"}}}
WORD: Final[Json] = {"word": "safe"}
WRITE: Final[Json] = {"operation": "write", "path": "new.txt", "content": "x", "risk_level": "high"}
ASKED, FOUND, LOOKED, DONE, THANKS = "Where is it?", "A box.", "Let me see.", "It is noted.", "Thanks."


class _Recorder(Protocol):
    """A model server: its settings as an upstream, and what of the thoughts in its answers came back at last."""

    upstream: Json

    def list_sent(self) -> list[Json]:
        """The thoughts of its answers, as it sent them."""
        ...

    def list_returned(self) -> list[Json]:
        """The thoughts in its last request."""
        ...

    def list_images(self) -> list[str]:
        """The images in its last request, as URLs or data."""
        ...

    def check(self) -> None:
        """Check that it refused nothing, and that its last request has both calls with their results."""
        ...


def _call_id(name: str) -> str:
    return f"call_{hashlib.sha256(name.encode()).hexdigest()[:24]}"


class _Chat:
    """A chat model with thoughts as routers of models have them."""

    def __init__(self, model: Model, sent: list[Json]) -> None:
        self.upstream: Json = {"base_url": model.upstream.base_url}
        self._model, self._sent = model, sent

    def list_sent(self) -> list[Json]:
        return self._sent

    def list_returned(self) -> list[Json]:
        answers = [one for one in self._model.asked[-1]["messages"] if one["role"] == "assistant"]
        names = ("reasoning_content", "reasoning_details")
        returned = [{name: one[name] for name in names if name in one} for one in answers]
        # A question for a person is shown with the thoughts of its call, and a chat takes them twice.
        return [one for place, one in enumerate(returned) if one not in returned[:place]]

    def list_images(self) -> list[str]:
        parts = [part for one in self._model.asked[-1]["messages"] for part in _parts(one)]
        return [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]

    def check(self) -> None:
        messages = self._model.asked[-1]["messages"]
        called = [call["id"] for one in messages for call in one.get("tool_calls") or ()]
        assert [one["tool_call_id"] for one in messages if one["role"] == "tool"] == called and len(called) == 2
        assert not any(name.endswith("_api") for body in self._model.asked for name in body)


def _parts(message: Json) -> list[Json]:
    content = message.get("content")
    return content if isinstance(content, list) else []


@asynccontextmanager
async def _serve_chat() -> AsyncIterator[_Recorder]:
    sent: list[Json] = []

    def answer(number: int, thought: str, *pieces: Any, **facts: Any) -> Answer:
        signed = {
            "type": "reasoning.text",
            "text": thought,
            "signature": f"c2ln{number}",
            "format": "unknown",
            "index": 0,
        }
        sent.append({"reasoning_content": thought, "reasoning_details": [signed]})
        return Answer(({"reasoning_content": thought}, {"reasoning_details": [signed]}, *pieces), **facts)

    def call(name: str, arguments: str) -> Json:
        function = {"name": name, "arguments": arguments}
        return {"tool_calls": [{"index": 0, "id": _call_id(name), "type": "function", "function": function}]}

    write = '{"operation": "write", "path": "new.txt", "content": "x", "risk_level": "high"}'
    script = [
        answer(0, "I look.", LOOKED, call("look_up", '{"word": "safe"}'), finish="tool_calls"),
        answer(1, "I write.", call("file_operations", write), finish="tool_calls"),
        answer(2, "Done.", DONE),
        says("Bye."),
    ]
    async with Model(*script) as model:
        yield _Chat(model, sent)


class _Native:
    """A model server that speaks Messages or Responses, and refuses what is not whole."""

    def __init__(self, server: Any, api: str, sent: list[Json], is_thought: Callable[[Json], bool]) -> None:
        self.upstream: Json = {"base_url": server.url, "api": api}
        self._server, self._sent, self._is_thought = server, sent, is_thought

    @property
    def _items(self) -> list[Json]:
        body = self._server.taken[-1]
        return body["input"] if "input" in body else [part for turn in body["messages"] for part in turn["content"]]

    def list_sent(self) -> list[Json]:
        return self._sent

    def list_returned(self) -> list[Json]:
        found = [item for item in self._items if self._is_thought(item)]
        return [{name: value for name, value in item.items() if name != "cache_control"} for item in found]

    def list_images(self) -> list[str]:
        parts = [*self._items, *(part for item in self._items for part in _parts(item))]
        images = [part.get("image_url") or part["source"]["data"] for part in parts if "image" in part.get("type", "")]
        return [str(image) for image in images]

    def check(self) -> None:
        assert self._server.refused == []
        kinds = [item["type"] for item in self._items]
        assert sum(kind in ("tool_use", "function_call") for kind in kinds) == 2
        assert sum(kind in ("tool_result", "function_call_output") for kind in kinds) == 2


@asynccontextmanager
async def _serve_messages() -> AsyncIterator[_Recorder]:
    thinks, calls, text = messages_server.thinks, messages_server.calls, messages_server.says
    first = [thinks("I look."), messages_server.hides("c2VjcmV0"), text(LOOKED), calls("look_up", WORD)]
    second = [thinks("I write."), calls("file_operations", WRITE)]
    third = [thinks("Done."), text(DONE)]

    def is_thought(block: Json) -> bool:
        return block["type"] in ("thinking", "redacted_thinking")

    sent = [block for answer in (first, second, third) for block in answer if is_thought(block)]
    async with messages_server.serving(first, second, third, [text("Bye.")]) as server:
        yield _Native(server, "messages", sent, is_thought)


@asynccontextmanager
async def _serve_responses() -> AsyncIterator[_Recorder]:
    reasons, calls, text = responses_server.reasons, responses_server.calls, responses_server.says
    first = [reasons("I look.", "Closely."), text(LOOKED, phase="commentary"), calls("look_up", WORD)]
    second = [reasons("I write.", thought="more"), calls("file_operations", WRITE)]
    third = [reasons(thought="hidden"), text(DONE, phase="final_answer")]

    def is_thought(item: Json) -> bool:
        return item["type"] == "reasoning"

    sent = [item for answer in (first, second, third) for item in answer if is_thought(item)]
    async with responses_server.serving(first, second, third, [text("Bye.")]) as server:
        yield _Native(server, "responses", sent, is_thought)


#: The servers of models, by their API.
MODELS: Final[dict[str, Callable[[], AbstractAsyncContextManager[_Recorder]]]] = {
    "chat": _serve_chat,
    "messages": _serve_messages,
    "responses": _serve_responses,
}


class _Talk(Protocol):
    """A client's conversation in its own API. It keeps what it sends and gets, and nothing else."""

    async def send(self, *added: Json) -> Completed:
        """Send the history with what is added to it, and keep the answer."""
        ...

    def ask(self, text: str, *, image: bool = False) -> Json:
        """A message of the user."""
        ...

    def bring_result(self) -> Json:
        """The result of the call in the last answer."""
        ...


class _ChatTalk:
    """A client of chats that sends each answer back as it came."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.history: list[Json] = []

    async def send(self, *added: Json) -> Completed:
        self.history += added
        tools = [{"type": "function", "function": {"name": "look_up", "parameters": SCHEMA}}]
        answer = await self._world.chat(
            self.history, tools=tools, user="ada", reasoning_effort="high", max_tokens=20_000
        )
        assert answer.status == 200, answer.json
        self.history.append(answer.message)
        return answer

    def ask(self, text: str, *, image: bool = False) -> Json:
        shown = [{"type": "image_url", "image_url": {"url": URL}}] if image else []
        return {"role": "user", "content": [{"type": "text", "text": text}, *shown]}

    def bring_result(self) -> Json:
        (call,) = self.history[-1]["tool_calls"]
        return {"role": "tool", "tool_call_id": call["id"], "content": FOUND}


class _ResponsesTalk:
    """A client of Responses that lets nothing be stored."""

    def __init__(self, world: World) -> None:
        self._client = Client(world)
        self.history: list[Json] = []

    async def send(self, *added: Json) -> Completed:
        self.history += added
        fields: Json = {
            "tools": [{"type": "function", "name": "look_up", "parameters": SCHEMA}],
            "store": False,
            "include": ["reasoning.encrypted_content"],
            "reasoning": {"effort": "high"},
            "max_output_tokens": 20_000,
        }
        answer = await self._client.create(self.history, **fields)
        assert answer.status == 200, answer.json
        self.history += answer.json["output"]
        return answer

    def ask(self, text: str, *, image: bool = False) -> Json:
        shown = [{"type": "input_image", "image_url": URL}] if image else []
        return {"role": "user", "content": [{"type": "input_text", "text": text}, *shown]}

    def bring_result(self) -> Json:
        call = next(item for item in reversed(self.history) if item.get("type") == "function_call")
        return {"type": "function_call_output", "call_id": call["call_id"], "output": FOUND}


class _MessagesTalk:
    """A client of Messages that sends the blocks of each answer back."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.history: list[Json] = []

    async def send(self, *added: Json) -> Completed:
        self.history += added
        fields: Json = {
            "tools": [{"name": "look_up", "input_schema": SCHEMA}],
            "thinking": {"type": "enabled", "budget_tokens": 8192},
            "max_tokens": 20_000,
            "metadata": {"user_id": "ada"},
        }
        answer = await messaging.send(self._world, self.history, **fields)
        assert answer.status == 200, answer.json
        self.history.append({"role": "assistant", "content": answer.json["content"]})
        return answer

    def ask(self, text: str, *, image: bool = False) -> Json:
        source = {"type": "base64", "media_type": "image/png", "data": PIXEL}
        shown = [{"type": "image", "source": source}] if image else []
        return {"role": "user", "content": [{"type": "text", "text": text}, *shown]}

    def bring_result(self) -> Json:
        (call,) = [block for block in self.history[-1]["content"] if block["type"] == "tool_use"]
        return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call["id"], "content": FOUND}]}


#: The clients, by their API.
TALKS: Final[dict[str, Callable[[World], _Talk]]] = {
    "chat": _ChatTalk,
    "messages": _MessagesTalk,
    "responses": _ResponsesTalk,
}


@asynccontextmanager
async def _talking(recorder: _Recorder, folder: Path) -> AsyncIterator[World]:
    config: Json = {
        "upstreams": [{"name": "up", "api_key": "k", **recorder.upstream}],
        "store": "sqlite:///:memory:",
        "chains": stages(loop={"tool_format": "native"}),
        "workflows": NO_WORKFLOWS,
        "tools": desk(folder, write=True),
    }
    async with LocalGateway(config) as gateway, aiohttp.ClientSession(gateway.base_url) as session:
        yield World(gateway, Model(), session, config)


def _find_decision(answer: Completed) -> str:
    """Return the line with which a person approves the call that an answer asks about."""
    found = re.search(r"approve ap_\w+ \w+", str(answer.json))
    assert found is not None, answer.json
    return found[0]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("client", TALKS)
async def test_history_of_a_client_brings_all_back_that_the_model_wants(
    client: str, model: str, tmp_path: Path
) -> None:
    async with MODELS[model]() as recorder, _talking(recorder, tmp_path) as world:
        talk = TALKS[client](world)
        await talk.send(talk.ask(ASKED, image=True))
        asked = await talk.send(talk.bring_result())
        await talk.send(talk.ask(_find_decision(asked)))
        await talk.send(talk.ask(THANKS))
        recorder.check()
        assert recorder.list_returned() == recorder.list_sent()
        assert [image.removeprefix(URL.removesuffix(PIXEL)) for image in recorder.list_images()] == [PIXEL]
