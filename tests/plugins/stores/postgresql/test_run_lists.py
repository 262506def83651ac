"""Lists of runs in PostgreSQL: the contract, and the bound of one page."""

import pytest

from gateway.plugins.stores.postgresql import run_lists
from tests.plugins.stores.contract_lists import *  # noqa: F403 - the tests of the contract run here
from tests.plugins.stores.postgresql.conftest import open_store
from tests.plugins.stores.records import new, run

pytestmark = pytest.mark.postgres


async def test_page_looks_at_a_bounded_number_of_runs(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be empty and not the last: the next one begins behind the last run that was looked at."""
    monkeypatch.setattr(run_lists, "LOOKED_AT", 4)  # of an index that has the caller
    store = await open_store(database)
    for number in range(10):
        caller = "bob" if number in (1, 8) else "ann"
        await store.write(new(run(f"r{number}", created_s=float(number), caller=caller, state="failed")))
    found, behind, after = [], [], None
    while True:
        page = await store.list_runs(tenant="acme", state="failed", caller="bob", limit=2, after=after)
        found.append([one.id for one in page.runs])
        behind.append(page.behind)
        if page.behind is None:
            break
        after = page.behind[1]
    assert found == [["r8"], [], ["r1"]]
    assert behind == [(6.0, "r6"), (2.0, "r2"), None]
    await store.close()


async def test_backlog_counts_what_waits_of_all_tenants(database: str) -> None:
    """A run whose lease is long over is stuck."""
    store = await open_store(database)
    await store.write(new(run("a", owner="w1", lease_s=110.0)))
    await store.write(new(run("b", tenant="other", owner="w1", lease_s=210.0)))
    backlog = await store.count_backlog(stuck_before_s=150.0)
    assert (backlog.runs, backlog.stuck, backlog.pending, backlog.oldest_s) == ({"running": 2}, 1, 0, None)
    assert backlog.size_bytes > 0
    await store.close()
