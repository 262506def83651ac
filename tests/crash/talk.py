"""Requests to a gateway of these tests: many at once, as JSON or as a stream."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp

from tests.support.gateway_process import GatewayProcess

from .effects import Json

CHAT = "/context/v1/chat/completions"
#: The longest that one answer takes when thousands are waited for.
LONG_S = 120.0
APPROVAL = re.compile(r"ap_[a-z2-7]{26}")


@asynccontextmanager
async def session_with(gateway: GatewayProcess, *, connections: int = 100) -> AsyncIterator[aiohttp.ClientSession]:
    """Clients of a gateway, on so many connections at most."""
    connector = aiohttp.TCPConnector(limit=connections)
    timeout = aiohttp.ClientTimeout(total=LONG_S)
    async with aiohttp.ClientSession(gateway.base_url, connector=connector, timeout=timeout) as session:
        yield session


def asking(text: str, *, stream: bool = False) -> Json:
    return {"model": "demo", "messages": [{"role": "user", "content": text}], "stream": stream}


async def post(session: aiohttp.ClientSession, path: str, body: Json) -> tuple[int, Json]:
    async with session.post(path, json=body) as response:
        found: Json = await response.json()
        return response.status, found


async def told(session: aiohttp.ClientSession, text: str) -> str:
    """The answer to one question."""
    status, completion = await post(session, CHAT, asking(text))
    assert status == 200, completion
    found: str = completion["choices"][0]["message"]["content"]
    return found


async def approval_asked(session: aiohttp.ClientSession, text: str) -> str:
    """The id of the approval that the answer to one question asks for."""
    answer = await told(session, text)
    found = APPROVAL.search(answer)
    assert found is not None, answer
    return found[0]


@dataclass(slots=True)
class Stream:
    """One streamed answer, which waits for an approval on its way."""

    response: aiohttp.ClientResponse
    approval_id: str = ""
    said: list[str] = field(default_factory=list)

    @classmethod
    async def ask(cls, session: aiohttp.ClientSession, text: str) -> "Stream":
        headers = {"X-Context-Approvals": "hold"}
        response = await session.post(CHAT, json=asking(text, stream=True), headers=headers)
        assert response.status == 200, await response.text()
        return cls(response)

    async def until_asked(self) -> str:
        """The id of the approval."""
        async for delta in self._deltas():
            if (found := APPROVAL.search(delta.get("content") or "")) is not None:
                self.approval_id = found[0]
                return self.approval_id
        raise AssertionError(f"nobody was asked: {self.said}")

    async def rest(self) -> str:
        """Return the whole answer, read to its end."""
        async with self.response:
            async for delta in self._deltas():
                self.said.append(delta.get("content") or "")
        return "".join(self.said)

    async def _deltas(self) -> AsyncIterator[Json]:
        while line := await self.response.content.readline():
            data = line.removeprefix(b"data:").strip()
            if not line.startswith(b"data:") or data == b"[DONE]":
                continue
            for choice in json.loads(data)["choices"]:
                yield choice["delta"]
