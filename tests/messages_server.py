"""A model server that speaks Messages on a real socket, records requests, and refuses what Anthropic refuses.

    async with serving([thinks("Hm."), calls("look_up", {"word": "safe"})], [says("A mirror.")]) as server:
        ...  # the gateway's upstream: {"name": "up", "api": "messages", "base_url": server.url}
        server.taken[0]["messages"]  # the bodies that it took, in their order
        assert server.refused == []  # else (body, words) of each that it refused

Each request that it takes gets the next answer, a list of blocks; the last one again and again. Thoughts are signed as
they are answered, and a request must bring them back unchanged, in their places (`messages_rules`). Usage counts a
prompt cache: what was marked in an earlier request is read in later ones.
"""

import hashlib
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.messages_rules import Json, Ledger, find_fault, measure_prefixes, sign

#: Tokens of each answer.
OUTPUT_TOKENS: Final = 12
_PIECE: Final = 7


def says(text: str) -> Json:
    """A block of text."""
    return {"type": "text", "text": text}


def thinks(thought: str) -> Json:
    """A block of thoughts with their signature; "" are thoughts that the API does not show."""
    return {"type": "thinking", "thinking": thought, "signature": sign(thought or "omitted")}


def hides(data: str) -> Json:
    """A block of thoughts that nobody may read."""
    return {"type": "redacted_thinking", "data": data}


def calls(name: str, arguments: Json, *, id_: str = "") -> Json:
    """A block with a call; its id looks as Anthropic's do."""
    own = hashlib.sha256(json.dumps([name, arguments]).encode()).hexdigest()[:22]
    return {"type": "tool_use", "id": id_ or f"toolu_01{own}", "name": name, "input": arguments}


@dataclass
class Answer:
    """An answer. `stop` is its reason; None: as its blocks say. `events` come in place of its own, as bytes."""

    blocks: list[Json]
    stop: str | None = None
    about: Json = field(default_factory=dict)  # further fields of its end
    events: bytes | None = None
    whole: bool = False  # one JSON object, whatever is asked for
    status: int = 200
    error: Json = field(default_factory=dict)  # with another status than 200

    @property
    def reason(self) -> str:
        """Return why it ends."""
        return self.stop or ("tool_use" if any(one["type"] == "tool_use" for one in self.blocks) else "end_turn")


