"""What every store promises of runs: imported by its test module like `contract`."""

import asyncio
import random
from contextlib import suppress
from dataclasses import replace

import pytest

from gateway.contracts.storage.journal import ENDED, Change, ConflictError, KeyTakenError, Move, RunState
from gateway.contracts.storage.store import Store, StoreError
from tests.plugins.stores.records import (
    approval,
    audit_line,
    broken,
    claimed,
    event,
    moved,
    new,
    parked,
    run,
    step,
    write,
)

# Writing.


async def test_stored_run_is_returned_unchanged(store: Store) -> None:
    """Every field, with its type; at first, and as it was changed."""
    begun = run(
        conversation="c1", idempotency_key="k", kind="workflow", progress=b"\x00\xff", owner="w1", lease_s=130.5
    )
    await store.write(new(begun))
    assert await store.run("run_1", tenant="acme") == begun
    ended = replace(
        begun,
        state="failed",
        effects=True,
        updated_s=160.5,
        progress=b"2",
        answer=b"{}",
        error_code="tool_failed",
        error="快速 🦊",
        owner=None,
        lease_s=0.0,
    )
    await store.write(moved(ended))
    found = await store.run("run_1", tenant="acme")
    assert found == ended and found is not None and found.effects is True


async def test_stored_request_is_replaced_when_its_run_ends(store: Store) -> None:
    """By its owner: one that lost the run changes nothing. Without another one it stays."""
    await store.write(new(run(request=b"long", owner="w1", lease_s=130.5)))
    for change in (moved(run(state="completed", fence=7), request=b"lost"), moved(run(owner="w1", lease_s=131.0))):
        with suppress(ConflictError):
            await store.write(change)
        found = await store.run("run_1", tenant="acme")
        assert found is not None and found.request == b"long"
    await store.write(moved(run(state="completed"), request=b"short"))
    found = await store.run("run_1", tenant="acme")
    assert found is not None and (found.request, found.state) == (b"short", "completed")


async def test_stored_steps_approvals_and_events_are_returned_unchanged(store: Store) -> None:
    """Every field; steps in the order of their numbers, the later one counts; events with their number."""
    whole = step(
        2, terminate=True, reason="r", result="x" * 100_000, shown="x", started_s=1.5, finished_s=2.5, state="finished"
    )
    waiting = approval(conversation=None, step=2)
    happened = (event(), event("step.finished", data=b"\xff"))
    await store.write(new(steps=(step(2), step(1)), approvals=(waiting,), events=happened))
    await store.write(moved(run(), steps=(whole,)))
    assert await store.list_steps("run_1", tenant="acme") == [step(1), whole]
    assert (await store.list_steps("run_1", tenant="acme"))[1].terminate is True
    assert await store.get_approval("ap_1", tenant="acme") == waiting
    assert await store.list_events(after=0, limit=9) == [replace(e, seq=n) for n, e in enumerate(happened, 1)]


async def test_second_new_run_with_the_same_id_is_refused(store: Store) -> None:
    """A second new one of the same id is a ConflictError and changes nothing; in another tenant it is another run."""
    await store.write(new())
    with pytest.raises(ConflictError, match="run_1"):
        await store.write(new(run(chain="other"), events=(event(),)))
    assert await store.run("run_1", tenant="acme") == run()
    assert await store.list_events(after=0, limit=9) == []
    await store.write(new(run(tenant="other", chain="theirs")))
    assert await store.run("run_1", tenant="acme") == run()
    assert await store.run("run_1", tenant="nobody") is None


async def test_change_of_a_missing_run_is_refused(store: Store) -> None:
    """Neither is one of another tenant."""
    await store.write(new())
    for missing in (run("run_2"), run(tenant="other")):
        with pytest.raises(ConflictError):
            await store.write(moved(missing))
    assert (await store.list_runs(tenant="other", limit=9)).runs == []


