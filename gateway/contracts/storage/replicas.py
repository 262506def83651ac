"""The leases of workers, of this gateway and of others on one store: who is there, where, and what runs there.

A lease has a name, an owner and an address at which its owner is reached. It ends by itself, by the clock of the store.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaLease:
    """A lease and its owner. `address` is the `HOST:PORT` of the owner for other workers; empty: it has none."""

    name: str
    owner: str
    address: str


class ReplicaStore(Protocol):
    """The part of a store for leases of workers."""

    async def hold_leases(
        self, names: Collection[str], *, owner: str, address: str, now_s: float, until_s: float
    ) -> Sequence[ReplicaLease]:
        """Take or renew these leases until `until_s`, but for those of other owners. Return all that have not ended."""
        ...

    async def release_leases(self, names: Collection[str], *, owner: str) -> None:
        """Delete these leases of this owner."""
        ...
