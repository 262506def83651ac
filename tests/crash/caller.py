"""A client of the endpoint for MCP clients that calls one tool, and a person who approves what is asked."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import aiohttp
import httpx2
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from tests.mcp_server.serving import NO_TLS

from .effects import ASKS, effects

Era = Literal["legacy", "auto"]
#: What a client is told of a call of which nobody knows what became.
UNKNOWN = "what became of it is unknown"
#: How often a person looks, and how long a client that got no answer waits.
LOOK_S, AGAIN_S = 0.002, 0.05


@dataclass(slots=True)
class Caller:
    """One call that asks, from its first request to its result. `url` returns the gateway that is there now."""

    url: Callable[[], str]
    folder: Path
    run: str
    era: Era
    at_s: dict[str, float] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)  # the results, the last of which is that of the call
    approved: list[str] = field(default_factory=list)  # ids whose 200 arrived

    async def drive(self) -> None:
        """Call until there is a result, whatever happens to the gateway; meanwhile a person approves."""
        person = asyncio.create_task(self._approve())
        try:
            while not self.told or not self.told[-1].startswith("wrote"):
                with suppress(OSError, httpx2.HTTPError, MCPError, ExceptionGroup, TimeoutError):
                    async with asyncio.timeout(60):
                        await self._call()
                await asyncio.sleep(AGAIN_S)
        finally:
            person.cancel()
            await asyncio.wait({person})

    async def _call(self) -> None:
        async with httpx2.AsyncClient(timeout=30, verify=NO_TLS) as http:
            transport = streamable_http_client(f"{self.url()}/mcp", http_client=http)
            async with Client(transport, mode=self.era) as client:
                await client.list_tools()  # else the SDK does that behind the result, and raises if it gets no list
                self._now("asked")
                result = await client.call_tool("ledger", {"run": self.run, "n": ASKS})
                self._now("answer")
                text = "\n".join(block.text for block in result.content if block.type == "text")
                if text.startswith("wrote") or UNKNOWN in text:  # heard, even if its connection cannot be closed
                    self.told.append(text)

    async def _approve(self) -> None:
        """Approve each question about this call once, as soon as it is there."""
        async with aiohttp.ClientSession() as session:
            while True:
                with suppress(aiohttp.ClientError, OSError):
                    async with session.get(f"{self.url()}/context/approvals?status=pending&limit=200") as response:
                        found = (await response.json())["data"]
                    for view in found:
                        if view["arguments"]["run"] == self.run:
                            self._now("question")
                            await self._decide(session, view["id"])
                await asyncio.sleep(LOOK_S)

    async def _decide(self, session: aiohttp.ClientSession, approval_id: str) -> None:
        self._now("approve")
        async with session.post(f"{self.url()}/context/approvals/{approval_id}", json={"decision": "approve"}) as done:
            if done.status == 200:
                self.approved.append(approval_id)
                self._now("approved")

    def seen_s(self, what: str) -> float | None:
        """Return when this was seen first, or None."""
        if what == "line":
            return next((effect.at_s for effect in effects(self.folder, self.run)), None)
        return self.at_s.get(what)

    def _now(self, what: str) -> None:
        self.at_s.setdefault(what, time.time())