async def test_change_with_an_old_fence_is_refused_entirely(store: Store) -> None:
    """Somebody else has the run by now: nothing of the change is written, and the new owner's is."""
    await store.write(new(run(owner="w1", lease_s=150.0)))
    assert await claimed(store, "w2") == [("run_1", 1)]
    late = moved(
        run(state="completed"),
        steps=(step(),),
        approvals=(approval(),),
        events=(event(),),
        audit=(audit_line(),),
    )
    with pytest.raises(ConflictError, match="run_1"):
        await store.write(late)
    assert await store.list_steps("run_1", tenant="acme") == []
    assert await store.list_approvals(tenant="acme", limit=9) == []
    assert await store.list_events(after=0, limit=9) == []
    assert await store.audit(after=0, limit=9) == []
    await store.write(moved(run(state="completed", fence=1)))


@pytest.mark.parametrize("state", sorted(ENDED))
async def test_ended_run_accepts_no_further_change(store: Store, state: str) -> None:
    """A change is a ConflictError, a cancellation finds nothing to end, and nobody gets it."""
    await store.write(new(run(state=state)))
    with pytest.raises(ConflictError):
        await store.write(moved(run()))
    assert await store.cancel("run_1", tenant="acme", now_s=1.0, events=(event(),), audit=(audit_line(),)) is False
    assert await claimed(store, "w1") == []
    assert (await store.list_events(after=0, limit=9), await store.audit(after=0, limit=9)) == ([], [])
    assert await store.run("run_1", tenant="acme") == run(state=state)


async def test_an_approval_moves_from_the_expected_state_only(store: Store) -> None:
    """Approved, executing, done; a move from elsewhere takes the whole change with it."""
    await store.write(parked())
    await store.decide_approval(write())
    await store.write(moved(run(), Move("ap_1", "approved", "executing")))
    for expected in ("approved", "pending"):
        with pytest.raises(ConflictError, match="ap_1"):
            await store.write(moved(run(effects=True), Move("ap_1", expected, "executing"), events=(event(),)))
    with pytest.raises(ConflictError, match="ap_9"):
        await store.write(moved(run(), Move("ap_1", "executing", "done"), Move("ap_9", "approved", "executing")))
    found = await store.get_approval("ap_1", tenant="acme")
    assert found is not None and found.state == "executing"
    assert await store.run("run_1", tenant="acme") == run()
    assert await store.list_events(after=0, limit=9) == []
    await store.write(moved(run(), Move("ap_1", "executing", "done")))


async def test_second_approval_with_the_same_id_is_refused(store: Store) -> None:
    """A second one of the same id takes the whole change with it."""
    await store.write(parked())
    with pytest.raises(ConflictError, match="ap_1"):
        await store.write(new(run("run_2"), approvals=(approval(run_id="run_2"),)))
    assert await store.run("run_2", tenant="acme") is None


async def test_conflicting_change_does_not_affect_concurrent_changes(store: Store) -> None:
    """Of changes that are committed together each that is in order is there, and the others hear why they are not."""
    await store.write(parked())
    changes = []
    for number in range(60):
        moves = (Move("ap_1", "executing", "done"),) if number % 3 == 1 else ()
        text = "bad \ud800" if number % 10 == 5 else "good"
        changes.append(new(run(f"r{number:02}", error=text), moves=moves, events=(event(run_id=f"r{number:02}"),)))
    results = await asyncio.gather(*map(store.write, changes), return_exceptions=True)
    for number, result in enumerate(results):
        expected = StoreError if number % 10 == 5 else ConflictError if number % 3 == 1 else type(None)
        assert type(result) is expected, number
    kept = sorted(r.id for r in (await store.list_runs(tenant="acme", limit=99)).runs if r.id != "run_1")
    assert kept == [f"r{n:02}" for n, result in enumerate(results) if result is None]
    assert sorted(e.run_id for e in await store.list_events(after=0, limit=99)) == kept


async def test_non_durable_change_is_visible_at_once(store: Store) -> None:
    """It is in the same order with the others, and conflicts like them."""
    await store.write(new())
    await store.write(moved(run(effects=True), durable=False, events=(event(),)))
    assert await store.run("run_1", tenant="acme") == run(effects=True)
    with pytest.raises(ConflictError):
        await store.write(moved(run(fence=1), durable=False, events=(event(),)))
    assert await store.get_last_event() == 1


