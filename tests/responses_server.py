"""A model server that speaks Responses on a real socket, records requests, and refuses what OpenAI refuses.

    async with serving([reasons("Hm."), calls("look_up", {"word": "safe"})], [says("A mirror.")]) as server:
        ...  # the gateway's upstream: {"name": "up", "api": "responses", "base_url": server.url}
        server.taken[0]["input"]  # the bodies that it took, in their order
        assert server.refused == []  # else (body, words) of each that it refused

Each request that it takes gets the next answer, a list of items; the last one again and again. Reasoning is sealed as
it is answered, and a request must bring it back unchanged, in its place (`responses_rules`).
"""

import hashlib
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.responses_rules import Json, Ledger, find_fault, seal

#: Tokens of each answer.
USAGE: Final[Json] = {
    "input_tokens": 20,
    "input_tokens_details": {"cached_tokens": 5, "cache_write_tokens": 0},
    "output_tokens": 12,
    "output_tokens_details": {"reasoning_tokens": 4},
    "total_tokens": 32,
}
_PIECE: Final = 7


def _digest(*values: object) -> str:
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()[:32]


def says(text: str, *, phase: str | None = None) -> Json:
    """A message."""
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    item = {"id": f"msg_{_digest(text)}", "type": "message", "role": "assistant", "status": "completed"}
    return {**item, "content": [part], **({} if phase is None else {"phase": phase})}


def reasons(*summary: str, thought: str = "secret") -> Json:
    """A reasoning item, with the parts of its summary."""
    item_id = f"rs_{_digest(summary, thought)}"
    parts = [{"type": "summary_text", "text": text} for text in summary]
    return {"id": item_id, "type": "reasoning", "summary": parts, "encrypted_content": seal(item_id, thought)}


def calls(name: str, arguments: Json, *, call_id: str = "") -> Json:
    """A call of a function; its ids look as OpenAI's do."""
    own = _digest(name, arguments)
    about = {
        "id": f"fc_{own}",
        "type": "function_call",
        "status": "completed",
        "call_id": call_id or f"call_{own[:24]}",
    }
    return {**about, "name": name, "arguments": json.dumps(arguments)}


@dataclass
class Answer:
    """An answer. `about` are further fields of its end. `events` come in place of its own, as bytes."""

    items: list[Json]
    about: Json = field(default_factory=dict)
    events: bytes | None = None
    whole: bool = False  # one JSON object, whatever is asked for
    pieces: bool = True  # texts, thoughts and arguments come in pieces, and not at the end of their items alone
    status: int = 200
    error: Json = field(default_factory=dict)  # with another status than 200


