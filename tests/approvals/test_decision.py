"""Decisions of several people on one call: in any order, at once, with other arguments, after a restart."""

import asyncio
import itertools
import random
from pathlib import Path

import orjson
import pytest

from gateway.approvals.approvals import Decision
from gateway.contracts.caller import Caller
from gateway.contracts.canonical_json import call_sha256
from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.endorsements import hash_waiting_call, list_endorsements, select_counted_endorsements
from gateway.contracts.storage.journal import Approval
from gateway.tools.decision_rules import ApprovalRequirement, DecisionRules

from .room import Room

TWO = DecisionRules(requirements=(ApprovalRequirement(approvals=2),))
PEOPLE = [Caller(name, "acme", frozenset(("approve",))) for name in ("anna", "ben", "cleo")]
ANNA, BEN, CLEO = PEOPLE
YES, NO = Decision(approve=True, via="rest"), Decision(approve=False, via="rest")
COMMANDS = ("make", "make -n", "make -k")


@pytest.fixture
def room(room: Room) -> Room:
    """The approvals of a run, each call of which two keys must approve."""
    room.judges.rules = TWO
    return room


def edited(command: str) -> Decision:
    return Decision(approve=True, via="rest", arguments={"command": command})


async def found(room: Room) -> Approval:
    approval = await room.store.get_approval("ap_1", tenant="acme")
    assert approval is not None
    return approval


async def tried(room: Room, wish: Decision, caller: Caller) -> str:
    """Decide, and return the state afterwards or the code of the error."""
    try:
        return (await room.approvals.decide("ap_1", wish, caller=caller)).state
    except GatewayError as error:
        return error.code


async def test_approvals_of_identical_arguments_are_counted_across_intermediate_edits(room: Room) -> None:
    """A key approves what it was shown: others may have changed that and changed it back."""
    await room.ask(1, required=2)
    first = call_sha256("execute_command", '{"command":"make"}')
    assert await tried(room, YES, ANNA) == "pending"
    assert await tried(room, edited("make -n"), BEN) == "pending"
    assert [one.by for one in select_counted_endorsements(await found(room))] == ["ben"]
    assert await tried(room, edited("make"), CLEO) == "approved"
    approved = await found(room)
    assert (approved.edited, hash_waiting_call(approved)) == (None, first)
    assert [one.by for one in select_counted_endorsements(approved)] == ["anna", "cleo"]


async def test_concurrent_decisions_approve_a_call_with_exactly_two_keys(room: Room) -> None:
    """Of one key all but one are told that it has approved; the audit log has one line for each that counted."""
    await room.ask(1, required=2)
    heard = await asyncio.gather(*(tried(room, YES, caller) for caller in (ANNA, BEN) for _ in range(50)))
    assert set(heard) <= {"pending", "approved", "approved_already"} and heard.count("pending") == 1
    lines = [row.line for row in await room.store.audit(after=0, limit=500) if row.line.event == "decision"]
    assert [line.decision for line in lines] == ["partly_approved", "approved"]
    assert {line.by for line in lines} == {"anna", "ben"}


@pytest.mark.parametrize("seed", range(40))
async def test_any_decision_order_requires_two_approvals_of_the_same_call(room: Room, seed: int) -> None:
    """Three people approve, edit and reject, some of them at once: two of them approved exactly what then runs."""
    chance = random.Random(seed)
    await room.ask(1, required=2)
    wishes = [YES, *(edited(command) for command in COMMANDS), *([NO] if chance.random() < 0.3 else [])]
    said: list[tuple[str, str, str]] = []  # who approved which call, and what became of it

    async def decide(caller: Caller, wish: Decision) -> None:
        before = hash_waiting_call(await found(room))
        if wish.arguments is not None:
            before = call_sha256("execute_command", orjson.dumps(wish.arguments).decode())
        elif wish.approve:
            wish = Decision(approve=True, via="rest", sha256=before)
        said.append((caller.name, before if wish.approve else "", await tried(room, wish, caller)))

    for _ in range(8):
        together = chance.sample(PEOPLE, chance.choice((1, 1, 2, 3)))
        await asyncio.gather(*(decide(caller, chance.choice(wishes)) for caller in together))
    approval = await found(room)
    events = [event.type for event in await room.store.list_events(after=0, run_id="run_1", limit=500)]
    assert events.count("approval.resolved") == (approval.state != "pending")
    kept = list_endorsements(approval)
    assert len({one.by for one in kept}) == len(kept)
    counted = {one.by for one in select_counted_endorsements(approval)}
    final = {
        name for name, sha256, how in said if sha256 == hash_waiting_call(approval) and how in ("pending", "approved")
    }
    assert counted <= final
    assert (len(counted) >= 2) == (approval.state == "approved")
    rows = await room.store.audit(after=0, limit=500)
    assert len([row for row in rows if row.line.decision == "approved"]) == (approval.state == "approved")
    assert all(earlier.seq + 1 == later.seq for earlier, later in itertools.pairwise(rows))


async def test_the_first_of_two_approvals_outlives_the_process(tmp_path: Path) -> None:
    """Another one reads it from the store, and knows who gave it."""
    place = str(tmp_path / "gateway.db")
    one = Room(place)
    one.judges.rules = TWO
    await one.store.open()
    await one.ask(1, required=2)
    assert await tried(one, YES, ANNA) == "pending"
    await one.close()
    other = Room(place)
    other.judges.rules = TWO
    await other.store.open()
    assert await tried(other, YES, ANNA) == "approved_already"
    assert await tried(other, YES, BEN) == "approved"
    await other.close()


async def test_partial_approval_expires_with_the_call(room: Room) -> None:
    await room.ask(1, required=2)
    assert await tried(room, YES, ANNA) == "pending"
    room.clock.advance(3601)
    assert (await tried(room, YES, BEN), await room.state()) == ("approval_expired", "expired")
