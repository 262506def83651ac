"""A gateway between an HTTP client and a scripted model, and the answers as the client sees them."""

import json
import sqlite3
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from gateways import until_read

from gateway.aio.clock import SystemClock
from gateway.testing.local_gateway import LocalGateway

from .models import Answer, Json, Model

CHAT = "/context/v1/chat/completions"
Messages = str | Sequence[Json]
#: A folder without any: those of the checkout would be read at every start.
NO_WORKFLOWS = {"folder": str(Path(__file__).parent)}


def stages(
    *, enhancer: Mapping[str, object] | None = None, loop: Mapping[str, object] | None = None
) -> dict[str, list[Json]]:
    """The default chain with other settings."""
    uses = ["intent", "memory", "prompt_enhancer", "agent_loop"]
    options = {"prompt_enhancer": enhancer or {}, "agent_loop": loop or {}}
    return {"assistant": [{"use": name, "with": dict(options.get(name, {}))} for name in uses]}


def desk(folder: Path, *, write: bool = False) -> Json:
    """Tools over a folder with `notes.txt`, and a database with a table of three pets."""
    work = folder / "work"
    work.mkdir(exist_ok=True)
    (work / "notes.txt").write_text("The safe is behind the mirror.\n")
    database = folder / "pets.db"
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("CREATE TABLE pets (name TEXT, legs INTEGER)")
        connection.executemany("INSERT INTO pets VALUES (?, ?)", [("Ada", 4), ("Bo", 2), ("Cy", 0)])
    return {
        "file_operations": {"roots": [str(work)], "write": write},
        "execute_sql": {"url": f"sqlite:///{database}"},
    }


@dataclass(frozen=True)
class Completed:
    """An answer that is no stream."""

    status: int
    headers: Mapping[str, str]
    json: Json

    @property
    def message(self) -> Json:
        (choice,) = self.json["choices"]
        assert choice["index"] == 0
        found: Json = choice["message"]
        return found

    @property
    def text(self) -> str:
        found: str = self.message["content"]
        return found

    @property
    def finish(self) -> str:
        found: str = self.json["choices"][0]["finish_reason"]
        return found

    @property
    def asks(self) -> list[Json]:
        """The approvals that the turn ended with, each of which the text shows with its id."""
        context = self.json["context"]
        approvals: list[Json] = context["approvals"]
        assert (self.status, self.finish, context["status"]) == (200, "stop", "awaiting_approval")
        assert context["run_id"] == self.headers["X-Context-Run-Id"]
        assert all(approval["id"] in self.text for approval in approvals)
        return approvals

    @property
    def error(self) -> Json:
        """The error, after a check of its form."""
        assert self.json.keys() == {"error"}
        error: Json = self.json["error"]
        assert error.keys() == {"message", "type", "param", "code"}
        assert self.headers["x-request-id"] in error["message"]
        return error


@dataclass
class Streamed:
    """A stream under way: `events` is the data of what was read until now."""

    response: aiohttp.ClientResponse
    events: list[bytes] = field(default_factory=list)

    async def event(self) -> bytes:
        """The data of the next event; b"" at the end."""
        try:
            raw = await self.response.content.readuntil(b"\n\n")
        except aiohttp.ClientPayloadError:
            raw = b""
        if not raw:
            return b""
        assert raw.startswith(b"data: ") and raw.count(b"\n") == 2, raw
        self.events.append(raw[6:-2])
        return self.events[-1]

    async def frame(self) -> Json:
        found: Json = json.loads(await self.event())
        return found

    async def until_text(self, text: str) -> None:
        """Reads until the text so far is `text`."""
        while self.text != text:
            await self.frame()

    async def until_told(self, kind: str) -> Json:
        """Reads until this event is told."""
        while True:
            told: Json = (await self.frame()).get("context", {})
            if told.get("type") == kind:
                return told

    async def rest(self) -> "Streamed":
        while await self.event():
            pass
        return self

    @property
    def frames(self) -> list[Json]:
        """Every event but [DONE]."""
        return [json.loads(data) for data in self.events if data != b"[DONE]"]

    @property
    def deltas(self) -> list[Json]:
        return [choice["delta"] for frame in self.frames for choice in frame.get("choices", ())]

    @property
    def text(self) -> str:
        return "".join(delta.get("content") or "" for delta in self.deltas)

    @property
    def finishes(self) -> list[str]:
        reasons = [choice["finish_reason"] for frame in self.frames for choice in frame.get("choices", ())]
        return [reason for reason in reasons if reason is not None]

    @property
    def told(self) -> list[Json]:
        """The progress events."""
        return [frame["context"] for frame in self.frames if "type" in frame.get("context", {})]


