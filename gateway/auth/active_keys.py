"""The keys of the store that a worker accepts: read when the store reports that any process has changed them.

A change takes effect everywhere within `LOOK_S` and the time of a read. A worker that stood still in between refuses
the keys of the store until it has looked again: one of them may be revoked. While the store fails, the worker accepts
the keys that it read last: an outage of the store locks no client out.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from pydantic import ValidationError

from gateway.auth.key_policy import build_key
from gateway.auth.keyring import Key, StoredKeys
from gateway.contracts.plugin import Clock
from gateway.contracts.storage.keys import KeyStore, StoredKey
from gateway.contracts.storage.store import StoreError

log = logging.getLogger("gateway")

#: The pauses between two looks at the store, and after it failed.
LOOK_S, STORE_PAUSE_S = 0.25, 2.0
#: The last use of a key is written so often, at most.
USE_S: Final = 60.0


class KeysInUse:
    """The keys of one worker. `is_on` returns whether the configuration in use accepts any.

    `changed` is awaited when others are accepted.
    """

    def __init__(self, store: KeyStore, keys: StoredKeys, *, is_on: Callable[[], bool], clock: Clock) -> None:
        self._store = store
        self.accepted = keys
        self.changed: Callable[[], Awaitable[None]] | None = None
        self._is_on = is_on
        self._clock = clock
        self._seen: int | None = None
        self._ids: dict[bytes, str] = {}
        self._written_s: dict[bytes, float] = {}
        self._use_due_s = clock.monotonic() + USE_S

    async def refresh(self) -> None:
        """Accept the keys that the store has now. Raises StoreError."""
        if not self._is_on():
            return
        changes = await self._store.count_key_changes()
        if changes == self._seen:
            return
        stored = await self._store.list_keys_in_use()
        keys = [(one, key) for one in stored if (key := _parse_key(one)) is not None]
        self._ids = {key.digest: one.id for one, key in keys}
        self.accepted.replace(key for _, key in keys)
        self._seen = changes
        if self.changed is not None:
            await self.changed()

    async def run(self) -> None:
        """Follow the store until cancelled."""
        beating = asyncio.get_running_loop().create_task(self._beat_regularly())
        try:
            await self._follow_store()
        finally:
            beating.cancel()

    async def _beat_regularly(self) -> None:
        """Beat at intervals, so that a worker that was stalled is noticed; never returns."""
        while True:
            self.accepted.beats.record_beat()
            await asyncio.sleep(LOOK_S)

    async def _follow_store(self) -> None:
        """Read the keys of the store again and again, and store when they were used; never returns."""
        while True:
            pause_s, began_s = LOOK_S, self.accepted.beats.record_beat()
            try:
                await self.refresh()
                if self._clock.monotonic() >= self._use_due_s:
                    self._use_due_s = self._clock.monotonic() + USE_S
                    await self.store_last_use()
            except StoreError as error:
                log.error("the store failed, and the keys of the store stay as they were: %s", error)
                pause_s = STORE_PAUSE_S
            self.accepted.beats.read(began_s)
            await asyncio.sleep(pause_s)

    async def close(self) -> None:
        """Store what is not stored yet, if the store can. Idempotent."""
        with suppress(StoreError):
            await self.store_last_use()

    async def store_last_use(self) -> None:
        """Store when keys were last used, as far as that is not stored yet. Raises StoreError."""
        news = {
            digest: used_s
            for digest, used_s in self.accepted.used_s.items()
            if digest in self._ids and self._written_s.get(digest) != used_s
        }
        if news:
            await self._store.note_key_use({self._ids[digest]: used_s for digest, used_s in news.items()})
        self._written_s = {**self._written_s, **news}
        for digest in self.accepted.used_s.keys() - self._ids.keys():
            del self.accepted.used_s[digest]
            self._written_s.pop(digest, None)


def _parse_key(stored: StoredKey) -> Key | None:
    """Return a key, or None: its terms are of another version of the gateway, so its rights are unknown."""
    try:
        return build_key(stored)
    except ValidationError:
        log.error("the key %s has terms that this version of the gateway does not know: it opens nothing", stored.id)
        return None
