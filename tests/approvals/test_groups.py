"""What is remembered of a decision, and groups of calls that are decided together."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.contracts.canonical_json import call_sha256
from gateway.contracts.errors import GatewayError
from gateway.tools.grants import ApprovalBinding
from tests.plugins.stores.records import step

from .room import AGENT, ASKED, BOSS, NO, YES, Room, refused

# What is remembered.


async def test_remembered_approval_applies_only_to_its_call(room: Room) -> None:
    """Of the same caller, in the same conversation; while tool and policy are the same."""
    (asked,) = await room.ask(1)
    await room.approvals.decide("ap_1", replace(YES, remember="conversation"), caller=BOSS)
    (kept,) = await room.store.list_grants(tenant="acme", now_s=0.0, limit=9)
    assert (kept.run_id, kept.conversation, kept.granted_by) == (None, "c1", "bob")
    call = step(9, run_id="run_2", sha256=asked.sha256)
    later = replace(ASKED, id="run_2")
    assert await room.approvals.remembered.grant(call, later) == kept
    assert await room.approvals.remembered.grant(replace(call, sha256="f" * 64), later) is None
    assert await room.approvals.remembered.grant(call, replace(later, conversation="c2")) is None
    assert await room.approvals.remembered.grant(call, replace(later, conversation=None)) is None
    assert await room.approvals.remembered.grant(call, replace(later, caller=replace(AGENT, name="bob"))) is None
    assert await room.approvals.remembered.grant(replace(call, tenant="other"), later) is None
    room.judges.bound = ApprovalBinding("new", "b" * 64)
    assert await room.approvals.remembered.grant(call, later) is None


async def test_approval_remembered_for_a_run_does_not_cover_the_conversation(room: Room) -> None:
    """And holds for the arguments that the person put."""
    await room.ask(1)
    await room.approvals.decide("ap_1", replace(YES, remember="run", arguments={"command": "make -n"}), caller=BOSS)
    edited = step(9, sha256=call_sha256("execute_command", '{"command":"make -n"}'))
    assert await room.approvals.remembered.grant(edited, ASKED) is not None
    assert await room.approvals.remembered.grant(replace(edited, run_id="run_2"), replace(ASKED, id="run_2")) is None
    assert (
        await room.approvals.remembered.grant(
            step(9, sha256=call_sha256("execute_command", '{"command":"make"}')), ASKED
        )
        is None
    )


async def test_rejected_or_late_decisions_grant_nothing(room: Room) -> None:
    """A rejection grants nothing; neither does a decision that came too late."""
    await room.ask(1, 2)
    await room.approvals.decide("ap_2", NO, caller=BOSS)
    await room.approvals.decide("ap_1", replace(NO, remember="conversation"), caller=BOSS)
    with suppress(GatewayError):
        await room.approvals.decide("ap_1", replace(YES, remember="conversation"), caller=BOSS)
    assert await room.store.list_grants(tenant="acme", now_s=0.0, limit=9) == []


async def test_remember_conversation_without_a_conversation_is_refused(room: Room) -> None:
    """It says so, and nothing is decided."""
    await room.ask(1, conversation=None)
    wrong = await refused(room, replace(YES, remember="conversation"))
    assert (wrong.code, wrong.param) == ("invalid_field", "remember")
    assert await room.state() == "pending"
    assert (await room.approvals.decide("ap_1", replace(YES, remember="run"), caller=BOSS)).state == "approved"


# Groups.


async def test_rejection_rejects_pending_calls_of_its_group(room: Room) -> None:
    """Those that are decided already stay as they are."""
    await room.ask(1, 2, 3)
    await room.approvals.decide("ap_3", YES, caller=BOSS)
    await room.approvals.decide("ap_2", NO, caller=BOSS)
    found = await room.approvals.index_by_step("run_1", tenant="acme")
    assert [(found[i].state, found[i].comment) for i in (1, 2, 3)] == [
        ("rejected", "rejected together with ap_2"),
        ("rejected", "no"),
        ("approved", None),
    ]
    assert (await room.approvals.decide("ap_1", NO, caller=BOSS)).state == "rejected"


async def test_repeated_rejection_also_rejects_the_runs_pending_approvals(tmp_path: Path) -> None:
    """Said again, it holds for what its run waits for by then: else nobody could go on with the run."""
    place = str(tmp_path / "gateway.db")
    dying, next_ = Room(place, on_reject="continue"), Room(place)
    for one in (dying, next_):
        await one.store.open()
    await dying.ask(1, 2)
    await dying.approvals.decide("ap_1", NO, caller=BOSS)
    assert await next_.state("ap_2") == "pending"
    await next_.approvals.decide("ap_1", NO, caller=BOSS)
    assert await next_.state("ap_2") == "rejected"
    for one in (dying, next_):
        await one.close()


async def test_rejection_with_on_reject_continue_affects_only_its_call() -> None:
    """`on_reject: continue`."""
    room = Room(on_reject="continue")
    await room.store.open()
    await room.ask(1, 2)
    await room.approvals.decide("ap_2", NO, caller=BOSS)
    assert await room.state("ap_1") == "pending"
    await room.close()


async def test_rejection_in_a_responses_run_affects_only_its_call(room: Room) -> None:
    """The run is one of the Responses API, with tools that its request names."""
    await room.ask(1, 2, request=b'{"shows_calls": true}')
    await room.approvals.decide_all([("ap_1", YES), ("ap_2", NO)], caller=BOSS)
    assert [await room.state(one) for one in ("ap_1", "ap_2")] == ["approved", "rejected"]


async def test_batch_decision_is_atomic() -> None:
    """What was refused never takes effect: one that is decided otherwise, or stale, keeps the others pending."""
    room = Room(on_reject="continue")
    await room.store.open()
    await room.ask(1, 2, 3)
    await room.approvals.decide("ap_2", NO, caller=BOSS)
    with pytest.raises(GatewayError) as conflict:
        await room.approvals.decide_all([(each, YES) for each in ("ap_1", "ap_2", "ap_3")], caller=BOSS)
    assert conflict.value.code == "decision_conflict"
    assert conflict.value.message == "Nothing was decided: the approval ap_2 was rejected by 'bob' already."
    bound, room.judges.bound = room.judges.bound, ApprovalBinding("e" * 64, "b" * 64)
    with pytest.raises(GatewayError) as stale:
        await room.approvals.decide_all([("ap_1", YES), ("ap_3", YES)], caller=BOSS)
    assert stale.value.code == "approval_stale"
    room.judges.bound = bound
    assert [await room.state(one) for one in ("ap_1", "ap_3")] == ["cancelled", "pending"], "ap_1 is asked for anew"
    assert (await room.approvals.decide("ap_3", YES, caller=BOSS)).state == "approved"
    await room.close()
