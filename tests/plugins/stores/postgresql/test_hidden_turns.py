"""Hidden turns of several processes in one PostgreSQL database."""

import asyncio

import pytest

from gateway.contracts.storage.store import HiddenTurn
from tests.plugins.stores.postgresql.conftest import ClockedStore

pytestmark = pytest.mark.postgres


async def test_processes_that_record_the_same_keys_wait_in_order(
    two_stores: tuple[ClockedStore, ClockedStore],
) -> None:
    """In whatever order the keys come: none waits for the other, and each key that came twice means two turns."""
    keys = [f"k{number}" for number in range(60)]
    puts = []
    for number, store in enumerate(two_stores * 4):
        turn = HiddenTurn(id=f"t{number}", run_id="r", start=0, end=1, before=[{"n": number}])
        puts.append(store.put_hidden(turn, keys=keys[:: 1 if number % 2 else -1], tenant="acme", now_s=1.0))
        puts.append(store.record_answer(f"a{number}", keys=[f"own{number}"], tenant="acme", now_s=1.0))
    await asyncio.gather(*puts)
    assert await two_stores[0].find_hidden_turns(keys, tenant="acme") == dict.fromkeys(keys)


async def test_recorded_answer_is_known_to_other_processes(two_stores: tuple[ClockedStore, ClockedStore]) -> None:
    """Once a process of it has looked for it, or closed its store."""
    one, two = two_stores
    await one.record_answer("a", keys=["x"], tenant="acme", now_s=1.0)
    await one.close()
    await two.put_hidden(HiddenTurn(id="t", run_id="r", start=0, end=1), keys=["x"], tenant="acme", now_s=1.0)
    assert await two.find_hidden_turns(["x"], tenant="acme") == {"x": None}
