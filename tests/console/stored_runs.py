"""Runs that stand in the store of a gateway before it starts: `await stored(tmp_path, new(run(...)))`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from gateway.contracts.storage.journal import Change, StoredRun
from gateway.plugins.stores.sqlite import SqliteStore
from tests.console.browsing import Browser, key, served
from tests.plugins.stores.records import approval, new, run, step

TENANT = "team"


async def stored(folder: Path, *changes: Change) -> None:
    """Write runs into the store that `tests.console.browsing.served` opens."""
    store = SqliteStore(str(folder / "gateway.db"))
    await store.open()
    for change in changes:
        await store.write(change)
    await store.close()


def ran(run_id: str = "run_1", **facts: Any) -> StoredRun:
    """A run of the tenant `team` that has ended well."""
    return run(run_id, **{"tenant": TENANT, "state": "completed", "updated_s": 130.0, **facts})


def lost(run_id: str = "run_1") -> Change:
    """A run with two calls whose outcomes are unknown."""
    unknown = {"run_id": run_id, "tenant": TENANT, "state": "unknown", "round": 0}
    return new(
        ran(run_id, state="unknown", effects=True),
        steps=(
            step(0, started_s=150.0, approval_id="ap_1", **unknown),
            step(1, started_s=160.0, **unknown),
        ),
        approvals=(approval(run_id=run_id, tenant=TENANT, state="unknown", step=0),),
    )


@asynccontextmanager
async def read_by_ann(folder: Path) -> AsyncIterator[Browser]:
    """The browser of a person of the tenant `team`, whose key may do everything."""
    async with served(folder, key("ann")) as browser:
        yield await browser.signed_in("ann")
