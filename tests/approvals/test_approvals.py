"""The approvals of a run on a real store: who may decide, what a decision holds for, and that there is one."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.approvals import approvals as approvals_module
from gateway.approvals.approvals import Decision
from gateway.approvals.view import build_approval_view
from gateway.contracts.caller import Caller
from gateway.contracts.canonical_json import call_sha256
from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.endorsements import hash_waiting_call
from gateway.contracts.storage.journal import Approval, Change, Move
from gateway.tools.grants import ApprovalBinding
from tests.agent.doubles import samples
from tests.plugins.stores.records import approval, step

from .room import AGENT, ASKED, BOSS, NO, YES, Room, refused

RIVAL = Caller("eve", "other", frozenset(("context", "approve")))


# Asking.


def test_issued_approval_is_bound_to_call_definition_policy_and_caller() -> None:
    """To its arguments, the tool's definition, the policy and the caller; until it expires."""
    room = Room()
    issued = room.approvals.issue(step(3, reason="why"), ASKED)
    assert issued.id.startswith("ap_") and (issued.run_id, issued.step, issued.state) == ("run_1", 3, "pending")
    assert (issued.definition_sha256, issued.policy_sha256) == ("d" * 64, "b" * 64)
    assert (issued.caller, issued.tenant, issued.conversation) == ("ann", "acme", "c1")
    assert issued.expires_s - issued.created_s == 3600 and issued.reason == "why"
    assert room.approvals.issue(step(3), ASKED).id != issued.id
    assert room.approvals.holds(issued)
    room.judges.bound = ApprovalBinding("d" * 64, "other")
    assert not room.approvals.holds(issued)
    room.judges.bound = None
    assert not room.approvals.holds(issued)


async def test_last_approval_of_a_step_counts(room: Room) -> None:
    """However many there were: each step may be asked for anew."""
    await room.ask(1)
    there = await room.store.run("run_1", tenant="acme")
    assert there is not None
    more = tuple(approval(f"ap_more_{i}", created_s=room.now_s + i, state="cancelled") for i in range(300))
    last = approval("ap_last", created_s=room.now_s + 300)
    await room.store.write(Change(run=there, approvals=(*more, last)))
    assert (await room.approvals.index_by_step("run_1", tenant="acme"))[1].id == "ap_last"
    assert await room.approvals.index_by_step("run_1", tenant="other") == {}


# Who may decide.


async def test_decision_requires_the_tenant_and_the_approve_scope(room: Room) -> None:
    """Another tenant learns nothing; a key without the scope is told so; nothing is decided."""
    await room.ask(1)
    for caller, code in ((RIVAL, "approval_not_found"), (AGENT, "scope_missing")):
        for wish in (YES, NO):
            assert (await refused(room, wish, caller=caller)).code == code
    absent = await refused(room, YES, approval_id="ap_none")
    assert absent.message == (await refused(room, YES, caller=RIVAL)).message
    assert await room.state() == "pending" and await room.store.audit(after=0, limit=9) == []


async def test_decision_is_recorded_with_audit_event_and_metrics(room: Room) -> None:
    """Who, how, when and why; in the audit log, as an event, and in the figures."""
    await room.ask(1)
    room.clock.advance(30)
    after = await room.approvals.decide("ap_1", Decision(approve=True, via="cli", comment="fine"), caller=BOSS)
    assert (after.state, after.decided_by, after.via, after.comment) == ("approved", "bob", "cli", "fine")
    assert after == await room.store.get_approval("ap_1", tenant="acme")
    (row,) = await room.store.audit(after=0, limit=9)
    line = row.line
    assert (line.event, line.decision, line.by, line.via, line.caller) == ("decision", "approved", "bob", "cli", "ann")
    events = await room.store.list_events(after=0, run_id="run_1", limit=9)
    assert [one.type for one in events] == ["approval.resolved"] and b'"approved"' in events[0].data
    told = samples(room.counters)
    assert told["gateway_approvals_total", ("approved", "cli")] == 1
    assert told["gateway_approval_wait_seconds_sum", ()] == 30


# One decision.


