"""The desk on a real store: who may decide, what a decision holds for, that there is one, and how it is waited for."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import pytest
from running import until

from gateway.approvals.approvals import Approvals, Decision, approval_view
from gateway.contracts.caller import Caller
from gateway.contracts.canonical import call_sha256
from gateway.contracts.exchange import Exchange
from gateway.contracts.journal import Approval, Change, Move
from gateway.contracts.risk import Verdict
from gateway.contracts.store import Json
from gateway.errors import GatewayError
from gateway.plugins.stores.sqlite import SqliteStore
from gateway.runs.event_feed import EventFeed
from gateway.telemetry.counters import ContextCounters
from gateway.testing.clock import ManualClock
from gateway.tools.remembered import Binding
from tests.agent.doubles import Clock, samples
from tests.plugins.stores.records import approval, new, run, step

BOSS = Caller("bob", "acme", frozenset(("context", "approve")))
AGENT = Caller("ann", "acme", frozenset(("context",)))
RIVAL = Caller("eve", "other", frozenset(("context", "approve")))
BINDING = Binding("d" * 64, "b" * 64)
YES, NO = Decision(approve=True, via="rest"), Decision(approve=False, via="rest", comment="no")
ASKED = Exchange(id="run_1", body={"messages": []}, caller=AGENT, chain="main", conversation="c1")


class Counting(SqliteStore):
    """A store that notes how often approvals were looked at."""

    looked = 0

    async def approvals(
        self,
        *,
        tenant: str,
        state: str | None = None,
        conversation: str | None = None,
        run_id: str | None = None,
        limit: int,
    ) -> Sequence[Approval]:
        self.looked += 1
        return await super().approvals(
            tenant=tenant, state=state, conversation=conversation, run_id=run_id, limit=limit
        )


@dataclass
class Judges:
    """Tools and policy, as a test has them."""

    bound: Binding | None = BINDING
    decision: Literal["auto", "confirm", "deny", "error"] = "confirm"

    def binding(self, tool: str) -> Binding | None:
        return self.bound

    def edited(self, tool: str, arguments: Json) -> Verdict:
        return Verdict(self.decision, "default", "unknown_command", "it is not on the list")


@dataclass
class Room:
    """A desk, and what it stands on."""

    place: str = ":memory:"
    on_reject: Literal["abort", "continue"] = "abort"
    clock: ManualClock = field(default_factory=ManualClock)
    judges: Judges = field(default_factory=Judges)
    counters: ContextCounters = field(default_factory=ContextCounters)

    def __post_init__(self) -> None:
        self.store = Counting(self.place)
        self.feed = EventFeed(self.store)
        self.approvals = Approvals(
            self.store,
            self.feed,
            self.judges,
            counters=self.counters,
            clock=Clock(self.clock),
            expires_s=3600.0,
            on_reject=self.on_reject,
        )

    @property
    def now_s(self) -> float:
        return Clock(self.clock).time()

    async def ask(self, *steps: int, **facts: object) -> list[Approval]:
        """The run `run_1` waits for a person at these steps."""
        asked = [
            approval(
                f"ap_{number}",
                **{
                    "step": number,
                    "sha256": call_sha256("execute_command", approval().arguments),
                    "created_s": self.now_s,
                    "expires_s": self.now_s + 3600,
                    **facts,
                },
            )
            for number in steps
        ]
        calls = tuple(step(one.step, state="requested", approval_id=one.id) for one in asked)
        await self.store.write(new(run(state="awaiting_approval"), steps=calls, approvals=tuple(asked)))
        return asked

    async def state(self, approval_id: str = "ap_1") -> str:
        found = await self.store.approval(approval_id, tenant="acme")
        assert found is not None
        return found.state

    async def wait(self, *steps: int, abort: bool = True) -> None:
        await self.approvals.wait(steps or (1,), run_id="run_1", tenant="acme", abort=abort)

    async def close(self) -> None:
        await self.feed.close()
        await self.store.close()


@pytest.fixture
async def room() -> AsyncIterator[Room]:
    made = Room()
    await made.store.open()
    yield made
    await made.close()


async def refused(room: Room, wish: Decision, *, approval_id: str = "ap_1", caller: Caller = BOSS) -> GatewayError:
    with pytest.raises(GatewayError) as error:
        await room.approvals.decide(approval_id, wish, caller=caller)
    return error.value


# Asking.


def test_what_is_asked_for_is_bound_to_the_call() -> None:
    """To its arguments, the tool's definition, the policy and the caller; until it expires."""
    room = Room()
    issued = room.approvals.issue(step(3, reason="why"), ASKED)
    assert issued.id.startswith("ap_") and (issued.run_id, issued.step, issued.state) == ("run_1", 3, "pending")
    assert (issued.definition_sha256, issued.policy_sha256) == ("d" * 64, "b" * 64)
    assert (issued.caller, issued.tenant, issued.conversation) == ("ann", "acme", "c1")
    assert issued.expires_s - issued.created_s == 3600 and issued.reason == "why"
    assert room.approvals.issue(step(3), ASKED).id != issued.id
    assert room.approvals.holds(issued)
    room.judges.bound = Binding("d" * 64, "other")
    assert not room.approvals.holds(issued)
    room.judges.bound = None
    assert not room.approvals.holds(issued)


