"""A room of the museum as a server on a socket: it refuses, calls a tool where it is asked to, and answers."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import aiohttp
from aiohttp import web
from aiohttp.test_utils import TestServer

from gateway.testing.local_gateway import LocalGateway
from tests.e2e.talking import NO_WORKFLOWS, desk, stages

from .answers import Answer, completion, written
from .calls import Call, Json
from .clients import Asked, Client, Got
from .room import Room

ANSWER: Final = "Behind the mirror."
THOUGHT: Final = "A safe hides things."
#: What a user says to get a call: of a tool of the gateway, of the client once, and of the client twice.
READ, LOOK, LOOK_TWICE = "read my notes", "look it up", "look both up"
#: What a user says to get an error: in mid-stream, an end in mid-stream, and for a conversation that is too long.
BREAK, CUT, TOO_LONG = "break off", "end early", "say too much"
#: The words of an error in mid-stream.
BROKEN: Final = "The worker has lost its device."
#: A chain without stages: the model gets the client's messages, and no text of the gateway's.
BARE: Final = "bare"
FOUND: Final = {"word": "safe"}, {"word": "mirror"}
_OWN: Final = {"operation": "read", "path": "notes.txt"}


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
        said = said_in(body)
        refusal = self.room.refusal(body) or (self.room.too_long if TOO_LONG in said else None)
        if refusal is not None:
            self.refused.append(body)
            status, error = refusal
            return web.json_response(error, status=status)
        self.taken.append(body)
        answer = planned(body, said)
        if not body.get("stream"):
            return web.json_response(completion(self.room.style, answer, self.room.whole_calls))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write("".join(self._stream(answer, said)).encode())
        await response.write_eof()
        return response

    def _stream(self, answer: Answer, said: str) -> list[str]:
        events = written(self.room.style, answer)
        if BREAK not in said and CUT not in said:
            return events
        begun = events[: len(self.room.style.before) + 2]
        return [*begun, self.room.broken(BROKEN)] if BREAK in said else begun


@asynccontextmanager
async def serving(room: Room) -> AsyncIterator[Server]:
    """Serve a room."""
    server = Server(room)
    app = web.Application(client_max_size=1 << 22)
    app.router.add_post("/v1/chat/completions", server.answer)
    async with TestServer(app) as listening:
        server.url = str(listening.make_url("/v1"))
        yield server


@asynccontextmanager
async def in_front(server: Server, folder: Path, **loop: str) -> AsyncIterator[aiohttp.ClientSession]:
    """Serve a gateway in front of a room, with tools over a folder. `loop`: settings of the agent loop."""
    common = {"upstreams": [{"name": "up", "base_url": server.url}], "store": "sqlite:///:memory:"}
    chains = {**stages(loop=loop), BARE: []}
    config = {**common, "chains": chains, "workflows": NO_WORKFLOWS, "tools": desk(folder)}
    async with LocalGateway(config) as gateway, aiohttp.ClientSession(gateway.base_url) as session:
        yield session


async def learnt_by(session: aiohttp.ClientSession) -> frozenset[str]:
    """Return the quirks that the gateway has learnt of the room."""
    async with session.get("/context/upstreams") as response:
        (upstream,) = (await response.json())["data"]
    return frozenset(upstream["endpoints"][0]["learnt_quirks"].get("m", ()))


async def posted(
    session: aiohttp.ClientSession, client: Client, asked: Asked, *, body: Json | None = None
) -> Got | str:
    """Return the answer to a request, or the text of its error. `body`: what is sent in place of the request."""
    header = {"X-Context-Chain": BARE} if asked.is_bare else {}
    async with session.post(client.path, json=body or client.request(asked), headers=header) as response:
        raw = await response.text()
    return client.read(raw, is_stream=asked.is_stream) if response.status == 200 else raw


def said_in(body: Json) -> str:
    """Return what the user says last, if it is the last message of a request."""
    last = body["messages"][-1]
    return json.dumps(last["content"]) if last["role"] == "user" else ""


def planned(body: Json, said: str) -> Answer:
    """Return what the model says to a request."""
    if LOOK_TWICE in said or LOOK in said:
        calls = [Call(f"{at}kJ7pQx2Z", "look_up", json.dumps(found)) for at, found in enumerate(FOUND, 1)]
        return Answer(thought=THOUGHT, calls=tuple(calls if LOOK_TWICE in said else calls[:1]))
    if READ not in said:
        return Answer(ANSWER, THOUGHT)
    if any(tool["function"]["name"] == "file_operations" for tool in body.get("tools") or ()):
        return Answer(thought=THOUGHT, calls=(Call("9kJ7pQx2Z", "file_operations", json.dumps(_OWN)),))
    return Answer(json.dumps({"tool": "file_operations", "parameters": _OWN, "terminate": False}), THOUGHT)
