"""What every store promises: the test module of a store imports these tests and provides `store`, an open one.
What it promises of runs, approvals, grants and memories stands in the modules `contract_...` beside this one.

`reopened` opens a store that lasts, on the same place each time it is called, after closing the one before.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from gateway.contracts.storage.store import (
    HiddenTurn,
    Json,
    Store,
    StoredPrompt,
    StoredService,
    StoreError,
    WorkerService,
)
from tests.plugins.stores.records import (
    approval,
    audit_line,
    event,
    grant,
    memory,
    moved,
    new,
    recalled,
    run,
    step,
    write,
)

Reopen = Callable[[], Awaitable[Store]]
RUN = run()
SERVICE = StoredService(name="time", config=b'{"command":"x"}', pins={"now": "a" * 64}, updated_s=1.5)
AWKWARD = ("", "a\0b", "'; DROP TABLE prompts; --", "快速 🦊", "line\r\nline", "x" * 300_000)


async def test_stored_prompt_counts_its_versions(store: Store) -> None:
    """The first version is 1, every change adds one, and reading gives what was put."""
    assert await store.get_prompt("p", tenant="acme") is None
    assert await store.put_prompt("p", "one", tenant="acme", now_s=1.5) == StoredPrompt("p", "acme", "one", 1, 1.5)
    changed = await store.put_prompt("p", "two", tenant="acme", now_s=2.5)
    assert changed == StoredPrompt("p", "acme", "two", 2, 2.5) == await store.get_prompt("p", tenant="acme")


async def test_prompts_are_listed_in_id_order(store: Store) -> None:
    """However they were put."""
    for prompt_id in ("b", "c", "a"):
        await store.put_prompt(prompt_id, prompt_id, tenant="acme", now_s=1.0)
    assert [p.id for p in await store.list_prompts(tenant="acme", limit=99)] == ["a", "b", "c"]
    assert [p.id for p in await store.list_prompts(tenant="acme", limit=2)] == ["a", "b"]
    assert [p.id for p in await store.list_prompts(tenant="acme", after="a", limit=1)] == ["b"]
    assert [p.id for p in await store.list_prompts(tenant="acme", after="bb", limit=9)] == ["c"]
    assert await store.list_prompts(tenant="acme", after="c", limit=9) == []


async def test_prompts_belong_to_one_tenant(store: Store) -> None:
    """Tenants share neither texts nor versions; only who looks after all of them sees all."""
    for tenant, text in (("acme", "one"), ("rival", "two"), ("acme", "three")):
        await store.put_prompt("p", text, tenant=tenant, now_s=1.0)
    ours, theirs = StoredPrompt("p", "acme", "three", 2, 1.0), StoredPrompt("p", "rival", "two", 1, 1.0)
    assert [await store.get_prompt("p", tenant=tenant) for tenant in ("acme", "rival", "new")] == [ours, theirs, None]
    assert (await store.list_prompts(tenant="rival", limit=99), await store.list_all_prompts()) == (
        [theirs],
        [ours, theirs],
    )
    assert await store.delete_prompt("p", tenant="new") is False
    assert await store.delete_prompt("p", tenant="rival") is True
    assert await store.list_all_prompts() == [ours]


async def test_a_deleted_prompt_is_gone(store: Store) -> None:
    """Deleting says whether there was one, and what comes after begins at version 1."""
    await store.put_prompt("p", "one", tenant="acme", now_s=1.0)
    assert await store.delete_prompt("p", tenant="acme") is True
    assert await store.delete_prompt("p", tenant="acme") is False
    assert await store.get_prompt("p", tenant="acme") is None
    assert (await store.put_prompt("p", "new", tenant="acme", now_s=2.0)).version == 1


async def test_the_generation_counts_changes_of_prompts_only(store: Store) -> None:
    """A put and a deletion move it; deleting nothing, reading and runs do not."""
    first = await store.get_generation()
    await store.put_prompt("p", "one", tenant="acme", now_s=1.0)
    await store.delete_prompt("p", tenant="acme")
    assert await store.get_generation() == first + 2
    await store.delete_prompt("p", tenant="acme")
    await store.write(new(RUN))
    assert await store.get_generation() == first + 2


@pytest.mark.parametrize("text", AWKWARD, ids=[repr(t[:12]) for t in AWKWARD])
async def test_any_text_is_returned_unchanged(store: Store, text: str) -> None:
    """Quotes, NUL, other scripts, line ends and long texts are data."""
    await store.put_prompt("p", text, tenant="acme", now_s=1.0)
    found = await store.get_prompt("p", tenant="acme")
    assert found is not None and found.text == text


async def test_lone_surrogate_in_a_prompt_fails_and_changes_nothing(store: Store) -> None:
    """A lone surrogate cannot be kept: StoreError, and the prompt stays what it was."""
    await store.put_prompt("p", "good", tenant="acme", now_s=1.0)
    with pytest.raises(StoreError):
        await store.put_prompt("p", "bad \ud800", tenant="acme", now_s=2.0)
    assert await store.get_prompt("p", tenant="acme") == StoredPrompt("p", "acme", "good", 1, 1.0)


async def test_stored_service_counts_its_versions(store: Store) -> None:
    """The first version is 1 whatever was said, every change adds one, and reading gives what was put."""
    assert await store.list_services() == []
    assert await store.put_service(replace(SERVICE, version=7), expected=0) is True
    assert await store.list_services() == [replace(SERVICE, version=1)]
    changed = replace(SERVICE, config=None, stopped=True, restarts=2, pins={}, updated_s=2.5)
    assert await store.put_service(changed, expected=1) is True
    assert await store.list_services() == [replace(changed, version=2)]


async def test_service_write_with_an_outdated_version_is_refused(store: Store) -> None:
    """Whoever was first wins; the other one looks again. What is not there has no version to follow."""
    assert await store.put_service(SERVICE, expected=1) is False
    puts = [store.put_service(replace(SERVICE, restarts=i), expected=0) for i in range(10)]
    assert sorted(await asyncio.gather(*puts)) == [False] * 9 + [True]
    assert await store.put_service(SERVICE, expected=2) is False
    (kept,) = await store.list_services()
    assert kept.version == 1


async def test_services_are_listed_in_name_order(store: Store) -> None:
    """Any name is one, and a deleted one is gone; deleting says whether there was one."""
    names = ["b", "c", "a", *filter(None, AWKWARD)]
    for name in names:
        await store.put_service(replace(SERVICE, name=name, pins={name: "x"}), expected=0)
    found = await store.list_services()
    assert [s.name for s in found] == sorted(names) and all(s.pins == {s.name: "x"} for s in found)
    assert [await store.delete_service("b") for _ in range(2)] == [True, False]
    assert [s.name for s in await store.list_services()] == sorted(set(names) - {"b"})


async def test_the_generation_counts_changes_of_services(store: Store) -> None:
    """As it does those of prompts; what workers see of services are no changes, nor is what was not written."""
    first = await store.get_generation()
    await store.put_service(SERVICE, expected=0)
    await store.put_service(SERVICE, expected=1)
    await store.put_service(SERVICE, expected=1)
    await store.delete_service("time")
    await store.delete_service("time")
    assert await store.get_generation() == first + 3
    await store.report_services("w1", [WorkerService(worker="w1", name="time", state="running", updated_s=1.0)])
    await store.list_services()
    assert await store.get_generation() == first + 3


async def test_service_report_replaces_the_previous_one_of_its_worker(store: Store) -> None:
    """Of the other workers nothing changes; what was said too long ago is left out, and pruned some day."""

    def seen(worker: str, name: str, at_s: float) -> WorkerService:
        return WorkerService(worker=worker, name=name, state="error", error="no such program", updated_s=at_s)

    await store.report_services("w1", [seen("w1", "time", 10.0), seen("w1", "git", 10.0)])
    await store.report_services("w2", [seen("w2", "time", 20.0)])
    assert await store.list_reported_services(since_s=10.0) == [
        seen("w1", "git", 10.0),
        seen("w1", "time", 10.0),
        seen("w2", "time", 20.0),
    ]
    assert await store.list_reported_services(since_s=10.5) == [seen("w2", "time", 20.0)]
    await store.report_services("w1", [seen("w1", "time", 30.0)])
    assert [s.worker for s in await store.list_reported_services(since_s=0.0)] == ["w1", "w2"]
    assert await store.prune(before_s=25.0, limit=9) == 1
    assert [s.worker for s in await store.list_reported_services(since_s=0.0)] == ["w1"]
    await store.report_services("w1", [])
    assert await store.list_reported_services(since_s=0.0) == []


def turn(turn_id: str, *messages: Json, behind: Sequence[Json] = (), tainted: bool = False) -> HiddenTurn:
    size = len(messages) + len(behind)
    before, after = list(messages), list(behind)
    return HiddenTurn(id=turn_id, run_id="r", start=0, end=size, before=before, behind=after, tainted=tainted)


async def put_turn(store: Store, found: HiddenTurn, *keys: str, now_s: float = 1.0) -> None:
    """Under its id and these keys."""
    await store.put_hidden(found, keys=[found.id, *keys], tenant="acme", now_s=now_s)


async def test_hidden_turns_are_returned_for_known_keys(store: Store) -> None:
    """As they were put, by key; the others are left out, and another tenant has none of them."""
    odd: Json = {"role": "tool", "content": "é\ud800", "n": 2**70, "deep": [[None, True, 1.5]]}
    one, two = turn("a", odd, tainted=True), turn("b", behind=[odd])
    await put_turn(store, one, "x", "y")
    await put_turn(store, two)
    assert await store.find_hidden_turns(["a", "y", "b", "c"], tenant="acme") == {"a": one, "y": one, "b": two}
    assert (
        await store.find_hidden_turns(["a", "x"], tenant="other")
        == {}
        == await store.find_hidden_turns([], tenant="acme")
    )
    again = turn("a", {"role": "user"})
    await put_turn(store, again, "x")
    assert await store.find_hidden_turns(["a", "x", "y"], tenant="acme") == dict.fromkeys(["a", "x", "y"], again)


async def test_key_of_two_different_turns_returns_no_turn(store: Store) -> None:
    """From then on, also if one of them is put again; an answer without a hidden part is one of two."""
    one, two = turn("a", {"role": "tool"}), turn("b", {"role": "user"})
    await store.record_answer("d", keys=["z"], tenant="other", now_s=1.0)
    await store.put_hidden(one, keys=["x", "y", "z"], tenant="acme", now_s=1.0)
    await store.put_hidden(two, keys=["x"], tenant="acme", now_s=2.0)
    await store.record_answer("c", keys=["y", "e"], tenant="acme", now_s=2.0)
    for again in (one, two):
        assert await store.find_hidden_turns(["x", "y", "z", "e"], tenant="acme") == {"x": None, "y": None, "z": one}
        await store.put_hidden(again, keys=["x"], tenant="acme", now_s=3.0)
    assert await store.find_hidden_turns(["x"], tenant="acme") == {"x": None}


async def test_turn_colliding_with_a_recorded_answer_is_ambiguous(store: Store) -> None:
    """In whatever order they were put; a thousand answers are recorded."""
    for number in range(1000):
        await store.record_answer(f"t{number}", keys=[f"k{number}", "all"], tenant="acme", now_s=1.0)
    await store.record_answer("again", keys=["again"], tenant="acme", now_s=1.0)
    found = turn("a", {"role": "tool"})
    await put_turn(store, found, "k7", "k999", "all", "again")
    await store.record_answer("a", keys=["a"], tenant="acme", now_s=1.0)
    assert await store.find_hidden_turns(["a", "k7", "k999", "all", "again", "k8"], tenant="acme") == {
        "a": found,
        **dict.fromkeys(["k7", "k999", "all", "again"]),
    }


async def test_ended_sessions_are_found_until_their_expiry(store: Store) -> None:
    await store.end_session("ann", until_s=100.0, now_s=10.0)
    await store.end_session("bob", until_s=50.0, now_s=10.0)
    assert set(await store.find_ended_sessions(["ann", "bob", "eve"])) == {"ann", "bob"}
    assert not await store.find_ended_sessions(["eve"])
    await store.end_session("eve", until_s=100.0, now_s=60.0)
    assert set(await store.find_ended_sessions(["ann", "bob", "eve"])) == {"ann", "eve"}


async def test_pruning_removes_only_old_ended_records(store: Store) -> None:
    """A run under way stays however old it is; so do memories and prompts."""
    await store.write(new(RUN))
    await store.write(new(run("done", state="completed")))
    await store.write(new(run("late", state="failed", updated_s=300.0)))
    await put_turn(store, turn("old", {"role": "tool"}), "own", now_s=100.0)
    await put_turn(store, turn("new", {"role": "tool"}), now_s=300.0)
    await store.remember(memory(1), limit=5)
    assert await store.prune(before_s=200.0, limit=9) == 5  # run, request, turn and its two keys
    assert {r.id for r in await store.list_runs_by_fingerprint(RUN.fingerprint, tenant="acme", since_s=0.0)} == {
        "late",
        "run_1",
    }
    assert await store.find_hidden_turns(["old", "own", "new"], tenant="acme") == {"new": turn("new", {"role": "tool"})}
    assert await store.prune(before_s=200.0, limit=9) == 0
    assert len(await recalled(store)) == 1


async def test_prune_deletes_at_most_the_limit(store: Store) -> None:
    """The oldest runs first, each behind what is its own; with further calls nothing is left."""
    for number, updated_s in ((0, 150.0), (1, 100.0), (2, 120.0)):
        events = tuple(event(run_id=f"r{number}") for _ in range(7))
        await store.write(new(run(f"r{number}", state="completed", updated_s=updated_s), events=events))
    rows = [await store.prune(before_s=200.0, limit=5) for _ in range(7)]
    assert rows == [5, 5, 5, 5, 5, 2, 0]


async def test_prune_deletes_the_oldest_runs_first(store: Store) -> None:
    """What was touched last is there longest."""
    for number, updated_s in ((0, 150.0), (1, 100.0), (2, 120.0)):
        await store.write(new(run(f"r{number}", state="completed", updated_s=updated_s)))
    assert await store.prune(before_s=200.0, limit=4) == 4
    assert [r.id for r in (await store.list_runs(tenant="acme", limit=9)).runs] == ["r0"]


async def test_duty_belongs_to_one_owner_at_a_time(store: Store) -> None:
    """Until it is over, unless it is the owner who asks, or a clock that was set ahead had taken it."""
    assert await store.take_duty("prune", owner="w1", now_s=100.0, until_s=160.0)
    assert not await store.take_duty("prune", owner="w2", now_s=110.0, until_s=170.0)
    assert await store.take_duty("other", owner="w2", now_s=110.0, until_s=170.0)
    assert await store.take_duty("prune", owner="w1", now_s=130.0, until_s=190.0)
    assert not await store.take_duty("prune", owner="w2", now_s=190.0, until_s=250.0)
    assert await store.take_duty("prune", owner="w2", now_s=190.5, until_s=250.5)
    assert await store.take_duty("prune", owner="w1", now_s=50.0, until_s=110.0)


async def test_prune_deletes_a_run_with_all_its_records(store: Store) -> None:
    """Steps, approvals, grants and events go with it; those of a living run, of another tenant, and the log stay."""
    for number, (run_id, tenant) in enumerate((("done", "acme"), ("alive", "acme"), ("done", "other"))):
        whose: dict[str, Any] = {"run_id": run_id, "tenant": tenant}
        kept = run(run_id, tenant=tenant, state="unknown")
        parts = {"steps": (step(**whose),), "events": (event(**whose),), "audit": (audit_line(**whose),)}
        waiting = approval(f"ap_{number}", **whose)
        await store.write(new(kept, approvals=(waiting,), **parts))
        granting = grant(f"gr_{number}", **whose)
        await store.decide_approval(write(waiting.id, tenant=tenant, grant=granting))
    await store.write(moved(run("done", tenant="acme", state="completed")))
    assert await store.prune(before_s=200.0, limit=99) == 7
    for run_id, tenant, left in (("done", "acme", 0), ("alive", "acme", 1), ("done", "other", 1)):
        assert len(await store.list_steps(run_id, tenant=tenant)) == left
        assert len(await store.list_approvals(tenant=tenant, run_id=run_id, limit=9)) == left
        assert len(await store.list_events(after=0, tenant=tenant, run_id=run_id, limit=9)) == left
        assert [g.run_id for g in await store.list_grants(tenant=tenant, now_s=0.0, limit=9)].count(run_id) == left
    assert [row.line.event for row in await store.audit(after=0, limit=9)] == ["verdict"] * 3 + ["cancelled"]
    assert await store.get_last_event() == 4


async def test_concurrent_prompt_changes_are_all_stored(store: Store) -> None:
    """Each is a transaction of its own: no change of a prompt is lost, and the versions are 1 to 100."""
    puts = await asyncio.gather(*(store.put_prompt("p", str(i), tenant="acme", now_s=1.0) for i in range(100)))
    assert sorted(p.version for p in puts) == list(range(1, 101))
    assert await store.get_prompt("p", tenant="acme") == puts[[p.version for p in puts].index(100)]


async def test_failed_write_does_not_affect_concurrent_writes(store: Store) -> None:
    """Writes that are committed together are told apart again when one of them cannot be done."""
    texts = ["bad \ud800" if i % 10 == 5 else f"text {i}" for i in range(50)]
    puts = (store.put_prompt(f"p{i:02}", text, tenant="acme", now_s=1.0) for i, text in enumerate(texts))
    results = await asyncio.gather(*puts, return_exceptions=True)
    assert [isinstance(result, StoreError) for result in results] == ["bad" in text for text in texts]
    assert [p.text for p in await store.list_prompts(tenant="acme", limit=99)] == [
        text for text in texts if "bad" not in text
    ]


async def test_cancelled_caller_loses_no_write(store: Store) -> None:
    """What was begun is carried out whole: each of the cancelled puts moved the generation together with its prompt."""
    first = await store.get_generation()
    tasks = [asyncio.ensure_future(store.put_prompt(f"p{i}", "text", tenant="acme", now_s=1.0)) for i in range(30)]
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(result, asyncio.CancelledError) for result in results)
    await store.put_prompt("last", "text", tenant="acme", now_s=1.0)
    while await store.get_generation() - first < 31:  # some may be under way beside the last one
        pass
    assert len(await store.list_prompts(tenant="acme", limit=99)) == 31 == await store.get_generation() - first


async def test_acknowledged_writes_are_present_after_reopening(reopened: Reopen) -> None:
    """A store keeps everything when it is closed and opened again."""
    store = await reopened()
    await store.put_prompt("p", "text", tenant="acme", now_s=1.0)
    await store.remember(memory(1), limit=5)
    await put_turn(store, turn("a", {"role": "tool"}))
    await store.put_service(SERVICE, expected=0)
    await store.write(new(RUN))
    again = await reopened()
    assert await again.list_services() == [replace(SERVICE, version=1)]
    assert await again.get_prompt("p", tenant="acme") == StoredPrompt("p", "acme", "text", 1, 1.0)
    assert await recalled(again) == [memory(1)]
    assert await again.find_hidden_turns(["a"], tenant="acme") == {"a": turn("a", {"role": "tool"})}
    assert await again.run("run_1", tenant="acme") == RUN


async def test_closing_completes_queued_writes_and_refuses_later_calls(store: Store) -> None:
    """Writes queued before are done, what comes after is a StoreError, and closing twice is closing once."""
    tasks = [asyncio.ensure_future(store.put_prompt(f"p{i}", "text", tenant="acme", now_s=1.0)) for i in range(20)]
    await asyncio.sleep(0)
    await asyncio.gather(store.close(), store.close())
    assert [p.id for p in await asyncio.gather(*tasks)] == [f"p{i}" for i in range(20)]
    with pytest.raises(StoreError, match="closed"):
        await store.list_prompts(tenant="acme", limit=99)
    with pytest.raises(StoreError, match="closed"):
        await store.put_prompt("p", "text", tenant="acme", now_s=1.0)
    await store.close()


async def test_definitions_are_kept_by_their_hashes(store: Store) -> None:
    """The first one of a hash stays; what is not there is left out."""
    assert await store.find_definitions(["a" * 64]) == {} == await store.find_definitions([])
    await store.put_definitions({})
    await store.put_definitions({"a" * 64: '{"description":"快"}', "b" * 64: "{}"})
    await store.put_definitions({"a" * 64: '{"description":"other"}', "c" * 64: '{"c":1}'})
    found = await store.find_definitions(["a" * 64, "c" * 64, "d" * 64])
    assert found == {"a" * 64: '{"description":"快"}', "c" * 64: '{"c":1}'}


async def test_writing_a_definition_leaves_the_store_generation_unchanged(store: Store) -> None:
    """Other processes read it when it is asked for."""
    before = await store.get_generation()
    await store.put_definitions({"a" * 64: "{}"})
    assert await store.get_generation() == before
