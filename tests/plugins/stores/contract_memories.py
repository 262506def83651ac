"""Memories in every store; imported like `contract`."""

from dataclasses import replace

from gateway.contracts.storage.store import Store
from tests.plugins.stores.records import memory, recalled


async def test_recall_returns_matching_memories_first(store: Store) -> None:
    """Then the newest, as many as are wanted; those of the named conversation and those of all."""
    for m in (memory(1), memory(2), memory(3, conversation="c1"), memory(4, conversation="c2"), memory(5)):
        assert await store.remember(m, limit=10)
    seen = {place: [m.id for m in await recalled(store, "which fact 1?", conversation=place)] for place in (None, "c1")}
    assert seen == {None: ["m1", "m5", "m2"], "c1": ["m1", "m5", "m3", "m2"]}
    (best,) = await store.recall("fact 1", tenant="acme", owner="user:ann", conversation="c2", limit=1)
    assert (best.memory, best.share) == (memory(1), 1.0)
    assert [m.id for m in await recalled(store)] == ["m5", "m2", "m1"]
    assert await recalled(store, "fact", owner="user:nobody") == []


async def test_only_the_newest_memories_of_an_owner_are_kept(store: Store) -> None:
    """The limit counts per tenant and owner, whatever their number was before."""
    await store.remember(memory(999, owner="user:bob"), limit=2)
    for number in range(130):
        await store.remember(memory(number), limit=500)
    await store.remember(memory(130), limit=2)
    assert await recalled(store) == [memory(130), memory(129)]
    assert await recalled(store, owner="user:bob") == [memory(999, owner="user:bob")]


async def test_duplicate_memory_text_is_stored_once(store: Store) -> None:
    """In its conversation, by its owner."""
    assert await store.remember(memory(1), limit=5) is True
    assert await store.remember(replace(memory(1), id="again"), limit=5) is False
    assert await store.remember(replace(memory(1, conversation="c"), id="m2"), limit=5) is True
    assert await recalled(store) == [memory(1)]


async def test_memories_of_other_tenants_and_owners_are_inaccessible(store: Store) -> None:
    """The same id in another tenant, or of another owner, is another memory."""
    await store.remember(memory(1), limit=5)
    await store.remember(replace(memory(1, tenant="other"), text="theirs"), limit=5)
    await store.remember(replace(memory(1, owner="user:bob"), text="bob's"), limit=5)
    assert await store.forget(["m1"], tenant="other", owner="user:bob") == 0
    assert await store.forget(["m1"], tenant="other", owner="user:ann") == 1
    assert await store.forget_all(tenant="other", owner="user:bob", conversation=None, elsewhere=True) == 0
    assert await recalled(store) == [memory(1)]
    assert len(await recalled(store, owner="user:bob")) == 1
    assert await store.forget(["m1"], tenant="acme", owner=None) == 2


async def test_forget_returns_the_number_of_deleted_memories(store: Store) -> None:
    """Unknown ids and none at all are fine; very many are, too."""
    for number in range(3):
        await store.remember(memory(number), limit=5)
    many = [f"x{i}" for i in range(10_000)]
    assert await store.forget([*many, "m0", "m2"], tenant="acme", owner="user:ann") == 2
    assert await store.forget([], tenant="acme", owner="user:ann") == 0
    assert await recalled(store) == [memory(1)]


async def test_forget_all_deletes_any_number_of_memories(store: Store) -> None:
    """Of the named conversation and of all, or of the others as well."""
    for number in range(120):
        await store.remember(memory(number, conversation=(None, "c1", "c2")[number % 3]), limit=500)
    whose = {"tenant": "acme", "owner": "user:ann"}
    assert await store.forget_all(**whose, conversation="c1", elsewhere=False) == 80
    assert len(await recalled(store, conversation="c2")) == 40
    assert await store.forget_all(**whose, conversation=None, elsewhere=True) == 40
    assert await store.forget_all(**whose, conversation=None, elsewhere=True) == 0
    assert await recalled(store, conversation="c2") == []


async def test_memories_are_listed_in_pages(store: Store) -> None:
    """The newest first, of all conversations; what is deleted meanwhile leaves no gap and no repetition."""
    for number in range(5):
        await store.remember(memory(number, conversation="c" if number % 2 else None), limit=9)
    whose = {"tenant": "acme", "owner": "user:ann"}
    first = await store.list_memories(**whose, before=None, limit=2)
    assert [m.id for m in first.memories] == ["m4", "m3"] and first.next is not None
    assert await store.forget(["m3", "m1"], **whose) == 2
    second = await store.list_memories(**whose, before=first.next, limit=2)
    assert ([m.id for m in second.memories], second.next) == (["m2", "m0"], None)
    assert (await store.list_memories(tenant="acme", owner="user:bob", before=None, limit=2)).memories == []
