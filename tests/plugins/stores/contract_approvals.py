"""Approvals in every store: decided once, asked for once, expired; imported like `contract`."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from gateway.contracts.storage.journal import AskedAlreadyError, Change, Move, NoteWrite
from gateway.contracts.storage.store import Store
from tests.plugins.stores.records import (
    approval,
    audit_line,
    event,
    grant,
    moved,
    new,
    parked,
    resolved,
    run,
    write,
)


async def test_approvals_are_listed_oldest_first_and_filtered(store: Store) -> None:
    """By state, conversation and run; at most `limit`, of one tenant."""
    facts = (("b", "c1", "run_1", 2.0), ("a", "c1", "run_2", 1.0), ("c", None, "run_1", 3.0))
    for approval_id, conversation, run_id, created_s in facts:
        waiting = approval(approval_id, conversation=conversation, run_id=run_id, created_s=created_s)
        await store.write(new(run(f"for_{approval_id}"), approvals=(waiting,)))
    await store.write(new(run(tenant="other"), approvals=(approval("d", tenant="other"),)))
    await store.decide_approval(write("b", approve=False))

    async def ids(**which: str) -> list[str]:
        return [a.id for a in await store.list_approvals(tenant="acme", limit=9, **which)]

    assert await ids() == ["a", "b", "c"]
    assert await ids(state="pending") == ["a", "c"]
    assert await ids(conversation="c1") == ["a", "b"]
    assert await ids(run_id="run_1") == ["b", "c"]
    assert await ids(state="pending", conversation="c1", run_id="run_2") == ["a"]
    assert [a.id for a in await store.list_approvals(tenant="acme", limit=1)] == ["a"]
    assert await store.get_approval("d", tenant="acme") is None
    assert (await store.count_backlog(stuck_before_s=0.0)).pending == 3


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
    answer, decided = await store.decide_approval(first)
    assert answer == "decided"
    assert decided == await store.get_approval("ap_1", tenant="acme")
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
        assert await store.decide_approval(repeated) == (answer, decided)
    assert await store.list_grants(tenant="acme", now_s=0.0, limit=9) == [remembered]
    assert len(await store.list_events(after=0, limit=9)) == len(await store.audit(after=0, limit=9)) == 1


async def test_repeated_decision_must_have_the_same_arguments(store: Store) -> None:
    """Approving again with other arguments is another decision; with none it is the same, also after it ran."""
    await store.write(parked())
    await store.decide_approval(write(edited="{}"))
    for edited, answer in (("{}", "same"), (None, "same"), ('{"x":1}', "other")):
        assert (await store.decide_approval(write(edited=edited)))[0] == answer
    for move in (Move("ap_1", "approved", "executing"), Move("ap_1", "executing", "unknown")):
        await store.write(moved(run(), move))
        assert (await store.decide_approval(write()))[0] == "same"
        assert (await store.decide_approval(write(approve=False)))[0] == "other"


async def test_expired_approval_is_not_decided(store: Store) -> None:
    """It expires there and then, with its event; what the decision brings is not written."""
    await store.write(parked(expires_s=200.0))
    late = write(now_s=200.0, grant=grant(), events=(event(),), audit=(audit_line(),))
    for _ in range(2):
        assert await store.decide_approval(late) == ("expired", approval(expires_s=200.0, state="expired"))
    happened = await store.list_events(after=0, limit=9)
    assert [replace(e, seq=0) for e in happened] == [resolved("ap_1", "expired", created_s=200.0)]
    assert await store.list_grants(tenant="acme", now_s=0.0, limit=9) == []
    assert [row.line.event for row in await store.audit(after=0, limit=9)] == ["expired"]


async def test_an_approval_of_another_tenant_is_absent(store: Store) -> None:
    """As one that never was."""
    await store.write(parked())
    assert await store.decide_approval(write(tenant="other")) == ("absent", None)
    assert await store.decide_approval(write("ap_2")) == ("absent", None)
    assert (await store.count_backlog(stuck_before_s=0.0)).pending == 1


async def test_concurrent_decisions_decide_once(store: Store) -> None:
    """A3: 200 approvals and rejections of the same call: one is decided, and every other is told apart from it."""
    await store.write(parked())
    answers = await asyncio.gather(
        *(store.decide_approval(write(approve=n % 2 == 0, audit=(audit_line("decision"),))) for n in range(200))
    )
    found = [a for a, _ in answers]
    first = found.index("decided")  # of calls at the same time any may be the first
    assert found == ["decided" if n == first else "same" if n % 2 == first % 2 else "other" for n in range(200)]
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
async def test_call_pending_in_another_run_requests_no_second_approval(
    store: Store, changes: dict[str, Any], *, refused: bool
) -> None:
    """Nothing is written then; a change that does not say so asks all the same."""
    await store.write(parked())
    second = parked("run_2", approval_id="ap_2", **changes)
    if refused:
        with pytest.raises(AskedAlreadyError):
            await store.write(replace(second, asks_once=True))
        assert await store.run("run_2", tenant="acme") is None
        assert await store.get_approval("ap_2", tenant="acme") is None
        await store.write(second)
    else:
        await store.write(replace(second, asks_once=True))
    assert await store.get_approval("ap_2", tenant=second.run.tenant) is not None


@pytest.mark.parametrize("user", [None, "ann"])
async def test_concurrent_equal_calls_of_a_user_create_one_approval(store: Store, user: str | None) -> None:
    """Of several at the same moment one is written; once it is decided the next one is, and a run's own stands not in
    its way.
    """
    changes = [replace(parked(f"run_{n}", approval_id=f"ap_{n}", user=user), asks_once=True) for n in range(4)]
    told = await asyncio.gather(*map(store.write, changes), return_exceptions=True)
    assert sorted(type(one).__name__ for one in told) == ["AskedAlreadyError"] * 3 + ["NoneType"]
    (waiting,) = await store.list_approvals(tenant="acme", state="pending", limit=9)
    assert waiting.user == user
    own = replace(changes[told.index(None)], new=False, approvals=(approval("ap_9", run_id=waiting.run_id, user=user),))
    await store.write(own)


async def test_reissued_approval_replaces_the_pending_one(store: Store) -> None:
    """Only while that is pending: it is cancelled, with an event, and the step names the new one."""
    await store.write(parked())
    fresh = approval("ap_2", policy_sha256="c" * 64)
    assert await store.reissue("ap_1", fresh, events=(event("approval.required"),)) is True
    assert [(a.id, a.state) for a in await store.list_approvals(tenant="acme", limit=9)] == [
        ("ap_1", "cancelled"),
        ("ap_2", "pending"),
    ]
    assert [s.approval_id for s in await store.list_steps("run_1", tenant="acme")] == ["ap_2"]
    assert await store.reissue("ap_1", approval("ap_3"), events=(event(),)) is False
    assert await store.reissue("ap_2", approval("ap_3", tenant="other"), events=(event(),)) is False
    happened = [replace(e, seq=0) for e in await store.list_events(after=0, limit=9)]
    assert happened == [resolved("ap_1", "cancelled"), event("approval.required")]
    assert (await store.count_backlog(stuck_before_s=0.0)).pending == 1


async def test_approvals_expire_once_with_an_event_each(store: Store) -> None:
    """Of all tenants, oldest first; what was decided and what has time left stays."""
    for number, (tenant, expires_s) in enumerate((("acme", 300.0), ("other", 250.0), ("acme", 301.0), ("acme", 200.5))):
        waiting = {"approval_id": f"ap_{number}", "tenant": tenant, "expires_s": expires_s}
        await store.write(parked(f"r{number}", created_s=float(-number), **waiting))
    await store.decide_approval(write("ap_3"))
    expired = await store.expire(now_s=300.0, limit=9)
    assert [(a.id, a.tenant, a.state) for a in expired] == [("ap_1", "other", "expired"), ("ap_0", "acme", "expired")]
    assert await store.expire(now_s=300.0, limit=9) == []
    assert [replace(e, seq=0) for e in await store.list_events(after=0, limit=9)] == [
        resolved("ap_1", "expired", tenant="other", run_id="r1", created_s=300.0),
        resolved("ap_0", "expired", run_id="r0", created_s=300.0),
    ]
    assert [a.state for a in await store.list_approvals(tenant="acme", limit=9)] == ["approved", "pending", "expired"]


async def test_approvals_expire_in_batches(store: Store) -> None:
    """Those that ended first: thousands at once would hold up all other writers."""
    for number, expires_s in enumerate((103.0, 101.0, 104.0, 102.0, 105.0)):
        await store.write(parked(f"r{number}", approval_id=f"ap_{number}", expires_s=expires_s))
    portions = [await store.expire(now_s=104.0, limit=2) for _ in range(3)]
    assert [[one.id for one in portion] for portion in portions] == [["ap_1", "ap_3"], ["ap_0", "ap_2"], []]
    assert (await store.count_backlog(stuck_before_s=0.0)).pending == 1


async def test_undecided_approval_leaves_an_audit_line_when_it_ends(store: Store) -> None:
    """Expired by the clock or by a late decision, cancelled with its run by its owner or by a person."""
    for number in range(4):
        await store.write(parked(f"r{number}", approval_id=f"ap_{number}", expires_s=100.0 + number))
    await store.expire(now_s=100.0, limit=9)
    assert (await store.decide_approval(write("ap_1", now_s=101.0)))[0] == "expired"
    await store.cancel("r2", tenant="acme", now_s=50.0, events=(), audit=())
    await store.write(Change(run=run("r3", state="failed")))
    lines = [row.line for row in await store.audit(after=0, limit=9)]
    told = [(line.run_id, line.event, line.decision, line.by) for line in lines]
    assert told == [
        (f"r{n}", what, what, "") for n, what in enumerate(("expired", "expired", "cancelled", "cancelled"))
    ]


async def test_several_approvals_are_decided_together_or_not_at_all(store: Store) -> None:
    """One that is decided otherwise, has expired or is not there keeps the others pending; alike is no obstacle."""
    asked = tuple(approval(f"ap_{n}", step=n, expires_s=150.0 if n == 4 else 1e9) for n in range(6))
    await store.write(new(approvals=asked))
    await store.decide_approval(write("ap_2", approve=False))
    await store.decide_approval(write("ap_3"))
    for wrong, how in (("ap_2", "other"), ("ap_4", "expired"), ("ap_9", "absent")):
        several = [write(one, audit=(audit_line("decision"),)) for one in ("ap_0", wrong, "ap_1", "ap_3")]
        assert [ruled for ruled, _ in await store.decide_approvals(several)] == ["held", how, "held", "same"]
    kept = {one.id: one.state for one in await store.list_approvals(tenant="acme", limit=9)}
    assert [kept[f"ap_{n}"] for n in range(6)] == ["pending", "pending", "rejected", "approved", "expired", "pending"]
    assert [row.line.event for row in await store.audit(after=0, limit=9)] == ["expired"], "no decision is on record"
    together = await store.decide_approvals([write("ap_0"), write("ap_3"), write("ap_1")])
    assert [(ruled, one and one.state) for ruled, one in together] == [
        ("decided", "approved"),
        ("same", "approved"),
        ("decided", "approved"),
    ]


async def test_decision_resolves_related_approvals_in_one_transaction(store: Store) -> None:
    """Those that are pending; who is decided already stays."""
    asked = tuple(approval(f"ap_{n}", step=n) for n in range(3))
    await store.write(new(approvals=asked))
    await store.decide_approval(write("ap_2"))
    others = tuple(write(one, approve=False, audit=(audit_line("decision"),)) for one in ("ap_1", "ap_2", "ap_9"))
    assert (await store.decide_approval(replace(write("ap_0", approve=False), others=others)))[0] == "decided"
    assert [one.state for one in await store.list_approvals(tenant="acme", limit=9)] == [
        "rejected",
        "rejected",
        "approved",
    ]
    assert len(await store.audit(after=0, limit=9)) == 1


async def test_pending_approval_can_be_assigned_and_annotated(store: Store) -> None:
    """Each word leaves an event and an audit line, and decides nothing; a decided approval takes none."""
    await store.write(parked())
    said: dict[str, Any] = {"approval_id": "ap_1", "tenant": "acme", "by": "bob", "via": "rest", "now_s": 150.0}
    assigned = await store.note_approval(NoteWrite(**said, assigned="zoé"))
    assert assigned is not None and (assigned.assigned, assigned.notes, assigned.state) == ("zoé", "[]", "pending")
    await store.note_approval(NoteWrite(**said, text='ask "Ann" 先'))
    noted = await store.note_approval(NoteWrite(**said, text="second"))
    assert noted == await store.get_approval("ap_1", tenant="acme") and noted is not None
    assert [(note["by"], note["via"], note["at_s"], note["text"]) for note in json.loads(noted.notes)] == [
        ("bob", "rest", 150.0, 'ask "Ann" 先'),
        ("bob", "rest", 150.0, "second"),
    ]
    assert [one.id for one in await store.list_approvals(tenant="acme", limit=9, assigned="zoé")] == ["ap_1"]
    free = await store.note_approval(NoteWrite(**said, assigned=""))
    assert free is not None and free.assigned is None and free.notes == noted.notes
    assert await store.note_approval(NoteWrite(**{**said, "tenant": "other"}, text="x")) is None
    told = [
        one for one in await store.list_events(after=0, limit=99) if one.type in ("approval.assigned", "approval.noted")
    ]
    assert [json.loads(one.data) for one in told] == [
        {"approval_id": "ap_1", "by": "bob", "via": "rest", **fact}
        for fact in ({"to": "zoé"}, {"text": 'ask "Ann" 先'}, {"text": "second"}, {"to": None})
    ]
    lines = [row.line for row in await store.audit(after=0, limit=99) if row.line.event in ("assigned", "noted")]
    assert [(line.event, line.decision, line.by, line.via) for line in lines] == [
        ("assigned", "zoé", "bob", "rest"),
        ("noted", 'ask "Ann" 先', "bob", "rest"),
        ("noted", "second", "bob", "rest"),
        ("assigned", "", "bob", "rest"),
    ]
    await store.decide_approval(write())
    assert await store.note_approval(NoteWrite(**said, text="late")) is None