@dataclass
class MessagesServer:
    """The server under way."""

    answers: list[Answer]
    url: str = ""
    key: str | None = None
    taken: list[Json] = field(default_factory=list)
    refused: list[tuple[Json, str]] = field(default_factory=list)
    heads: list[dict[str, str]] = field(default_factory=list)
    usages: list[Json] = field(default_factory=list)
    pages: list[Json] = field(default_factory=list)  # of the list of models, as they were asked for
    ledger: Ledger = field(default_factory=Ledger)
    _cached: set[str] = field(default_factory=set)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer one request, or refuse it."""
        body: Json = await request.json()
        self.heads.append({name.lower(): value for name, value in request.headers.items()})
        if (refusal := self._refuse_head(request)) is not None:
            return refusal
        if (fault := find_fault(body, self.ledger)) is not None:
            self.refused.append((body, fault))
            return _refuse(400, "invalid_request_error", fault)
        self.taken.append(body)
        answer = self.answers[min(len(self.taken), len(self.answers)) - 1]
        if answer.status != 200:
            return web.json_response({"type": "error", "error": answer.error}, status=answer.status)
        self.ledger.keep(answer.blocks)
        usage = self._count(body)
        if answer.whole or not body.get("stream"):
            return web.json_response(write_message(body, answer, usage))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        for event in [answer.events] if answer.events is not None else write_events(body, answer, usage):
            await response.write(event)
        await response.write_eof()
        return response

    async def list_models(self, request: web.Request) -> web.Response:
        """Answer with a page of the list of models."""
        if (refusal := self._refuse_head(request)) is not None:
            return refusal
        self.pages.append(dict(request.query))
        names = ["claude-b", "claude-a"]
        at = names.index(request.query["after_id"]) + 1 if "after_id" in request.query else 0
        shown = names[at : at + int(request.query.get("limit", "1"))]
        data = [
            {"type": "model", "id": name, "display_name": name, "created_at": "2026-02-01T00:00:00Z"} for name in shown
        ]
        more = at + len(shown) < len(names)
        return web.json_response({"data": data, "has_more": more, "first_id": shown[0], "last_id": shown[-1]})

    def _refuse_head(self, request: web.Request) -> web.Response | None:
        if request.headers.get("anthropic-version") != "2023-06-01":
            return _refuse(400, "invalid_request_error", "anthropic-version: header is required")
        if self.key is not None and request.headers.get("x-api-key") != self.key:
            return _refuse(401, "authentication_error", "invalid x-api-key")
        return None

    def _count(self, body: Json) -> Json:
        """Return the usage of a request, and keep what it marks."""
        prefixes = measure_prefixes(body)
        read = max((size for digest, size, _ in prefixes if digest in self._cached), default=0)
        marked = max((size for _, size, is_marked in prefixes if is_marked), default=0)
        self._cached |= {digest for digest, _, is_marked in prefixes if is_marked}
        usage = {
            "input_tokens": prefixes[-1][1] - max(read, marked) + 1,
            "cache_read_input_tokens": read,
            "cache_creation_input_tokens": max(marked - read, 0),
            "output_tokens": 1,
        }
        self.usages.append({**usage, "output_tokens": OUTPUT_TOKENS})
        return usage


@asynccontextmanager
async def serving(
    *answers: Sequence[Json] | Answer, key: str | None = None, knows_system: bool = True
) -> AsyncIterator[MessagesServer]:
    """Serve these answers. `key`: the only one that it takes. `knows_system`: turns of the system, as newer models."""
    given = [one if isinstance(one, Answer) else Answer(list(one)) for one in answers]
    server = MessagesServer(given, key=key, ledger=Ledger(knows_system=knows_system))
    app = web.Application(client_max_size=1 << 26)
    app.router.add_post("/v1/messages", server.answer)
    app.router.add_get("/v1/models", server.list_models)
    async with TestServer(app) as listening:
        server.url = str(listening.make_url("")).rstrip("/")
        yield server


def frame(kind: str, **fields: Any) -> bytes:
    """An event as Anthropic writes it."""
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields}, separators=(',', ':'))}\n\n".encode()


def write_message(body: Json, answer: Answer, usage: Json) -> Json:
    """The same as one object."""
    usage = {**usage, "output_tokens": OUTPUT_TOKENS}
    return {**_message(body, usage), "content": answer.blocks, "stop_reason": answer.reason, **answer.about}


def _message(body: Json, usage: Json) -> Json:
    own = hashlib.sha256(json.dumps(body).encode()).hexdigest()[:24]
    about = {"id": f"msg_{own}", "type": "message", "role": "assistant", "model": body["model"]}
    return {**about, "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}


def _refuse(status: int, kind: str, words: str) -> web.Response:
    error = {"type": "error", "error": {"type": kind, "message": words}, "request_id": "req_1"}
    return web.json_response(error, status=status)


def write_events(body: Json, answer: Answer, usage: Json) -> Iterator[bytes]:
    """The events of an answer."""
    yield frame("message_start", message=_message(body, usage))
    yield frame("ping")
    for index, block in enumerate(answer.blocks):
        yield from _block_events(index, block)
    ending = {"stop_reason": answer.reason, "stop_sequence": None, **answer.about}
    yield frame("message_delta", delta=ending, usage={"output_tokens": OUTPUT_TOKENS})
    yield frame("message_stop")


def _block_events(index: int, block: Json) -> Iterator[bytes]:
    deltas: list[Json] = []
    begun = block
    match block["type"]:
        case "text":
            begun = {**block, "text": ""}
            deltas = [{"type": "text_delta", "text": piece} for piece in _pieces(block["text"])]
        case "thinking":
            begun = {**block, "thinking": "", "signature": ""}
            deltas = [{"type": "thinking_delta", "thinking": piece} for piece in _pieces(block["thinking"])]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        case "tool_use" | "server_tool_use":
            begun = {**block, "input": {}}
            written = json.dumps(block["input"])
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in ("", *_pieces(written))]
    yield frame("content_block_start", index=index, content_block=begun)
    for delta in deltas:
        yield frame("content_block_delta", index=index, delta=delta)
    yield frame("content_block_stop", index=index)


def _pieces(text: str) -> list[str]:
    return [text[at : at + _PIECE] for at in range(0, len(text), _PIECE)]