@dataclass
class World:
    gateway: LocalGateway
    model: Model
    session: aiohttp.ClientSession
    config: Json

    async def chat(
        self, messages: Messages = "Hello?", *, path: str = CHAT, headers: Mapping[str, str] | None = None, **body: Any
    ) -> Completed:
        """A completion that is no stream."""
        return await self.post(_body(messages, body), path=path, headers=headers)

    async def post(
        self, content: Json | bytes, *, path: str = CHAT, headers: Any = None, method: str = "POST"
    ) -> Completed:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        request = self.session.request(
            method, path, data=data, headers={"Content-Type": "application/json", **(headers or {})}
        )
        async with request as response:
            assert response.content_type == "application/json", await response.read()
            return Completed(response.status, response.headers, json.loads(await response.read()))

    async def get(self, path: str, **headers: str) -> Completed:
        async with self.session.get(path, headers=headers) as response:
            return Completed(response.status, response.headers, json.loads(await response.read() or b"null"))

    async def decide(self, approval_id: str, decision: str = "approve", *, key: str = "", **fields: Any) -> Completed:
        """A decision by REST."""
        headers = {"X-Gateway-Key": key} if key else {}
        return await self.post(
            {"decision": decision, **fields}, path=f"/context/approvals/{approval_id}", headers=headers
        )

    async def run(self, run_id: str, *, state: str | None = None, **headers: str) -> Json:
        """The run with all that is on record of it, once it is in this state."""
        path = f"/context/runs/{run_id}"
        found = await until_read(lambda: self.get(path, **headers), lambda found: state in (None, found.json["state"]))
        run: Json = found.json
        return run

    async def reload(self, **settings: object) -> None:
        """Swaps to a configuration with other `settings`."""
        self.config |= settings
        await self.gateway.reload(self.config)

    @asynccontextmanager
    async def streaming(
        self, messages: Messages = "Hello?", *, path: str = CHAT, headers: Mapping[str, str] | None = None, **body: Any
    ) -> AsyncIterator[Streamed]:
        """A stream under way; leaving the block leaves the gateway."""
        content = json.dumps({**_body(messages, body), "stream": True}).encode()
        async with aiohttp.ClientSession(self.gateway.base_url) as session:
            response = await session.post(
                path, data=content, headers={"Content-Type": "application/json", **(headers or {})}
            )
            try:
                yield Streamed(response)
            finally:
                response.close()

    async def stream(self, messages: Messages = "Hello?", **options: Any) -> Streamed:
        """A whole stream."""
        async with self.streaming(messages, **options) as stream:
            assert stream.response.status == 200
            return await stream.rest()

    async def counted(self, sample: str) -> float:
        """The value of one sample of /metrics, 0 where there is none."""
        async with self.session.get("/metrics") as response:
            lines = (await response.text()).splitlines()
        return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{sample} ")), 0.0)


@asynccontextmanager
async def talking(
    *answers: Answer,
    enhancer: Mapping[str, object] | None = None,
    loop: Mapping[str, object] | None = None,
    upstream: Mapping[str, object] | None = None,
    clock: SystemClock | None = None,
    **settings: Any,
) -> AsyncIterator[World]:
    """`enhancer` and `loop` are settings of those stages, `upstream` of the model's entry in the configuration."""
    async with Model(*answers) as model:
        config: Json = {
            "upstreams": [{"name": "up", "base_url": model.upstream.base_url, **(upstream or {})}],
            "store": "sqlite:///:memory:",
            "chains": stages(enhancer=enhancer, loop=loop),
            "workflows": NO_WORKFLOWS,
            **settings,
        }
        async with LocalGateway(config, clock=clock) as gateway, aiohttp.ClientSession(gateway.base_url) as session:
            yield World(gateway, model, session, config)


def _body(messages: Messages, body: Mapping[str, object]) -> Json:
    said = [{"role": "user", "content": messages}] if isinstance(messages, str) else list(messages)
    return {"model": "m", "messages": said, **body}