async def test_of_several_approvals_of_a_step_the_last_counts(room: Room) -> None:
    """However many there were: each step may be asked for anew."""
    await room.ask(1)
    there = await room.store.run("run_1", tenant="acme")
    assert there is not None
    more = tuple(approval(f"ap_more_{i}", created_s=room.now_s + i, state="cancelled") for i in range(300))
    last = approval("ap_last", created_s=room.now_s + 300)
    await room.store.write(Change(run=there, approvals=(*more, last)))
    assert (await room.approvals.of_run("run_1", tenant="acme"))[1].id == "ap_last"
    assert await room.approvals.of_run("run_1", tenant="other") == {}


# Who may decide.


async def test_only_who_may_decides(room: Room) -> None:
    """Another tenant learns nothing; a key without the scope is told so; nothing is decided."""
    await room.ask(1)
    for caller, code in ((RIVAL, "approval_not_found"), (AGENT, "scope_missing")):
        for wish in (YES, NO):
            assert (await refused(room, wish, caller=caller)).code == code
    absent = await refused(room, YES, approval_id="ap_none")
    assert absent.message == (await refused(room, YES, caller=RIVAL)).message
    assert await room.state() == "pending" and await room.store.audit(after=0, limit=9) == []


async def test_a_decision_is_on_record_before_anybody_hears_of_it(room: Room) -> None:
    """Who, how, when and why; in the audit log, as an event, and in the figures."""
    await room.ask(1)
    room.clock.advance(30)
    after = await room.approvals.decide("ap_1", Decision(approve=True, via="cli", comment="fine"), caller=BOSS)
    assert (after.state, after.decided_by, after.via, after.comment) == ("approved", "bob", "cli", "fine")
    assert after == await room.store.approval("ap_1", tenant="acme")
    (row,) = await room.store.audit(after=0, limit=9)
    line = row.line
    assert (line.event, line.decision, line.by, line.via, line.caller) == ("decision", "approved", "bob", "cli", "ann")
    events = await room.store.events(after=0, run_id="run_1", limit=9)
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


async def test_a_hundred_decisions_at_once_are_one(tmp_path: Path) -> None:
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
    assert len(await rooms[0].store.events(after=0, limit=200)) == 1
    counts = [samples(one.counters).get(("gateway_approvals_total", (state, "rest")), 0) for one in rooms]
    assert sum(counts) == 1
    for one in rooms:
        await one.close()


