"""What an approval holds for, and calls that are stopped while they run."""

import asyncio
import re

import pytest

from gateway.contracts.errors import GatewayError
from gateway.contracts.risk import Verdict
from gateway.contracts.storage.journal import RunState
from gateway.contracts.tools import ToolCall, ToolResult
from gateway.tools.gate import Policy
from tests.scripted_replies import told

from .agent_bench import Bench, Harmless, answer, behind_question, call, group, texts
from .doubles import Endless, samples
from .rounds import RISKY, events_of, risky, until_asked

# What an approval holds for.


async def test_edited_call_runs_with_the_edited_arguments() -> None:
    """And the model is told."""
    bench = Bench([answer(risky(1)), answer("Fine.")])
    await bench.run()
    await bench.decide(arguments={"x": 7})
    await bench.resumed()
    assert [c.arguments for c in bench.calls] == [{"x": 7}]
    result = bench.asked[1].body["messages"][-1]["content"]
    assert "A person changed the arguments" in result and "looked at {'x': 7}" in result
    (step,) = await bench.steps()
    assert step.arguments == '{"x":7}'
    await bench.close()


async def test_edited_arguments_that_do_not_fit_the_tool_are_refused() -> None:
    """Nothing is decided by it."""
    bench = Bench([answer(call(tool="look", risk_level=RISKY))], policy=Policy(trust_llm="always", default="deny"))
    await bench.run()
    with pytest.raises(GatewayError) as refused:
        await bench.decide(arguments={"x": 1})
    assert refused.value.code == "edit_refused"
    assert (await bench.pending_approvals())[0].state == "pending"
    await bench.close()


async def test_approval_under_a_changed_policy_is_stale() -> None:
    """It is asked for anew, and the old one is of no use."""
    bench = Bench([answer(risky()), answer("Fine.")])
    await bench.run()
    bench.policy = Policy(trust_llm="never", default="confirm")
    await bench.agents()
    with pytest.raises(GatewayError) as stale:
        await bench.decide()
    assert stale.value.code == "approval_stale"
    old, new = await bench.pending_approvals()
    assert (old.state, new.state) == ("cancelled", "pending") and new.id in stale.value.message
    await bench.decide()
    assert texts(await bench.resumed()) == "Fine." and len(bench.calls) == 1
    await bench.close()


async def test_policy_change_after_the_decision_requires_new_approval() -> None:
    """What was approved under the old one does not run."""
    bench = Bench([answer(risky()), answer("Fine.")])
    await bench.run()
    await bench.decide()
    bench.policy = Policy(trust_llm="never", default="confirm")
    assert "approve ap_" in texts(await bench.resumed())
    assert bench.calls == []
    assert [a.state for a in await bench.pending_approvals()] == ["cancelled", "pending"]
    await bench.close()


async def test_a_remembered_approval_clears_the_same_call_only() -> None:
    """In its run: the same tool with the same arguments, and nothing else."""
    bench = Bench([answer(risky(1)), answer(risky(1)), answer(risky(2)), answer("never")])
    await bench.run()
    await bench.decide(remember="run")
    told = await bench.resumed()
    assert [c.arguments for c in bench.calls] == [{"x": 1}, {"x": 1}]
    assert "x: 2" in texts(told)
    await bench.close()


async def test_remembered_approval_does_not_override_ask_before() -> None:
    """Each call of the tool asks, the same one again, too; others run."""
    bench = Bench([group(call(x=1), call("peek", x=1)), answer(call(x=1)), answer("never")])
    await bench.run(ask_first=("look",))
    assert [(a.rule, a.basis) for a in await bench.pending_approvals()] == [("client_asks", "operator")]
    await bench.decide(remember="run")
    assert "approve ap_" in texts(await bench.resumed())
    assert [c.tool for c in bench.calls] == ["look", "peek"]
    await bench.close()


async def test_call_refused_by_its_tool_requests_no_approval() -> None:
    """The model is told at once."""
    bench = Bench([answer(risky()), answer("I see.")], refuses=lambda _: "outside of the roots")
    assert texts(await bench.run()) == "I see."
    assert bench.asked[1].body["messages"][-1]["content"] == "Error: outside of the roots"
    assert bench.calls == []
    await bench.close()


async def test_engine_doubt_overrides_assessor_and_requires_approval_in_order() -> None:
    """The assessor's auto is not enough; what ran is marked as judged harmless, what was approved is not."""

    async def doubts(call: ToolCall) -> Verdict | None:
        return Verdict("confirm", "default", "engine", "it writes") if call.arguments["x"] == 2 else None

    bench = Bench([group(call(x=1, risk_level=""), call(x=2, risk_level="")), answer("Done.")], doubts=doubts)
    bench.assessors = {"look": Harmless()}
    await bench.run()
    assert [(asked.arguments, asked.harmless) for asked in bench.calls] == [({"x": 1}, True)]
    assert [(step.state, step.rule, step.reason) for step in await bench.steps()] == [
        ("finished", "harmless", "1 arguments"),
        ("requested", "engine", "it writes"),
    ]
    rows = await bench.store.audit(after=0, limit=10)
    assert [row.line.decision for row in rows if row.line.event == "verdict"] == ["auto", "auto", "confirm"]
    await bench.decide()
    assert texts(await bench.resumed()) == "Done."
    assert [(asked.arguments, asked.harmless) for asked in bench.calls][1:] == [({"x": 2}, False)]
    await bench.close()


