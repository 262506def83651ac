"""The workers of all gateways on one store, and what runs at one of them only, as this worker knows it.

1. Each worker that others may call holds a lease with its name and its address. A worker that is gone, or stands
   still, loses it after `LEASE_S`.
2. What runs once for all gateways is a lease, too. The worker that holds it runs it.
3. A lease counts here until `LEASE_S` after the call that renewed it began, by the monotonic clock of this worker. The
   store counts from later on. So no other worker holds what is held here, also when this worker has stood still.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from gateway.contracts.plugin import Clock
from gateway.contracts.storage.replicas import ReplicaLease, ReplicaStore
from gateway.contracts.storage.store import StoreError

log = logging.getLogger("gateway")

#: A lease lasts so long, and is renewed so often.
LEASE_S: Final = 5.0
RENEW_S: Final = 1.0
#: Looks for workers that are not known yet begin so far apart: clients may name any.
LOOK_S: Final = 0.2
_REPLICA: Final = "replica "


class ReplicaDirectory:
    """The leases that one worker, `owner`, holds and sees."""

    def __init__(self, store: ReplicaStore, *, owner: str, clock: Clock) -> None:
        self.owner = owner
        self._store = store
        self._clock = clock
        self._address = ""
        self._wanted: set[str] = set()
        self._leases: Mapping[str, ReplicaLease] = {}
        self._asked_s = float("-inf")  # when the call began that returned them
        self._turn = asyncio.Lock()
        self._claimed = asyncio.Event()
        self._watchers: list[Callable[[], None]] = []
        self._is_closed = False

    def publish(self, address: str) -> None:
        """Let other workers find this one at `address`, from the next look on."""
        self._address = address
        self.claim(_REPLICA + self.owner)

    def claim(self, name: str) -> None:
        """Hold a lease from the next look on, unless or until another worker has it."""
        self._wanted.add(name)
        self._claimed.set()

    async def release(self, name: str) -> None:
        """Give a lease back, so that others need not wait for its end. A failure of the store is logged."""
        self._wanted.discard(name)
        held, self._leases = self._leases, {key: one for key, one in self._leases.items() if key != name}
        if (lease := held.get(name)) is not None and lease.owner == self.owner:
            await self._release_in_store([name])

    def watch(self, changed: Callable[[], None]) -> None:
        """Call `changed` after each look at the leases."""
        self._watchers.append(changed)

    def holds(self, name: str) -> bool:
        """Return whether this worker holds a lease, by its own clock."""
        lease = self._leases.get(name)
        return lease is not None and lease.owner == self.owner and self._clock.monotonic() < self._asked_s + LEASE_S

    def find(self, name: str) -> ReplicaLease | None:
        """Return a lease as of the last look; None: no worker held it then."""
        return self._leases.get(name)

    def find_address(self, worker: str) -> str | None:
        """Return the address of a worker as of the last look; None: it was not there."""
        lease = self._leases.get(_REPLICA + worker)
        return None if lease is None else lease.address

    async def find_worker(self, worker: str) -> str | None:
        """Return the address of a worker that may have come just now; None: it is not there. Raises StoreError."""
        if (address := self.find_address(worker)) is None:
            await self.refresh(since_s=self._clock.monotonic())
            address = self.find_address(worker)
        return address

    async def refresh(self, *, since_s: float = float("inf")) -> None:
        """Take and renew the claimed leases, and read all others, unless that began at `since_s` or later.

        Raises StoreError.
        """
        async with self._turn:
            if self._is_closed or self._asked_s >= since_s:
                return
            if since_s < float("inf"):
                await asyncio.sleep(self._asked_s + LOOK_S - self._clock.monotonic())
            names = sorted(self._wanted)
            self._claimed.clear()
            asked_s, now_s = self._clock.monotonic(), self._clock.time()
            leases = await self._store.hold_leases(
                names, owner=self.owner, address=self._address, now_s=now_s, until_s=now_s + LEASE_S
            )
            self._leases = {one.name: one for one in leases if one.owner != self.owner or one.name in self._wanted}
            self._asked_s = asked_s
        for changed in tuple(self._watchers):
            changed()

    async def run(self) -> None:
        """Look at the leases until it is cancelled, and at once after a claim."""
        while True:
            try:
                await self.refresh()
            except StoreError as error:
                self._claimed.clear()
                log.error("the store failed, and the leases of this worker were not renewed: %s", error)
            except Exception:  # of one look: the leases must be renewed by the next one
                log.exception("the leases of this worker were not renewed")
            with suppress(TimeoutError):
                async with asyncio.timeout(RENEW_S):
                    await self._claimed.wait()

    async def close(self) -> None:
        """Give all leases back. Idempotent."""
        async with self._turn:
            self._is_closed = True
            held = [name for name, one in self._leases.items() if one.owner == self.owner]
            self._leases, self._wanted = {}, set()
        if held:
            await self._release_in_store(held)

    async def _release_in_store(self, names: list[str]) -> None:
        try:
            await self._store.release_leases(names, owner=self.owner)
        except StoreError as error:
            log.error("the store failed, and leases of this worker end by themselves: %s", error)