async def test_cancelled_writer_loses_no_change(store: Store) -> None:
    """What was begun is carried out whole, also when its caller does not wait for it."""
    tasks = [asyncio.ensure_future(store.write(new(run(f"r{n}"), events=(event(),)))) for n in range(30)]
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await store.write(new(events=(event(),)))
    while await store.get_last_event() < 31:  # some may be under way beside the last one
        pass
    assert len((await store.list_runs(tenant="acme", limit=99)).runs) == 31 == await store.get_last_event()


async def test_uncertain_change_can_be_written_again(store: Store) -> None:
    """By the owner that wrote it, whether it is there or not; what a person decided meanwhile stands."""
    begun = new(run(), approvals=(approval(state="approved"),))
    for change in (begun, replace(begun, approvals=(), repeats=True)):
        await store.write(change)
    started = Change(run=run(), moves=(Move("ap_1", "approved", "executing"),), repeats=True)
    await store.write(started)
    await store.write(started)
    with pytest.raises(ConflictError):
        await store.write(replace(started, repeats=False))
    await store.write(replace(started, moves=(Move("ap_1", "approved", "cancelled"),)))
    found = await store.get_approval("ap_1", tenant="acme")
    assert found is not None and found.state == "cancelled"
    with pytest.raises(ConflictError):  # not executing, and neither of the two
        await store.write(started)
    with pytest.raises(ConflictError):  # another owner
        await store.write(replace(begun, run=run(fence=5), approvals=(), repeats=True))


# Looking runs up.


async def test_runs_are_listed_newest_first_and_filtered(store: Store) -> None:
    """At most `limit`, of one tenant."""
    facts = (("a", "running", "c1"), ("b", "completed", "c1"), ("c", "running", None), ("d", "running", "c1"))
    for number, (run_id, state, conversation) in enumerate(facts):
        await store.write(new(run(run_id, state=state, conversation=conversation, created_s=float(number))))
    await store.write(new(run("e", tenant="other")))
    assert [r.id for r in (await store.list_runs(tenant="acme", limit=9)).runs] == ["d", "c", "b", "a"]
    assert [r.id for r in (await store.list_runs(tenant="acme", limit=2)).runs] == ["d", "c"]
    assert [r.id for r in (await store.list_runs(tenant="acme", state="running", limit=9)).runs] == ["d", "c", "a"]
    assert [r.id for r in (await store.list_runs(tenant="acme", conversation="c1", limit=9)).runs] == ["d", "b", "a"]
    found = (await store.list_runs(tenant="acme", state="running", conversation="c1", limit=9)).runs
    assert [r.id for r in found] == ["d", "a"]


