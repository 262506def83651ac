"""Runs in PostgreSQL: the contract, several stores at once, and what a write costs the server."""

import asyncio

import asyncpg
import pytest

from gateway.contracts.storage.journal import FAR_S
from gateway.contracts.storage.store import Store
from tests.plugins.stores.contract_journal import *  # noqa: F403 - the tests of the contract run here
from tests.plugins.stores.contract_leases import *  # noqa: F403
from tests.plugins.stores.contract_tool_runs import *  # noqa: F403
from tests.plugins.stores.postgresql.conftest import execute, open_store
from tests.plugins.stores.records import approval, claimed, event, moved, new, run, step

pytestmark = pytest.mark.postgres


async def test_two_stores_claim_each_run_once(database: str) -> None:
    """Each from both at the same time, until none is left; no claim waits for another one."""
    stores = [await open_store(database) for _ in range(2)]
    for number in range(100):
        await stores[0].write(new(run(f"r{number}", updated_s=float(number))))

    async def claim(store: Store, owner: str) -> list[str]:
        found: list[str] = []
        while runs := await claimed(store, owner, limit=7):
            found += [run_id for run_id, _ in runs]
        return found

    found = await asyncio.gather(*(claim(stores[n % 2], f"w{n}") for n in range(4)))
    assert sorted(run_id for each in found for run_id in each) == sorted(f"r{n}" for n in range(100))
    await asyncio.gather(*(store.close() for store in stores))


async def test_claim_passes_over_runs_that_another_claim_holds(database: str) -> None:
    store, connection = await open_store(database), await asyncpg.connect(database)
    for run_id in ("a", "b"):
        await store.write(new(run(run_id)))
    await connection.execute("BEGIN")
    await connection.execute("SELECT FROM twolane.runs WHERE id = 'a' FOR UPDATE")
    assert await claimed(store, "w1") == [("b", 1)]
    await connection.execute("ROLLBACK")
    assert await claimed(store, "w1") == [("a", 1)]
    await asyncio.gather(store.close(), connection.close())


async def set_clock(url: str, now_s: float) -> None:
    clock = "CREATE OR REPLACE FUNCTION twolane.now_s() RETURNS double precision LANGUAGE sql"
    await execute(url, f"{clock} AS 'SELECT {now_s}::double precision'")


@pytest.mark.parametrize("ahead_s", [-3600.0, 3600.0])
async def test_lease_is_measured_by_the_clock_of_the_database(new_database: str, ahead_s: float) -> None:
    """A gateway whose clock is wrong by an hour takes no run from another one, and holds its own as long as others."""
    await set_clock(new_database, 2e9 + ahead_s)
    store = await open_store(new_database)
    await store.write(new(run("a", owner="w1", updated_s=2e9, lease_s=2e9 + 5.0)))
    which = {"now_s": 2e9, "until_s": 2e9 + 5.0, "states": ["running"], "limit": 9}
    assert await store.claim(owner="w2", run_id="a", **which) == []  # type: ignore[arg-type]
    assert await store.renew(owner="w1", run_ids=["a"], now_s=2e9, until_s=2e9 + 5.0) == ["a"]
    assert await store.claim(owner="w2", run_id=None, **which) == []  # type: ignore[arg-type]
    await set_clock(new_database, 2e9 + ahead_s + 5.5)
    late = await store.claim(owner="w2", run_id=None, over_s=2e9 - 1.0, **which)  # type: ignore[arg-type]
    assert late == [], "a second longer than its lease it is spared"
    (taken,) = await store.claim(owner="w2", run_id=None, **which)  # type: ignore[arg-type]
    assert (taken.owner, taken.fence) == ("w2", 1) and FAR_S > 5.5
    await store.close()


async def test_write_of_a_run_under_way_touches_no_index(database: str) -> None:
    """PostgreSQL then writes one row, and not an entry in each of the indexes of runs."""
    store = await open_store(database, size=1)
    held = {"owner": "w1", "lease_s": 130.0}
    await store.write(new(run(**held), steps=(step(),)))

    async def count() -> tuple[int, int]:
        await store._read("SELECT pg_stat_force_next_flush()")
        ((updated, hot),) = await store._read(
            "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relid = 'twolane.runs'::regclass"
        )
        return updated, hot

    updated, hot = await count()
    for number in range(20):
        facts = {**held, "updated_s": 101.0 + number, "progress": b"%d" % number, "effects": True}
        await store.write(moved(run(**facts), steps=(step(),)))
        await store.renew(owner="w1", run_ids=["run_1"], now_s=101.0, until_s=130.0 + number)
    now_updated, now_hot = await count()
    assert now_updated - updated == 40 and now_hot - hot >= 36, "some found no room in their page"
    await store.close()


async def test_write_that_asks_and_ends_leaves_no_pending_count(database: str) -> None:
    """The count of a run's pending approvals follows every way in which one ends."""
    store = await open_store(database, size=1)
    asked = tuple(approval(f"ap_{n}", step=n) for n in range(3))
    await store.write(new(approvals=asked, events=(event(),)))
    assert await store._read("SELECT pending FROM twolane.runs") == [(3,)]
    await store.expire(now_s=1e9, limit=1)
    await store.write(moved(run(state="failed")))
    assert await store._read("SELECT pending FROM twolane.runs") == [(0,)]
    await store.close()
