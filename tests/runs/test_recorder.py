"""The pen of a run, on a real store: what is written when, and what is not when it cannot be."""

from dataclasses import replace

import orjson
import pytest

from gateway.contracts.calls import CallOutcome
from gateway.contracts.canonical_json import call_sha256
from gateway.contracts.exchange import Resume
from gateway.runs.lease import LEASE_S
from gateway.runs.request_snapshot import RESULT_CHARS, dump_request, load_exchange
from tests.agent.doubles import Clock

from .desk import DONE, EXCHANGE, Desk, full, planned

# What is written.


async def test_run_without_calls_writes_nothing_to_the_store(desk: Desk) -> None:
    """It may end however it likes."""
    desk.recorder.record_calls([], round_=0)
    await desk.recorder.record_refusals()
    await desk.recorder.end_run("completed", answer=b"{}")
    await desk.recorder.release_run(stopping=False)
    assert await desk.run() is None and desk.store.changes == [] and not desk.recorder.is_stored and desk.outcome == []


async def test_run_is_stored_before_its_first_call(desk: Desk) -> None:
    """With its lease, the call, its verdict and how far the loop is; all that survives a power cut."""
    (number,) = desk.recorder.record_calls([planned(x=1)], round_=0)
    await desk.recorder.start(number, approval=None)
    run = await desk.run()
    assert run is not None and (run.state, run.effects, run.owner) == ("running", True, "worker_1")
    assert run.lease_s == Clock(desk.clock).time() + LEASE_S
    assert (run.fingerprint, run.idempotency_key, run.conversation) == ("f" * 64, "k", "c1")
    assert orjson.loads(run.progress) == {"said": "so far"}
    (step,) = await desk.steps()
    assert (step.state, step.arguments, step.sha256) == ("started", '{"x":1}', call_sha256("look", '{"x":1}'))
    assert await desk.audit() == [(0, "verdict"), (0, "started")] and await desk.kinds() == ["tool.started"]
    assert desk.outcome == ["hold", "wrote"] and desk.store.changes[0].durable


async def test_run_can_be_stored_before_any_call(desk: Desk) -> None:
    """A workflow is, from its first step on; if it cannot be written down, it does not begin."""
    desk.store.failing = 1
    await full(desk.recorder.store_run)
    assert not desk.recorder.is_stored and await desk.run() is None
    await desk.recorder.store_run()
    assert desk.recorder.is_stored and desk.outcome == ["hold", "wrote"]
    run = await desk.run()
    assert run is not None
    assert (run.state, run.kind, run.effects, run.owner) == ("running", "chat", False, "worker_1")
    assert await desk.steps() == [] and await desk.kinds() == []


async def test_workflow_run_is_stored_with_kind_workflow(desk: Desk) -> None:
    """So that whoever looks can tell it from a chat."""
    desk.recorder.exchange = replace(
        EXCHANGE, job=replace(EXCHANGE.job, workflow={"definition": {"name": "report"}, "parameters": {}})
    )
    await desk.recorder.store_run()
    run = await desk.run()
    assert run is not None and (run.kind, run.workflow) == ("workflow", "report")


async def test_call_result_is_written_without_durability(desk: Desk) -> None:
    """Only what comes before an effect must."""
    desk.recorder.record_calls([planned(x=1)], round_=0)
    await desk.recorder.start(0, approval=None)
    await desk.recorder.write_outcome(0, DONE, ok=True)
    assert [change.durable for change in desk.store.changes] == [True, False]
    (step,) = await desk.steps()
    assert (step.state, step.result, step.shown) == ("finished", "done", None)
    assert await desk.kinds() == ["tool.started", "tool.finished"] and desk.outcome == ["hold", "wrote", "wrote"]


async def test_last_result_and_run_end_are_written_together(desk: Desk) -> None:
    """A run whose end follows its call at once is written twice: before the effect, and behind it."""
    desk.recorder.record_calls([planned(x=1)], round_=0)
    await desk.recorder.start(0, approval=None)
    await desk.recorder.write_outcome(0, DONE, ok=True, is_last=True)
    await desk.recorder.record_refusals()
    await desk.recorder.end_run("completed", answer=b"{}")
    assert [change.run.state for change in desk.store.changes] == ["running", "completed"]
    (step,), run = await desk.steps(), await desk.run()
    assert run is not None and (step.state, step.result, run.state) == ("finished", "done", "completed")
    assert await desk.kinds() == ["tool.started", "tool.finished", "run.finished"]


@pytest.mark.parametrize(
    ("outcome", "ok", "state", "result", "shown"),
    [
        (CallOutcome("short", "the whole"), True, "finished", "the whole", "short"),
        (CallOutcome("Error: x", "Error: x", ok=False), False, "failed", "Error: x", None),
        (CallOutcome("cut", "y" * (RESULT_CHARS + 1)), True, "finished", "cut", None),
        (None, False, "unknown", None, None),
    ],
)
async def test_long_results_are_stored_beside_the_shown_text(
    desk: Desk, outcome: CallOutcome | None, ok: bool, state: str, result: str | None, shown: str | None
) -> None:
    """Unless they are huge; what the model was shown is kept beside what it was not."""
    desk.recorder.record_calls([planned(x=1)], round_=0)
    await desk.recorder.start(0, approval=None)
    await desk.recorder.write_outcome(0, outcome, ok=ok)
    (step,) = await desk.steps()
    assert (step.state, step.result, step.shown) == (state, result, shown)