async def test_policy_can_refuse_a_call_without_asking() -> None:
    """`risk.default: deny`; it is in the audit log, though nothing ran."""
    bench = Bench([answer('{"tool": "look", "parameters": {"x": 1}, "terminate": false}'), answer("I see.")])
    bench.policy = Policy(trust_llm="always", default="deny")
    assert texts(await bench.run()) == "I see." and bench.calls == []
    rows = await bench.store.audit(after=0, limit=10)
    assert [(row.line.event, row.line.decision) for row in rows] == [("verdict", "deny")]
    await bench.close()


async def test_every_decision_is_in_the_audit_log() -> None:
    """Who let it run, on which basis, and under which hash."""
    bench = Bench([group(call(x=1), risky(2)), answer("Done.")])
    await bench.run()
    await bench.decide()
    await bench.resumed()
    rows = await bench.store.audit(after=0, limit=20)
    lines = [(r.line.step, r.line.event, r.line.decision, r.line.basis, r.line.by, r.line.via) for r in rows]
    assert lines == [
        (0, "verdict", "auto", "llm", "", ""),
        (1, "verdict", "confirm", "llm", "", ""),
        (0, "started", "auto", "llm", "", ""),
        (0, "finished", "finished", "llm", "", ""),
        (1, "decision", "approved", "llm", "c", "rest"),
        (1, "started", "confirm", "llm", "", ""),
        (1, "finished", "finished", "llm", "", ""),
    ]
    assert all(re.fullmatch("[0-9a-f]{64}", r.line.sha256) for r in rows)
    await bench.close()


# Tools that are stopped.


async def _left_in_the_tool(bench: Bench, began: asyncio.Event, *, message: str | None = None) -> None:
    running = asyncio.create_task(told(await bench.reply()))
    await asyncio.wait_for(began.wait(), 120)
    running.cancel(message)
    await asyncio.wait({running})


@pytest.mark.parametrize(("message", "state"), [(None, "interrupted"), ("stopping", "running")])
async def test_tool_may_finish_within_its_grace_after_client_disconnect(message: str | None, state: RunState) -> None:
    """Within its grace; what it did is known. A process that stops leaves the run to the next one."""
    began, go_on = asyncio.Event(), asyncio.Event()

    async def slow(_asked: ToolCall) -> ToolResult:
        began.set()
        await go_on.wait()
        return ToolResult("was done")

    bench = Bench([answer(call()), answer("Done.")], does=slow)
    asyncio.get_running_loop().call_later(0.05, go_on.set)
    await _left_in_the_tool(bench, began, message=message)
    (step,) = await bench.steps()
    assert (step.state, step.result) == ("finished", "was done")
    run = await bench.stored()
    assert (run.state, run.owner) == (state, None)
    if state == "running":
        assert texts(await bench.resumed()) == "Done."
    await bench.close()


async def test_tool_stopped_after_its_grace_has_an_unknown_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is stopped, and never run again by itself."""
    monkeypatch.setattr("gateway.agent.call_execution.TOOL_GRACE_S", 0.02)
    endless = Endless()
    bench = Bench([answer(call())], does=endless)
    await _left_in_the_tool(bench, endless.began)
    assert endless.ended.is_set()
    (step,) = await bench.steps()
    assert step.state == "unknown" and (await bench.stored()).state == "interrupted"
    assert samples(bench.counters)["gateway_unknown_outcomes_total", ("look",)] == 1
    await bench.close()


async def test_held_stream_does_not_repeat_an_already_approved_question() -> None:
    """The second of two, while the first one ran: its client reads one question, and that each call is answered."""
    began, go_on = asyncio.Event(), asyncio.Event()

    async def slow(asked: ToolCall) -> ToolResult:
        if asked.arguments["x"] == 1:
            began.set()
            await go_on.wait()
        return ToolResult("was done")

    bench = Bench([group(risky(1), risky(2)), answer("Done.")], does=slow)
    running = asyncio.create_task(bench.run(approvals="hold"))
    await until_asked(bench)
    await bench.decide(index=0)
    await asyncio.wait_for(began.wait(), 120)
    await bench.decide(index=1)
    go_on.set()
    told = await running
    assert behind_question(told) == "Done." and [c.arguments["x"] for c in bench.calls] == [1, 2]
    assert events_of(told) == ["approval.required", "approval.resolved", "approval.resolved"]
    await bench.close()