async def test_the_same_decision_again_changes_nothing(room: Room) -> None:
    """It gets the same answer; the other one is a conflict, whichever came first."""
    for first, second in ((YES, NO), (NO, YES)):
        await room.close()
        room.__post_init__()
        await room.store.open()
        await room.ask(1)
        told = [await room.approvals.decide("ap_1", first, caller=BOSS) for _ in range(3)]
        assert told[0] == told[1] == told[2]
        assert (await refused(room, second)).code == "decision_conflict"
        assert len(await room.store.audit(after=0, limit=9)) == 1


async def test_concurrent_decisions_in_two_processes_are_recorded_once(tmp_path: Path) -> None:
    """Two processes, approvals and rejections: one wins, whoever says the same is told so, the others conflict."""
    place = str(tmp_path / "gateway.db")
    rooms = [Room(place), Room(place)]
    for one in rooms:
        await one.store.open()
    await rooms[0].ask(1)

    async def decide(i: int) -> str:
        wish = YES if i % 3 else NO
        try:
            return (await rooms[i % 2].approvals.decide("ap_1", wish, caller=BOSS)).state
        except GatewayError as error:
            return error.code

    told = await asyncio.gather(*map(decide, range(100)))
    state = await rooms[1].state()
    n_like = sum((i % 3 > 0) is (state == "approved") for i in range(100))
    assert state in ("approved", "rejected")
    assert told.count(state) == n_like and told.count("decision_conflict") == 100 - n_like
    assert len(await rooms[0].store.audit(after=0, limit=200)) == 1
    assert len(await rooms[0].store.list_events(after=0, limit=200)) == 1
    counts = [samples(one.counters).get(("gateway_approvals_total", (state, "rest")), 0) for one in rooms]
    assert sum(counts) == 1
    for one in rooms:
        await one.close()


async def test_repeated_approval_of_an_executed_call_succeeds(room: Room) -> None:
    """The same decision gets the same answer, however far its call has come."""
    (asked,) = await room.ask(1)
    await room.approvals.decide("ap_1", YES, caller=BOSS)
    there = await room.store.run("run_1", tenant="acme")
    assert there is not None
    for move in (Move(asked.id, "approved", "executing"), Move(asked.id, "executing", "done")):
        await room.store.write(Change(run=there, moves=(move,)))
        assert (await room.approvals.decide("ap_1", YES, caller=BOSS)).decided_by == "bob"
        assert (await refused(room, NO)).code == "decision_conflict"


# What a decision holds for.


async def test_decision_with_another_call_hash_is_refused(room: Room) -> None:
    """`sha256` is the hash of what the person saw."""
    (asked,) = await room.ask(1)
    for wish in (YES, NO):
        wrong = await refused(room, replace(wish, sha256="f" * 64))
        assert (wrong.code, wrong.param) == ("approval_stale", "sha256")
    assert await room.state() == "pending"
    assert (await room.approvals.decide("ap_1", replace(YES, sha256=asked.sha256), caller=BOSS)).state == "approved"


async def test_stale_approval_is_replaced_once_under_concurrent_decisions(room: Room) -> None:
    """The tool or the policy; a rejection needs neither. However many find that out at once, they are told one id."""
    await room.ask(1)
    room.judges.bound = ApprovalBinding("new", "b" * 64)
    errors = await asyncio.gather(*(refused(room, YES) for _ in range(10)))
    assert {error.code for error in errors} == {"approval_stale"}
    fresh = (await room.approvals.index_by_step("run_1", tenant="acme"))[1]
    found = await room.store.list_approvals(tenant="acme", run_id="run_1", limit=99)
    assert [one.state for one in found] == ["cancelled", "pending"]
    assert all(fresh.id in error.message for error in errors)
    assert (fresh.definition_sha256, fresh.arguments, fresh.step) == ("new", approval().arguments, 1)
    (kept,) = await room.store.list_steps("run_1", tenant="acme")
    assert kept.approval_id == fresh.id
    assert (await room.approvals.decide(fresh.id, NO, caller=BOSS)).state == "rejected"


async def test_approval_of_a_removed_tool_can_only_be_rejected(room: Room) -> None:
    """There is nothing to ask anew for."""
    await room.ask(1)
    room.judges.bound = None
    assert (await refused(room, YES)).code == "approval_stale" and await room.state() == "pending"
    assert (await room.approvals.decide("ap_1", NO, caller=BOSS)).state == "rejected"


