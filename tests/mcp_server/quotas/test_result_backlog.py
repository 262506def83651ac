"""The bound of large results that clients do not read."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import orjson
from gateways import until, until_read

from gateway.contracts.tools import ToolResult
from gateway.mcp_server.quotas.result_backlog import estimate_result_bytes
from gateway.testing.raw_connection import Peer, connect
from tests.mcp_server.serving import ACCEPT, World, keys, texts, world

#: Pictures of 6 MiB that the share of a key has room for, of this many.
FITTING, ALL = 5, 7
KEYS = keys(agent=["tools"], second=["tools"], boss=["context"])
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
VERSION = "io.modelcontextprotocol/protocolVersion"


def picture(number: int) -> bytes:
    """A call whose result is large."""
    meta = {VERSION: "2026-07-28", CAPABILITIES: {}}
    params = {"name": "here__picture", "arguments": {"number": number}, "_meta": meta}
    body = orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    fields = {
        "Host": "localhost",
        "Content-Length": str(len(body)),
        "Content-Type": "application/json",
        "Authorization": "Bearer agent",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": "here__picture",
        **ACCEPT,
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + body


async def runs(made: World) -> list[str]:
    """The states of all runs."""
    return [run["state"] for run in (await made.get("/context/runs", key="boss"))["data"]]


@dataclass
class Reader:
    """A client that has asked for a picture. It reads the head of its answer, and the rest only when it is told to."""

    peer: Peer
    head: "asyncio.Task[bytes]"

    async def rest(self) -> bytes:
        length = int((await self.head).lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        return await self.peer.read_exactly(length)


@asynccontextmanager
async def not_reading(calm: dict[str, object]) -> AsyncIterator[tuple[World, list[Reader]]]:
    """A gateway whose calls have all ended, and their clients, those with an answer first."""
    async with AsyncExitStack() as stack:
        made = await stack.enter_async_context(world(keys=KEYS, **calm))
        address = made.gateway.host, made.gateway.port
        readers = []
        for number in range(ALL):
            peer = await stack.enter_async_context(connect(*address, rcvbuf=4096))
            await peer.send(picture(number))
            readers.append(Reader(peer, asyncio.create_task(peer.read_until(b"\r\n\r\n"))))
            stack.callback(readers[-1].head.cancel)
        await until_read(lambda: runs(made), lambda states: states == ["completed"] * ALL)
        await until(lambda: sum(reader.head.done() for reader in readers) >= FITTING)
        yield made, sorted(readers, key=lambda reader: not reader.head.done())


async def test_unread_large_results_delay_further_results_without_loss(calm: dict[str, object]) -> None:
    """Each call has run once. Small answers, and other keys, need not wait."""
    async with not_reading(calm) as (made, readers):
        async with made.client(key="agent") as client:
            assert texts(await client.call_tool("here__echo", {"text": "hi"})) == "hi"
        async with made.client(key="second") as client:
            (block,) = (await client.call_tool("here__picture", {})).content
            assert block.type == "image" and len(block.data) == 6 << 20
        assert sum(reader.head.done() for reader in readers) == FITTING
        for reader in readers:
            result = orjson.loads(await reader.rest())["result"]
            assert len(result["content"][0]["data"]) == 6 << 20 and not result["isError"]
        assert await runs(made) == ["completed"] * (ALL + 2)


async def test_disconnected_clients_free_the_result_backlog(calm: dict[str, object]) -> None:
    """Also those that waited."""
    async with not_reading(calm) as (_, readers):
        for reader in readers[:-1]:
            reader.peer.reset()
        assert len(await readers[-1].rest()) > 6 << 20


def test_result_size_counts_only_the_content_sent_to_clients() -> None:
    """Its text for others is not."""
    assert estimate_result_bytes(ToolResult("x" * 9)) == 9
    parts = [{"type": "image", "data": "A" * 1000}]
    assert 1000 < estimate_result_bytes(ToolResult("x" * 9000, parts=parts)) < 1100
    assert 1000 < estimate_result_bytes(ToolResult("", structured={"a": "b" * 1000})) < 1100