async def test_a_call_that_has_run_by_now_was_approved(room: Room) -> None:
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


async def test_a_decision_on_another_call_than_was_shown_is_none(room: Room) -> None:
    """`sha256` is the hash of what the person saw."""
    (asked,) = await room.ask(1)
    for wish in (YES, NO):
        wrong = await refused(room, replace(wish, sha256="f" * 64))
        assert (wrong.code, wrong.param) == ("approval_stale", "sha256")
    assert await room.state() == "pending"
    assert (await room.approvals.decide("ap_1", replace(YES, sha256=asked.sha256), caller=BOSS)).state == "approved"


async def test_an_approval_of_what_has_changed_since_is_asked_for_anew(room: Room) -> None:
    """The tool or the policy; a rejection needs neither. However many find that out at once, they are told one id."""
    await room.ask(1)
    room.judges.bound = Binding("new", "b" * 64)
    errors = await asyncio.gather(*(refused(room, YES) for _ in range(10)))
    assert {error.code for error in errors} == {"approval_stale"}
    fresh = (await room.approvals.of_run("run_1", tenant="acme"))[1]
    found = await room.store.approvals(tenant="acme", run_id="run_1", limit=99)
    assert [one.state for one in found] == ["cancelled", "pending"]
    assert all(fresh.id in error.message for error in errors)
    assert (fresh.definition_sha256, fresh.arguments, fresh.step) == ("new", approval().arguments, 1)
    (kept,) = await room.store.steps("run_1", tenant="acme")
    assert kept.approval_id == fresh.id
    assert (await room.approvals.decide(fresh.id, NO, caller=BOSS)).state == "rejected"


async def test_a_call_whose_tool_is_gone_can_only_be_rejected(room: Room) -> None:
    """There is nothing to ask anew for."""
    await room.ask(1)
    room.judges.bound = None
    assert (await refused(room, YES)).code == "approval_stale" and await room.state() == "pending"
    assert (await room.approvals.decide("ap_1", NO, caller=BOSS)).state == "rejected"


async def test_nobody_decides_when_the_time_is_over(room: Room) -> None:
    """Also where nobody has looked at the clock since; the last moment is too late."""
    await room.ask(1)
    room.clock.advance(3600)
    for wish in (YES, NO, YES):
        assert (await refused(room, wish)).code == "approval_expired"
    assert await room.state() == "expired"


async def test_what_expires_is_counted(room: Room) -> None:
    """Once, by whoever found it."""
    await room.ask(1, 2)
    assert await room.approvals.expire() == []
    room.clock.advance(3600)
    assert {one.id for one in await room.approvals.expire()} == {"ap_1", "ap_2"}
    assert await room.approvals.expire() == []
    assert samples(room.counters)["gateway_approvals_total", ("expired", "time")] == 2


# Arguments that a person changed.


async def test_an_edited_call_is_judged(room: Room) -> None:
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
    assert approval_view(after)["edited_arguments"] == {"command": "make -n"}


async def test_an_edit_that_changes_nothing_is_none(room: Room) -> None:
    """Nor is one beside a rejection."""
    await room.ask(1)
    room.judges.decision = "deny"
    same = replace(YES, arguments={"command": "make"})
    assert (await room.approvals.decide("ap_1", same, caller=BOSS)).edited is None


async def test_another_edit_is_another_decision(room: Room) -> None:
    """The same one again is the same."""
    await room.ask(1)
    edit = replace(YES, arguments={"command": "make -n"})
    first = await room.approvals.decide("ap_1", edit, caller=BOSS)
    assert await room.approvals.decide("ap_1", edit, caller=BOSS) == first
    assert (await refused(room, replace(YES, arguments={"command": "rm"}))).code == "decision_conflict"


# What is remembered.


