"""The store in PostgreSQL as a whole: opening, closing, losses, pruning."""

import asyncio

import pytest

from gateway.contracts.storage.store import StoreError
from gateway.plugins.stores.postgresql import store as store_module
from gateway.testing.ports import free_port
from tests.plugins.stores.contract import *  # noqa: F403 - the tests of the contract run here
from tests.plugins.stores.contract_keys import *  # noqa: F403
from tests.plugins.stores.contract_memories import *  # noqa: F403
from tests.plugins.stores.contract_quota import *  # noqa: F403
from tests.plugins.stores.contract_replicas import *  # noqa: F403
from tests.plugins.stores.contract_responses import *  # noqa: F403
from tests.plugins.stores.contract_sessions import *  # noqa: F403
from tests.plugins.stores.contract_usage import *  # noqa: F403
from tests.plugins.stores.postgresql.conftest import execute, open_store
from tests.plugins.stores.records import approval, event, grant, moved, new, parked, run, step, write

pytestmark = pytest.mark.postgres


async def test_store_that_cannot_be_opened_can_be_closed() -> None:
    url = f"postgresql://owner@127.0.0.1:{free_port()}/x"
    store = store_module.PostgresqlStore(url, place="there", size=1)
    with pytest.raises(StoreError):
        await store.open()
    await store.close()


async def test_closing_twice_is_closing_once(database: str) -> None:
    """Calls under way are carried out; what comes after is refused."""
    store = await open_store(database)
    tasks = [asyncio.ensure_future(store.write(new(run(f"r{n}")))) for n in range(10)]
    await asyncio.sleep(0)
    await asyncio.gather(store.close(), store.close())
    await asyncio.gather(*tasks)
    with pytest.raises(StoreError, match="closed"):
        await store.write(new())
    again = await open_store(database)
    assert len((await again.list_runs(tenant="acme", limit=99)).runs) == 10
    await again.close()


async def test_schema_that_is_gone_is_a_reason_of_loss(new_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as the database does not answer, the reason is that of the last time."""
    store = await open_store(new_database, size=1)
    assert await store.find_loss_reason() is None
    monkeypatch.setattr(store_module, "LOOK_S", 0.01)
    waiting = asyncio.ensure_future(store._read("SELECT pg_sleep(0.1)"))
    assert await store.find_loss_reason() is None
    await waiting
    monkeypatch.undo()
    await execute(new_database, "ALTER SCHEMA twolane RENAME TO elsewhere")
    assert "twolane" in str(await store.find_loss_reason())
    await execute(new_database, "ALTER SCHEMA elsewhere RENAME TO twolane")
    assert await store.find_loss_reason() is None
    await store.close()


async def test_pruning_deletes_ended_runs_in_bounded_steps(database: str) -> None:
    """With all that is theirs, events without a number too; runs under way and the audit log stay."""
    store = await open_store(database)
    for number in range(3):
        run_id = f"r{number}"
        asked = (approval(f"ap_{number}", run_id=run_id),)
        parts = {"steps": (step(run_id=run_id),), "events": (event(run_id=run_id),)}
        await store.write(new(run(run_id), approvals=asked, **parts))  # type: ignore[arg-type]
        await store.decide_approval(write(f"ap_{number}", grant=grant(f"gr_{number}", run_id=run_id)))
        if number:
            await store.write(moved(run(run_id, state="completed")))
    await store.write(parked("waits", approval_id="ap_9"))
    gone = []
    while count := await store.prune(before_s=200.0, limit=4):
        gone.append(count)
    assert all(count <= 4 for count in gone)
    assert [one.id for one in (await store.list_runs(tenant="acme", limit=9)).runs] == ["waits", "r0"]
    assert [one.id for one in await store.list_approvals(tenant="acme", limit=9)] == ["ap_0", "ap_9"]
    assert {one.run_id for one in await store.list_events(after=0, limit=99)} == {"r0"}
    assert len(await store.list_steps("r0", tenant="acme")) == 1 and await store.list_steps("r1", tenant="acme") == []
    assert len(await store.audit(after=0, limit=99)) == 2
    await store.close()