async def test_ended_run_drops_its_long_conversation(desk: Desk) -> None:
    """Until then it is there: whoever takes the run up needs it. An end that is owed brings the change, too."""
    body = {"model": "m", "messages": [{"role": "user", "content": "x" * 5000}]}
    desk.recorder.exchange = replace(EXCHANGE, body=body)
    await desk.recorder.store_run()
    run = await desk.run()
    assert run is not None and orjson.loads(run.request)["body"] == body
    desk.store.failing = 1
    await desk.recorder.end_run("completed", answer=b"{}")
    await desk.store.write(desk.owed[0])
    run = await desk.run()
    assert run is not None and run.state == "completed"
    assert orjson.loads(run.request)["body"] == {"model": "m", "messages": []}


async def test_no_credential_and_no_header_is_stored(desk: Desk) -> None:
    """A run that goes on has those of the request that brings it; everything else is as it was."""
    assert b"sk-secret" not in dump_request(EXCHANGE) and b"User-Agent" not in dump_request(EXCHANGE)
    desk.recorder.record_calls([planned(x=1)], round_=0)
    await desk.recorder.start(0, approval=None)
    run = await desk.run()
    assert run is not None and orjson.loads(run.request)["credential"] is True
    resumed = load_exchange(
        Resume(run), approvals="hold", header=EXCHANGE.origin.header, credential=EXCHANGE.origin.credential
    )
    assert replace(resumed, execution=replace(resumed.execution, resume=None)) == EXCHANGE
    alone = load_exchange(Resume(run), approvals="turn")
    assert (alone.origin.credential, alone.origin.header, alone.steering.approvals) == (b"", b"", "turn")


# A store that fails.


async def test_call_that_cannot_be_recorded_does_not_run(desk: Desk) -> None:
    """As if nothing had been: no run, no step, no line; and it may be tried again."""
    desk.recorder.record_calls([planned(x=1)], round_=0)
    before = list(desk.recorder.steps)
    desk.store.failing = 1
    await full(lambda: desk.recorder.start(0, approval=None))
    assert desk.recorder.steps == before and not desk.recorder.is_stored and await desk.run() is None
    assert desk.outcome == []
    await desk.recorder.start(0, approval=None)
    assert await desk.kinds() == ["tool.started"] and await desk.audit() == [(0, "verdict"), (0, "started")]


async def test_approval_that_cannot_be_stored_is_not_requested(desk: Desk) -> None:
    """The call is as it was."""
    desk.recorder.record_calls([planned(decision="confirm", x=1)], round_=0)
    desk.store.failing = 1
    await full(lambda: desk.asked())
    assert desk.recorder.steps[0].state == "planned" and desk.recorder.steps[0].approval_id is None
    await desk.asked()
    assert await desk.kinds() == ["approval.required"]
    assert [one.state for one in await desk.store.list_approvals(tenant="acme", limit=9)] == ["pending"]


async def test_approved_call_that_cannot_be_recorded_stays_approved(desk: Desk) -> None:
    """For when there is room again."""
    desk.recorder.record_calls([planned(decision="confirm", x=1)], round_=0)
    await desk.asked()
    approved = replace(await desk.move("approved"), edited='{"x":2}')
    desk.store.failing = 1
    await full(lambda: desk.recorder.start(0, approval=approved))
    assert desk.recorder.steps[0].arguments == '{"x":1}' and desk.recorder.steps[0].state == "requested"
    await desk.recorder.start(0, approval=approved)
    (step,) = await desk.steps()
    assert (step.state, step.arguments) == ("started", '{"x":2}')
    assert (await desk.store.get_approval("ap_0", tenant="acme")).state == "executing"  # type: ignore[union-attr]


async def test_unwritten_result_is_written_with_the_next_change(desk: Desk) -> None:
    """Behind an effect a run goes on; everything is there once, in order."""
    desk.recorder.record_calls([planned(x=1), planned(x=2)], round_=0)
    await desk.recorder.start(0, approval=None)
    desk.store.failing = 1
    await desk.recorder.write_outcome(0, DONE, ok=True)
    assert [step.state for step in await desk.steps()] == ["started", "planned"]
    await desk.recorder.start(1, approval=None)
    assert [step.state for step in await desk.steps()] == ["finished", "started"]
    desk.store.failing = 1
    await desk.recorder.write_outcome(1, DONE, ok=True)
    await desk.recorder.end_run("completed", answer=b"{}")
    assert [step.state for step in await desk.steps()] == ["finished", "finished"]
    assert await desk.kinds() == [*["tool.started", "tool.finished"] * 2, "run.finished"]
    ran = [(number, what) for number in (0, 1) for what in ("started", "finished")]
    assert await desk.audit() == [(0, "verdict"), (1, "verdict"), *ran]


async def test_run_with_an_unwritten_end_can_be_claimed_again(desk: Desk) -> None:
    """After its lease: its calls are known."""
    desk.recorder.record_calls([planned(x=1)], round_=0)
    await desk.recorder.start(0, approval=None)
    await desk.recorder.write_outcome(0, DONE, ok=True)
    desk.store.failing = 1
    await desk.recorder.end_run("completed", answer=b"{}")
    now_s = Clock(desk.clock).time() + LEASE_S + 1
    (run,) = await desk.store.claim(
        owner="worker_2", now_s=now_s, until_s=now_s + 5, states=["running"], run_id="run_1", limit=1
    )
    assert run.answer is None and desk.outcome[-1] == "drop"