async def test_a_remembered_approval_holds_for_its_call(room: Room) -> None:
    """Of the same caller, in the same conversation; while tool and policy are the same."""
    (asked,) = await room.ask(1)
    await room.approvals.decide("ap_1", replace(YES, remember="conversation"), caller=BOSS)
    (kept,) = await room.store.grants(tenant="acme", now_s=0.0, limit=9)
    assert (kept.run_id, kept.conversation, kept.granted_by) == (None, "c1", "bob")
    call = step(9, run_id="run_2", sha256=asked.sha256)
    later = replace(ASKED, id="run_2")
    assert await room.approvals.remembered.grant(call, later) == kept
    assert await room.approvals.remembered.grant(replace(call, sha256="f" * 64), later) is None
    assert await room.approvals.remembered.grant(call, replace(later, conversation="c2")) is None
    assert await room.approvals.remembered.grant(call, replace(later, conversation=None)) is None
    assert await room.approvals.remembered.grant(call, replace(later, caller=replace(AGENT, name="bob"))) is None
    assert await room.approvals.remembered.grant(replace(call, tenant="other"), later) is None
    room.judges.bound = Binding("new", "b" * 64)
    assert await room.approvals.remembered.grant(call, later) is None


async def test_an_approval_remembered_for_a_run_is_not_one_for_its_conversation(room: Room) -> None:
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


async def test_nothing_is_remembered_that_was_not_approved(room: Room) -> None:
    """A rejection grants nothing; neither does a decision that came too late."""
    await room.ask(1, 2)
    await room.approvals.decide("ap_2", NO, caller=BOSS)
    await room.approvals.decide("ap_1", replace(NO, remember="conversation"), caller=BOSS)
    with suppress(GatewayError):
        await room.approvals.decide("ap_1", replace(YES, remember="conversation"), caller=BOSS)
    assert await room.store.grants(tenant="acme", now_s=0.0, limit=9) == []


async def test_without_a_conversation_there_is_none_to_remember_in(room: Room) -> None:
    """It says so, and nothing is decided."""
    await room.ask(1, conversation=None)
    wrong = await refused(room, replace(YES, remember="conversation"))
    assert (wrong.code, wrong.param) == ("invalid_field", "remember")
    assert await room.state() == "pending"
    assert (await room.approvals.decide("ap_1", replace(YES, remember="run"), caller=BOSS)).state == "approved"


# Groups.


async def test_a_rejection_takes_the_others_with_it(room: Room) -> None:
    """Those that are decided already stay as they are."""
    await room.ask(1, 2, 3)
    await room.approvals.decide("ap_3", YES, caller=BOSS)
    await room.approvals.decide("ap_2", NO, caller=BOSS)
    found = await room.approvals.of_run("run_1", tenant="acme")
    assert [(found[i].state, found[i].comment) for i in (1, 2, 3)] == [
        ("rejected", "rejected together with ap_2"),
        ("rejected", "no"),
        ("approved", None),
    ]
    assert (await room.approvals.decide("ap_1", NO, caller=BOSS)).state == "rejected"


async def test_a_rejection_takes_those_with_it_that_were_asked_for_behind_it(tmp_path: Path) -> None:
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


async def test_a_rejection_is_one_of_its_call_where_runs_go_on() -> None:
    """`on_reject: continue`."""
    room = Room(on_reject="continue")
    await room.store.open()
    await room.ask(1, 2)
    await room.approvals.decide("ap_2", NO, caller=BOSS)
    assert await room.state("ap_1") == "pending"
    await room.close()


