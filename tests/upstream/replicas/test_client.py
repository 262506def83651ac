"""Requests between workers: what is known of a request whose worker cannot be reached, or goes away."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from gateway.plugins.stores.sqlite import SqliteStore
from gateway.testing.ports import free_port
from gateway.upstream.replicas.client import LostReplicaError, NotReachedError, ReplicaClient
from gateway.upstream.replicas.directory import LEASE_S, ReplicaDirectory
from gateway.upstream.replicas.seals import ReplicaSeals, SealedRequest
from tests.mcp.workers import Wall

SECRET = b"s" * 32


@pytest.fixture
async def store() -> AsyncIterator[SqliteStore]:
    made = SqliteStore(":memory:")
    await made.open()
    yield made
    await made.close()


class Other:
    """The worker `w2`, which gives each request this answer. `heads` are the requests."""

    def __init__(self, store: SqliteStore, wall: Wall) -> None:
        self.directory = ReplicaDirectory(store, owner="w2", clock=wall)
        self.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
        self.heads: list[bytes] = []

    async def start(self) -> asyncio.Server:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.heads.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(self.answer)
            await writer.drain()
            if not self.answer.endswith(b"hi"):
                await reader.read()  # a worker that stands still keeps its connection until the other side ends it
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        self.directory.publish(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
        await self.directory.refresh()
        return server


def client_of(store: SqliteStore, wall: Wall) -> tuple[ReplicaClient, ReplicaDirectory]:
    directory = ReplicaDirectory(store, owner="w1", clock=wall)
    return ReplicaClient(directory, ReplicaSeals(SECRET, owner="w1"), clock=wall.monotonic), directory


async def test_request_is_sealed_and_answered(store: SqliteStore) -> None:
    wall = Wall()
    other = Other(store, wall)
    client, directory = client_of(store, wall)
    async with await other.start():
        await directory.refresh()
        answer = await client.send("w2", b"POST", b"/replica/x", body=b"{}", client="10.0.0.9")
        assert (answer.status, await answer.read_more(), await answer.read_more()) == (200, b"hi", b"")
        answer.close()
    (head,) = other.heads
    lines = [line.split(b": ", 1) for line in head.split(b"\r\n")[1:-2]]
    request = SealedRequest(method=b"POST", target=b"/replica/x", fields=[(name, value) for name, value in lines])
    seal = ReplicaSeals(SECRET, owner="w2").read(request)
    assert (seal.sender, seal.client) == ("w1", "10.0.0.9") and seal.fits(b"{}")


async def test_request_that_reached_nobody_has_done_nothing(store: SqliteStore) -> None:
    """The worker is unknown, its port is closed, or another process has it by now."""
    wall = Wall()
    other = Other(store, wall)
    client, directory = client_of(store, wall)
    with pytest.raises(NotReachedError):
        await client.send("w2", b"POST", b"/replica/x")
    async with await other.start():
        other.answer = b"HTTP/1.1 421 Misdirected Request\r\nContent-Length: 2\r\n\r\nhi"
        await directory.refresh()
        with pytest.raises(NotReachedError):
            await client.send("w2", b"POST", b"/replica/x")
    other.directory.publish(f"127.0.0.1:{free_port()}")
    await other.directory.refresh()
    await directory.refresh()
    with pytest.raises(NotReachedError):
        await client.send("w2", b"POST", b"/replica/x")


async def test_answer_ends_with_the_lease_of_its_worker(store: SqliteStore) -> None:
    """Before its head and behind it: a worker that stands still keeps its connections open."""
    wall = Wall()
    other = Other(store, wall)
    client, directory = client_of(store, wall)
    async with await other.start():
        await directory.refresh()
        other.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"
        answer = await client.send("w2", b"GET", b"/replica/x")
        other.answer = b""
        waiting = asyncio.create_task(client.send("w2", b"GET", b"/replica/x"))
        while len(other.heads) < 2:
            await asyncio.sleep(0)
        wall.now_s += LEASE_S + 0.1
        await directory.refresh()
        for ending in (answer.read_more(), waiting):
            with pytest.raises(LostReplicaError):
                await ending
        answer.close()