async def test_decision_after_expiry_is_refused(room: Room) -> None:
    """Also where nobody has looked at the clock since; the last moment is too late."""
    await room.ask(1)
    room.clock.advance(3600)
    for wish in (YES, NO, YES):
        assert (await refused(room, wish)).code == "approval_expired"
    assert await room.state() == "expired"


async def test_all_approvals_expire_across_batches(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approvals_module, "EXPIRED_AT_ONCE", 2)
    await room.ask(1, 2, 3, 4, 5)
    room.clock.advance(3600)
    assert len(await room.approvals.expire()) == 5


async def test_expired_approvals_are_counted_once(room: Room) -> None:
    """Once, by whoever found it."""
    await room.ask(1, 2)
    assert await room.approvals.expire() == []
    room.clock.advance(3600)
    assert {one.id for one in await room.approvals.expire()} == {"ap_1", "ap_2"}
    assert await room.approvals.expire() == []
    assert samples(room.counters)["gateway_approvals_total", ("expired", "time")] == 2


# Arguments that a person changed.


async def test_edited_call_is_checked_by_the_gate(room: Room) -> None:
    """One that would ask again is covered by this very decision; one that may never run is refused."""
    await room.ask(1)
    edit = replace(YES, arguments={"command": "make -n"})
    for decision in ("deny", "error"):
        room.judges.decision = decision
        wrong = await refused(room, edit)
        assert (wrong.code, wrong.param) == ("edit_refused", "arguments")
    assert await room.state() == "pending"
    room.judges.decision = "confirm"
    after = await room.approvals.decide("ap_1", edit, caller=BOSS)
    assert (after.edited, after.arguments) == ('{"command":"make -n"}', '{"command":"make"}')
    (row,) = await room.store.audit(after=0, limit=9)
    assert row.line.sha256 == call_sha256("execute_command", '{"command":"make -n"}')
    assert build_approval_view(after)["edited_arguments"] == {"command": "make -n"}


async def test_edit_without_changes_is_ignored(room: Room) -> None:
    """Nor is one beside a rejection."""
    await room.ask(1)
    room.judges.decision = "deny"
    same = replace(YES, arguments={"command": "make"})
    assert (await room.approvals.decide("ap_1", same, caller=BOSS)).edited is None


async def test_different_edit_conflicts_with_the_first(room: Room) -> None:
    """The same one again is the same."""
    await room.ask(1)
    edit = replace(YES, arguments={"command": "make -n"})
    first = await room.approvals.decide("ap_1", edit, caller=BOSS)
    assert await room.approvals.decide("ap_1", edit, caller=BOSS) == first
    assert (await refused(room, replace(YES, arguments={"command": "rm"}))).code == "decision_conflict"


async def test_approving_the_original_after_an_approved_edit_conflicts(room: Room) -> None:
    """By its hash or by its arguments; the hash of what was approved, and no hash, say the same again."""
    (asked,) = await room.ask(1)
    first = await room.approvals.decide("ap_1", replace(YES, arguments={"command": "make -n"}), caller=BOSS)
    for wish in (replace(YES, sha256=asked.sha256), replace(YES, arguments={"command": "make"})):
        assert (await refused(room, wish)).code == "decision_conflict"
    for wish in (YES, replace(YES, sha256=hash_waiting_call(first))):
        assert await room.approvals.decide("ap_1", wish, caller=BOSS) == first
    again = replace(YES, sha256=asked.sha256, arguments={"command": "make -n"})
    assert await room.approvals.decide("ap_1", again, caller=BOSS) == first


async def test_concurrent_approvals_with_different_arguments_report_one_conflict(room: Room) -> None:
    """The second of two persons does not hear that their call was approved."""
    (asked,) = await room.ask(1)
    wishes = (replace(YES, arguments={"command": "make -n"}), replace(YES, sha256=asked.sha256))
    deciding = [room.approvals.decide("ap_1", wish, caller=BOSS) for wish in wishes]
    told = await asyncio.gather(*deciding, return_exceptions=True)
    assert len([one for one in told if isinstance(one, Approval)]) == 1
    (conflict,) = [one for one in told if isinstance(one, GatewayError)]
    assert conflict.code in ("decision_conflict", "approval_stale")
