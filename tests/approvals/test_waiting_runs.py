"""A run waits for decisions: it hears them without polling, from any process."""

import asyncio
from pathlib import Path

import pytest
from functional.through import breathe
from gateways import until

from gateway.contracts.storage.journal import Change
from gateway.runs import event_feed
from gateway.tools.grants import ApprovalBinding
from tests.plugins.stores.records import approval

from .room import BOSS, NO, YES, Room, refused


async def found(room: Room) -> None:
    """Returns when who waits has what its look found: the store answers in turn, and the event loop goes on."""
    await room.state()
    await breathe(10)


async def test_waiting_run_reads_approvals_only_after_an_event(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """The approvals are looked at when something happened to the run, and at no other time."""
    monkeypatch.setattr(event_feed, "LOOK_S", 0.005)
    await room.ask(1)
    waiting = asyncio.create_task(room.wait())
    await until(lambda: room.store.looked >= 1)
    read = room.store.read
    await until(lambda: room.store.read > read + 50)
    assert room.store.looked == 1 and not waiting.done()
    await room.approvals.decide("ap_1", YES, caller=BOSS)
    await asyncio.wait_for(waiting, 120)
    assert room.store.looked == 2


@pytest.mark.parametrize(("abort", "returns"), [(True, True), (False, False)])
async def test_wait_returns_at_first_call_decision_or_aborting_rejection(abort: bool, returns: bool) -> None:
    """An approval of another one is none of the first; a rejection of any ends it where that aborts."""
    room = Room(on_reject="continue")
    await room.store.open()
    await room.ask(1, 2, 3)
    waiting = asyncio.create_task(room.wait(1, 2, 3, abort=abort))
    await until(lambda: room.store.looked >= 1)
    await room.approvals.decide("ap_3", YES, caller=BOSS)
    await until(lambda: room.store.looked >= 2)
    assert not waiting.done()
    await room.approvals.decide("ap_2", NO, caller=BOSS)
    await until(lambda: room.store.looked >= 3)
    if not returns:
        await found(room)
        assert not waiting.done()
        await room.approvals.decide("ap_1", YES, caller=BOSS)
    await asyncio.wait_for(waiting, 120)
    await room.close()


async def test_wait_returns_after_a_decision_in_another_process(tmp_path: Path) -> None:
    """Through the events of the store; so is a run that is cancelled there."""
    place = str(tmp_path / "gateway.db")
    here, there = Room(place), Room(place)
    await here.store.open()
    await there.store.open()
    await here.ask(1, 2)
    first = asyncio.create_task(here.wait(1))
    second = asyncio.create_task(here.wait(2))
    await until(lambda: here.store.looked >= 2)
    await there.approvals.decide("ap_1", YES, caller=BOSS)
    await asyncio.wait_for(first, 120)
    assert not second.done()
    await there.store.cancel("run_1", tenant="acme", now_s=here.now_s, events=(), audit=())
    await asyncio.wait_for(second, 120)
    assert await here.state("ap_2") == "cancelled"
    for one in (here, there):
        await one.close()


async def test_waiting_run_expires_its_overdue_approval(room: Room) -> None:
    """No one else has to look at the clock."""
    await room.ask(1, expires_s=room.now_s + 0.05)
    waiting = asyncio.create_task(room.wait())
    await until(lambda: room.store.looked >= 1)
    assert await room.state() == "pending"
    room.clock.advance(1)
    await asyncio.wait_for(waiting, 120)
    assert await room.state() == "expired"


async def test_decided_approval_does_not_wake_the_wait_at_expiry(room: Room) -> None:
    """One of the group that was approved long ago must not keep the others' waiter busy."""
    await room.ask(1, expires_s=room.now_s + 7200)
    there = await room.store.run("run_1", tenant="acme")
    assert there is not None
    long_ago = approval("ap_2", step=2, state="approved", created_s=1.0, expires_s=2.0)
    await room.store.write(Change(run=there, approvals=(long_ago,)))
    waiting = asyncio.create_task(room.wait(1, 2))
    await until(lambda: room.store.looked >= 1)
    for _ in range(10):
        await found(room)
    assert room.store.looked == 1
    await room.approvals.decide("ap_1", YES, caller=BOSS)
    await asyncio.wait_for(waiting, 120)


async def test_wait_returns_at_once_for_decided_approvals(room: Room) -> None:
    """Whoever comes late goes on at once."""
    await room.ask(1)
    await room.approvals.decide("ap_1", YES, caller=BOSS)
    await asyncio.wait_for(room.wait(), 120)


async def test_waiting_run_keeps_waiting_for_a_reissued_approval(room: Room) -> None:
    """Until the new one is decided."""
    await room.ask(1)
    waiting = asyncio.create_task(room.wait())
    await until(lambda: room.store.looked >= 1)
    room.judges.bound = ApprovalBinding("new", "b" * 64)
    await refused(room, YES)
    await until(lambda: room.store.looked >= 2)
    await found(room)
    assert not waiting.done()
    fresh = (await room.approvals.index_by_step("run_1", tenant="acme"))[1]
    await room.approvals.decide(fresh.id, YES, caller=BOSS)
    await asyncio.wait_for(waiting, 120)
