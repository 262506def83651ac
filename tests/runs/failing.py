"""A store that fails, or answers late, when a test says so."""

import asyncio
from collections.abc import Sequence
from typing import Any

from gateway.contracts.storage.journal import Change, StoredRun
from gateway.contracts.storage.store import StoreError
from gateway.plugins.stores.sqlite import SqliteStore


class Failing(SqliteStore):
    """Takes no change and renews no lease while it is `broken`; `asked` counts what a keeper of leases wants of it.

    Looks for runs wait for `held`.
    """

    broken = False
    asked = 0
    held: asyncio.Event | None = None

    async def claim(self, **facts: Any) -> Sequence[StoredRun]:
        self.asked += 1
        if self.held is not None and facts["run_id"] is None:
            await self.held.wait()
        return await super().claim(**facts)

    async def write(self, change: Change) -> None:
        self.asked += 1
        if self.broken:
            raise StoreError("database or disk is full")
        await super().write(change)

    async def renew(self, *, owner: str, run_ids: Sequence[str], now_s: float, until_s: float) -> Sequence[str]:
        self.asked += 1
        if self.broken:
            raise StoreError("disk I/O error")
        return await super().renew(owner=owner, run_ids=run_ids, now_s=now_s, until_s=until_s)
