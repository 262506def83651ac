"""Whose a run is, and how it ends, in every store; imported like `contract`."""

import asyncio
import json
from collections.abc import Awaitable
from dataclasses import replace

import pytest

from gateway.contracts.storage.journal import FAR_S, Change, ConflictError, Move
from gateway.contracts.storage.store import Store
from tests.plugins.stores.records import (
    approval,
    audit_line,
    claimed,
    event,
    moved,
    new,
    parked,
    resolved,
    run,
    step,
    write,
)

# Owners.


async def test_run_without_owner_or_with_expired_lease_is_claimed(store: Store) -> None:
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


async def test_run_awaiting_approvals_is_claimable_once_none_is_pending(store: Store) -> None:
    """However they were resolved; another run's do not matter."""
    two = (approval("ap_1"), approval("ap_2", step=2))
    await store.write(new(run(state="awaiting_approval"), approvals=two))
    await store.write(new(run("run_2", state="awaiting_approval"), approvals=(approval("ap_3", run_id="run_2"),)))
    states = ["awaiting_approval"]
    await store.decide_approval(write("ap_1"))
    assert await claimed(store, "w1", states=states, run_id="run_1") == []
    await store.decide_approval(write("ap_2", approve=False))
    assert await claimed(store, "w1", states=states) == [("run_1", 1)]
    assert await claimed(store, "w2", states=states) == []
    await store.expire(now_s=1000.0, limit=9)
    assert await claimed(store, "w2", states=states) == [("run_2", 1)]


async def test_renew_extends_only_the_leases_of_the_owner(store: Store) -> None:
    """Those that are named, are its own and have not ended; a change that was begun before takes nothing back."""
    for run_id, owner in (("a", "w1"), ("b", "w1"), ("c", "w2")):
        await store.write(new(run(run_id, owner=owner, lease_s=150.0)))
    await store.write(new(run("d", owner="w1", state="completed")))
    assert sorted(await store.renew(owner="w1", run_ids=["a", "b", "c", "d"], now_s=220.0, until_s=250.0)) == ["a", "b"]
    assert await store.renew(owner="w1", run_ids=["b"], now_s=220.0, until_s=250.0) == ["b"]
    assert await store.renew(owner="nobody", run_ids=["a"], now_s=220.0, until_s=250.0) == []
    await store.write(moved(run("a", owner="w1", lease_s=150.0, progress=b"1")))
    assert await claimed(store, "w3") == [("c", 1)]
    await store.write(moved(run("a")))
    assert await claimed(store, "w3") == [("a", 1)]


async def test_lease_too_far_in_the_future_counts_as_expired(store: Store) -> None:
    """The clock was set back by hours, and its owner is gone: else the run would wait as long."""
    await store.write(new(run("a", owner="w1", lease_s=200.0 + FAR_S)))
    await store.write(new(run("b", owner="w1", lease_s=201.0 + FAR_S)))
    assert await claimed(store, "w2", now_s=0.0) == []
    assert await claimed(store, "w2", run_id="a") == []
    assert await claimed(store, "w2") == [("b", 1)]


async def test_release_ends_all_leases_of_an_owner(store: Store) -> None:
    """All of its own that have not ended; a change that it makes of them afterwards is too late."""
    for run_id, owner, state in (("a", "w1", "running"), ("b", "w1", "awaiting_approval"), ("c", "w2", "running")):
        await store.write(new(run(run_id, owner=owner, state=state, lease_s=250.0)))
    await store.write(new(run("d", owner="w1", state="completed")))
    assert await store.release(owner="w1") == 2 and await store.release(owner="w1") == 0
    with pytest.raises(ConflictError):
        await store.write(moved(run("a", owner="w1", lease_s=250.0, progress=b"1")))
    states = ["running", "awaiting_approval", "completed"]
    assert sorted(await claimed(store, "w3", states=states)) == [("a", 2), ("b", 2)]


async def test_release_ends_the_named_leases_of_an_owner(store: Store) -> None:
    """Those of runs that nothing drives, at once and without a further fence; the others stay its own."""
    for run_id in ("a", "b"):
        await store.write(new(run(run_id, owner="w1", lease_s=250.0)))
    assert await store.release(owner="w1", run_ids=["a", "c"]) == 1
    assert await store.release(owner="w2", run_ids=["b"]) == 0
    assert await claimed(store, "w3") == [("a", 1)]


async def test_second_change_with_an_outdated_fence_is_refused(store: Store) -> None:
    await store.write(new(run("a", state="unknown")))
    await store.write(moved(run("a", state="unknown", progress=b"1"), passes_on=True))
    with pytest.raises(ConflictError):
        await store.write(moved(run("a", state="unknown", progress=b"2"), passes_on=True))
    found = await store.run("a", tenant="acme")
    assert found is not None and (found.progress, found.fence) == (b"1", 1)


async def test_concurrent_claims_give_each_run_to_one_owner(store: Store) -> None:
    """However many ask at once."""
    for number in range(20):
        await store.write(new(run(f"r{number}")))
    found = await asyncio.gather(*(claimed(store, f"w{n}", limit=3) for n in range(20)))
    assert sorted(run_id for runs in found for run_id, _ in runs) == sorted(f"r{n}" for n in range(20))


