"""A room of the museum as a server on a socket: it refuses, calls a tool where it is asked to, and answers."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web
from aiohttp.test_utils import TestServer

from .rooms import Json, Room, event

ANSWER = "Behind the mirror."
#: What a user says to get a call: of a tool of the gateway, or of the client.
READ, LOOK = "read my notes", "look it up"
_CALL = {"tool": "file_operations", "parameters": {"operation": "read", "path": "notes.txt"}, "terminate": False}


@dataclass
class Server:
    """A server under way, with the requests that it took and those that it refused."""

    room: Room
    url: str = ""
    taken: list[Json] = field(default_factory=list)
    refused: list[Json] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer one request as the room does."""
        body = await request.json()
        if (refusal := self.room.refusal(body)) is not None:
            self.refused.append(body)
            status, error = refusal
            return web.json_response(error, status=status)
        self.taken.append(body)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write("".join(self._stream(body)).encode())
        await response.write_eof()
        return response

    def _stream(self, body: Json) -> list[str]:
        deltas, finish = _deltas(body)
        choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
        choices.append({"index": 0, "delta": {}, "finish_reason": finish})
        facts: Json = {"object": "chat.completion.chunk", "created": 1, "model": "m"}
        ids = (f"c-{at if self.room.fresh_ids else 0}" for at in range(len(choices)))
        events = [event({"id": one, **facts, "choices": [choice]}) for one, choice in zip(ids, choices, strict=True)]
        prompt, completion = self.room.usage
        usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
        events.append(event({"id": "c-0", **facts, "choices": [], "usage": usage}))
        return [*self.room.before, *events, *self.room.behind, *(["data: [DONE]\n\n"] if self.room.done else [])]


@asynccontextmanager
async def serving(room: Room) -> AsyncIterator[Server]:
    """Serve a room."""
    server = Server(room)
    app = web.Application()
    app.router.add_post("/v1/chat/completions", server.answer)
    async with TestServer(app) as listening:
        server.url = str(listening.make_url("/v1"))
        yield server


def _deltas(body: Json) -> tuple[list[Json], str]:
    last = body["messages"][-1]
    said = json.dumps(last["content"]) if last["role"] == "user" else ""
    if LOOK in said:
        function = {"name": "look_up", "arguments": '{"word": "safe"}'}
        return [{"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": function}]}], "tool_calls"
    text = json.dumps(_CALL) if READ in said else ANSWER
    return [{"role": "assistant", "content": text[:9]}, {"content": text[9:]}], "stop"