async def test_several_are_decided_together_or_not_at_all() -> None:
    """What was refused never takes effect: one that is decided otherwise, or stale, keeps the others pending."""
    room = Room(on_reject="continue")
    await room.store.open()
    await room.ask(1, 2, 3)
    await room.approvals.decide("ap_2", NO, caller=BOSS)
    with pytest.raises(GatewayError) as conflict:
        await room.approvals.rule_all(["ap_1", "ap_2", "ap_3"], YES, caller=BOSS)
    assert conflict.value.code == "decision_conflict"
    assert conflict.value.message == "Nothing was decided: the approval ap_2 is rejected already."
    bound, room.judges.bound = room.judges.bound, Binding("e" * 64, "b" * 64)
    with pytest.raises(GatewayError) as stale:
        await room.approvals.rule_all(["ap_1", "ap_3"], YES, caller=BOSS)
    assert stale.value.code == "approval_stale"
    room.judges.bound = bound
    assert [await room.state(one) for one in ("ap_1", "ap_3")] == ["cancelled", "pending"], "ap_1 is asked for anew"
    assert (await room.approvals.decide("ap_3", YES, caller=BOSS)).state == "approved"
    await room.close()


# Waiting.


async def test_who_waits_does_not_poll(room: Room) -> None:
    """The approvals are looked at when something happened to the run, and at no other time."""
    await room.ask(1)
    waiting = asyncio.create_task(room.wait())
    await until(lambda: room.store.looked >= 1)
    await asyncio.sleep(0.5)
    assert room.store.looked == 1 and not waiting.done()
    await room.approvals.decide("ap_1", YES, caller=BOSS)
    await asyncio.wait_for(waiting, 120)
    assert room.store.looked == 2


@pytest.mark.parametrize(("abort", "returns"), [(True, True), (False, False)])
async def test_the_first_of_a_group_is_waited_for(abort: bool, returns: bool) -> None:
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
    await asyncio.sleep(0.01)
    assert waiting.done() is returns
    if not returns:
        await room.approvals.decide("ap_1", YES, caller=BOSS)
    await asyncio.wait_for(waiting, 120)
    await room.close()


async def test_a_decision_in_another_process_is_heard(tmp_path: Path) -> None:
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


async def test_who_waits_ends_what_is_over(room: Room) -> None:
    """No one else has to look at the clock."""
    await room.ask(1, expires_s=room.now_s + 0.05)
    waiting = asyncio.create_task(room.wait())
    await until(lambda: room.store.looked >= 1)
    assert await room.state() == "pending"
    room.clock.advance(1)
    await asyncio.wait_for(waiting, 120)
    assert await room.state() == "expired"


async def test_what_is_decided_expires_no_more(room: Room) -> None:
    """One of the group that was approved long ago must not keep the others' waiter busy."""
    await room.ask(1, expires_s=room.now_s + 7200)
    there = await room.store.run("run_1", tenant="acme")
    assert there is not None
    long_ago = approval("ap_2", step=2, state="approved", created_s=1.0, expires_s=2.0)
    await room.store.write(Change(run=there, approvals=(long_ago,)))
    waiting = asyncio.create_task(room.wait(1, 2))
    await until(lambda: room.store.looked >= 1)
    await asyncio.sleep(0.05)
    assert room.store.looked == 1
    await room.approvals.decide("ap_1", YES, caller=BOSS)
    await asyncio.wait_for(waiting, 120)


async def test_what_is_decided_already_is_not_waited_for(room: Room) -> None:
    """Whoever comes late goes on at once."""
    await room.ask(1)
    await room.approvals.decide("ap_1", YES, caller=BOSS)
    await asyncio.wait_for(room.wait(), 120)


async def test_an_approval_that_is_asked_for_anew_is_waited_for_as_the_old_one(room: Room) -> None:
    """Until the new one is decided."""
    await room.ask(1)
    waiting = asyncio.create_task(room.wait())
    await until(lambda: room.store.looked >= 1)
    room.judges.bound = Binding("new", "b" * 64)
    await refused(room, YES)
    await until(lambda: room.store.looked >= 2)
    await asyncio.sleep(0.01)
    assert not waiting.done()
    fresh = (await room.approvals.of_run("run_1", tenant="acme"))[1]
    await room.approvals.decide(fresh.id, YES, caller=BOSS)
    await asyncio.wait_for(waiting, 120)
