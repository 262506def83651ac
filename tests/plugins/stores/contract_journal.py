"""What every store promises of runs: imported by its test module like `contract`."""

import asyncio
import json
from collections.abc import Awaitable, Sequence
from dataclasses import asdict, replace
from typing import Any

import pytest

from gateway.contracts.audit_chain import verify
from gateway.contracts.journal import (
    ENDED,
    AskBefore,
    AskedAlreadyError,
    AuditRow,
    Change,
    ConflictError,
    Move,
    RunEvent,
)
from gateway.contracts.store import Store, StoreError
from tests.plugins.stores.contract import Reopen
from tests.plugins.stores.records import (
    approval,
    audit_line,
    event,
    grant,
    moved,
    new,
    parked,
    run,
    step,
    write,
)


def broken(rows: Sequence[AuditRow]) -> int | None:
    return verify((row.seq, asdict(row.line), row.hash) for row in rows)


def resolved(approval_id: str, state: str, **changes: object) -> RunEvent:
    data = json.dumps({"approval_id": approval_id, "state": state}).encode()
    return event("approval.resolved", data=data, **changes)


async def claimed(store: Store, owner: str, **changes: object) -> list[tuple[str, int]]:
    """The ids and fences of the runs that this owner gets at 200 s."""
    asked: dict[str, object] = {"states": ["running"], "run_id": None, "limit": 10, "now_s": 200.0, "until_s": 230.0}
    runs = await store.claim(owner=owner, **{**asked, **changes})  # type: ignore[arg-type]
    assert all((r.owner, r.lease_s) == (owner, {**asked, **changes}["until_s"]) for r in runs)
    return [(r.id, r.fence) for r in runs]


# Writing.


async def test_a_run_comes_back_as_it_was_written(store: Store) -> None:
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


async def test_steps_approvals_and_events_come_back_as_they_were_written(store: Store) -> None:
    """Every field; steps in the order of their numbers, the later one counts; events with their number."""
    whole = step(
        2, terminate=True, reason="r", result="x" * 100_000, shown="x", started_s=1.5, finished_s=2.5, state="finished"
    )
    waiting = approval(conversation=None, step=2)
    happened = (event(), event("step.finished", data=b"\xff"))
    await store.write(new(steps=(step(2), step(1)), approvals=(waiting,), events=happened))
    await store.write(moved(run(), steps=(whole,)))
    assert await store.steps("run_1", tenant="acme") == [step(1), whole]
    assert (await store.steps("run_1", tenant="acme"))[1].terminate is True
    assert await store.approval("ap_1", tenant="acme") == waiting
    assert await store.events(after=0, limit=9) == [replace(e, seq=n) for n, e in enumerate(happened, 1)]


async def test_a_run_is_begun_once(store: Store) -> None:
    """A second new one of the same id is a ConflictError and changes nothing; in another tenant it is another run."""
    await store.write(new())
    with pytest.raises(ConflictError, match="run_1"):
        await store.write(new(run(chain="other"), events=(event(),)))
    assert await store.run("run_1", tenant="acme") == run()
    assert await store.events(after=0, limit=9) == []
    await store.write(new(run(tenant="other", chain="theirs")))
    assert await store.run("run_1", tenant="acme") == run()
    assert await store.run("run_1", tenant="nobody") is None


async def test_a_run_that_is_not_there_is_not_changed(store: Store) -> None:
    """Neither is one of another tenant."""
    await store.write(new())
    for missing in (run("run_2"), run(tenant="other")):
        with pytest.raises(ConflictError):
            await store.write(moved(missing))
    assert await store.runs(tenant="other", limit=9) == []


async def test_a_change_under_an_old_fence_is_refused_whole(store: Store) -> None:
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
    assert await store.steps("run_1", tenant="acme") == []
    assert await store.approvals(tenant="acme", limit=9) == []
    assert await store.events(after=0, limit=9) == []
    assert await store.audit(after=0, limit=9) == []
    await store.write(moved(run(state="completed", fence=1)))


@pytest.mark.parametrize("state", sorted(ENDED))
async def test_nothing_follows_an_ended_run(store: Store, state: str) -> None:
    """A change is a ConflictError, a cancellation finds nothing to end, and nobody gets it."""
    await store.write(new(run(state=state)))
    with pytest.raises(ConflictError):
        await store.write(moved(run()))
    assert await store.cancel("run_1", tenant="acme", now_s=1.0, events=(event(),), audit=(audit_line(),)) is False
    assert await claimed(store, "w1") == []
    assert (await store.events(after=0, limit=9), await store.audit(after=0, limit=9)) == ([], [])
    assert await store.run("run_1", tenant="acme") == run(state=state)


async def test_an_approval_moves_from_the_expected_state_only(store: Store) -> None:
    """Approved, executing, done; a move from elsewhere takes the whole change with it."""
    await store.write(parked())
    await store.rule(write())
    await store.write(moved(run(), Move("ap_1", "approved", "executing")))
    for expected in ("approved", "pending"):
        with pytest.raises(ConflictError, match="ap_1"):
            await store.write(moved(run(effects=True), Move("ap_1", expected, "executing"), events=(event(),)))
    with pytest.raises(ConflictError, match="ap_9"):
        await store.write(moved(run(), Move("ap_1", "executing", "done"), Move("ap_9", "approved", "executing")))
    found = await store.approval("ap_1", tenant="acme")
    assert found is not None and found.state == "executing"
    assert await store.run("run_1", tenant="acme") == run()
    assert await store.events(after=0, limit=9) == []
    await store.write(moved(run(), Move("ap_1", "executing", "done")))


