"""The clock of a worker, which follows that of the store: gateways on one store then agree on the time."""

import asyncio
import logging
from typing import Final

from gateway.contracts.plugin import Clock
from gateway.contracts.storage.store import Store, StoreError

log = logging.getLogger("gateway")

#: How often the time of the store is read.
LOOK_S: Final = 5.0
#: A difference between this machine's clock and the store's that is logged.
SKEW_S: Final = 1.0


class StoreClock:
    """A clock whose Unix time is the store's, where the store has a clock of its own; else that of `own`.

    Between two looks the monotonic clock goes on from the last one. So a step of this machine's clock changes nothing.
    """

    def __init__(self, own: Clock) -> None:
        self.monotonic = own.monotonic
        self._own = own
        self._offset_s: float | None = None
        self._has_skew = False

    def time(self) -> float:
        """Return Unix time in seconds."""
        return self._own.time() if self._offset_s is None else self.monotonic() + self._offset_s

    async def read_store_time(self, store: Store) -> None:
        """Read the time of the store. Raises StoreError."""
        begin_s = self.monotonic()
        now_s = await store.read_clock()
        if now_s is None:
            return
        # It was read between the two: a time that may be right stays as it is, so that it does not jump to and fro.
        least_s, most_s = now_s - self.monotonic(), now_s - begin_s
        old_s = (least_s + most_s) / 2 if self._offset_s is None else self._offset_s
        self._offset_s = min(max(old_s, least_s), most_s)
        self._log_skew()

    async def follow(self, store: Store) -> None:
        """Read the time of the store again and again, until it is cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                await self.read_store_time(store)
            except StoreError as error:
                log.info("the clock of the store cannot be read, and goes on from the last look: %s", error)

    def _log_skew(self) -> None:
        skew_s = self._own.time() - self.time()
        if (has_skew := abs(skew_s) >= SKEW_S) and not self._has_skew:
            log.warning(
                "the clock of this machine is %.1f s %s that of the store, by which the gateway goes: set it by NTP",
                abs(skew_s),
                "ahead of" if skew_s > 0 else "behind",
            )
        self._has_skew = has_skew
