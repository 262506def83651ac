"""The limits that a gateway shares with others: the part of each of its workers, and that of its first one."""

import asyncio
from typing import TYPE_CHECKING

from gateway.config import Settings
from gateway.contracts.plugin import Clock
from gateway.contracts.storage.quota import QuotaStore
from gateway.limits.budgets import Budgets
from gateway.limits.counter_registry import Meters
from gateway.limits.share_keeper import ShareKeeper
from gateway.registry.stores import is_store_shared

if TYPE_CHECKING:
    from gateway.limits.valkey_quota import ValkeyQuota


def shares_limits(settings: Settings) -> bool:
    """Return whether gateways share their limits: as configured, or if their place is one for several machines."""
    if settings.limits.shared is None:
        return settings.limits.valkey is not None or is_store_shared(settings)
    return settings.limits.shared


def _build_valkey(settings: Settings) -> "ValkeyQuota | None":
    """Return the shares in the configured Valkey server; None: they are in the store."""
    if settings.limits.valkey is None:
        return None
    # Its client is an optional dependency, which only gateways with such a server load.
    from gateway.limits.valkey_quota import ValkeyQuota

    return ValkeyQuota(settings.limits.valkey.reveal())


class LimitSharing:
    """The part of one worker. Without shared limits it does nothing."""

    def __init__(
        self, settings: Settings, store: QuotaStore, meters: Meters, budgets: Budgets, *, clock: Clock
    ) -> None:
        self._shares = meters.shares
        self._keeper: ShareKeeper | None = None
        self._valkey: ValkeyQuota | None = None
        self._has_started = asyncio.Event()
        if self._shares is not None and meters.is_first:
            self._valkey = _build_valkey(settings)
            self._keeper = ShareKeeper(self._valkey or store, meters, budgets, shares=self._shares, clock=clock)

    async def start(self) -> None:
        """Listen to the other workers. The first one reports this gateway to the place of the shares."""
        if self._shares is not None:
            self._shares.open()
        if self._keeper is not None:
            await self._keeper.report_first()
        if self._valkey is not None:
            await self._valkey.settle()
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
        if self._valkey is not None:
            await self._valkey.close()
        if self._shares is not None:
            self._shares.close()
