"""A store that fails when a test says so."""

from collections.abc import Sequence
from typing import Any

from gateway.contracts.journal import Change, StoredRun
from gateway.contracts.store import StoreError
from gateway.plugins.stores.sqlite import SqliteStore


class Failing(SqliteStore):
    """Takes no change and renews no lease while it is `broken`; `asked` counts what a keeper of leases wants of it."""

    broken = False
    asked = 0

    async def claim(self, **facts: Any) -> Sequence[StoredRun]:
        self.asked += 1
        return await super().claim(**facts)

    async def write(self, change: Change) -> None:
        self.asked += 1
        if self.broken:
            raise StoreError("database or disk is full")
        await super().write(change)

    async def renew(self, *, owner: str, run_ids: Sequence[str], until_s: float) -> Sequence[str]:
        self.asked += 1
        if self.broken:
            raise StoreError("disk I/O error")
        return await super().renew(owner=owner, run_ids=run_ids, until_s=until_s)
