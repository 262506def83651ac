"""The place of a server that runs once: at the worker that holds its lease."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from gateway.mcp.placement import Placement, ServerPlaces
from gateway.mcp.server_facts import Config
from gateway.plugins.stores.sqlite import SqliteStore
from gateway.upstream.replicas.directory import LEASE_S
from gateway.upstream.replicas.replicas import Replicas
from tests.mcp.workers import Wall

SERVER = Config(name="git", command="git-server", run="one")


@pytest.fixture
async def store() -> AsyncIterator[SqliteStore]:
    made = SqliteStore(":memory:")
    await made.open()
    yield made
    await made.close()


def replicas(store: SqliteStore, wall: Wall, name: str) -> Replicas:
    async def listen() -> str:
        return f"127.0.0.1:{name[-1]}"

    return Replicas(store, owner=name, clock=wall, listen=listen)


async def test_first_worker_runs_the_server(store: SqliteStore) -> None:
    """The other one uses it there; one with other settings has a place of its own."""
    wall = Wall()
    one, other = (replicas(store, wall, name) for name in ("w1", "w2"))
    first, second = (ServerPlaces(each).get_placement(SERVER) for each in (one, other))
    assert await first.choose() is None and first.is_here
    assert await second.choose() == "w1" and not second.is_here and second.address == "127.0.0.1:1"
    another = ServerPlaces(other).get_placement(Config(name="git", command="another", run="one"))
    assert await another.choose() is None and another.name != second.name
    for each in (one, other):
        await each.close()


async def test_server_moves_once_its_worker_gives_it_up_or_is_gone(store: SqliteStore) -> None:
    wall = Wall()
    one, other = (replicas(store, wall, name) for name in ("w1", "w2"))
    first, second = (Placement("mcp git", each) for each in (one, other))
    await first.choose()
    await second.choose()
    moving = asyncio.create_task(second.wait_until_moved("w1"))
    await first.release()
    await other.directory.refresh()
    await moving
    assert await second.choose() is None and await first.choose() == "w2"
    losing = asyncio.create_task(second.wait_until_moved(None))
    wall.now_s += LEASE_S + 0.1
    assert not second.is_here
    await one.directory.refresh()
    assert await first.choose() is None
    await other.directory.refresh()
    await losing
    for each in (one, other):
        await each.close()


async def test_worker_without_others_runs_the_server() -> None:
    store = SqliteStore(":memory:")
    place = Placement("mcp git", Replicas(store, owner="w1", clock=Wall()))
    assert await place.choose() is None and place.is_here and place.address is None
