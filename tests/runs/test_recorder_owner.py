"""Whose run it is: the recorder loses it, leaves it, or judges it anew."""

import asyncio
from dataclasses import replace

import orjson
import pytest
from functional.through import breathe

from gateway.contracts.calls import CallOutcome
from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.store import Json
from gateway.runs.lease import LEASE_S
from gateway.runs.leases import abandon
from tests.agent.doubles import Clock

from .desk import DONE, Desk, planned

# Whose run it is.


async def test_recorder_that_lost_its_run_writes_nothing(desk: Desk) -> None:
    """Neither before an effect nor behind it; it says so in a way that no client repeats."""
    desk.recorder.record_calls([planned(x=1), planned(x=2)], round_=0)
    await desk.recorder.start(0, approval=None)
    now_s = Clock(desk.clock).time() + LEASE_S + 1
    await desk.store.claim(
        owner="worker_2", now_s=now_s, until_s=now_s + 5, states=["running"], run_id="run_1", limit=1
    )
    for writes in (
        lambda: desk.recorder.write_outcome(0, DONE, ok=True),
        lambda: desk.recorder.start(1, approval=None),
        lambda: desk.recorder.park("awaiting_approval"),
        lambda: desk.recorder.end_run("completed", answer=b"{}"),
        lambda: desk.recorder.release_run(stopping=True),
    ):
        with pytest.raises(GatewayError) as lost:
            await writes()
        assert (lost.value.code, lost.value.facts.status, lost.value.settled) == ("run_cancelled", 422, True)
    assert [step.state for step in await desk.steps()] == ["started", "planned"]


async def test_last_call_of_a_lost_run_is_recorded_as_late(desk: Desk) -> None:
    """The outcome would have come with the end of the run, which another owner writes."""
    desk.recorder.record_calls([planned(x=1)], round_=0)
    await desk.recorder.start(0, approval=None)
    now_s = Clock(desk.clock).time() + LEASE_S + 1
    await desk.store.claim(
        owner="worker_2", now_s=now_s, until_s=now_s + 5, states=["running"], run_id="run_1", limit=1
    )
    await desk.recorder.write_outcome(0, DONE, ok=True, is_last=True)
    with pytest.raises(GatewayError):
        await desk.recorder.end_run("completed", answer=b"{}")
    (step,) = await desk.steps()
    assert step.state == "started" and "done" in str(step.late)


async def test_cancelled_run_starts_no_further_call(desk: Desk) -> None:
    """Its question is gone, too."""
    desk.recorder.record_calls([planned(decision="confirm", x=1)], round_=0)
    await desk.asked()
    approved = await desk.move("approved")
    assert await desk.store.cancel("run_1", tenant="acme", now_s=1.0, events=(), audit=())
    with pytest.raises(GatewayError) as lost:
        await desk.recorder.start(0, approval=approved)
    assert lost.value.code == "run_cancelled"
    run = await desk.run()
    assert run is not None and run.state == "cancelled"


async def test_call_starts_only_once_under_its_approval(desk: Desk) -> None:
    """Whoever comes second does not."""
    desk.recorder.record_calls([planned(decision="confirm", x=1)], round_=0)
    await desk.asked()
    approved = await desk.move("approved")
    await desk.recorder.start(0, approval=approved)
    with pytest.raises(GatewayError):
        await desk.recorder.start(0, approval=approved)


@pytest.mark.parametrize(
    ("ok", "outcome", "state"), [(True, DONE, "done"), (False, DONE, "failed"), (False, None, "unknown")]
)
async def test_approval_state_follows_the_outcome_of_its_call(
    desk: Desk, ok: bool, outcome: CallOutcome | None, state: str
) -> None:
    """To its end."""
    desk.recorder.record_calls([planned(decision="confirm", x=1)], round_=0)
    await desk.asked()
    await desk.recorder.start(0, approval=await desk.move("approved"))
    await desk.recorder.write_outcome(0, outcome, ok=ok)
    assert (await desk.store.get_approval("ap_0", tenant="acme")).state == state  # type: ignore[union-attr]


# How a run is left.


async def test_parked_run_has_no_owner_or_lease(desk: Desk) -> None:
    """Its driver is told before: nobody keeps its lease."""
    desk.recorder.record_calls([planned(decision="confirm", x=1)], round_=0)
    await desk.asked()
    await desk.recorder.park("awaiting_approval")
    run = await desk.run()
    assert run is not None and (run.state, run.owner, run.lease_s) == ("awaiting_approval", None, 0.0)
    assert desk.outcome == ["hold", "wrote", "drop", "wrote"]
    await desk.recorder.release_run(stopping=False)
    assert len(desk.store.changes) == 2


