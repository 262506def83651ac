"""A reply of the context lane on the wire: one clean chat completion, as a stream or as one answer.

Every frame of a stream is a whole chunk: one id, created and model for the turn, one role, one finish reason, one
`[DONE]` (design: the HTTP contract, "Context streams").
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import orjson

from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import Chunk
from gateway.contracts.storage.store import Json
from gateway.dialects.extra_message_fields import FieldAccumulator
from gateway.dialects.run_chunk_reader import TurnState
from gateway.http.error_response import build_error_body
from gateway.http.sse import format_event

_END = b',"finish_reason":null}]}\n\n'
_TEXT_END = b"}" + _END
DONE = format_event(b"[DONE]")
_NO_USAGE: Json = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}


@dataclass(slots=True)
class CompletionFacts(TurnState):
    """The facts that all frames of one turn share, and its state so far."""

    id: str
    model: str
    created: int

    @classmethod
    def from_request(cls, run_id: str, body: Json, *, created_s: float) -> "CompletionFacts":
        """Return the turn of a run; its model is the requested one."""
        return cls("chatcmpl-" + run_id.removeprefix("run_"), str(body.get("model", "")), int(created_s))


class Frames:
    """The frames of one stream."""

    def __init__(self, turn: CompletionFacts, *, include_usage: bool) -> None:
        self._turn = turn
        self._include_usage = include_usage
        self._own = {"id": turn.id, "object": "chat.completion.chunk", "created": turn.created, "model": turn.model}
        self._build_frame_prefix()

    def _build_frame_prefix(self) -> None:
        """Build the bytes that all further frames begin with."""
        self._meta = {**self._turn.about, **self._own}
        self._before = b"data: " + orjson.dumps(self._meta)[:-1] + b',"choices":[{"index":0,"delta":'
        self._before_text = self._before + b'{"content":'

    def build_first_frame(self) -> bytes:
        return self._build_frame({"role": "assistant", "content": ""})

    def build_keepalive(self) -> bytes:
        return self._build_frame({})

    def build_frames(self, chunk: Chunk) -> bytes:
        """Return the frame of a chunk; b"" for one that has nothing for the client."""
        if isinstance(chunk, str):
            return self._before_text + orjson.dumps(chunk) + _TEXT_END
        delta, told = self._turn.take_chunk(chunk)
        if "about" in chunk:
            self._build_frame_prefix()
        if told is not None:
            choices = [{"index": 0, "delta": delta, "finish_reason": None}]
            return format_event(orjson.dumps({**self._meta, "choices": choices, "context": told}))
        return self._build_frame(delta) if delta else b""

    def finish(self) -> bytes:
        """Return the last frames: the finish reason, the usage if requested, and `[DONE]`."""
        ends = {**self._turn.about_choice, "finish_reason": self._turn.finish or "stop"}
        frames = [self._before + b"{}," + orjson.dumps(ends)[1:] + b"]"]
        if self._turn.context:
            frames += [b',"context":', orjson.dumps(self._turn.context)]
        frames.append(b"}\n\n")
        if self._include_usage:
            usage = self._turn.usage or _NO_USAGE
            frames.append(format_event(orjson.dumps({**self._meta, "choices": [], "usage": usage})))
        frames.append(DONE)
        return b"".join(frames)

    def build_error_frames(self, error: GatewayError, *, request_id: str) -> bytes:
        """Return the error as an event, without an end."""
        return format_event(build_error_body(error, request_id=request_id))

    def _build_frame(self, delta: Mapping[str, object]) -> bytes:
        return self._before + orjson.dumps(delta) + _END


class Completion:
    """The same turn as one answer."""

    def __init__(self, turn: CompletionFacts) -> None:
        self._turn = turn
        self._content: list[Any] = []
        self._has_parts = False
        self._beside = FieldAccumulator()
        self._calls: dict[int, Json] = {}
        self._function_call: dict[str, str] = {}

    def add(self, chunk: Chunk) -> None:
        """Add a chunk of the run: its text, its calls or other fields."""
        if isinstance(chunk, str):
            self._content.append(chunk)
            return
        delta, _ = self._turn.take_chunk(chunk)
        for key, value in delta.items():
            if key == "content":
                self._has_parts = self._has_parts or not isinstance(value, str)
                self._content += [value] if isinstance(value, str) else value
            elif key not in ("tool_calls", "function_call"):
                self._beside.add(key, value)
        for call in delta.get("tool_calls") or ():
            self._add_call(call)
        for key in ("name", "arguments"):
            if isinstance(piece := (delta.get("function_call") or {}).get(key), str):
                self._function_call[key] = self._function_call.get(key, "") + piece

    def build_body(self) -> bytes:
        """Return the whole chat completion as JSON."""
        turn = self._turn
        message: Json = {"role": "assistant", "content": self._build_content(), **self._beside.get_whole()}
        if self._calls:
            message["tool_calls"] = list(self._calls.values())
        elif self._function_call:
            message["function_call"] = self._function_call
        elif message["content"] is None:
            message["content"] = ""
        choice = {"index": 0, "message": message, "finish_reason": turn.finish or "stop", "logprobs": None}
        answer = {
            **turn.about,
            "id": turn.id,
            "object": "chat.completion",
            "created": turn.created,
            "model": turn.model,
            "choices": [{**turn.about_choice, **choice}],
            "usage": turn.usage or _NO_USAGE,
        }
        return orjson.dumps({**answer, "context": turn.context} if turn.context else answer)

    def _build_content(self) -> str | list[Json] | None:
        """Return the content: a text, a list of parts if not all are text, or None."""
        if not self._has_parts:
            return "".join(self._content) if self._content else None
        parts: list[Json] = []
        for is_text, pieces in groupby(self._content, key=lambda piece: isinstance(piece, str)):
            found = list(pieces)
            parts += [{"type": "text", "text": "".join(found)}] if is_text else found
        return parts

    def _add_call(self, delta: Json) -> None:
        """Add a piece of a call, which may come in several: id and name first, arguments bit by bit."""
        call = self._calls.setdefault(
            delta.get("index", 0), {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
        )
        call |= {key: value for key, value in delta.items() if key not in ("index", "id", "type", "function")}
        call["id"] = call["id"] or delta.get("id") or ""
        function = delta.get("function") or {}
        call["function"]["name"] += function.get("name") or ""
        call["function"]["arguments"] += function.get("arguments") or ""
