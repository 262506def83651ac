"""The limits that a gateway shares with others: the part of each of its workers, and that of its first one."""

import asyncio

from gateway.config import Settings
from gateway.contracts.plugin import Clock
from gateway.contracts.storage.quota import QuotaStore
from gateway.limits.budgets import Budgets
from gateway.limits.counter_registry import Meters
from gateway.limits.share_keeper import ShareKeeper
from gateway.registry.stores import is_store_shared


def shares_limits(settings: Settings) -> bool:
    """Return whether gateways on the same store share their limits: as configured, or if it is one of many machines."""
    return is_store_shared(settings) if settings.limits.shared is None else settings.limits.shared


class LimitSharing:
    """The part of one worker. Without shared limits it does nothing."""

    def __init__(self, store: QuotaStore, meters: Meters, budgets: Budgets, *, clock: Clock) -> None:
        self._shares = meters.shares
        self._keeper: ShareKeeper | None = None
        self._has_started = asyncio.Event()
        if self._shares is not None and meters.is_first:
            self._keeper = ShareKeeper(store, meters, budgets, shares=self._shares, clock=clock)

    async def start(self) -> None:
        """Listen to the other workers. The first one reports this gateway to the store."""
        if self._shares is not None:
            self._shares.open()
        if self._keeper is not None:
            await self._keeper.report_first()
        self._has_started.set()

    async def run(self) -> None:
        """Keep the shares of the gateway, in its first worker, from the end of `start` on."""
        if self._keeper is not None:
            await self._has_started.wait()
            await self._keeper.run()

    async def close(self) -> None:
        """Give back what is not used, and listen no more."""
        if self._keeper is not None:
            await self._keeper.close()
        if self._shares is not None:
            self._shares.close()