async def test_an_approval_is_issued_once(store: Store) -> None:
    """A second one of the same id takes the whole change with it."""
    await store.write(parked())
    with pytest.raises(ConflictError, match="ap_1"):
        await store.write(new(run("run_2"), approvals=(approval(run_id="run_2"),)))
    assert await store.run("run_2", tenant="acme") is None


async def test_conflicts_take_no_other_change_with_them(store: Store) -> None:
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
    kept = sorted(r.id for r in await store.runs(tenant="acme", limit=99) if r.id != "run_1")
    assert kept == [f"r{n:02}" for n, result in enumerate(results) if result is None]
    assert sorted(e.run_id for e in await store.events(after=0, limit=99)) == kept


async def test_a_change_that_need_not_be_durable_is_there_at_once(store: Store) -> None:
    """It is in the same order with the others, and conflicts like them."""
    await store.write(new())
    await store.write(moved(run(effects=True), durable=False, events=(event(),)))
    assert await store.run("run_1", tenant="acme") == run(effects=True)
    with pytest.raises(ConflictError):
        await store.write(moved(run(fence=1), durable=False, events=(event(),)))
    assert await store.last_event() == 1


async def test_a_writer_that_leaves_loses_no_change(store: Store) -> None:
    """What was begun is carried out whole, also when its caller does not wait for it."""
    tasks = [asyncio.ensure_future(store.write(new(run(f"r{n}"), events=(event(),)))) for n in range(30)]
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await store.write(new(events=(event(),)))
    assert len(await store.runs(tenant="acme", limit=99)) == 31 == await store.last_event()


async def test_a_line_that_may_be_there_is_written_again(store: Store) -> None:
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
    found = await store.approval("ap_1", tenant="acme")
    assert found is not None and found.state == "cancelled"
    with pytest.raises(ConflictError):  # not executing, and neither of the two
        await store.write(started)
    with pytest.raises(ConflictError):  # another owner
        await store.write(replace(begun, run=run(fence=5), approvals=(), repeats=True))


# Looking runs up.


async def test_runs_come_newest_first_narrowed_by_state_and_conversation(store: Store) -> None:
    """At most `limit`, of one tenant."""
    facts = (("a", "running", "c1"), ("b", "completed", "c1"), ("c", "running", None), ("d", "running", "c1"))
    for number, (run_id, state, conversation) in enumerate(facts):
        await store.write(new(run(run_id, state=state, conversation=conversation, created_s=float(number))))
    await store.write(new(run("e", tenant="other")))
    assert [r.id for r in await store.runs(tenant="acme", limit=9)] == ["d", "c", "b", "a"]
    assert [r.id for r in await store.runs(tenant="acme", limit=2)] == ["d", "c"]
    assert [r.id for r in await store.runs(tenant="acme", state="running", limit=9)] == ["d", "c", "a"]
    assert [r.id for r in await store.runs(tenant="acme", conversation="c1", limit=9)] == ["d", "b", "a"]
    found = await store.runs(tenant="acme", state="running", conversation="c1", limit=9)
    assert [r.id for r in found] == ["d", "a"]