async def test_runs_and_approvals_come_in_pages(store: Store) -> None:
    """Behind the last of the page before, also among those of the same moment; behind what is not there is nothing."""
    for number in range(7):
        at_s = float(number // 3)
        asked = approval(f"ap_{number}", run_id=f"run_{number}", created_s=at_s)
        await store.write(new(run(f"run_{number}", created_s=at_s), approvals=(asked,)))
    after: str | None = None
    runs: list[str] = []
    while page := (await store.list_runs(tenant="acme", after=after, limit=2)).runs:
        runs += [r.id for r in page]
        after = page[-1].id
    assert runs == [f"run_{number}" for number in reversed(range(7))]
    approvals: list[str] = []
    after = None
    while issued := await store.list_approvals(tenant="acme", after=after, limit=3):
        approvals += [a.id for a in issued]
        after = issued[-1].id
    assert approvals == [f"ap_{number}" for number in range(7)]
    assert (await store.list_runs(tenant="acme", after="run_9", limit=9)).runs == []
    assert (await store.list_runs(tenant="other", after="run_3", limit=9)).runs == []
    assert await store.list_approvals(tenant="acme", state="approved", after="ap_1", limit=9) == []


async def test_runs_created_at_the_same_time_are_ordered_by_id(store: Store) -> None:
    """In whatever order they were begun, so that lists of several states can be joined."""
    for name in ("b", "d", "a", "c"):
        await store.write(new(run(name)))
    assert [r.id for r in (await store.list_runs(tenant="acme", limit=9)).runs] == ["d", "c", "b", "a"]
    assert [r.id for r in (await store.list_runs(tenant="acme", after="c", limit=9)).runs] == ["b", "a"]


async def test_run_list_omits_request_progress_and_answer(store: Store) -> None:
    """What one run was asked and answers is read with that run."""
    await store.write(new(run(request=b"asked", progress=b"so far", answer=b"{}")))
    [listed] = (await store.list_runs(tenant="acme", limit=9)).runs
    assert (listed.request, listed.progress, listed.answer) == (b"", None, None)
    whole = await store.run(listed.id, tenant="acme")
    assert whole is not None and (whole.request, whole.progress, whole.answer) == (b"asked", b"so far", b"{}")


async def test_runs_by_fingerprint_are_listed_newest_first(store: Store) -> None:
    """Those with the fingerprint that were touched since then."""
    old, young = run("old"), run("young", created_s=150.0, updated_s=150.0)
    long = run("long", created_s=50.0, updated_s=170.0)
    for kept in (old, young, long, run("else", fingerprint="e" * 64), run("theirs", tenant="other")):
        await store.write(new(kept))
    found = await store.list_runs_by_fingerprint(old.fingerprint, tenant="acme", since_s=0.0)
    assert [r.id for r in found] == ["young", "old", "long"]
    assert [r.id for r in await store.list_runs_by_fingerprint(old.fingerprint, tenant="acme", since_s=120.0)] == [
        "young",
        "long",
    ]


async def test_runs_with_key_returns_only_runs_of_the_caller(store: Store) -> None:
    """Keys are per tenant and caller; newest first."""
    for number, (caller, tenant) in enumerate((("ann", "acme"), ("bob", "acme"), ("ann", "other"), ("ann", "acme"))):
        kept = run(f"r{number}", caller=caller, tenant=tenant, idempotency_key="k", created_s=float(number))
        await store.write(new(kept, takes_key_of="r0"))
    assert [r.id for r in await store.list_runs_with_key("k", tenant="acme", caller="ann")] == ["r3", "r0"]


async def test_idempotency_key_may_be_longer_than_an_entry_of_an_index(store: Store) -> None:
    """A client chooses it: as long as a line of a request's head, and not alike at its beginning or end only."""
    keys = [random.Random(1).randbytes(4000).hex() + end for end in ("a", "b")]
    for number, key in enumerate(keys):
        await store.write(new(run(f"r{number}", idempotency_key=key)))
    assert [[r.id for r in await store.list_runs_with_key(key, tenant="acme", caller="ann")] for key in keys] == [
        ["r0"],
        ["r1"],
    ]
    with pytest.raises(KeyTakenError):
        await store.write(new(run("r2", idempotency_key=keys[0])))


async def test_idempotency_key_belongs_to_one_run(store: Store) -> None:
    """Of the first on record, whatever the clock of the other says: that is not written."""
    await store.write(new(run("r1", idempotency_key="k", created_s=5.0)))
    for late in (run("r2", idempotency_key="k", created_s=9.0), run("r3", idempotency_key="k", created_s=1.0)):
        with pytest.raises(KeyTakenError):
            await store.write(new(late, steps=(step(run_id=late.id),)))
        assert await store.run(late.id, tenant="acme") is None
        assert await store.list_steps(late.id, tenant="acme") == []
    assert [r.id for r in await store.list_runs_with_key("k", tenant="acme", caller="ann")] == ["r1"]


@pytest.mark.parametrize("state", sorted(ENDED))
@pytest.mark.parametrize("effects", [False, True])
async def test_ended_run_gives_its_idempotency_key_to_another_run(store: Store, state: RunState, effects: bool) -> None:
    """Any other one only to a run that names it; the run that has the key comes first of those that had it."""
    first = run("r1", idempotency_key="k", created_s=5.0)
    await store.write(new(first))
    await store.write(moved(replace(first, state=state, effects=effects)))
    second = run("r2", idempotency_key="k", created_s=1.0)
    if effects or state in ("completed", "rejected", "expired"):
        for other in (None, "r0"):
            with pytest.raises(KeyTakenError):
                await store.write(new(second, takes_key_of=other))
        await store.write(new(second, takes_key_of="r1"))
    else:
        await store.write(new(second))
    assert [r.id for r in await store.list_runs_with_key("k", tenant="acme", caller="ann")] == ["r2", "r1"]


async def test_runs_without_an_idempotency_key_do_not_conflict(store: Store) -> None:
    """Any number of them."""
    for each in ("r1", "r2"):
        await store.write(new(run(each)))
        assert await store.run(each, tenant="acme") is not None


# Events and the audit log.


async def test_events_are_read_in_order_after_a_given_number(store: Store) -> None:
    """Of all, of a tenant, of a run; at most `limit`."""
    assert await store.get_last_event() == 0
    for run_id, tenant in (("a", "acme"), ("b", "acme"), ("a", "other"), ("a", "acme")):
        first = await store.run(run_id, tenant=tenant) is None
        kept = run(run_id, tenant=tenant)
        await store.write(replace(moved(kept, events=(event(run_id=run_id, tenant=tenant),)), new=first))

    async def seqs(after: int, limit: int = 9, **which: str) -> list[int]:
        return [e.seq for e in await store.list_events(after=after, limit=limit, **which)]

    assert await seqs(0) == [1, 2, 3, 4]
    assert await seqs(1, limit=2) == [2, 3]
    assert await seqs(0, tenant="acme") == [1, 2, 4]
    assert await seqs(1, tenant="acme", run_id="a") == [4]
    assert await seqs(4) == []
    assert await store.get_last_event() == 4


async def test_event_numbers_are_never_reused(store: Store) -> None:
    """Also when the events with the highest numbers were pruned: who waits behind them misses nothing."""
    await store.write(new(run(state="completed"), events=(event(), event())))
    await store.prune(before_s=1e9, limit=9)
    assert await store.list_events(after=0, limit=9) == []
    assert await store.get_last_event() == 2
    await store.write(new(run("run_2"), events=(event(),)))
    assert [e.seq for e in await store.list_events(after=2, limit=9)] == [3]


async def test_audit_lines_are_a_chain(store: Store) -> None:
    """Numbered without gaps, hashed each with the one before, page by page, whichever method wrote them."""
    await store.write(replace(parked(), audit=(audit_line(), audit_line("started", created_s=5, by='"\n'))))
    await store.decide_approval(write(audit=(audit_line("decision", by="bob", via="chat"),)))
    await store.cancel("run_1", tenant="acme", now_s=1.0, events=(), audit=(audit_line("resolved"),))
    rows = await store.audit(after=0, limit=9)
    assert [(row.seq, row.line.event, row.line.by) for row in rows] == [
        (1, "verdict", ""),
        (2, "started", '"\n'),
        (3, "decision", "bob"),
        (4, "cancelled", ""),
        (5, "resolved", ""),
    ]
    assert broken(rows) is None
    assert broken([rows[0], replace(rows[1], line=replace(rows[1].line, by="eve")), *rows[2:]]) == 2
    assert await store.audit(after=1, limit=2) == rows[1:3]


async def test_audit_chain_stays_intact_under_concurrent_changes(store: Store) -> None:
    """Those that are refused leave no gap in it."""
    await store.write(new())
    writes = (
        store.write(moved(run(fence=n % 2), audit=(audit_line(), audit_line("started")), events=(event(),)))
        for n in range(100)
    )
    results = await asyncio.gather(*writes, return_exceptions=True)
    assert [isinstance(result, ConflictError) for result in results] == [n % 2 == 1 for n in range(100)]
    rows = await store.audit(after=0, limit=1000)
    assert len(rows) == 100 and broken(rows) is None
