"""A store that fails when a test says so."""

from collections.abc import Sequence

from gateway.contracts.journal import Change
from gateway.contracts.store import StoreError
from gateway.plugins.stores.sqlite import SqliteStore


class Failing(SqliteStore):
    """Takes no change and renews no lease while it is `broken`."""

    broken = False

    async def write(self, change: Change) -> None:
        if self.broken:
            raise StoreError("database or disk is full")
        await super().write(change)

    async def renew(self, *, owner: str, run_ids: Sequence[str], until_s: float) -> Sequence[str]:
        if self.broken:
            raise StoreError("disk I/O error")
        return await super().renew(owner=owner, run_ids=run_ids, until_s=until_s)
