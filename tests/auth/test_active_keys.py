"""The keys of the store that a worker accepts."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from gateway.auth.active_keys import KeysInUse
from gateway.auth.keyring import StoredKeys
from gateway.contracts.storage.keys import StoredKey
from gateway.contracts.storage.store import StoreError
from gateway.plugins.stores.sqlite import SqliteStore
from gateway.testing.clock import ManualClock
from tests.plugins.stores.contract_keys import key

TERMS = '{"name":"x","scopes":["context"]}'


class Failing(SqliteStore):
    """A store that fails while it is told to, and counts how often keys are read."""

    fails = False
    reads = 0

    async def count_key_changes(self) -> int:
        if self.fails:
            raise StoreError("the disk is gone")
        return await super().count_key_changes()

    async def list_keys_in_use(self) -> Sequence[StoredKey]:
        self.reads += 1
        return await super().list_keys_in_use()


async def opened(*names: str, is_on: bool = True) -> tuple[Failing, KeysInUse]:
    store = Failing(":memory:")
    await store.open()
    for number, name in enumerate(names):
        await store.add_key(key(name, number=number, terms=TERMS), most=99, audit=())
    return store, KeysInUse(store, StoredKeys(), is_on=lambda: is_on, clock=ManualClock())


async def test_stored_keys_are_reread_only_when_changed() -> None:
    """And not otherwise."""
    store, keys = await opened("a", "b")
    for _ in range(3):
        await keys.refresh()
    assert store.reads == 1 and {one.caller.name for one in keys.accepted.by_digest.values()} == {"a", "b"}
    await store.revoke_key("key_0", tenant="acme", by="root", now_s=20.0, audit=())
    await keys.refresh()
    assert store.reads == 2 and [one.caller.name for one in keys.accepted.by_digest.values()] == ["b"]
    await store.close()


async def test_store_outage_keeps_accepted_keys_until_the_next_refresh() -> None:
    """The keys are those of before; what changed meanwhile counts afterwards."""
    store, keys = await opened("a")
    await keys.refresh()
    await store.revoke_key("key_0", tenant="acme", by="root", now_s=20.0, audit=())
    store.fails = True
    with pytest.raises(StoreError):
        await keys.refresh()
    assert len(keys.accepted.by_digest) == 1
    store.fails = False
    await keys.refresh()
    assert not keys.accepted.by_digest
    await store.close()


async def test_key_with_unknown_terms_is_rejected_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The others are accepted; the log names it."""
    store, keys = await opened("a")
    future = replace(key("b", number=7), terms='{"name":"b","scopes":["teleport"]}')
    await store.add_key(future, most=99, audit=())
    await keys.refresh()
    assert [one.caller.name for one in keys.accepted.by_digest.values()] == ["a"]
    assert "the key key_7 has terms that this version" in caplog.text
    await store.close()


async def test_disabled_stored_keys_do_not_read_the_store() -> None:
    store, keys = await opened("a", is_on=False)
    store.fails = True
    await keys.refresh()
    assert not keys.accepted.by_digest
    await store.close()


async def test_last_use_of_a_key_is_written_for_existing_keys() -> None:
    """Of keys that are still there; the time of one that is gone is forgotten."""
    store, keys = await opened("a", "b")
    await keys.refresh()
    first, second = keys.accepted.by_digest
    keys.accepted.used_s |= {first: 50.0, second: 51.0, b"gone": 52.0}
    await store.revoke_key("key_1", tenant="acme", by="root", now_s=60.0, audit=())
    await keys.refresh()
    await keys.store_last_use()
    used = [(await store.get_key(one, tenant="acme")) for one in ("key_0", "key_1")]
    assert [one and one.used_s for one in used] == [50.0, None] and keys.accepted.used_s == {first: 50.0}
    await store.close()