async def test_runs_and_approvals_come_in_pages(store: Store) -> None:
    """Behind the last of the page before, also among those of the same moment; behind what is not there is nothing."""
    for number in range(7):
        at_s = float(number // 3)
        asked = approval(f"ap_{number}", run_id=f"run_{number}", created_s=at_s)
        await store.write(new(run(f"run_{number}", created_s=at_s), approvals=(asked,)))
    after: str | None = None
    runs: list[str] = []
    while page := await store.runs(tenant="acme", after=after, limit=2):
        runs += [r.id for r in page]
        after = page[-1].id
    assert runs == [f"run_{number}" for number in reversed(range(7))]
    approvals: list[str] = []
    after = None
    while issued := await store.approvals(tenant="acme", after=after, limit=3):
        approvals += [a.id for a in issued]
        after = issued[-1].id
    assert approvals == [f"ap_{number}" for number in range(7)]
    assert await store.runs(tenant="acme", after="run_9", limit=9) == []
    assert await store.runs(tenant="other", after="run_3", limit=9) == []
    assert await store.approvals(tenant="acme", state="approved", after="ap_1", limit=9) == []


async def test_runs_of_one_moment_come_in_the_order_of_their_ids(store: Store) -> None:
    """In whatever order they were begun, so that lists of several states can be joined."""
    for name in ("b", "d", "a", "c"):
        await store.write(new(run(name)))
    assert [r.id for r in await store.runs(tenant="acme", limit=9)] == ["d", "c", "b", "a"]
    assert [r.id for r in await store.runs(tenant="acme", after="c", limit=9)] == ["b", "a"]


async def test_a_list_of_runs_is_without_what_may_be_large(store: Store) -> None:
    """What one run was asked and answers is read with that run."""
    await store.write(new(run(request=b"asked", progress=b"so far", answer=b"{}")))
    [listed] = await store.runs(tenant="acme", limit=9)
    assert (listed.request, listed.progress, listed.answer) == (b"", None, None)
    whole = await store.run(listed.id, tenant="acme")
    assert whole is not None and (whole.request, whole.progress, whole.answer) == (b"asked", b"so far", b"{}")


async def test_runs_like_another_come_newest_first(store: Store) -> None:
    """Those with the fingerprint that were touched since then."""
    old, young = run("old"), run("young", created_s=150.0, updated_s=150.0)
    long = run("long", created_s=50.0, updated_s=170.0)
    for kept in (old, young, long, run("else", fingerprint="e" * 64), run("theirs", tenant="other")):
        await store.write(new(kept))
    found = await store.runs_like(old.fingerprint, tenant="acme", since_s=0.0)
    assert [r.id for r in found] == ["young", "old", "long"]
    assert [r.id for r in await store.runs_like(old.fingerprint, tenant="acme", since_s=120.0)] == ["young", "long"]


async def test_runs_with_a_key_are_those_of_the_caller(store: Store) -> None:
    """Keys are per tenant and caller; newest first."""
    for number, (caller, tenant) in enumerate((("ann", "acme"), ("bob", "acme"), ("ann", "other"), ("ann", "acme"))):
        kept = run(f"r{number}", caller=caller, tenant=tenant, idempotency_key="k", created_s=float(number))
        await store.write(new(kept))
    assert [r.id for r in await store.runs_with_key("k", tenant="acme", caller="ann")] == ["r3", "r0"]


# Owners.


async def test_a_run_is_claimed_when_nobody_holds_it(store: Store) -> None:
    """Without an owner or after the lease, in the states that are asked for, longest untouched first."""
    facts = (
        ("free", {"updated_s": 3.0}),
        ("over", {"owner": "w0", "lease_s": 199.9, "fence": 4, "updated_s": 2.0}),
        ("held", {"owner": "w0", "lease_s": 200.0}),
        ("else", {"state": "unknown"}),
        ("done", {"state": "completed"}),
    )
    for run_id, changes in facts:
        await store.write(new(run(run_id, **changes)))
    assert await claimed(store, "w1", limit=1) == [("over", 5)]
    assert await claimed(store, "w1") == [("free", 1)]
    assert await claimed(store, "w1") == []
    assert await claimed(store, "w1", states=["unknown", "awaiting_client"]) == [("else", 1)]
    assert await claimed(store, "w2", now_s=231.0, until_s=260.0, run_id="over") == [("over", 6)]
    assert await claimed(store, "w2", run_id="held") == await claimed(store, "w2", run_id="nothing") == []


async def test_a_run_that_awaits_approvals_is_claimed_when_none_is_pending(store: Store) -> None:
    """However they were resolved; another run's do not matter."""
    two = (approval("ap_1"), approval("ap_2", step=2))
    await store.write(new(run(state="awaiting_approval"), approvals=two))
    await store.write(new(run("run_2", state="awaiting_approval"), approvals=(approval("ap_3", run_id="run_2"),)))
    states = ["awaiting_approval"]
    await store.rule(write("ap_1"))
    assert await claimed(store, "w1", states=states, run_id="run_1") == []
    await store.rule(write("ap_2", approve=False))
    assert await claimed(store, "w1", states=states) == [("run_1", 1)]
    assert await claimed(store, "w2", states=states) == []
    await store.expire(now_s=1000.0)
    assert await claimed(store, "w2", states=states) == [("run_2", 1)]


async def test_renewing_prolongs_leases_of_an_owner(store: Store) -> None:
    """Those that are named, are its own and have not ended; a change that was begun before takes nothing back."""
    for run_id, owner in (("a", "w1"), ("b", "w1"), ("c", "w2")):
        await store.write(new(run(run_id, owner=owner, lease_s=150.0)))
    await store.write(new(run("d", owner="w1", state="completed")))
    assert sorted(await store.renew(owner="w1", run_ids=["a", "b", "c", "d"], until_s=300.0)) == ["a", "b"]
    assert await store.renew(owner="w1", run_ids=["b"], until_s=300.0) == ["b"]
    assert await store.renew(owner="nobody", run_ids=["a"], until_s=300.0) == []
    await store.write(moved(run("a", owner="w1", lease_s=150.0, progress=b"1")))
    assert await claimed(store, "w3") == [("c", 1)]
    await store.write(moved(run("a")))
    assert await claimed(store, "w3") == [("a", 1)]


async def test_an_owner_gives_up_its_leases(store: Store) -> None:
    """All of its own that have not ended; a change that it makes of them afterwards is too late."""
    for run_id, owner, state in (("a", "w1", "running"), ("b", "w1", "awaiting_approval"), ("c", "w2", "running")):
        await store.write(new(run(run_id, owner=owner, state=state, lease_s=500.0)))
    await store.write(new(run("d", owner="w1", state="completed")))
    assert await store.release(owner="w1") == 2 and await store.release(owner="w1") == 0
    with pytest.raises(ConflictError):
        await store.write(moved(run("a", owner="w1", lease_s=500.0, progress=b"1")))
    states = ["running", "awaiting_approval", "completed"]
    assert sorted(await claimed(store, "w3", states=states)) == [("a", 2), ("b", 2)]


async def test_of_two_changes_from_one_reading_only_one_is_written_where_the_fence_moves_on(store: Store) -> None:
    await store.write(new(run("a", state="unknown")))
    await store.write(moved(run("a", state="unknown", progress=b"1"), passes_on=True))
    with pytest.raises(ConflictError):
        await store.write(moved(run("a", state="unknown", progress=b"2"), passes_on=True))
    found = await store.run("a", tenant="acme")
    assert found is not None and (found.progress, found.fence) == (b"1", 1)


async def test_two_owners_never_get_the_same_run(store: Store) -> None:
    """However many ask at once."""
    for number in range(20):
        await store.write(new(run(f"r{number}")))
    found = await asyncio.gather(*(claimed(store, f"w{n}", limit=3) for n in range(20)))
    assert sorted(run_id for runs in found for run_id, _ in runs) == sorted(f"r{n}" for n in range(20))


# Ending, and cancelling.


async def test_a_run_that_ends_takes_the_approvals_with_it_whose_calls_did_not_run(store: Store) -> None:
    """Pending or approved; who approved one reads of it. Those of calls that ran stay as they are."""
    asked = tuple(approval(f"ap_{n}", run_id="r", step=n) for n in range(3))
    await store.write(new(run("r"), approvals=asked))
    await store.rule(write("ap_0"))
    await store.rule(write("ap_1"))
    await store.write(moved(run("r"), Move("ap_0", "approved", "executing")))
    await store.write(moved(run("r", state="interrupted")))
    kept = await store.approvals(tenant="acme", run_id="r", limit=9)
    assert [a.state for a in kept] == ["executing", "cancelled", "cancelled"] and kept[1].decided_by is not None
    for approval_id in ("ap_1", "ap_2"):
        assert (await store.rule(write(approval_id)))[0] == "other"
    told = [json.loads(one.data) for one in await store.events(after=0, limit=9) if one.type == "approval.resolved"]
    assert told == [{"approval_id": f"ap_{n}", "state": "cancelled"} for n in (1, 2)]
    assert [row.line.event for row in await store.audit(after=0, limit=9)] == ["cancelled", "cancelled"]


async def test_a_cancelled_run_ends_with_its_pending_approvals(store: Store) -> None:
    """Whoever owns it; its owner's next change and a decision come too late."""
    two = (approval("ap_1"), approval("ap_2", step=2))
    await store.write(new(run(state="awaiting_approval", owner="w1", lease_s=500.0), approvals=two))
    await store.write(new(run("run_2"), approvals=(approval("ap_3", run_id="run_2"),)))
    await store.rule(write("ap_1"))
    end = event("run.finished")
    assert await store.cancel("run_1", tenant="other", now_s=210.0, events=(end,), audit=()) is False
    assert await store.cancel("run_1", tenant="acme", now_s=210.0, events=(end,), audit=(audit_line(),)) is True
    found = await store.run("run_1", tenant="acme")
    assert found == run(state="cancelled", updated_s=210.0, fence=1)
    assert [(a.id, a.state) for a in await store.approvals(tenant="acme", limit=9)] == [
        ("ap_1", "cancelled"),
        ("ap_2", "cancelled"),
        ("ap_3", "pending"),
    ]
    happened = await store.events(after=0, limit=9)
    told = [resolved(approval_id, "cancelled", created_s=210.0) for approval_id in ("ap_1", "ap_2")]
    assert [replace(e, seq=0) for e in happened] == [*told, end]
    assert [row.line.event for row in await store.audit(after=0, limit=9)] == ["cancelled", "cancelled", "verdict"]
    with pytest.raises(ConflictError):
        await store.write(moved(run(owner="w1", lease_s=500.0)))
    assert (await store.rule(write("ap_2")))[0] == "other"
    assert (await store.rule(write("ap_2", approve=False)))[0] == "other"
    assert await store.cancel("run_1", tenant="acme", now_s=220.0, events=(), audit=()) is False


async def test_a_decision_and_a_cancellation_at_once(store: Store) -> None:
    """Either it was decided before, and is cancelled with its run, or the decision hears that it is cancelled."""
    for number in range(30):
        await store.write(parked(f"r{number}", approval_id=f"ap_{number}"))

    async def race(number: int) -> None:
        calls: list[Awaitable[object]] = [
            store.rule(write(f"ap_{number}")),
            store.cancel(f"r{number}", tenant="acme", now_s=200.0, events=(), audit=()),
        ]
        answers = await asyncio.gather(*(calls if number % 2 else calls[::-1]))
        kept = await store.approval(f"ap_{number}", tenant="acme")
        assert kept is not None and kept.state == "cancelled"
        if number % 2:
            assert ("decided", replace(kept, state="approved")) in answers
        else:
            assert ("other", kept) in answers

    await asyncio.gather(*map(race, range(30)))


# Approvals.


async def test_approvals_come_oldest_first_narrowed(store: Store) -> None:
    """By state, conversation and run; at most `limit`, of one tenant."""
    facts = (("b", "c1", "run_1", 2.0), ("a", "c1", "run_2", 1.0), ("c", None, "run_1", 3.0))
    for approval_id, conversation, run_id, created_s in facts:
        waiting = approval(approval_id, conversation=conversation, run_id=run_id, created_s=created_s)
        await store.write(new(run(f"for_{approval_id}"), approvals=(waiting,)))
    await store.write(new(run(tenant="other"), approvals=(approval("d", tenant="other"),)))
    await store.rule(write("b", approve=False))

    async def ids(**which: str) -> list[str]:
        return [a.id for a in await store.approvals(tenant="acme", limit=9, **which)]

    assert await ids() == ["a", "b", "c"]
    assert await ids(state="pending") == ["a", "c"]
    assert await ids(conversation="c1") == ["a", "b"]
    assert await ids(run_id="run_1") == ["b", "c"]
    assert await ids(state="pending", conversation="c1", run_id="run_2") == ["a"]
    assert [a.id for a in await store.approvals(tenant="acme", limit=1)] == ["a"]
    assert await store.approval("d", tenant="acme") is None
    assert (await store.standing(stuck_before_s=0.0)).pending == 3


@pytest.mark.parametrize("approve", [True, False])
async def test_a_pending_approval_is_decided_once(store: Store, approve: bool) -> None:
    """The first decision counts, with who made it, how and what it brings; the same again is `same`, the other not."""
    await store.write(parked())
    remembered = grant(granted_by="bob")
    first = write(
        approve=approve,
        comment="快速",
        edited='{"command":"make -n"}',
        remember="run",
        grant=remembered,
        events=(event("approval.resolved"),),
        audit=(audit_line("decision", by="bob", via="rest"),),
    )
    answer, decided = await store.rule(first)
    assert answer == "decided"
    assert decided == await store.approval("ap_1", tenant="acme")
    assert decided == approval(
        state="approved" if approve else "rejected",
        decided_s=200.0,
        decided_by="bob",
        via="rest",
        comment="快速",
        edited='{"command":"make -n"}',
        remember="run",
    )
    again = replace(first, by="eve", now_s=2000.0)
    for answer, repeated in (("same", again), ("other", replace(again, approve=not approve))):
        assert await store.rule(repeated) == (answer, decided)
    assert await store.grants(tenant="acme", now_s=0.0, limit=9) == [remembered]
    assert len(await store.events(after=0, limit=9)) == len(await store.audit(after=0, limit=9)) == 1


async def test_the_same_decision_has_the_same_arguments(store: Store) -> None:
    """Approving again with other arguments is another decision; with none it is the same, also after it ran."""
    await store.write(parked())
    await store.rule(write(edited="{}"))
    for edited, answer in (("{}", "same"), (None, "same"), ('{"x":1}', "other")):
        assert (await store.rule(write(edited=edited)))[0] == answer
    for move in (Move("ap_1", "approved", "executing"), Move("ap_1", "executing", "unknown")):
        await store.write(moved(run(), move))
        assert (await store.rule(write()))[0] == "same"
        assert (await store.rule(write(approve=False)))[0] == "other"


async def test_an_approval_whose_time_is_over_is_not_decided(store: Store) -> None:
    """It expires there and then, with its event; what the decision brings is not written."""
    await store.write(parked(expires_s=200.0))
    late = write(now_s=200.0, grant=grant(), events=(event(),), audit=(audit_line(),))
    for _ in range(2):
        assert await store.rule(late) == ("expired", approval(expires_s=200.0, state="expired"))
    happened = await store.events(after=0, limit=9)
    assert [replace(e, seq=0) for e in happened] == [resolved("ap_1", "expired", created_s=200.0)]
    assert await store.grants(tenant="acme", now_s=0.0, limit=9) == []
    assert [row.line.event for row in await store.audit(after=0, limit=9)] == ["expired"]


async def test_an_approval_of_another_tenant_is_absent(store: Store) -> None:
    """As one that never was."""
    await store.write(parked())
    assert await store.rule(write(tenant="other")) == ("absent", None)
    assert await store.rule(write("ap_2")) == ("absent", None)
    assert (await store.standing(stuck_before_s=0.0)).pending == 1


async def test_many_decisions_at_once_are_one(store: Store) -> None:
    """A3: 200 approvals and rejections of the same call: one is decided, and every other is told apart from it."""
    await store.write(parked())
    answers = await asyncio.gather(
        *(store.rule(write(approve=n % 2 == 0, audit=(audit_line("decision"),))) for n in range(200))
    )
    assert [a for a, _ in answers] == ["decided", *["other", "same"] * 99, "other"]
    assert len({kept for _, kept in answers}) == 1
    assert len(await store.audit(after=0, limit=9)) == 1


@pytest.mark.parametrize(
    ("changes", "refused"),
    [
        ({}, True),
        ({"user": "ann"}, False),
        ({"conversation": None}, False),
        ({"caller": "eve"}, False),
        ({"sha256": "e" * 64}, False),
        ({"tenant": "other"}, False),
        ({"created_s": 1000.0}, False),  # the other one's time is over then
    ],
)
async def test_a_call_that_waits_in_another_run_is_not_asked_for_again(
    store: Store, changes: dict[str, Any], *, refused: bool
) -> None:
    """Nothing is written then; a change that does not say so asks all the same."""
    await store.write(parked())
    second = parked("run_2", approval_id="ap_2", **changes)
    if refused:
        with pytest.raises(AskedAlreadyError):
            await store.write(replace(second, asks_once=True))
        assert await store.run("run_2", tenant="acme") is None
        assert await store.approval("ap_2", tenant="acme") is None
        await store.write(second)
    else:
        await store.write(replace(second, asks_once=True))
    assert await store.approval("ap_2", tenant=second.run.tenant) is not None


@pytest.mark.parametrize("user", [None, "ann"])
async def test_a_call_of_one_end_user_is_asked_for_once(store: Store, user: str | None) -> None:
    """Of several at the same moment one is written; once it is decided the next one is, and a run's own stands not in
    its way.
    """
    changes = [replace(parked(f"run_{n}", approval_id=f"ap_{n}", user=user), asks_once=True) for n in range(4)]
    told = await asyncio.gather(*map(store.write, changes), return_exceptions=True)
    assert sorted(type(one).__name__ for one in told) == ["AskedAlreadyError"] * 3 + ["NoneType"]
    (waiting,) = await store.approvals(tenant="acme", state="pending", limit=9)
    assert waiting.user == user
    own = replace(changes[told.index(None)], new=False, approvals=(approval("ap_9", run_id=waiting.run_id, user=user),))
    await store.write(own)


async def test_a_reissued_approval_takes_the_place_of_the_old_one(store: Store) -> None:
    """Only while that is pending: it is cancelled, with an event, and the step names the new one."""
    await store.write(parked())
    fresh = approval("ap_2", policy_sha256="c" * 64)
    assert await store.reissue("ap_1", fresh, events=(event("approval.required"),)) is True
    assert [(a.id, a.state) for a in await store.approvals(tenant="acme", limit=9)] == [
        ("ap_1", "cancelled"),
        ("ap_2", "pending"),
    ]
    assert [s.approval_id for s in await store.steps("run_1", tenant="acme")] == ["ap_2"]
    assert await store.reissue("ap_1", approval("ap_3"), events=(event(),)) is False
    assert await store.reissue("ap_2", approval("ap_3", tenant="other"), events=(event(),)) is False
    happened = [replace(e, seq=0) for e in await store.events(after=0, limit=9)]
    assert happened == [resolved("ap_1", "cancelled"), event("approval.required")]
    assert (await store.standing(stuck_before_s=0.0)).pending == 1


async def test_approvals_expire_once_with_an_event_each(store: Store) -> None:
    """Of all tenants, oldest first; what was decided and what has time left stays."""
    for number, (tenant, expires_s) in enumerate((("acme", 300.0), ("other", 250.0), ("acme", 301.0), ("acme", 200.5))):
        waiting = {"approval_id": f"ap_{number}", "tenant": tenant, "expires_s": expires_s}
        await store.write(parked(f"r{number}", created_s=float(-number), **waiting))
    await store.rule(write("ap_3"))
    expired = await store.expire(now_s=300.0)
    assert [(a.id, a.tenant, a.state) for a in expired] == [("ap_1", "other", "expired"), ("ap_0", "acme", "expired")]
    assert await store.expire(now_s=300.0) == []
    assert [replace(e, seq=0) for e in await store.events(after=0, limit=9)] == [
        resolved("ap_1", "expired", tenant="other", run_id="r1", created_s=300.0),
        resolved("ap_0", "expired", run_id="r0", created_s=300.0),
    ]
    assert [a.state for a in await store.approvals(tenant="acme", limit=9)] == ["approved", "pending", "expired"]


# Grants, and conversations that ask before every call.


async def granted(store: Store, *grants: object) -> None:
    for number, remembered in enumerate(grants):
        tenant = remembered.tenant  # type: ignore[attr-defined]
        await store.write(parked(f"r{number}", approval_id=f"ap_{number}", tenant=tenant))
        await store.rule(write(f"ap_{number}", tenant=tenant, grant=remembered))


async def test_a_grant_is_found_for_the_same_call_in_its_run_or_conversation(store: Store) -> None:
    """The newest; one for a run is none for the conversation around it, and none for another caller or tenant."""
    in_run = grant("gr_run", run_id="run_1", conversation="c1", created_s=1.0)
    in_talk = grant("gr_talk", run_id=None, conversation="c1", created_s=2.0)
    newer = grant("gr_new", run_id=None, conversation="c1", created_s=3.0, sha256="e" * 64)
    theirs = grant("gr_their", run_id=None, conversation="c1", tenant="other")
    await granted(store, newer, in_talk, in_run, theirs, replace(newer, id="gr_old", created_s=2.5))
    assert [g.id for g in await store.grants(tenant="acme", now_s=5.0, limit=9)] == [
        "gr_run",
        "gr_talk",
        "gr_old",
        "gr_new",
    ]

    async def found(**changes: str | None) -> str | None:
        asked: dict[str, str | None] = {"run_id": "run_1", "conversation": None, "sha256": "a" * 64, "caller": "ann"}
        kept = await store.grant(**{"tenant": "acme", "now_s": 5.0, **asked, **changes})  # type: ignore[arg-type]
        return kept.id if kept is not None else None

    assert await found() == "gr_run"
    assert await found(conversation="c1") == "gr_talk"
    assert await found(conversation="c1", run_id="run_2") == "gr_talk"
    assert await found(conversation="c1", sha256="e" * 64) == "gr_new"
    assert await found(run_id="run_2") is None
    assert await found(conversation="c2", run_id="run_2") is None
    assert await found(caller="bob", conversation="c1") is None
    assert await found(tenant="other") is None
    assert await found(sha256="0" * 64, conversation="c1") is None


async def test_a_deleted_grant_holds_no_more(store: Store) -> None:
    """Deleting says whether there was one in this tenant, and leaves its lines if there was."""
    await granted(store, grant())
    lines = len(await store.audit(after=0, limit=99))
    line = audit_line("revoked")
    assert await store.delete_grant("gr_1", tenant="other", audit=[line]) is False
    assert await store.delete_grant("gr_1", tenant="acme", audit=[line]) is True
    assert await store.delete_grant("gr_1", tenant="acme", audit=[line]) is False
    assert await store.grants(tenant="acme", now_s=0.0, limit=9) == []
    assert [row.line for row in await store.audit(after=lines, limit=99)] == [line]


async def test_a_grant_of_a_conversation_ends(store: Store) -> None:
    """At its time, to the second; one of a run has no end of its own."""
    await granted(store, grant("gr_talk", run_id=None, conversation="c1", expires_s=50.0), grant("gr_run"))
    for now_s, ids in ((49.0, {"gr_talk", "gr_run"}), (50.0, {"gr_run"}), (1e12, {"gr_run"})):
        assert {g.id for g in await store.grants(tenant="acme", now_s=now_s, limit=9)} == ids
    asked = {"tenant": "acme", "caller": "ann", "run_id": "run_9", "conversation": "c1", "sha256": "a" * 64}
    assert await store.grant(**asked, now_s=49.0) is not None  # type: ignore[arg-type]
    assert await store.grant(**asked, now_s=50.0) is None  # type: ignore[arg-type]


async def test_grants_come_in_pages_the_oldest_first(store: Store) -> None:
    """Of one tenant; those of the same moment as they were given, and none that has expired, though a page may begin
    behind it, as long as it is there.
    """
    ends = {"gr_c": 5.0}
    kept = [
        grant(grant_id, run_id=None, conversation="c1", created_s=created_s, expires_s=ends.get(grant_id, 50.0))
        for grant_id, created_s in (("gr_z", 1.0), ("gr_b", 2.0), ("gr_a", 2.0), ("gr_c", 2.0), ("gr_d", 3.0))
    ]
    await granted(store, *kept, grant("gr_their", tenant="other", created_s=2.5))

    async def page(*, after: str | None = None, limit: int = 9, tenant: str = "acme", now_s: float = 5.0) -> list[str]:
        return [g.id for g in await store.grants(tenant=tenant, now_s=now_s, after=after, limit=limit)]

    assert await page() == ["gr_z", "gr_b", "gr_a", "gr_d"]
    assert await page(now_s=4.9) == ["gr_z", "gr_b", "gr_a", "gr_c", "gr_d"]
    assert await page(limit=2) == ["gr_z", "gr_b"]
    assert await page(after="gr_b", limit=1) == ["gr_a"]
    assert await page(after="gr_c") == ["gr_d"]
    assert await page(after="gr_d") == await page(after="gr_their") == await page(after="gr_0") == []
    assert await page(tenant="other") == ["gr_their"]
    assert await store.grant_by_id("gr_c", tenant="acme") == kept[3]
    assert await store.grant_by_id("gr_c", tenant="other") is await store.grant_by_id("gr_0", tenant="acme") is None


def asking(conversation: str, *, tenant: str = "acme", caller: str = "ann", at_s: float, lasts_s: float) -> AskBefore:
    return AskBefore(
        id=f"ask_{conversation}_{caller}",
        tenant=tenant,
        caller=caller,
        conversation=conversation,
        created_s=at_s,
        expires_s=at_s + lasts_s,
    )


async def test_a_conversation_asks_before_every_call_until_it_ends(store: Store) -> None:
    """Said once or twice, the later end holds; of this caller in this tenant only; taken back it is gone at once."""
    whose = {"tenant": "acme", "caller": "ann", "conversation": "c1"}
    assert await store.ask(**whose, now_s=1.0) is None
    first, again = (asking("c1", at_s=at_s, lasts_s=10.0) for at_s in (1.0, 5.0))
    for ask in (first, replace(again, id="ask_again")):
        await store.ask_before(ask)
    kept = replace(first, expires_s=15.0)
    assert await store.asks(tenant="acme", now_s=14.9, limit=9) == [kept]
    assert await store.asks(tenant="other", now_s=1.0, limit=9) == []
    assert await store.ask(**whose, now_s=14.9) == kept
    assert await store.ask(**whose, now_s=15.0) is None
    for other in ({"tenant": "other"}, {"caller": "bob"}, {"conversation": "c2"}):
        assert await store.ask(**{**whose, **other}, now_s=5.0) is None
    line = audit_line("revoked")
    assert await store.delete_ask(replace(first, caller="bob"), audit=[line]) is False
    assert await store.delete_ask(first, audit=[line]) is True
    assert await store.ask(**whose, now_s=5.0) is None
    assert [row.line for row in await store.audit(after=0, limit=9)] == [line]


async def test_asks_come_in_pages_the_oldest_first(store: Store) -> None:
    """Of one tenant; those of the same moment by caller and conversation, and none that has expired, though a page may
    begin behind it, as long as it is there.
    """
    kept = [
        asking(conversation, caller=caller, at_s=at_s, lasts_s=3.0 if conversation == "c5" else 50.0)
        for conversation, caller, at_s in (
            ("c3", "bob", 2.0),
            ("c4", "bob", 2.0),
            ("c9", "ann", 2.0),
            ("c5", "cis", 2.0),
            ("c1", "dan", 1.0),
            ("c2", "ann", 3.0),
        )
    ]
    for ask in (*kept, asking("c1", tenant="other", caller="eve", at_s=2.5, lasts_s=50.0)):
        await store.ask_before(ask)

    async def page(*, after: str | None = None, limit: int = 9, tenant: str = "acme", now_s: float = 5.0) -> list[str]:
        return [ask.id for ask in await store.asks(tenant=tenant, now_s=now_s, after=after, limit=limit)]

    in_order = ["ask_c1_dan", "ask_c9_ann", "ask_c3_bob", "ask_c4_bob", "ask_c2_ann"]
    assert await page() == in_order
    assert await page(now_s=4.9) == [*in_order[:4], "ask_c5_cis", in_order[4]]
    assert await page(limit=2) == in_order[:2]
    assert await page(after=in_order[1], limit=2) == in_order[2:4]
    assert await page(after="ask_c5_cis") == in_order[4:]
    assert await page(after=in_order[4]) == await page(after="ask_c1_eve") == await page(after="ask_0") == []
    assert await page(tenant="other") == ["ask_c1_eve"]
    assert await store.ask_by_id("ask_c5_cis", tenant="acme") == kept[3]
    assert await store.ask_by_id("ask_c5_cis", tenant="other") is await store.ask_by_id("ask_0", tenant="acme") is None


async def test_what_came_after_a_run_was_lost_stays_beside_the_step(store: Store) -> None:
    """Whatever its new owner writes of the step, before and after; and nothing else of the step is changed."""
    await store.write(new(run(), steps=(step(1, state="unknown"), step(2))))
    zombie = step(1, state="finished", result="late", late="it was done")
    await store.late(zombie, events=(event("tool.late"),), audit=(audit_line("late"),))
    assert await store.steps("run_1", tenant="acme") == [step(1, state="unknown", late="it was done"), step(2)]
    await store.write(Change(run=run(), steps=(step(1, state="planned"),)))
    assert (await store.steps("run_1", tenant="acme"))[0] == step(1, state="planned", late="it was done")
    assert [e.type for e in await store.events(after=0, limit=9)] == ["tool.late"]
    assert [row.line.event for row in await store.audit(after=0, limit=9)] == ["late"]


async def test_an_approval_that_nobody_decided_on_leaves_a_line(store: Store) -> None:
    """Expired by the clock or by a late decision, cancelled with its run by its owner or by a person."""
    for number in range(4):
        await store.write(parked(f"r{number}", approval_id=f"ap_{number}", expires_s=100.0 + number))
    await store.expire(now_s=100.0)
    assert (await store.rule(write("ap_1", now_s=101.0)))[0] == "expired"
    await store.cancel("r2", tenant="acme", now_s=50.0, events=(), audit=())
    await store.write(Change(run=run("r3", state="failed")))
    lines = [row.line for row in await store.audit(after=0, limit=9)]
    told = [(line.run_id, line.event, line.decision, line.by) for line in lines]
    assert told == [
        (f"r{n}", what, what, "") for n, what in enumerate(("expired", "expired", "cancelled", "cancelled"))
    ]


# Events and the audit log.


async def test_events_come_in_order_from_behind_a_number(store: Store) -> None:
    """Of all, of a tenant, of a run; at most `limit`."""
    assert await store.last_event() == 0
    for run_id, tenant in (("a", "acme"), ("b", "acme"), ("a", "other"), ("a", "acme")):
        first = await store.run(run_id, tenant=tenant) is None
        kept = run(run_id, tenant=tenant)
        await store.write(replace(moved(kept, events=(event(run_id=run_id, tenant=tenant),)), new=first))

    async def seqs(after: int, limit: int = 9, **which: str) -> list[int]:
        return [e.seq for e in await store.events(after=after, limit=limit, **which)]

    assert await seqs(0) == [1, 2, 3, 4]
    assert await seqs(1, limit=2) == [2, 3]
    assert await seqs(0, tenant="acme") == [1, 2, 4]
    assert await seqs(1, tenant="acme", run_id="a") == [4]
    assert await seqs(4) == []
    assert await store.last_event() == 4


async def test_a_number_of_an_event_is_never_given_again(store: Store) -> None:
    """Also when the events with the highest numbers were pruned: who waits behind them misses nothing."""
    await store.write(new(run(state="completed"), events=(event(), event())))
    await store.prune(before_s=1e9, limit=9)
    assert await store.events(after=0, limit=9) == []
    assert await store.last_event() == 2
    await store.write(new(run("run_2"), events=(event(),)))
    assert [e.seq for e in await store.events(after=2, limit=9)] == [3]


async def test_audit_lines_are_a_chain(store: Store) -> None:
    """Numbered without gaps, hashed each with the one before, page by page, whichever method wrote them."""
    await store.write(replace(parked(), audit=(audit_line(), audit_line("started", created_s=5, by='"\n'))))
    await store.rule(write(audit=(audit_line("decision", by="bob", via="chat"),)))
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


async def test_the_chain_holds_under_concurrent_changes(store: Store) -> None:
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


async def test_everything_of_a_run_is_there_after_closing(reopened: Reopen) -> None:
    """What was told as done: the run, steps, the decision, the grant, events, the log, and where it ends."""
    store = await reopened()
    await store.write(replace(parked(), events=(event(),), audit=(audit_line(),)))
    _, decided = await store.rule(write(grant=grant(), audit=(audit_line("decision"),)))
    await store.ask_before(asking("c1", at_s=1.0, lasts_s=8.0))
    again = await reopened()
    assert await again.approval("ap_1", tenant="acme") == decided
    assert [s.state for s in await again.steps("run_1", tenant="acme")] == ["requested"]
    assert await again.grants(tenant="acme", now_s=0.0, limit=9) == [grant()]
    assert await again.asks(tenant="acme", now_s=2.0, limit=9) == [asking("c1", at_s=1.0, lasts_s=8.0)]
    assert await again.last_event() == 1
    await again.write(moved(run(), audit=(audit_line("started"),)))
    assert broken(await again.audit(after=0, limit=9)) is None


async def test_several_are_decided_together_or_not_at_all(store: Store) -> None:
    """One that is decided otherwise, has expired or is not there keeps the others pending; alike is no obstacle."""
    asked = tuple(approval(f"ap_{n}", step=n, expires_s=150.0 if n == 4 else 1e9) for n in range(6))
    await store.write(new(approvals=asked))
    await store.rule(write("ap_2", approve=False))
    await store.rule(write("ap_3"))
    for wrong, how in (("ap_2", "other"), ("ap_4", "expired"), ("ap_9", "absent")):
        several = [write(one, audit=(audit_line("decision"),)) for one in ("ap_0", wrong, "ap_1", "ap_3")]
        assert [ruled for ruled, _ in await store.rule_all(several)] == ["held", how, "held", "same"]
    kept = {one.id: one.state for one in await store.approvals(tenant="acme", limit=9)}
    assert [kept[f"ap_{n}"] for n in range(6)] == ["pending", "pending", "rejected", "approved", "expired", "pending"]
    assert [row.line.event for row in await store.audit(after=0, limit=9)] == ["expired"], "no decision is on record"
    together = await store.rule_all([write("ap_0"), write("ap_3"), write("ap_1")])
    assert [(ruled, one and one.state) for ruled, one in together] == [
        ("decided", "approved"),
        ("same", "approved"),
        ("decided", "approved"),
    ]


async def test_a_ruling_takes_others_with_it_in_one_transaction(store: Store) -> None:
    """Those that are pending; who is decided already stays."""
    asked = tuple(approval(f"ap_{n}", step=n) for n in range(3))
    await store.write(new(approvals=asked))
    await store.rule(write("ap_2"))
    others = tuple(write(one, approve=False, audit=(audit_line("decision"),)) for one in ("ap_1", "ap_2", "ap_9"))
    assert (await store.rule(replace(write("ap_0", approve=False), others=others)))[0] == "decided"
    assert [one.state for one in await store.approvals(tenant="acme", limit=9)] == ["rejected", "rejected", "approved"]
    assert len(await store.audit(after=0, limit=9)) == 1
