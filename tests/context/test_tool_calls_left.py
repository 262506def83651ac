"""Tool calls whose clients leave: what may have run is told first, and nobody loses a call that another one leaves."""

import asyncio

from gateway.context.tool_calls import CallRun, Done
from gateway.contracts.tools import ToolCall, ToolResult
from gateway.runs import settle
from tests.agent.agent_bench import CALLER

from .calling import Calling, calling
from .workers import Opened


async def started(opened: Opened) -> tuple[Calling, CallRun, "asyncio.Task[Done]"]:
    """An approved call whose tool runs until it is cancelled, and the client that waits for it."""
    began = asyncio.Event()

    async def works(_call: ToolCall) -> ToolResult:
        began.set()
        await asyncio.Event().wait()
        raise AssertionError

    bench = calling(await opened(does=works))
    run, approval = await bench.held()
    waits = asyncio.create_task(bench.done(run))
    await bench.decide(approval)
    await began.wait()
    return bench, run, waits


async def test_a_run_that_is_cancelled_while_its_tool_runs_has_an_unknown_outcome(opened: Opened) -> None:
    """The client is not told that nothing ran."""
    bench, run, waits = await started(opened)
    await settle.cancel(bench.worker.store, run.id, caller=CALLER, via="rest", clock=bench.calls.clock)
    bench.worker.feed.nudge()
    done = await waits
    assert (done.state, done.result.ok) == ("cancelled", False)
    assert "unknown" in done.result.content and "Nothing ran" not in done.result.content


async def test_a_client_that_left_while_its_tool_ran_is_told_first(opened: Opened) -> None:
    """The same call reads that the outcome is unknown, once; only then it is asked about anew."""
    bench, run, waits = await started(opened)
    waits.cancel()
    await asyncio.wait({waits})
    await bench.calls.cancel(run, CALLER)
    joined = await bench.begin()
    done = await bench.done(joined)
    assert (done.run_id, done.result.ok) == (run.id, False) and "unknown" in done.result.content
    bench.calls.delivered(joined)
    await bench.calls.close()
    assert (await bench.held())[0].id != run.id


async def test_a_client_that_left_as_its_call_ended_gets_the_result(opened: Opened) -> None:
    """The cancellation came too late: nothing is lost."""
    bench = calling(await opened())
    run, approval = await bench.held()
    await bench.decide(approval)
    done = await bench.done(run)
    await bench.calls.cancel(run, CALLER)
    await bench.calls.close()
    joined = await bench.begin()
    assert (await bench.done(joined)).result == done.result and len(bench.worker.calls) == 1
