"""The directory of workers, on a store of its own and with a clock that the test sets."""

from collections.abc import AsyncIterator

import pytest

from gateway.contracts.storage.store import StoreError
from gateway.plugins.stores.sqlite import SqliteStore
from gateway.upstream.replicas.directory import LEASE_S, ReplicaDirectory
from tests.mcp.workers import Wall


@pytest.fixture
async def store() -> AsyncIterator[SqliteStore]:
    made = SqliteStore(":memory:")
    await made.open()
    yield made
    await made.close()


def directories(store: SqliteStore, wall: Wall) -> tuple[ReplicaDirectory, ReplicaDirectory]:
    return ReplicaDirectory(store, owner="w1", clock=wall), ReplicaDirectory(store, owner="w2", clock=wall)


async def test_worker_is_found_at_its_address(store: SqliteStore) -> None:
    """One that came just now is looked for; one that left is gone at once."""
    wall = Wall()
    one, other = directories(store, wall)
    one.publish("10.0.0.1:1")
    await other.refresh()
    await one.refresh()
    wall.now_s += 1.0
    assert other.find_address("w1") is None
    assert await other.find_worker("w1") == other.find_address("w1") == "10.0.0.1:1"
    assert await other.find_worker("w3") is None
    await one.close()
    await other.refresh()
    assert other.find_address("w1") is None


async def test_silent_owner_loses_its_lease(store: SqliteStore) -> None:
    """By its own clock not later than by that of the others."""
    wall = Wall()
    one, other = directories(store, wall)
    for directory in (one, other):
        directory.claim("mcp git")
        await directory.refresh()
    assert one.holds("mcp git") and not other.holds("mcp git")
    wall.now_s += LEASE_S - 0.1
    await other.refresh()
    assert one.holds("mcp git") and not other.holds("mcp git")
    wall.now_s += 0.1
    assert not one.holds("mcp git")
    wall.now_s += 0.1
    await other.refresh()
    await one.refresh()
    assert other.holds("mcp git") and not one.holds("mcp git")
    found = one.find("mcp git")
    assert found is not None and found.owner == "w2"


async def test_released_lease_goes_to_another_worker(store: SqliteStore) -> None:
    one, other = directories(store, Wall())
    for directory in (one, other):
        directory.claim("mcp git")
        await directory.refresh()
    await one.release("mcp git")
    assert not one.holds("mcp git")
    await other.refresh()
    await one.refresh()
    assert other.holds("mcp git") and not one.holds("mcp git")


async def test_failed_store_leaves_leases_until_they_end() -> None:
    wall, store = Wall(), SqliteStore(":memory:")
    await store.open()
    directory = ReplicaDirectory(store, owner="w1", clock=wall)
    directory.claim("mcp git")
    await directory.refresh()
    await store.close()
    wall.now_s += LEASE_S - 0.1
    with pytest.raises(StoreError):
        await directory.refresh()
    assert directory.holds("mcp git")
    wall.now_s += 0.1
    assert not directory.holds("mcp git")
    await directory.close()