@pytest.mark.parametrize(
    ("stopping", "asked", "state"),
    [
        (False, False, "interrupted"),
        (True, False, "running"),
        (False, True, "awaiting_approval"),
        (True, True, "running"),
    ],
)
async def test_left_run_is_stored_without_owner_in_the_expected_state(
    desk: Desk, stopping: bool, asked: bool, state: str
) -> None:
    """It ends without its client, unless its process stops or somebody was asked who may still answer."""
    desk.recorder.record_calls([planned(x=1), planned(decision="confirm", x=2)], round_=0)
    await desk.recorder.start(0, approval=None)
    await desk.recorder.write_outcome(0, DONE, ok=True)
    if asked:
        await desk.asked(1)
    await desk.recorder.release_run(stopping=stopping)
    run = await desk.run()
    assert run is not None and (run.state, run.owner) == (state, None)
    pending = await desk.store.list_approvals(tenant="acme", state="pending", limit=9)
    assert len(pending) == asked


async def test_ended_run_cancels_its_pending_approvals(desk: Desk) -> None:
    """Whatever ended it."""
    desk.recorder.record_calls([planned(decision="confirm", x=1), planned(decision="confirm", x=2)], round_=0)
    await desk.asked(0)
    await desk.asked(1)
    await desk.recorder.start(0, approval=await desk.move("approved"))
    await desk.recorder.end_run("failed", error=GatewayError("agent_timeout", "Too long."))
    states = {one.id: one.state for one in await desk.store.list_approvals(tenant="acme", limit=9)}
    assert states == {"ap_0": "executing", "ap_1": "cancelled"}
    run = await desk.run()
    assert run is not None and (run.state, run.error_code, run.error) == ("failed", "agent_timeout", "Too long.")


async def test_run_end_that_cannot_be_written_is_queued_as_owed(desk: Desk) -> None:
    """With all that no line has brought yet; what is written behind an effect comes with the next line instead."""
    desk.recorder.record_calls([planned(x=1)], round_=0)
    await desk.recorder.start(0, approval=None)
    desk.store.failing = 2
    await desk.recorder.write_outcome(0, DONE, ok=True)
    assert desk.owed == []
    await desk.recorder.end_run("completed", answer=b"{}")
    (change,) = desk.owed
    assert (change.run.state, [step.state for step in change.steps]) == ("completed", ["finished"])
    await desk.store.write(change)
    assert await desk.kinds() == ["tool.started", "tool.finished", "run.finished"]


async def test_cancelled_recorder_finishes_the_write_in_progress(desk: Desk) -> None:
    """The line is whole; the run is held as any other. A client leaves, and then the gateway stops."""
    desk.recorder.record_calls([planned(x=1)], round_=0)
    desk.store.hold = asyncio.Event()
    starting = asyncio.create_task(desk.recorder.start(0, approval=None))
    while not desk.store.changes:
        await asyncio.sleep(0)
    for _ in range(2):
        starting.cancel()
        await breathe()
        assert not starting.done()
    desk.store.hold.set()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert desk.recorder.is_stored and desk.outcome == ["hold", "wrote"]
    assert [step.state for step in await desk.steps()] == ["started"]


# Judged anew.


async def test_call_refused_by_changed_policy_is_stored_as_refused(desk: Desk) -> None:
    """Whoever goes on with the run next must not take it for one that may run."""
    desk.recorder.record_calls([planned(x=1), planned(x=2)], round_=0)
    await desk.recorder.start(1, approval=None)
    desk.recorder.record_verdict(0, planned(decision="deny", refusal="Not run: refused by policy.", x=1))
    await desk.recorder.write_outcome(1, DONE, ok=True)
    refused, _ = await desk.steps()
    assert (refused.state, refused.decision, refused.result) == ("refused", "deny", "Not run: refused by policy.")


async def test_abandoned_run_is_stored_as_failed_with_its_reason(desk: Desk) -> None:
    """It says why; one that somebody else has by now is left alone."""
    desk.recorder.record_calls([planned(x=1)], round_=0)
    await desk.recorder.start(0, approval=None)
    run = await desk.run()
    assert run is not None
    await abandon(replace(run, fence=7), "no chain", store=desk.store, clock=Clock(desk.clock), tracer=None)
    assert (await desk.run()) == run
    await abandon(run, "no chain", store=desk.store, clock=Clock(desk.clock), tracer=None)
    ended = await desk.run()
    assert ended is not None and (ended.state, ended.error, ended.owner) == ("failed", "no chain", None)
    assert (await desk.kinds())[-1] == "run.finished"


async def test_arguments_of_any_shape_are_kept(desk: Desk) -> None:
    """As deep and as odd as a model writes them."""
    deep: Json = {"x": 1}
    for _ in range(300):
        deep = {"d": deep}
    desk.recorder.record_calls([planned(**deep), planned(x="\x00 \u2028 😀")], round_=0)
    await desk.recorder.start(0, approval=None)
    first, second = await desk.steps()
    assert orjson.loads(first.arguments) == deep and orjson.loads(second.arguments) == {"x": "\x00 \u2028 😀"}
