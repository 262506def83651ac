"""Clients of the two dialects of the context lane: what they send, and what they read in an answer."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from .calls import Call, Json
from .histories import items_of

SCHEMA: Final[Json] = {"type": "object", "properties": {"word": {"type": "string"}}}
FUNCTION: Final[Json] = {"name": "look_up", "description": "Looks a word up.", "parameters": SCHEMA}


@dataclass(frozen=True, slots=True)
class Asked:
    """A request: the history, what the user says, whether the client declares its tool, and further fields."""

    history: list[Json]
    said: str
    has_tools: bool = False
    is_stream: bool = False
    #: A limit of the answer, and a choice of the client's tool.
    limit: int | None = None
    is_forced: bool = False
    is_strict: bool = False
    is_parallel: bool | None = None
    #: It goes through a chain without stages.
    is_bare: bool = False


@dataclass(frozen=True, slots=True)
class Got:
    """An answer as a client reads it; `sends_back` are its messages or items for the next request."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    thought: str = ""
    sends_back: tuple[Json, ...] = ()

    @property
    def arguments(self) -> list[str]:
        """Return the arguments of its calls."""
        return [call.arguments for call in self.calls]


class Client(Protocol):
    """A client of one dialect."""

    name: str
    path: str

    def request(self, asked: Asked) -> Json:
        """Return the request."""

    def read(self, raw: str, *, is_stream: bool) -> Got:
        """Return what an answer says."""

    def goes_on(self, request: Json, got: Got, results: Sequence[str]) -> Json:
        """Return the next request of the conversation, with results of the calls."""


def events(raw: str) -> list[Json]:
    """Return the events of a stream."""
    data = [line[6:] for line in raw.splitlines() if line.startswith("data: ")]
    return [json.loads(one) for one in data if one != "[DONE]"]


class ChatClient:
    """A client of the Chat Completions API, which sends back the message that it got."""

    name = "chat"
    path = "/context/v1/chat/completions"

    def request(self, asked: Asked) -> Json:
        """Return the request."""
        messages = [*asked.history, {"role": "user", "content": asked.said}]
        body: Json = {"model": "m", "stream": asked.is_stream, "messages": messages}
        if asked.has_tools:
            function = {**FUNCTION, "strict": True} if asked.is_strict else FUNCTION
            body["tools"] = [{"type": "function", "function": function}]
        if asked.is_forced:
            body["tool_choice"] = {"type": "function", "function": {"name": "look_up"}}
        if asked.is_parallel is not None:
            body["parallel_tool_calls"] = asked.is_parallel
        return body if asked.limit is None else {**body, "max_completion_tokens": asked.limit}

    def read(self, raw: str, *, is_stream: bool) -> Got:
        """Return what an answer says."""
        frames = events(raw) if is_stream else [json.loads(raw)]
        choices = [choice for one in frames for choice in one.get("choices") or ()]
        deltas = [choice.get("delta") or choice.get("message") or {} for choice in choices]
        message: Json = {"role": "assistant", "content": "".join(one.get("content") or "" for one in deltas)}
        for name in ("reasoning_content", "reasoning"):
            if any(name in one for one in deltas):
                message[name] = "".join(one.get(name) or "" for one in deltas)
        if details := [detail for one in deltas for detail in one.get("reasoning_details") or ()]:
            message["reasoning_details"] = details
        calls: dict[int, Json] = {}
        for at, piece in enumerate(piece for one in deltas for piece in one.get("tool_calls") or ()):
            call = calls.setdefault(piece.get("index", at), {"function": {"name": "", "arguments": ""}})
            function = piece.pop("function", {})
            call.update({key: value for key, value in piece.items() if key != "index" and value})
            for key in ("name", "arguments"):
                call["function"][key] += function.get(key) or ""
        if calls:
            message["tool_calls"] = list(calls.values())
        found = tuple(Call(call["id"], **call["function"]) for call in calls.values())
        thought = message.get("reasoning_content") or message.get("reasoning") or ""
        return Got(message["content"], found, thought, (message,))

    def goes_on(self, request: Json, got: Got, results: Sequence[str]) -> Json:
        """Return the next request of the conversation, with results of the calls."""
        told = [
            {"role": "tool", "tool_call_id": call.id, "content": result}
            for call, result in zip(got.calls, results, strict=True)
        ]
        return {**request, "messages": [*request["messages"], *got.sends_back, *told]}


class ResponsesClient:
    """A client of the Responses API, which lets nothing be stored and sends back the items that it got."""

    name = "responses"
    path = "/context/v1/responses"

    def request(self, asked: Asked) -> Json:
        """Return the request."""
        items = [*items_of(asked.history), {"role": "user", "content": asked.said}]
        body: Json = {"model": "m", "stream": asked.is_stream, "input": items, "store": False}
        body["include"] = ["reasoning.encrypted_content"]
        if asked.has_tools:
            body["tools"] = [{"type": "function", **FUNCTION, **({"strict": True} if asked.is_strict else {})}]
        if asked.is_forced:
            body["tool_choice"] = {"type": "function", "name": "look_up"}
        if asked.is_parallel is not None:
            body["parallel_tool_calls"] = asked.is_parallel
        return body if asked.limit is None else {**body, "max_output_tokens": asked.limit}

    def read(self, raw: str, *, is_stream: bool) -> Got:
        """Return what an answer says."""
        response = events(raw)[-1]["response"] if is_stream else json.loads(raw)
        items = response["output"]
        texts = [part["text"] for one in items if one["type"] == "message" for part in one["content"]]
        thoughts = [part["text"] for one in items if one["type"] == "reasoning" for part in one["summary"]]
        calls = [Call(one["call_id"], one["name"], one["arguments"]) for one in items if one["type"] == "function_call"]
        return Got("".join(texts), tuple(calls), "".join(thoughts), tuple(items))

    def goes_on(self, request: Json, got: Got, results: Sequence[str]) -> Json:
        """Return the next request of the conversation, with results of the calls."""
        told = [
            {"type": "function_call_output", "call_id": call.id, "output": result}
            for call, result in zip(got.calls, results, strict=True)
        ]
        return {**request, "input": [*request["input"], *got.sends_back, *told]}


CLIENTS: Final[tuple[Client, ...]] = (ChatClient(), ResponsesClient())
