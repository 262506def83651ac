"""Responses and conversations of several processes in one PostgreSQL database."""

import asyncio

import pytest

from gateway.contracts.storage.journal import ConflictError, KeyTakenError
from tests.plugins.stores.contract_responses import converse, opened
from tests.plugins.stores.postgresql.conftest import ClockedStore
from tests.plugins.stores.records import new, run

pytestmark = pytest.mark.postgres


async def test_items_of_processes_at_once_are_all_added(two_stores: tuple[ClockedStore, ClockedStore]) -> None:
    """The items of one call stay together, in their order."""
    await converse(two_stores[0])
    adds = [
        store.add_items(
            "conv_1", [(f"{n}.{part}", b"%d.%d" % (n, part)) for part in range(3)], tenant="acme", now_s=1.0
        )
        for n, store in enumerate(two_stores * 5)
    ]
    assert all(await asyncio.gather(*adds))
    items = [item.decode() for item in await two_stores[1].list_all_items("conv_1", tenant="acme")]
    assert sorted(items) == sorted(f"{n}.{part}" for n in range(10) for part in range(3))
    assert [item[-1] for item in items] == ["0", "1", "2"] * 10


async def test_deleted_response_leaves_no_chunks(two_stores: tuple[ClockedStore, ClockedStore]) -> None:
    """While its worker appends to its log: the append comes before, or is refused."""
    one, two = two_stores
    await one.write(new(run()))
    for _ in range(10):
        await one.put_response(opened())
        append = two.append_answer("resp_1", tenant="acme", fence=0, start=0, chunks=[b"a", b"b"])
        deleted, appended = await asyncio.gather(
            one.delete_response("resp_1", tenant="acme"), append, return_exceptions=True
        )
        assert deleted is True and (appended is None or isinstance(appended, ConflictError))
        assert [tuple(row) for row in await one._read("SELECT count(*) FROM twolane.answer_chunks")] == [(0,)]


async def test_idempotency_key_may_have_any_length(store: ClockedStore) -> None:
    """An entry of an index has less room than a header."""
    long = "".join(chr(0x4E00 + number) for number in range(6000))
    for number, key in enumerate((long + "a", long + "b")):
        await store.put_response(opened(f"resp_{number}", idempotency_key=key))
        found = await store.find_response_with_key(key, tenant="acme", caller="ann")
        assert found is not None and found.id == f"resp_{number}"
    with pytest.raises(KeyTakenError, match="the Idempotency-Key of the response 'resp_2'"):
        await store.put_response(opened("resp_2", idempotency_key=long + "a"))


async def test_write_that_is_sent_again_is_carried_out_once(store: ClockedStore) -> None:
    """With the result of the first time: its answer may have been lost."""
    await store.write(new(run()))
    await store.put_response(opened())
    append = "SELECT twolane.append_answer('w', $1, 'acme', 'resp_1', 0, $2, $3)"
    for number, start in ((1, 0), (1, 0), (2, 1), (2, 1)):
        await store._read(append, number, start, [b"%d" % number])
    assert await store.list_answer_chunks("resp_1", tenant="acme", start=0, limit=9) == [b"1", b"2"]
    for expected in (True, True):
        ((deleted,),) = await store._read("SELECT twolane.delete_response('w', 3, 'acme', 'resp_1', 9)")
        assert deleted is expected