# Ending, and cancelling.


async def test_ended_run_cancels_its_approvals_without_an_executed_call(store: Store) -> None:
    """Pending or approved; who approved one reads of it. Those of calls that ran stay as they are."""
    asked = tuple(approval(f"ap_{n}", run_id="r", step=n) for n in range(3))
    await store.write(new(run("r"), approvals=asked))
    await store.decide_approval(write("ap_0"))
    await store.decide_approval(write("ap_1"))
    await store.write(moved(run("r"), Move("ap_0", "approved", "executing")))
    await store.write(moved(run("r", state="interrupted")))
    kept = await store.list_approvals(tenant="acme", run_id="r", limit=9)
    assert [a.state for a in kept] == ["executing", "cancelled", "cancelled"] and kept[1].decided_by is not None
    for approval_id in ("ap_1", "ap_2"):
        assert (await store.decide_approval(write(approval_id)))[0] == "other"
    told = [
        json.loads(one.data) for one in await store.list_events(after=0, limit=9) if one.type == "approval.resolved"
    ]
    assert told == [{"approval_id": f"ap_{n}", "state": "cancelled"} for n in (1, 2)]
    assert [row.line.event for row in await store.audit(after=0, limit=9)] == ["cancelled", "cancelled"]


async def test_cancelled_run_cancels_its_pending_approvals(store: Store) -> None:
    """Whoever owns it; its owner's next change and a decision come too late."""
    two = (approval("ap_1"), approval("ap_2", step=2))
    await store.write(new(run(state="awaiting_approval", owner="w1", lease_s=250.0), approvals=two))
    await store.write(new(run("run_2"), approvals=(approval("ap_3", run_id="run_2"),)))
    await store.decide_approval(write("ap_1"))
    end = event("run.finished")
    assert await store.cancel("run_1", tenant="other", now_s=210.0, events=(end,), audit=()) is False
    assert await store.cancel("run_1", tenant="acme", now_s=210.0, events=(end,), audit=(audit_line(),)) is True
    found = await store.run("run_1", tenant="acme")
    assert found == run(state="cancelled", updated_s=210.0, fence=1)
    assert [(a.id, a.state) for a in await store.list_approvals(tenant="acme", limit=9)] == [
        ("ap_1", "cancelled"),
        ("ap_2", "cancelled"),
        ("ap_3", "pending"),
    ]
    happened = await store.list_events(after=0, limit=9)
    told = [resolved(approval_id, "cancelled", created_s=210.0) for approval_id in ("ap_1", "ap_2")]
    assert [replace(e, seq=0) for e in happened] == [*told, end]
    assert [row.line.event for row in await store.audit(after=0, limit=9)] == ["cancelled", "cancelled", "verdict"]
    with pytest.raises(ConflictError):
        await store.write(moved(run(owner="w1", lease_s=250.0)))
    assert (await store.decide_approval(write("ap_2")))[0] == "other"
    assert (await store.decide_approval(write("ap_2", approve=False)))[0] == "other"
    assert await store.cancel("run_1", tenant="acme", now_s=220.0, events=(), audit=()) is False


async def test_concurrent_decision_and_cancellation_agree(store: Store) -> None:
    """Either it was decided before, and is cancelled with its run, or the decision hears that it is cancelled."""
    for number in range(30):
        await store.write(parked(f"r{number}", approval_id=f"ap_{number}"))

    async def race(number: int) -> None:
        calls: list[Awaitable[object]] = [
            store.decide_approval(write(f"ap_{number}")),
            store.cancel(f"r{number}", tenant="acme", now_s=200.0, events=(), audit=()),
        ]
        answers = await asyncio.gather(*(calls if number % 2 else calls[::-1]))
        kept = await store.get_approval(f"ap_{number}", tenant="acme")
        assert kept is not None and kept.state == "cancelled"
        decided = ("decided", replace(kept, state="approved")) in answers
        assert decided == (kept.decided_by is not None) and decided != (("other", kept) in answers)

    await asyncio.gather(*map(race, range(30)))


async def test_late_outcome_of_a_lost_run_is_kept_with_its_step(store: Store) -> None:
    """Whatever its new owner writes of the step, before and after; and nothing else of the step is changed."""
    await store.write(new(run(), steps=(step(1, state="unknown"), step(2))))
    zombie = step(1, state="finished", result="late", late="it was done")
    await store.write_late_report(zombie, events=(event("tool.late"),), audit=(audit_line("late"),))
    assert await store.list_steps("run_1", tenant="acme") == [step(1, state="unknown", late="it was done"), step(2)]
    await store.write(Change(run=run(), steps=(step(1, state="planned"),)))
    assert (await store.list_steps("run_1", tenant="acme"))[0] == step(1, state="planned", late="it was done")
    assert [e.type for e in await store.list_events(after=0, limit=9)] == ["tool.late"]
    assert [row.line.event for row in await store.audit(after=0, limit=9)] == ["late"]
