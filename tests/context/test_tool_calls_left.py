"""Tool calls whose clients leave: what may have run is told first, and nobody loses a call that another one leaves."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest
from gateways import until_read

from gateway.context.call_runs import CallRun, Done
from gateway.contracts.caller import Caller
from gateway.contracts.storage.journal import AWAITED_S, Approval, StoredRun
from gateway.contracts.tools import ToolCall, ToolResult
from gateway.runs import run_resolution
from gateway.runs.idempotency_key import RequestKey
from tests.agent.agent_bench import CALLER

from .calling import HARMLESS, Calling, calling
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


async def test_call_cancelled_while_its_tool_runs_reports_unknown_outcome(opened: Opened) -> None:
    """The client is not told that nothing ran."""
    bench, run, waits = await started(opened)
    await run_resolution.cancel(
        bench.worker.store, run.id, caller=CALLER, via="rest", clock=bench.calls.clock, tracer=None
    )
    bench.worker.feed.nudge()
    done = await waits
    assert (done.state, done.result.ok) == ("cancelled", False)
    assert "unknown" in done.result.content and "Nothing ran" not in done.result.content


async def test_returning_client_gets_the_unknown_outcome_before_a_new_approval(opened: Opened) -> None:
    """The same call reads that the outcome is unknown, once; only then it is asked about anew."""
    bench, run, waits = await started(opened)
    waits.cancel()
    await asyncio.wait({waits})
    await bench.calls.cancel(run, CALLER)
    joined = await bench.begin()
    done = await bench.done(joined)
    assert (done.run_id, done.result.ok) == (run.id, False) and "unknown" in done.result.content
    bench.calls.mark_delivered(joined)
    await bench.calls.close()
    assert (await bench.held())[0].id != run.id


async def test_late_cancellation_keeps_the_result_of_the_call(opened: Opened) -> None:
    """The cancellation came too late: nothing is lost."""
    bench = calling(await opened())
    run, approval = await bench.held()
    await bench.decide(approval)
    done = await bench.done(run)
    await bench.calls.cancel(run, CALLER)
    await bench.calls.close()
    joined = await bench.begin()
    assert (await bench.done(joined)).result == done.result and len(bench.worker.calls) == 1


@pytest.mark.parametrize("are_two", [False, True])
async def test_call_is_withdrawn_only_when_its_last_client_leaves(
    opened: Opened, tmp_path: Path, are_two: bool
) -> None:
    """In the same worker and in another one; the last one that leaves withdraws the call."""
    place = str(tmp_path / "gateway.db")
    one = calling(await opened(place=place))
    other = calling(await opened(place=place, clock=one.worker.clock)) if are_two else one
    first, approval = await one.held()
    second, same = await other.held()
    assert same.id == approval.id
    await one.calls.cancel(first, CALLER)
    assert [found.id for found in await pending(other)] == [approval.id]
    await other.calls.cancel(second, CALLER)
    assert await pending(other) == []


async def test_first_client_gets_the_result_after_a_second_leaves(opened: Opened) -> None:
    bench = calling(await opened())
    first, approval = await bench.held()
    second, _ = await bench.held()
    await bench.calls.cancel(second, CALLER)
    await bench.decide(approval)
    assert (await bench.done(first)).result.ok and len(bench.worker.calls) == 1


async def test_silently_departed_client_does_not_keep_an_approval_pending(opened: Opened) -> None:
    """One that will come back does not wait meanwhile."""
    bench = calling(await opened())
    first, _ = await bench.held()
    bench.calls.stop_waiting(first)
    await bench.calls.close()
    second, _ = await bench.held()
    await bench.calls.cancel(second, CALLER)
    assert await pending(bench) == []


async def test_waiting_clients_of_a_dead_worker_expire(opened: Opened, tmp_path: Path) -> None:
    place = str(tmp_path / "gateway.db")
    dead = calling(await opened(place=place))
    await dead.held()
    await dead.worker.close()
    bench = calling(await opened(place=place, clock=dead.worker.clock))
    run, approval = await bench.held()
    await bench.calls.cancel(run, CALLER)
    assert [found.id for found in await pending(bench)] == [approval.id]
    bench.worker.clock.advance(AWAITED_S)
    again, _ = await bench.held()
    await bench.calls.cancel(again, CALLER)
    assert await pending(bench) == []


async def test_client_whose_user_holds_the_question_keeps_the_call_waiting(opened: Opened) -> None:
    """It comes back as the request that it was."""
    bench = calling(await opened())
    first, approval = await bench.held()
    bench.calls.stop_waiting(first, is_asked=True)
    await bench.calls.close()
    second, _ = await bench.held()
    await bench.calls.cancel(second, CALLER)
    assert [found.id for found in await pending(bench)] == [approval.id]
    await bench.calls.cancel(first, CALLER)
    assert await pending(bench) == []


async def test_shared_keyed_call_continues_when_one_client_leaves(opened: Opened) -> None:
    began, may_end = asyncio.Event(), asyncio.Event()

    async def works(_call: ToolCall) -> ToolResult:
        began.set()
        await may_end.wait()
        return ToolResult("done")

    bench = calling(await opened(assessors=HARMLESS, does=works))
    bench.worker.lane.earlier = nothing_earlier
    first = await bench.begin(idempotency_key="k")
    second = await bench.begin(idempotency_key="k")
    waits = [asyncio.create_task(bench.done(run)) for run in (first, second)]
    await began.wait()
    assert first.live is not None
    await until_read(clients_of(first), lambda count: count == 2)
    waits[0].cancel()
    await asyncio.wait(waits[:1])
    await bench.calls.cancel(first, CALLER)
    may_end.set()
    assert (await waits[1]).result == ToolResult("done")


async def nothing_earlier(_key: RequestKey, _caller: Caller) -> StoredRun | None:
    return None


def clients_of(run: CallRun) -> Callable[[], Awaitable[int]]:
    async def count() -> int:
        return 0 if run.live is None else run.live.attendance.clients

    return count


async def pending(bench: Calling) -> Sequence[Approval]:
    return await bench.worker.store.list_approvals(tenant="t", state="pending", limit=10)
