"""Keys of several processes in one PostgreSQL database."""

import asyncio

import pytest

from tests.plugins.stores.contract_keys import key
from tests.plugins.stores.postgresql.conftest import ClockedStore

pytestmark = pytest.mark.postgres


async def test_names_and_limit_hold_for_processes_at_once(two_stores: tuple[ClockedStore, ClockedStore]) -> None:
    """One of several gets a name, and no more keys are valid than may be."""
    adds = [store.add_key(key(number=n), most=9, audit=()) for n, store in enumerate(two_stores * 3)]
    assert sorted(await asyncio.gather(*adds)) == ["added"] + ["name_taken"] * 5
    adds = [store.add_key(key(f"k{n}", number=100 + n), most=4, audit=()) for n, store in enumerate(two_stores * 3)]
    assert sorted(await asyncio.gather(*adds)) == ["added"] * 3 + ["full"] * 3
    assert await two_stores[0].count_key_changes() == 4


async def test_uses_of_keys_are_stored_by_processes_at_once(two_stores: tuple[ClockedStore, ClockedStore]) -> None:
    """In whatever order they name the keys; the latest use stays."""
    for number in range(20):
        await two_stores[0].add_key(key(f"k{number}", number=number), most=99, audit=())
    names = [f"key_{number}" for number in range(20)]
    used = [
        store.note_key_use(dict.fromkeys(names[:: 1 if n % 2 else -1], 20.0 + n))
        for n, store in enumerate(two_stores * 4)
    ]
    await asyncio.gather(*used)
    assert {found.used_s for found in await two_stores[0].list_keys_in_use()} == {27.0}
