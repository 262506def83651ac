"""Prompts, services, definitions, duties and leases of several processes in one PostgreSQL database."""

import asyncio

import pytest

from gateway.contracts.storage.store import StoredService
from gateway.plugins.stores.postgresql.store import PostgresqlStore
from tests.plugins.stores.postgresql.conftest import ClockedStore, execute, open_store

pytestmark = pytest.mark.postgres

LEASES = [f"mcp {number}" for number in range(10)]


async def test_definitions_that_are_there_take_no_number(store: ClockedStore) -> None:
    """Numbers count what is kept: the oldest definitions go, however often the others are written."""
    for _ in range(5):
        await store._call("put_definitions", ["a", "b"], ["{}", "{}"], 3)
    await store._call("put_definitions", ["c", "d"], ["{}", "{}"], 3)
    assert list(await store.find_definitions(["a", "b", "c", "d"])) == ["b", "c", "d"]


async def test_duty_ends_by_the_clock_of_the_server(new_database: str) -> None:
    """Whatever the clocks of the two machines show, which are years apart here."""
    stores = [PostgresqlStore(new_database, place="test", size=1) for _ in range(2)]
    for store in stores:
        await store.open()
    one, two = stores
    try:
        assert await one.take_duty("prune", owner="one", now_s=1e9, until_s=1e9 + 60)
        assert not await two.take_duty("prune", owner="two", now_s=2e9, until_s=2e9 + 60)
        assert await one.take_duty("prune", owner="one", now_s=1e9, until_s=1e9 - 1)
        assert await two.take_duty("prune", owner="two", now_s=5.0, until_s=65.0)
        await one.announce_gateway("one", now_s=1e9, until_s=1e9 + 60)
        assert await two.count_gateways(now_s=3e9) == 1
    finally:
        await asyncio.gather(one.close(), two.close())


async def test_change_of_a_service_is_one_of_several_writers(two_stores: tuple[ClockedStore, ClockedStore]) -> None:
    """And each change is counted."""
    service = StoredService(name="x" * 3000 + "y", pins={})
    for expected in range(3):
        puts = [store.put_service(service, expected=expected) for store in two_stores * 3]
        assert sorted(await asyncio.gather(*puts)) == [False] * 5 + [True]
    assert await two_stores[0].get_generation() == 3


async def test_workers_at_once_have_one_owner_for_each_lease(database: str) -> None:
    """In whatever order they name them; nobody waits for ever, and all see the same owners in the end."""
    await execute(database, "UPDATE twolane.test_clock SET now_s = 1000")
    stores = [await open_store(database, size=2) for _ in range(4)]

    async def hold(at: int) -> dict[str, str]:
        for _ in range(20):
            found = await stores[at].hold_leases(
                LEASES[at:] + LEASES[:at], owner=f"w{at}", address="x:1", now_s=1000.0, until_s=1005.0
            )
        return {one.name: one.owner for one in found}

    try:
        async with asyncio.timeout(60):
            seen = await asyncio.gather(*map(hold, range(4)))
        assert seen[0].keys() == set(LEASES) and all(one == seen[0] for one in seen)
    finally:
        for store in stores:
            await store.close()
