"""The promises of every store to keys that are made at run time."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

from gateway.contracts.storage.keys import StoredKey
from gateway.contracts.storage.store import Store
from tests.plugins.stores.records import audit_line

Reopen = Callable[[], Awaitable[Store]]
MOST = 100


def key(name: str = "ann", *, number: int = 1, **facts: object) -> StoredKey:
    given: dict[str, object] = {
        "id": f"key_{number}",
        "tenant": "acme",
        "sha256": f"{number:064x}",
        "hint": "c0de",
        "terms": '{"scopes":["context"]}',
        "created_s": 10.0,
        "created_by": "root",
        **facts,
    }
    return StoredKey(name=name, **given)  # type: ignore[arg-type]


async def put(store: Store, *keys: StoredKey) -> None:
    for one in keys:
        assert await store.add_key(one, most=MOST, audit=()) == "added"


async def audited(store: Store) -> list[tuple[str, str]]:
    return [(row.line.event, row.line.caller) for row in await store.audit(after=0, limit=99)]


async def test_stored_key_is_returned_unchanged(reopened: Reopen) -> None:
    """With every fact, over a restart; only its tenant finds it."""
    given = key("快速 🦊", expires_s=99.5, rotated_from="key_0", used_s=12.0)
    await put(await reopened(), given)
    store = await reopened()
    assert await store.get_key("key_1", tenant="acme") == given
    assert await store.get_key("key_1", tenant="other") is None is await store.get_key("key_2", tenant="acme")
    assert list(await store.list_keys_in_use()) == [given]


async def test_key_name_belongs_to_one_valid_key(store: Store) -> None:
    """Of all tenants. Once it has ended, another key may have the name. What is refused leaves no audit line."""
    await put(store, key(expires_s=20.0))
    line = audit_line("key_created", caller="ann")
    second = key(number=2, tenant="other", created_s=19.9)
    assert await store.add_key(second, most=MOST, audit=[line]) == "name_taken"
    assert await audited(store) == []
    assert await store.add_key(replace(second, created_s=20.0), most=MOST, audit=[line]) == "added"
    assert await audited(store) == [("key_created", "ann")]
    assert await store.revoke_key("key_2", tenant="other", by="root", now_s=21.0, audit=())
    await put(store, key(number=3, created_s=21.0))


async def test_valid_keys_are_limited_and_expired_keys_not_counted(store: Store) -> None:
    """Those that have ended do not count."""
    await put(store, key("a", number=1), key("b", number=2, expires_s=15.0))
    assert await store.add_key(key("c", number=3), most=2, audit=()) == "full"
    assert await store.add_key(key("c", number=3, created_s=15.0), most=2, audit=()) == "added"


async def test_a_key_is_revoked_once(store: Store) -> None:
    """By its tenant; it stays on record, and is not in use any more."""
    await put(store, key())
    line = audit_line("key_revoked", caller="ann")
    assert not await store.revoke_key("key_1", tenant="other", by="eve", now_s=11.0, audit=[line])
    assert await store.revoke_key("key_1", tenant="acme", by="root", now_s=12.0, audit=[line])
    assert not await store.revoke_key("key_1", tenant="acme", by="root", now_s=13.0, audit=[line])
    found = await store.get_key("key_1", tenant="acme")
    assert found == replace(key(), revoked_s=12.0, revoked_by="root")
    assert list(await store.list_keys_in_use()) == [] and len(await audited(store)) == 1


async def test_rotated_key_expires_at_the_given_or_earlier_time(store: Store) -> None:
    """Or earlier, if it would have. A second rotation of it, or one of a key that has ended, does nothing."""
    await put(store, key(), key("short", number=2, expires_s=30.0), key("over", number=3, expires_s=11.0))
    line = audit_line("key_rotated", caller="ann")
    new = key(number=4, rotated_from="key_1", created_s=20.0)
    assert await store.rotate_key(new, until_s=50.0, audit=[line])
    assert await store.get_key("key_1", tenant="acme") == replace(key(), expires_s=50.0)
    assert await store.get_key("key_4", tenant="acme") == new
    assert not await store.rotate_key(replace(new, id="key_5", sha256="5" * 64), until_s=50.0, audit=[line])
    assert await store.rotate_key(key("short", number=6, rotated_from="key_2"), until_s=50.0, audit=())
    assert await store.get_key("key_2", tenant="acme") == key("short", number=2, expires_s=30.0)
    late = key("over", number=7, rotated_from="key_3", created_s=20.0)
    assert not await store.rotate_key(late, until_s=50.0, audit=[line])
    stranger = key(number=8, rotated_from="key_4", tenant="other", created_s=21.0)
    assert not await store.rotate_key(stranger, until_s=50.0, audit=[line])
    assert len(await audited(store)) == 1


async def test_keys_are_listed_page_by_page(store: Store) -> None:
    """The newest first, those that have ended as well, of one tenant."""
    await put(store, *(key(f"k{n}", number=n) for n in range(1, 6)), key("x", number=9, tenant="other"))
    await store.revoke_key("key_5", tenant="acme", by="root", now_s=11.0, audit=())
    assert [k.name for k in await store.list_keys(tenant="acme", limit=2)] == ["k5", "k4"]
    assert [k.name for k in await store.list_keys(tenant="acme", after="key_4", limit=9)] == ["k3", "k2", "k1"]
    assert list(await store.list_keys(tenant="acme", after="key_9", limit=9)) == []
    assert [k.name for k in await store.list_keys_in_use()] == ["k1", "k2", "k3", "k4", "x"]


async def test_each_change_of_a_key_is_counted(store: Store) -> None:
    """What changes nothing is not, and neither is that a key was used."""
    counts = [await store.count_key_changes()]
    for change in (
        store.add_key(key(), most=MOST, audit=()),
        store.rotate_key(key(number=2, rotated_from="key_1"), until_s=20.0, audit=()),
        store.revoke_key("key_2", tenant="acme", by="root", now_s=11.0, audit=()),
    ):
        await change
        counts.append(await store.count_key_changes())
    assert counts == sorted(set(counts)) and len(counts) == 4
    await store.add_key(key(number=3), most=MOST, audit=())
    await store.revoke_key("key_2", tenant="acme", by="root", now_s=12.0, audit=())
    await store.note_key_use({"key_1": 15.0})
    assert await store.count_key_changes() == counts[-1]


async def test_last_use_of_a_key_never_decreases(store: Store) -> None:
    """Workers tell of it in any order."""
    await put(store, key("a", number=1), key("b", number=2))
    for used_s in ({"key_1": 15.0, "key_9": 1.0}, {"key_1": 14.0, "key_2": 16.5}, {}):
        await store.note_key_use(used_s)
    assert [k.used_s for k in await store.list_keys_in_use()] == [15.0, 16.5]


async def test_ended_keys_are_pruned(store: Store) -> None:
    """Revoked or at their end; valid ones stay, however old."""
    await put(store, key("a", number=1), key("b", number=2, expires_s=50.0), key("c", number=3))
    await store.revoke_key("key_3", tenant="acme", by="root", now_s=40.0, audit=())
    assert await store.prune(before_s=40.0, limit=99) == 0
    assert await store.prune(before_s=50.5, limit=1) == 1 == await store.prune(before_s=50.5, limit=1)
    assert [k.name for k in await store.list_keys(tenant="acme", limit=9)] == ["a"]
