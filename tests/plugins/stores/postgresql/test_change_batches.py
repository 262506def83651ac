"""Changes of runs that wait together: one call, each with its own outcome."""

import asyncio
from collections.abc import Sequence

import pytest

from gateway.contracts.storage.journal import ConflictError, Move
from gateway.contracts.storage.store import StoreError
from gateway.plugins.stores.postgresql import change_batches
from gateway.plugins.stores.postgresql.change_batches import ChangeBatches
from tests.plugins.stores.postgresql.conftest import execute, open_store, quiet_store
from tests.plugins.stores.postgresql.cutting_proxy import cutting_proxy
from tests.plugins.stores.records import event, moved, new, run

pytestmark = pytest.mark.postgres


async def test_changes_that_wait_go_together_in_the_order_of_their_runs() -> None:
    """Behind two calls that are under way; the changes of one run stay in their order."""
    calls: list[list[object]] = []
    is_over = asyncio.Event()

    async def write(_sql: str, values: list[object]) -> Sequence[Sequence[object]]:
        calls.append(values)
        await is_over.wait()
        return [(None, None)] * len(values)

    batches = ChangeBatches(write)
    puts: list[asyncio.Task[None]] = []

    def put(key: str) -> None:
        puts.append(asyncio.create_task(batches.write_change(("acme", key), [f"{key}{len(puts)}"])))

    for number, key in enumerate("ed", 1):
        put(key)
        while len(calls) < number:
            await asyncio.sleep(0)
    for key in "bcba":
        put(key)
    await asyncio.sleep(0)
    puts[-1].cancel()  # its change is written all the same
    is_over.set()
    await batches.close()
    await asyncio.gather(*puts, return_exceptions=True)
    assert calls == [["e0"], ["d1"], ["a5", "b2", "b4", "c3"]]


async def test_refused_change_does_not_undo_those_beside_it(database: str) -> None:
    store = await open_store(database, size=2)
    for number in range(30):
        await store.write(new(run(f"r{number}")))
    changes = []
    for number in range(30):
        moves = (Move("ap_9", "pending", "executing"),) if number % 3 == 0 else ()
        changes.append(moved(run(f"r{number}"), *moves, events=(event(run_id=f"r{number}"),)))
    results = await asyncio.gather(*map(store.write, changes), return_exceptions=True)
    assert [type(result) for result in results] == [ConflictError, type(None), type(None)] * 10
    assert all("ap_9" in str(result) for result in results[::3])
    assert {one.run_id for one in await store.list_events(after=0, limit=99)} == {f"r{n}" for n in range(30) if n % 3}
    await store.close()


async def test_failure_of_the_server_fails_all_changes_of_a_call(new_database: str) -> None:
    """Nothing of any of them is written."""
    store = await open_store(new_database, size=2)
    for number in range(6):
        await store.write(new(run(f"r{number}")))
    await execute(
        new_database,
        """CREATE OR REPLACE FUNCTION twolane.add_events(p_events json) RETURNS void LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'it failed' USING ERRCODE = '53100'; END $$""",
    )
    changes = [moved(run(f"r{n}", progress=b"1"), events=(event(run_id=f"r{n}"),)) for n in range(6)]
    results = await asyncio.gather(*map(store.write, changes), return_exceptions=True)
    assert [type(result) for result in results] == [StoreError] * 6
    assert await store._read("SELECT count(*) FROM twolane.runs WHERE progress = '1'") == [(0,)]
    await store.close()


async def test_outcomes_of_a_call_are_kept_for_its_repetition(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer is cut off: each caller gets what came of its change the first time."""
    monkeypatch.setattr(change_batches, "BATCHES", 1)
    port = int(database.partition("127.0.0.1:")[2].partition("/")[0])
    async with cutting_proxy(port) as (cutting, listens_at):
        store = quiet_store(database.replace(str(port), str(listens_at)))
        for number in range(4):
            await store.write(new(run(f"r{number}")))
        # The description of the statement is about 150 bytes; the rows follow it.
        cutting.cut_down = 170
        changes = [moved(run(f"r{n}", fence=n % 2), events=(event(run_id=f"r{n}"),)) for n in range(4)]
        results = await asyncio.gather(*map(store.write, changes), return_exceptions=True)
        assert [type(result) for result in results] == [type(None), ConflictError] * 2
        assert cutting.cuts == 1 and await store.get_last_event() == 2
        await store.close()
