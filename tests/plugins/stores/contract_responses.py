"""The promises of every store about responses, logs of answers and conversations; imported like `contract`."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from gateway.contracts.storage.journal import ConflictError, KeyTakenError
from gateway.contracts.storage.responses import OPEN, StoredConversation, StoredResponse
from gateway.contracts.storage.store import Store, StoreError
from tests.plugins.stores.records import claimed, moved, new, run

ENDS = ("completed", "incomplete", "failed", "cancelled")
_RESPONSE = StoredResponse(
    id="resp_1",
    tenant="acme",
    caller="ann",
    state="completed",
    created_s=100.0,
    run_id="run_1",
    request=b'{"model":"m"}',
    input=b'[{"role":"user"}]',
    output=b'{"object":"response"}',
)
CONVERSATION = StoredConversation(id="conv_1", tenant="acme", created_s=100.0, metadata=b'{"a":"b"}')


def response(response_id: str = "resp_1", **changes: Any) -> StoredResponse:
    return replace(_RESPONSE, id=response_id, **changes)


def opened(response_id: str = "resp_1", **changes: Any) -> StoredResponse:
    """A response that has not ended."""
    return response(response_id, **{"state": "in_progress", "output": None, **changes})


async def converse(store: Store, *item_ids: str, conversation_id: str = "conv_1", tenant: str = "acme") -> None:
    """Put a conversation with these items, each of which is its id in bytes."""
    conversation = replace(CONVERSATION, id=conversation_id, tenant=tenant)
    await store.put_conversation(conversation, now_s=100.0)
    items = [(item_id, item_id.encode()) for item_id in item_ids]
    assert await store.add_items(conversation_id, items, tenant=tenant, now_s=100.0)


async def listed(
    store: Store, *, after: str | None = None, limit: int = 99, newest_first: bool = False, tenant: str = "acme"
) -> str:
    """The items of `conv_1`, separated by blanks."""
    found = await store.list_items("conv_1", tenant=tenant, after=after, limit=limit, newest_first=newest_first)
    return b" ".join(found).decode()


async def test_stored_response_is_returned_unchanged(store: Store) -> None:
    """As it was put, with whatever bytes it has."""
    assert await store.get_response("resp_1", tenant="acme") is None
    whole = response(previous_id="resp_0", conversation="conv_1", background=True, input=b"\0\xff" * 300_000)
    for each in (whole, opened("resp_2"), response("resp_3", request=b"", input=b"", output=b"")):
        await store.put_response(each)
        assert await store.get_response(each.id, tenant="acme") == each


@pytest.mark.parametrize("state", sorted(OPEN))
async def test_open_response_is_replaced_by_a_later_write(store: Store, state: Any) -> None:
    """By all that is new, but for its caller and its time."""
    await store.put_response(opened(state=state))
    further = opened(previous_id="resp_0", run_id="run_2", background=True, request=b"{}", input=b"[]", state="queued")
    await store.put_response(replace(further, caller="eve", created_s=900.0))
    assert await store.get_response("resp_1", tenant="acme") == further
    await store.put_response(response())
    assert await store.get_response("resp_1", tenant="acme") == response()


@pytest.mark.parametrize("end", ENDS)
async def test_ended_response_is_never_overwritten(store: Store, end: Any) -> None:
    """No late writer opens it again, or ends it otherwise."""
    ended = response(state=end)
    await store.put_response(ended)
    for state in (*sorted(OPEN), *ENDS):
        await store.put_response(response(state=state, output=b"late", input=b"late"))
    assert await store.get_response("resp_1", tenant="acme") == ended


async def test_response_and_conversation_items_are_written_together(store: Store) -> None:
    """Both or neither: what ended before adds nothing, and without its conversation a response is written alone."""
    await converse(store, "a")
    await store.put_response(opened(conversation="conv_1"))
    ended, adds = response(conversation="conv_1"), [("b", b"b"), ("c", b"c")]
    assert await store.put_response(ended, adds=adds, now_s=1.0) is True
    assert await listed(store) == "a b c"
    for late in (replace(ended, output=b"late"), ended):
        assert await store.put_response(late, adds=[("d", b"d")], now_s=1.0) is False
    assert await listed(store) == "a b c" and await store.get_response("resp_1", tenant="acme") == ended
    for conversation in (None, "conv_gone"):
        alone = response(f"resp_{conversation}", conversation=conversation)
        assert await store.put_response(alone, adds=adds, now_s=1.0) is True
        assert await store.get_response(alone.id, tenant="acme") == alone
    with pytest.raises(StoreError):
        await store.put_response(response("resp_3", conversation="conv_1"), adds=[("e", object())], now_s=1.0)  # type: ignore[list-item]
    assert await listed(store) == "a b c" and await store.get_response("resp_3", tenant="acme") is None


async def test_a_conversation_gets_the_answer_to_a_decision_once(store: Store) -> None:
    """Whichever response brings it first. Another conversation gets it, too, and so does one that is new."""
    for conversation_id in ("conv_2", "conv_1"):
        await converse(store, conversation_id=conversation_id)

    async def put(name: str, decides: str, conversation_id: str = "conv_1") -> None:
        row = response(f"resp_{name}", conversation=conversation_id, decides=decides)
        assert await store.put_response(row, adds=[(name, name.encode())], now_s=1.0) is True
        assert await store.get_response(row.id, tenant="acme") == row

    for name, decides in {"a": "ap_1", "x": "ap_1", "b": "ap_1 ap_2", "y": "ap_2", "z": "ap_2 ap_1", "c": ""}.items():
        await put(name, decides)
    assert await listed(store) == "a b c"
    await put("d", "ap_1", "conv_2")
    assert await store.list_all_items("conv_2", tenant="acme") == [b"d"]
    assert await store.delete_conversation("conv_1", tenant="acme")
    await converse(store)
    await put("e", "ap_1")
    assert await listed(store) == "e"


async def test_open_response_adds_no_items_to_its_conversation(store: Store) -> None:
    """So a decision whose answer never came is answered by the next response that has it."""
    await converse(store)
    await store.put_response(opened(conversation="conv_1", decides="ap_1"))
    again = response("resp_2", conversation="conv_1", decides="ap_1")
    await store.put_response(again, adds=[("a", b"a")], now_s=1.0)
    await store.put_response(response(conversation="conv_1", decides="ap_1"), adds=[("b", b"b")], now_s=1.0)
    assert await listed(store) == "a"


async def test_idempotency_key_belongs_to_one_response(store: Store) -> None:
    """Of one caller. It goes to another one by its name only, and is free once its response is deleted."""

    async def holder(caller: str = "ann", tenant: str = "acme") -> str | None:
        found = await store.find_response_with_key("k", tenant=tenant, caller=caller)
        return None if found is None else found.id

    first = opened(idempotency_key="k", fingerprint="f")
    await store.put_response(first)
    assert await store.find_response_with_key("k", tenant="acme", caller="ann") == first
    for other in ({"caller": "bob"}, {"tenant": "other"}):
        assert await holder(**other) is None
        await store.put_response(replace(first, id="resp_9", **other))
        assert await holder(**other) == "resp_9"
    for taken in (None, "resp_9"):
        with pytest.raises(KeyTakenError):
            await store.put_response(replace(first, id="resp_2"), takes_key_of=taken)
    assert await store.get_response("resp_2", tenant="acme") is None
    await store.put_response(replace(first, id="resp_2"), takes_key_of="resp_1")
    assert await holder() == "resp_2"
    await store.put_response(replace(first, state="failed", output=b"{}"))
    assert await holder() == "resp_2"
    ended = await store.get_response("resp_1", tenant="acme")
    assert ended is not None and (ended.state, ended.idempotency_key) == ("failed", None)
    assert await store.delete_response("resp_2", tenant="acme") and await holder() is None
    await store.put_response(replace(first, id="resp_3"))
    assert await holder() == "resp_3"


async def test_concurrent_responses_with_one_key_store_only_one(store: Store) -> None:
    """The others are refused, and each of them names what is the matter."""
    rows = [opened(f"resp_{n}", idempotency_key="k") for n in range(8)]
    told = await asyncio.gather(*map(store.put_response, rows), return_exceptions=True)
    assert sorted(map(str, map(type, told))) == sorted([str(bool), *[str(KeyTakenError)] * 7])


async def test_responses_belong_to_one_tenant(store: Store) -> None:
    """The same id in another tenant is another response, in a chain and for a run, too."""
    ours, theirs = opened(), opened(tenant="other", input=b"theirs")
    for each in (ours, theirs, response("resp_2", tenant="other", previous_id="resp_1")):
        await store.put_response(each)
    assert await store.get_response("resp_1", tenant="acme") == ours
    assert await store.get_response("resp_2", tenant="acme") is None
    assert await store.list_response_chain("resp_2", tenant="acme", limit=9) == []
    assert [r.id for r in await store.list_response_chain("resp_2", tenant="other", limit=9)] == ["resp_1", "resp_2"]
    assert await store.find_newest_open_response("run_1", tenant="other") == theirs
    assert await store.find_newest_open_response("run_1", tenant="new") is None
    assert await store.delete_response("resp_1", tenant="new") is False
    assert await store.delete_response("resp_1", tenant="other") is True
    assert await store.get_response("resp_1", tenant="acme") == ours
    assert [r.id for r in await store.list_response_chain("resp_2", tenant="other", limit=9)] == ["resp_2"]


async def test_response_chain_is_listed_oldest_first(store: Store) -> None:
    """Up to a response, however long the chain is; a branch beside it is not part of it."""
    for number in range(450):
        previous = f"resp_{number - 1}" if number else None
        await store.put_response(response(f"resp_{number}", previous_id=previous, input=b"%d" % number))
    await store.put_response(response("branch", previous_id="resp_7"))
    for last in (0, 5, 199, 200, 449):
        chain = await store.list_response_chain(f"resp_{last}", tenant="acme", limit=1000)
        assert [r.input for r in chain] == [b"%d" % number for number in range(last + 1)]
    assert [r.id for r in await store.list_response_chain("branch", tenant="acme", limit=2)] == ["resp_7", "branch"]
    for limit in (1, 200, 201, 449):
        chain = await store.list_response_chain("resp_449", tenant="acme", limit=limit)
        assert [r.id for r in chain] == [f"resp_{number}" for number in range(450 - limit, 450)]
    assert await store.list_response_chain("resp_450", tenant="acme", limit=9) == []


async def test_response_chain_starts_after_a_missing_response(store: Store) -> None:
    """Its first response says what it continued; one that continues itself ends at the limit."""
    for number in range(5):
        await store.put_response(response(f"resp_{number}", previous_id=f"resp_{number - 1}"))
    await store.delete_response("resp_1", tenant="acme")
    chain = await store.list_response_chain("resp_4", tenant="acme", limit=9)
    assert (chain[0].id, chain[0].previous_id, len(chain)) == ("resp_2", "resp_1", 3)
    await store.put_response(response("loop", previous_id="loop"))
    assert len(await store.list_response_chain("loop", tenant="acme", limit=7)) == 7


async def test_the_newest_open_response_of_a_run_is_found(store: Store) -> None:
    """Of those of the same time the one that was put last; one that has ended is none."""
    put = (("resp_2", 300.0), ("resp_1", 100.0), ("resp_3", 300.0), ("resp_4", 200.0))
    for response_id, created_s in put:
        await store.put_response(opened(response_id, created_s=created_s, state="queued"))
    await store.put_response(opened("other", created_s=900.0, run_id="run_2"))
    await store.put_response(response("ended", created_s=900.0))
    for response_id in ("resp_3", "resp_2", "resp_4", "resp_1"):
        found = await store.find_newest_open_response("run_1", tenant="acme")
        assert found is not None and found.id == response_id
        await store.put_response(replace(found, state="cancelled", output=b"{}"))
    assert await store.find_newest_open_response("run_1", tenant="acme") is None


async def test_a_deleted_response_is_gone_with_its_log(store: Store) -> None:
    """However long that is; one that is put under its id later has an empty log."""
    await store.write(new(run()))
    for response_id in ("resp_1", "resp_2"):
        await store.put_response(opened(response_id))
        await store.append_answer(response_id, tenant="acme", fence=0, start=0, chunks=[b"x"] * 1000)
    assert [await store.delete_response("resp_1", tenant="acme") for _ in range(2)] == [True, False]
    assert await store.get_response("resp_1", tenant="acme") is None
    assert await store.find_newest_open_response("run_1", tenant="acme") is not None
    await store.put_response(opened())
    assert await store.list_answer_chunks("resp_1", tenant="acme", start=0, limit=9) == []
    assert len(await store.list_answer_chunks("resp_2", tenant="acme", start=0, limit=2000)) == 1000


async def test_answer_log_is_appended_in_order(store: Store) -> None:
    """Chunk by chunk in order, and is read from any number on."""
    await store.write(new(run()))
    await store.put_response(opened())
    assert await store.list_answer_chunks("resp_1", tenant="acme", start=0, limit=9) == []
    for start, chunks in ((0, [b"a", b"\0\xff"]), (2, []), (2, [b""]), (3, [b"d" * 100_000, b"e"])):
        await store.append_answer("resp_1", tenant="acme", fence=0, start=start, chunks=chunks)
    whole = [b"a", b"\0\xff", b"", b"d" * 100_000, b"e"]
    for start, limit in ((0, 9), (0, 2), (1, 2), (3, 9), (5, 9), (9, 9)):
        found = await store.list_answer_chunks("resp_1", tenant="acme", start=start, limit=limit)
        assert found == whole[start : start + limit]
    assert await store.list_answer_chunks("resp_1", tenant="other", start=0, limit=9) == []
    await store.put_response(response())
    assert await store.list_answer_chunks("resp_1", tenant="acme", start=4, limit=9) == [b"e"]


@pytest.mark.parametrize("start", [0, 1, 3])
async def test_append_at_another_position_is_refused(store: Store, start: int) -> None:
    """An append that does not begin at its end is refused, and nothing of it is written."""
    await store.write(new(run()))
    await store.put_response(opened())
    await store.append_answer("resp_1", tenant="acme", fence=0, start=0, chunks=[b"a", b"b"])
    for chunks in ([b"c"], []):
        with pytest.raises(ConflictError):
            await store.append_answer("resp_1", tenant="acme", fence=0, start=start, chunks=chunks)
    assert await store.list_answer_chunks("resp_1", tenant="acme", start=0, limit=9) == [b"a", b"b"]


async def test_append_with_an_outdated_fence_is_refused(store: Store) -> None:
    """The next owner goes on behind what is there; so it is once the run was cancelled."""
    await store.write(new(run(owner="w1", lease_s=150.0)))
    await store.put_response(opened())
    await store.append_answer("resp_1", tenant="acme", fence=0, start=0, chunks=[b"a"])
    assert await claimed(store, "w2") == [("run_1", 1)]
    with pytest.raises(ConflictError):
        await store.append_answer("resp_1", tenant="acme", fence=0, start=1, chunks=[b"late"])
    await store.append_answer("resp_1", tenant="acme", fence=1, start=1, chunks=[b"b"])
    assert await store.cancel("run_1", tenant="acme", now_s=210.0, events=(), audit=())
    with pytest.raises(ConflictError):
        await store.append_answer("resp_1", tenant="acme", fence=1, start=2, chunks=[b"late"])
    assert await store.list_answer_chunks("resp_1", tenant="acme", start=0, limit=9) == [b"a", b"b"]


async def test_owner_of_an_ended_run_can_still_append(store: Store) -> None:
    """The end of the run does not move its fence."""
    await store.write(new(run()))
    await store.put_response(opened())
    await store.write(moved(run(state="completed")))
    await store.append_answer("resp_1", tenant="acme", fence=0, start=0, chunks=[b"a"])
    assert await store.list_answer_chunks("resp_1", tenant="acme", start=0, limit=9) == [b"a"]


async def test_append_without_response_or_run_is_refused(store: Store) -> None:
    """Without the response, without its run, and by another tenant: refused."""
    with pytest.raises(ConflictError):
        await store.append_answer("resp_1", tenant="acme", fence=0, start=0, chunks=[b"a"])
    await store.put_response(opened())
    with pytest.raises(ConflictError):
        await store.append_answer("resp_1", tenant="acme", fence=0, start=0, chunks=[b"a"])
    await store.write(new(run(tenant="other")))
    for tenant in ("acme", "other"):
        with pytest.raises(ConflictError):
            await store.append_answer("resp_1", tenant=tenant, fence=0, start=0, chunks=[b"a"])
    assert await store.list_answer_chunks("resp_1", tenant="acme", start=0, limit=9) == []


async def test_one_of_several_concurrent_appends_succeeds(store: Store) -> None:
    """The others are refused alone, whatever they are committed with."""
    await store.write(new(run()))
    await store.put_response(opened())
    appends = [
        store.append_answer("resp_1", tenant="acme", fence=0, start=0, chunks=[b"%d" % n, b"more"]) for n in range(20)
    ]
    results = await asyncio.gather(*appends, return_exceptions=True)
    assert [type(result) for result in results].count(ConflictError) == 19
    first = b"%d" % results.index(None)
    assert await store.list_answer_chunks("resp_1", tenant="acme", start=0, limit=9) == [first, b"more"]


async def test_conversation_write_replaces_only_its_metadata(store: Store) -> None:
    """A repeat replaces its metadata, and nothing else of it."""
    assert await store.get_conversation("conv_1", tenant="acme") is None
    await converse(store, "a")
    assert await store.get_conversation("conv_1", tenant="acme") == CONVERSATION
    await store.put_conversation(replace(CONVERSATION, metadata=b"{}", created_s=900.0), now_s=900.0)
    assert await store.get_conversation("conv_1", tenant="acme") == replace(CONVERSATION, metadata=b"{}")
    assert await listed(store) == "a"


async def test_items_are_listed_in_insertion_order(store: Store) -> None:
    """From either end, from behind any of them, as many as are wanted."""
    await converse(store, "d", "a", "c")
    assert await store.add_items("conv_1", [("b", b"b")], tenant="acme", now_s=1.0) is True
    assert await store.add_items("conv_1", [], tenant="acme", now_s=1.0) is True
    assert await listed(store) == "d a c b"
    assert await listed(store, newest_first=True) == "b c a d"
    assert await listed(store, limit=2) == "d a" and await listed(store, limit=2, newest_first=True) == "b c"
    assert await listed(store, after="a", limit=1) == "c" and await listed(store, after="b") == ""
    assert await listed(store, after="c", newest_first=True) == "a d"
    assert await listed(store, after="x") == "" == await listed(store, after="x", newest_first=True)
    assert await store.get_item("conv_1", "c", tenant="acme") == b"c"
    assert await store.get_item("conv_1", "x", tenant="acme") is None


async def test_existing_item_is_not_replaced_or_moved(store: Store) -> None:
    """With its content, however often its id is added, also twice at once."""
    await converse(store, "a", "b")
    again = [("b", b"other"), ("c", b"c"), ("a", b"other"), ("c", b"other")]
    assert await store.add_items("conv_1", again, tenant="acme", now_s=1.0) is True
    assert await listed(store) == "a b c"


async def test_a_deleted_item_leaves_the_others(store: Store) -> None:
    """Deleting says whether there was one; what is added later comes last."""
    await converse(store, "a", "b", "c")
    deleted = [await store.delete_item("conv_1", item, tenant="acme", now_s=1.0) for item in ("b", "b", "c", "x")]
    assert deleted == [True, False, True, False]
    await store.add_items("conv_1", [("b", b"b")], tenant="acme", now_s=1.0)
    assert await listed(store) == "a b" and await listed(store, after="a") == "b"


async def test_a_long_conversation_is_read_and_deleted_whole(store: Store) -> None:
    """With all its items, and no other."""
    for count, conversation_id in ((1000, "conv_1"), (200, "conv_2")):
        await converse(store, *(f"i{number:04}" for number in range(count)), conversation_id=conversation_id)
        found = await store.list_all_items(conversation_id, tenant="acme")
        assert found == [b"i%04d" % number for number in range(count)]
    assert [await store.delete_conversation("conv_1", tenant="acme") for _ in range(2)] == [True, False]
    assert await store.get_conversation("conv_1", tenant="acme") is None
    assert await store.list_all_items("conv_1", tenant="acme") == []
    assert await store.add_items("conv_1", [("a", b"a")], tenant="acme", now_s=1.0) is False
    assert len(await store.list_all_items("conv_2", tenant="acme")) == 200
    await converse(store, "new")
    assert await listed(store) == "new"


async def test_conversations_belong_to_one_tenant(store: Store) -> None:
    """Nobody reads, changes or deletes one of others, or its items."""
    await converse(store, "a")
    assert await store.add_items("conv_1", [("b", b"b")], tenant="other", now_s=1.0) is False
    assert await store.get_conversation("conv_1", tenant="other") is None
    assert await store.get_item("conv_1", "a", tenant="other") is None
    assert await store.delete_item("conv_1", "a", tenant="other", now_s=1.0) is False
    assert await store.delete_conversation("conv_1", tenant="other") is False
    assert await store.list_all_items("conv_1", tenant="other") == []
    await converse(store, "c", "d", tenant="other")
    assert (await listed(store), await listed(store, tenant="other")) == ("a", "c d")
    assert await store.delete_conversation("conv_1", tenant="other") is True
    assert (await listed(store), await listed(store, tenant="other")) == ("a", "")


async def test_old_responses_are_pruned_with_their_logs(store: Store) -> None:
    """Open or ended, of any tenant, no more rows than wanted; the log first."""
    await store.write(new(run(updated_s=300.0)))
    await store.put_response(opened())
    await store.append_answer("resp_1", tenant="acme", fence=0, start=0, chunks=[b"x"] * 7)
    await store.put_response(response("resp_2", created_s=150.0, tenant="other"))
    await store.put_response(opened("resp_3", created_s=300.0))
    await store.append_answer("resp_3", tenant="acme", fence=0, start=0, chunks=[b"x"] * 2)
    assert [await store.prune(before_s=200.0, limit=4) for _ in range(4)] == [4, 4, 1, 0]
    assert await store.get_response("resp_1", tenant="acme") is None
    assert await store.get_response("resp_2", tenant="other") is None
    assert await store.get_response("resp_3", tenant="acme") is not None
    assert len(await store.list_answer_chunks("resp_3", tenant="acme", start=0, limit=9)) == 2


async def test_unchanged_conversations_are_pruned_with_their_items(store: Store) -> None:
    """Metadata, an item more and an item less are changes."""
    for number in range(5):
        await converse(store, "a", "b", conversation_id=f"conv_{number}")
    await store.put_conversation(replace(CONVERSATION, id="conv_0"), now_s=300.0)
    await store.add_items("conv_1", [("c", b"c")], tenant="acme", now_s=300.0)
    await store.delete_item("conv_2", "a", tenant="acme", now_s=300.0)
    await store.delete_item("conv_3", "x", tenant="acme", now_s=300.0)
    assert [await store.prune(before_s=200.0, limit=5) for _ in range(3)] == [5, 1, 0]
    left = [len(await store.list_all_items(f"conv_{number}", tenant="acme")) for number in range(5)]
    assert left == [2, 3, 1, 0, 0]
    assert await store.get_conversation("conv_3", tenant="acme") is None


async def test_lone_surrogate_in_an_id_fails_only_that_write(store: Store) -> None:
    """As it is for all that is stored; what is committed with it is there."""
    puts = [store.put_response(response(f"resp_{n}" if n != 5 else "bad \ud800")) for n in range(10)]
    results = await asyncio.gather(*puts, return_exceptions=True)
    assert [isinstance(result, StoreError) for result in results] == [n == 5 for n in range(10)]
    found = [await store.get_response(f"resp_{n}", tenant="acme") for n in range(10)]
    assert [each is not None for each in found] == [n != 5 for n in range(10)]


async def test_responses_and_conversations_survive_reopening(reopened: Callable[[], Awaitable[Store]]) -> None:
    """With logs and items."""
    store = await reopened()
    await store.write(new(run()))
    await store.put_response(opened())
    await store.append_answer("resp_1", tenant="acme", fence=0, start=0, chunks=[b"a"])
    await converse(store, "a")
    again = await reopened()
    assert await again.get_response("resp_1", tenant="acme") == opened()
    assert await again.list_answer_chunks("resp_1", tenant="acme", start=0, limit=9) == [b"a"]
    assert await again.get_conversation("conv_1", tenant="acme") == CONVERSATION
    assert await listed(again) == "a"
