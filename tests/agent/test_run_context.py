"""The parts of one run: they share its progress, its record and its time."""

from gateway.agent.call_loop import CallLoop
from gateway.agent.loop import Loop
from gateway.agent.run_context import build_run_context
from gateway.contracts.exchange import Exchange, Execution, Job
from gateway.contracts.plugin import LoopLimits
from tests.agent.agent_bench import BODY, CALLER, Bench


async def test_run_context_parts_share_its_record_and_progress() -> None:
    bench = Bench([])
    await bench.agents()
    exchange = Exchange(id="run_1", body=BODY, caller=CALLER, chain="main", execution=Execution(budget_s=7.0))
    run = build_run_context(bench.parts, LoopLimits(timeout_s=60.0), exchange)
    assert run.questions.recorder is run.reports.recorder is run.record
    assert run.reports.progress is run.progress and isinstance(run.loop, Loop)
    assert run.record.progress()["spent_s"] == 0.0 and run.budget.left_s == 7.0  # the shorter of two limits


async def test_direct_call_run_uses_the_call_loop_and_aborts_on_rejection() -> None:
    bench = Bench([])
    await bench.agents()
    job = Job(call={"tool": "look", "arguments": {}})
    run = build_run_context(
        bench.parts, LoopLimits(), Exchange(id="r", body=BODY, caller=CALLER, chain="main", job=job)
    )
    assert isinstance(run.loop, CallLoop) and run.consent.on_reject == "abort"
