"""Marks of answers with untrusted parts, by the names under which requests refer to them later.

A name is the id of the request that an answer was for, of the run that gave it, or of a conversation that has it.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from gateway.contracts.plugin import Clock
from gateway.contracts.storage.store import HiddenTurn, Store


def build_taint_key(name: str) -> str:
    """Return the key of the mark of a name, among the keys of hidden turns."""
    return hashlib.sha256(b"answer:" + name.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class Taints:
    """The marks in one store."""

    store: Store
    clock: Clock

    async def is_any_marked(self, names: Iterable[str], *, tenant: str) -> bool:
        """Return whether at least one of the names has a taint mark. Raises StoreError."""
        keys = [build_taint_key(name) for name in dict.fromkeys(names)]
        return bool(keys) and bool(await self.store.find_hidden_turns(keys, tenant=tenant))

    async def mark(self, name: str, *, tenant: str) -> None:
        """Mark a name. Raises StoreError."""
        key = build_taint_key(name)
        mark = HiddenTurn(id=key, run_id=name, start=0, end=0, tainted=True)
        await self.store.put_hidden(mark, keys=[key], tenant=tenant, now_s=self.clock.time())