@dataclass
class ResponsesServer:
    """The server under way. `refuses` are words of its own about a request; None: it takes it."""

    answers: list[Answer]
    url: str = ""
    key: str | None = None
    unknown: tuple[str, ...] = ()  # fields that its model does not take
    taken: list[Json] = field(default_factory=list)
    refused: list[tuple[Json, str]] = field(default_factory=list)
    heads: list[dict[str, str]] = field(default_factory=list)
    _ledger: Ledger = field(default_factory=Ledger)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer one request, or refuse it."""
        body: Json = await request.json()
        self.heads.append({name.lower(): value for name, value in request.headers.items()})
        if self.key is not None and request.headers.get("authorization") != f"Bearer {self.key}":
            return _refuse(401, "Incorrect API key provided.", None)
        if (name := next((one for one in self.unknown if body.get(one) is not None), None)) is not None:
            words = "Encrypted content" if name == "include" else f"Unsupported parameter: '{name}'"
            return _refuse(400, f"{words} is not supported with this model.", name)
        if (fault := find_fault(body, self._ledger)) is not None:
            self.refused.append((body, fault[0]))
            return _refuse(400, *fault)
        self.taken.append(body)
        answer = self.answers[min(len(self.taken), len(self.answers)) - 1]
        if answer.status != 200:
            return web.json_response({"error": answer.error}, status=answer.status)
        self._ledger.keep(answer.items)
        if answer.whole or not body.get("stream"):
            return web.json_response(write_response(body, answer))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        for event in [answer.events] if answer.events is not None else write_events(body, answer):
            await response.write(event)
        await response.write_eof()
        return response

    async def list_models(self, request: web.Request) -> web.Response:
        """Answer with the list of models."""
        data = [{"id": "gpt-b", "object": "model", "created": 1, "owned_by": "openai"}]
        return web.json_response({"object": "list", "data": data})


@asynccontextmanager
async def serving(
    *answers: Sequence[Json] | Answer, key: str | None = None, unknown: tuple[str, ...] = ()
) -> AsyncIterator[ResponsesServer]:
    """Serve these answers. `key`: the only one that it takes."""
    made = [one if isinstance(one, Answer) else Answer(list(one)) for one in answers]
    server = ResponsesServer(made, key=key, unknown=unknown)
    app = web.Application(client_max_size=1 << 26)
    app.router.add_post("/v1/responses", server.answer)
    app.router.add_get("/v1/models", server.list_models)
    async with TestServer(app) as listening:
        server.url = str(listening.make_url("/v1"))
        yield server


def write_response(body: Json, answer: Answer) -> Json:
    """The answer as one object."""
    return {**_response(body), "status": "completed", "output": answer.items, "usage": USAGE, **answer.about}


def _response(body: Json) -> Json:
    about = {"id": f"resp_{_digest(body)}", "object": "response", "created_at": 1, "model": body["model"]}
    return {**about, "status": "in_progress", "error": None, "incomplete_details": None, "output": [], "usage": None}


def _refuse(status: int, words: str, param: str | None) -> web.Response:
    error = {"message": words, "type": "invalid_request_error", "param": param, "code": None}
    return web.json_response({"error": error}, status=status)


def write_events(body: Json, answer: Answer) -> Iterator[bytes]:
    """The events of an answer."""
    numbered = enumerate(_list_events(body, answer))
    for number, (kind, fields) in numbered:
        yield frame(kind, sequence_number=number, **fields)


def frame(kind: str, **fields: Any) -> bytes:
    """An event as OpenAI writes it."""
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields}, separators=(',', ':'))}\n\n".encode()


def _list_events(body: Json, answer: Answer) -> Iterator[tuple[str, Json]]:
    yield "response.created", {"response": _response(body)}
    yield "response.in_progress", {"response": _response(body)}
    for index, item in enumerate(answer.items):
        for kind, fields in _item_events(item) if answer.pieces else [("response.output_item.done", {"item": item})]:
            yield kind, {"output_index": index, "item_id": item["id"], **fields}
    whole = write_response(body, answer)
    yield f"response.{whole['status']}", {"response": whole}


def _item_events(item: Json) -> Iterator[tuple[str, Json]]:
    kind = item["type"]
    begun = {**item, "status": "in_progress"}
    match kind:
        case "message":
            begun["content"] = []
        case "reasoning":
            begun |= {"summary": [], "encrypted_content": "incomplete"}
        case "function_call":
            begun["arguments"] = ""
    yield "response.output_item.added", {"item": begun}
    if kind == "message":
        for number, part in enumerate(item["content"]):
            place = {"content_index": number}
            yield "response.content_part.added", {**place, "part": {**part, "text": ""}}
            for piece in _pieces(part["text"]):
                yield "response.output_text.delta", {**place, "delta": piece, "logprobs": [], "obfuscation": "x" * 5}
            yield "response.output_text.done", {**place, "text": part["text"], "logprobs": []}
            yield "response.content_part.done", {**place, "part": part}
    if kind == "reasoning":
        for number, part in enumerate(item["summary"]):
            place = {"summary_index": number}
            yield "response.reasoning_summary_part.added", {**place, "part": {**part, "text": ""}}
            for piece in _pieces(part["text"]):
                yield "response.reasoning_summary_text.delta", {**place, "delta": piece}
            yield "response.reasoning_summary_text.done", {**place, "text": part["text"]}
            yield "response.reasoning_summary_part.done", {**place, "part": part}
    if kind == "function_call":
        for piece in _pieces(item["arguments"]):
            yield "response.function_call_arguments.delta", {"delta": piece}
        yield "response.function_call_arguments.done", {"arguments": item["arguments"], "name": item["name"]}
    yield "response.output_item.done", {"item": item}


def _pieces(text: str) -> list[str]:
    return [text[at : at + _PIECE] for at in range(0, len(text), _PIECE)]
