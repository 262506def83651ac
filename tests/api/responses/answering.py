"""A client of the Responses API before a real gateway in this process, whose model is scripted."""

import io
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import aiohttp
from gateways import key, until_read

from gateway.contracts.storage.store import Store
from gateway.testing.local_gateway import LocalGateway
from tests.e2e.models import Answer, Json
from tests.e2e.talking import Completed, World, talking

RESPONSES: Final = "/context/v1/responses"
CONVERSATIONS: Final = "/context/v1/conversations"
#: Keys of two tenants, and one that may use the other lane only.
KEYS: Final[Json] = {
    "keys": [
        {**key("ann", "context", "approve"), "tenant": "acme"},
        {**key("bob", "context"), "tenant": "acme"},
        {**key("eve", "context", "approve"), "tenant": "other"},
        {**key("low", "passthrough"), "tenant": "acme"},
        {**key("con", "approve"), "tenant": "acme"},
    ],
    "upstream": {"api_key": "sk-upstream"},
}
#: The gateway's own tools, as a client names them.
GATEWAY: Final[Json] = {"type": "mcp", "server_label": "gateway"}


@dataclass
class Events:
    """A stream of events under way: `read` is what came until now."""

    response: aiohttp.ClientResponse
    raw: bytes = b""
    read: list[Json] = field(default_factory=list)
    done: bool = False

    async def event(self) -> Json | None:
        """The next event; None at the end of the stream."""
        while True:
            try:
                frame = await self.response.content.readuntil(b"\n\n")
            except aiohttp.ClientPayloadError:
                return None
            if not frame:
                return None
            if frame.startswith(b":"):
                continue
            self.raw += frame
            if frame == b"data: [DONE]\n\n":
                self.done = True
                continue
            head, _, data = frame.partition(b"\ndata: ")
            found: Json = json.loads(data)
            assert head == b"event: " + found["type"].encode()
            self.read.append(found)
            return found

    async def until(self, kind: str) -> Json:
        """Reads until an event of this type."""
        while (found := await self.event()) is not None:
            if found["type"] == kind:
                return found
        raise AssertionError(f"no {kind} in {self.kinds}")

    async def rest(self) -> "Events":
        while await self.event() is not None:
            pass
        return self

    @property
    def kinds(self) -> list[str]:
        return [event["type"] for event in self.read]

    @property
    def numbers(self) -> list[int]:
        return [event["sequence_number"] for event in self.read]

    @property
    def last(self) -> Json:
        """The response as the last event has it."""
        found: Json = self.read[-1]["response"]
        return found

    @property
    def text(self) -> str:
        return "".join(event["delta"] for event in self.read if event["type"] == "response.output_text.delta")


@dataclass
class Client:
    """One key of a gateway; without a name, a gateway without keys."""

    world: World
    key: str = ""

    def of(self, name: str) -> "Client":
        return Client(self.world, name)

    def headers(self, further: Mapping[str, str] | None = None) -> dict[str, str]:
        return {**({"X-Gateway-Key": self.key} if self.key else {}), **(further or {})}

    async def create(
        self, said: object = "Hi", *, path: str = RESPONSES, headers: Mapping[str, str] | None = None, **fields: Any
    ) -> Completed:
        """A response that is no stream."""
        return await self.post({"model": "m", "input": said, **fields}, path, headers=headers)

    async def post(
        self, content: Json | bytes, path: str, *, headers: Mapping[str, str] | None = None, method: str = "POST"
    ) -> Completed:
        data = io.BytesIO(content if isinstance(content, bytes) else json.dumps(content).encode())
        sent = self.headers({"Content-Type": "application/json", **(headers or {})})
        async with self.world.session.request(method, path, data=data, headers=sent) as response:
            assert response.content_type == "application/json", await response.read()
            return Completed(response.status, response.headers, json.loads(await response.read()))

    async def get(self, response_id: str, below: str = "", *, path: str = RESPONSES) -> Completed:
        return await self.world.get(f"{path}/{response_id}{below}", **self.headers())

    async def delete(self, one: str, *, path: str = RESPONSES) -> Completed:
        return await self.post(b"", f"{path}/{one}", method="DELETE")

    async def until(self, response_id: str, *states: str) -> Json:
        """The response once it is in one of these states."""
        found = await until_read(lambda: self.get(response_id), lambda found: found.json.get("status") in states)
        return found.json

    @asynccontextmanager
    async def streaming(
        self, said: object = "Hi", *, headers: Mapping[str, str] | None = None, **fields: Any
    ) -> AsyncIterator[Events]:
        """A stream under way; leaving the block leaves the gateway."""
        body = {"model": "m", "input": said, "stream": True, **fields}
        async with aiohttp.ClientSession(self.world.gateway.base_url) as session:
            response = await session.post(RESPONSES, json=body, headers=self.headers(headers))
            try:
                yield Events(response)
            finally:
                response.close()

    async def stream(self, said: object = "Hi", **options: Any) -> Events:
        """A whole stream."""
        async with self.streaming(said, **options) as events:
            assert events.response.status == 200, await events.response.read()
            return await events.rest()

    @asynccontextmanager
    async def following(
        self, response_id: str, *, after: int | None = None, base_url: str | None = None
    ) -> AsyncIterator[Events]:
        """The events of a background response, also from another gateway."""
        query = "?stream=true" + ("" if after is None else f"&starting_after={after}")
        async with aiohttp.ClientSession(base_url or self.world.gateway.base_url) as session:
            response = await session.get(f"{RESPONSES}/{response_id}{query}", headers=self.headers())
            try:
                yield Events(response)
            finally:
                response.close()

    async def followed(self, response_id: str, *, after: int | None = None) -> Events:
        async with self.following(response_id, after=after) as events:
            assert events.response.status == 200, await events.response.read()
            return await events.rest()

    @property
    def store(self) -> Store:
        return self.world.gateway.gateway._shared.store

    @property
    def sent(self) -> list[Json]:
        """The messages that the model read last, without the first one of the system."""
        messages: list[Json] = self.world.model.asked[-1]["messages"]
        return messages[1:]


@asynccontextmanager
async def answering(*answers: Answer, key: str = "", **settings: Any) -> AsyncIterator[Client]:
    async with talking(*answers, **settings) as world:
        yield Client(world, key)


def text_of(response: Json) -> str:
    """The text of a response."""
    parts = [part for item in response["output"] if item["type"] == "message" for part in item["content"]]
    return "".join(part.get("text", "") for part in parts)


def kinds(items: list[Json]) -> list[str]:
    return [item["type"] for item in items]


def folder_store(folder: Path) -> Json:
    """A store that several gateways share."""
    return {"store": f"sqlite:///{folder}/gateway.db"}


@asynccontextmanager
async def elsewhere(client: Client) -> AsyncIterator[Client]:
    """The same client before another worker."""
    async with (
        LocalGateway(client.world.config) as second,
        aiohttp.ClientSession(second.base_url) as session,
    ):
        yield Client(replace(client.world, gateway=second, session=session), client.key)
