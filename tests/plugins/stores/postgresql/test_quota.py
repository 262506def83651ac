"""The shares of limits in one PostgreSQL database: gateways that call at once, and calls that are sent again."""

import asyncio
import random

import pytest

from gateway.contracts.storage.quota import ShareRequest
from gateway.plugins.stores.postgresql.quota import FORGOTTEN_S
from tests.plugins.stores.contract_quota import want
from tests.plugins.stores.postgresql.conftest import ClockedStore, execute, open_store

pytestmark = pytest.mark.postgres

LIMITS = [f"key {number}" for number in range(12)]


async def test_gateways_at_once_have_no_more_than_each_limit(database: str) -> None:
    """However their limits are ordered, and though others come and go; nobody waits for ever."""
    await execute(database, "UPDATE twolane.test_clock SET now_s = 1000")
    stores = [await open_store(database, size=2) for _ in range(4)]
    held = [dict.fromkeys(LIMITS, 0) for _ in stores]

    async def ask(at: int) -> None:
        chance = random.Random(at)
        for turn in range(1, 40):
            names = chance.sample(LIMITS, 6)
            requests: list[ShareRequest] = []
            for name in names:
                kept = min(held[at][name], chance.randrange(8))
                held[at][name] = kept  # it is lower here before it is lower there
                requests.append(want(kept + chance.randrange(8), name=name, held=kept))
            answer = await stores[at].share_quota(f"g{at}", requests, turn=turn, now_s=1000.0)
            held[at].update({grant.name: grant.share for grant in answer.grants})
            assert all(sum(one[name] for one in held) <= 10 for name in LIMITS)

    await asyncio.gather(*map(ask, range(4)))
    assert max(sum(one[name] for one in held) for name in LIMITS) == 10
    await asyncio.gather(*(store.close() for store in stores))


async def test_call_that_is_sent_again_has_the_same_answer(store: ClockedStore) -> None:
    """Its connection was lost before the answer came."""
    values = ("one", 1, 6.0, FORGOTTEN_S, ["key"], [10], [0], [0], [0], [6], [0], [61.0])
    call = f"SELECT twolane.share_quota('w', 1, {', '.join(f'${at}' for at in range(1, 13))})"
    first = await store._read(call, *values)
    assert await store._read(call, *values) == first


async def test_rows_of_what_nobody_has_are_deleted(store: ClockedStore) -> None:
    """Once none of the shares of a gateway count."""
    await store.share_quota("gone", [want(5, name="a"), want(5, name="b")], turn=1, now_s=1000.0)
    await store.share_quota("one", [want(5, name="b")], turn=1, now_s=1001.0 + FORGOTTEN_S)
    assert await store._read("SELECT name, gateway FROM twolane.quota_shares") == [("b", "one")]
    assert await store._read("SELECT name FROM twolane.quota_limits") == [("b",)]
    assert await store._read("SELECT gateway FROM twolane.quota_gateways") == [("one",)]
