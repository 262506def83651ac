"""Tool calls of MCP clients: each is a run on record, which the same call joins while a person is asked about it."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from gateways import until_read

from gateway.context.call_runs import MESSAGE_CHARS, Done, WaitingCall
from gateway.context.tool_calls import KEPT_S
from gateway.contracts.caller import Caller
from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import CallProgress, Exchange
from gateway.contracts.plugin import LoopLimits
from gateway.contracts.storage.journal import StoredRun
from gateway.contracts.tools import ToolCall, ToolResult
from gateway.plugins.stores.sqlite import SqliteStore
from gateway.runs.idempotency_key import RequestKey, build_mismatch_error
from tests.agent.agent_bench import CALLER
from tests.agent.doubles import Endless, samples

from .calling import CLIENT, HARMLESS, calling
from .workers import Opened


async def test_harmless_call_runs_at_once_and_is_recorded(opened: Opened) -> None:
    """The run is on record with its client, and the same call once more is another run."""
    bench = calling(await opened(assessors=HARMLESS))
    first, second = await bench.called(), await bench.called()
    assert first.result == ToolResult("looked at {'x': 1}") and first.state == "completed"
    assert first.run_id != second.run_id
    stored = await bench.worker.store.run(first.run_id, tenant="t")
    assert stored is not None and (stored.kind, stored.state, stored.tool) == ("tool", "completed", "look")
    assert stored.client is not None and orjson.loads(stored.client) == CLIENT
    (step,) = await bench.worker.store.list_steps(first.run_id, tenant="t")
    assert (step.decision, step.rule, step.state) == ("auto", "harmless", "finished")


async def test_held_call_runs_once_after_its_approval(opened: Opened) -> None:
    bench = calling(await opened())
    run, approval = await bench.held()
    assert (approval.tool, approval.arguments, approval.state) == ("look", '{"x":1}', "pending")
    assert approval.client is not None and orjson.loads(approval.client) == CLIENT
    assert bench.worker.calls == []
    await bench.decide(approval)
    assert (await bench.done(run)).result == ToolResult("looked at {'x': 1}")
    assert len(bench.worker.calls) == 1


async def test_equal_call_joins_the_waiting_run_and_gets_its_result(opened: Opened) -> None:
    """Until it was delivered: then the same call asks anew."""
    bench = calling(await opened())
    run, approval = await bench.held()
    again, same = await bench.held()
    assert (again.id, same.id) == (run.id, approval.id)
    await bench.decide(approval)
    joined = await bench.begin()
    assert (await bench.done(joined)).run_id == run.id
    assert len(bench.worker.calls) == 1
    bench.calls.mark_delivered(joined)
    anew, other = await bench.held()
    assert anew.id != run.id and other.id != approval.id


@pytest.mark.parametrize(
    ("facts", "x"),
    [
        ({}, 2),
        ({"user": "anna"}, 1),
        ({"caller": Caller("d", "t", CALLER.scopes)}, 1),
        ({"caller": Caller("c", "u", CALLER.scopes)}, 1),
        ({"idempotency_key": "k"}, 1),
    ],
)
async def test_different_call_does_not_join_a_held_call(opened: Opened, facts: dict[str, object], x: int) -> None:
    """Other arguments, another end user, key or tenant, or a key of its own."""
    bench = calling(await opened())
    run, _ = await bench.held()
    other, _ = await bench.held(x, **facts)
    assert other.id != run.id


async def test_outcome_reports_progress_and_returns_after_the_decision(opened: Opened) -> None:
    """The client is told that the call waits, and the decision ends the wait."""
    bench, told = calling(await opened()), list[CallProgress]()
    run, approval = await bench.held()
    waits = asyncio.create_task(bench.calls.wait_for_outcome(run, wait_s=3600.0, progressed=told.append))
    await until_read(lambda: _list(told), lambda told: len(told) > 0)
    await bench.decide(approval)
    done = await waits
    assert isinstance(done, Done) and done.result.ok
    assert approval.id in str(told[0].message)


async def _list(told: list[CallProgress]) -> list[CallProgress]:
    return told


@pytest.mark.parametrize("is_held", [False, True])
async def test_a_tool_reports_its_progress(opened: Opened, is_held: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the request that waits, also behind a decision; without control characters, and no more than so much."""
    told: list[CallProgress] = []
    bench = calling(await opened(assessors={} if is_held else HARMLESS))
    look = bench.worker.lane.catalog.find_by_name("look")
    assert look is not None

    async def works(_call: ToolCall, exchange: Exchange) -> ToolResult:
        assert exchange.job.watcher is not None
        exchange.job.watcher.report_progress(CallProgress("half\x00" + "x" * 2000, 1.0, 2.0))
        return ToolResult("done")

    monkeypatch.setattr(look.source, "call", works)
    run = await bench.begin()
    waits = asyncio.create_task(bench.calls.wait_for_outcome(run, wait_s=3600.0, progressed=told.append))
    if is_held:
        await until_read(lambda: _list(told), lambda told: len(told) > 0)
        (approval,) = await bench.worker.store.list_approvals(tenant="t", limit=10)
        await bench.decide(approval)
    await waits
    assert told[-1] == CallProgress(("half" + "x" * 2000)[:MESSAGE_CHARS], 1.0, 2.0)


async def test_call_held_at_one_worker_is_decided_and_joined_at_another(opened: Opened, tmp_path: Path) -> None:
    """Two processes of one store: asked at one, decided at the other, and either returns the result."""
    place = str(tmp_path / "gateway.db")
    one, other = calling(await opened(place=place)), calling(await opened(place=place))
    run, approval = await one.held()
    waits = asyncio.create_task(one.done(run))
    await other.decide(approval)
    joined = await other.begin()
    assert joined.id == run.id
    assert (await other.done(joined)).result == (await waits).result == ToolResult("looked at {'x': 1}")
    assert len(one.worker.calls + other.worker.calls) == 1


async def test_concurrent_equal_held_calls_share_one_approval(opened: Opened) -> None:
    bench = calling(await opened())
    runs = await asyncio.gather(*(bench.begin() for _ in range(5)))
    outcomes = await asyncio.gather(*(bench.calls.wait_for_outcome(run, wait_s=0.0) for run in runs))
    (run_id,) = {outcome.run_id for outcome in outcomes if isinstance(outcome, WaitingCall)}
    (approval,) = await bench.worker.store.list_approvals(tenant="t", state="pending", limit=10)
    assert approval.run_id == run_id
    await bench.decide(approval)
    results = await asyncio.gather(*(bench.done(run) for run in runs))
    assert {result.run_id for result in results} == {run_id} and len(bench.worker.calls) == 1


async def test_concurrent_equal_harmless_calls_run_separately(opened: Opened) -> None:
    bench = calling(await opened(assessors=HARMLESS))
    results = await asyncio.gather(*(bench.called() for _ in range(5)))
    assert len({result.run_id for result in results}) == len(bench.worker.calls) == 5


async def test_rejected_call_returns_its_reason_as_the_result(opened: Opened) -> None:
    bench = calling(await opened())
    run, approval = await bench.held()
    await bench.decide(approval, approve=False, comment="not on Fridays")
    done = await bench.done(run)
    assert (done.state, done.result.ok) == ("rejected", False)
    rejected = f"The call of `{approval.tool}` was rejected, because: `not on Fridays`. Nothing ran."
    assert done.result.content == rejected and bench.worker.calls == []
    joined = await bench.begin()
    assert (await bench.done(joined)).result == done.result
    bench.calls.mark_delivered(joined)
    assert (await bench.held())[0].id != run.id


async def test_expired_approval_returns_an_expired_result(opened: Opened) -> None:
    bench = calling(await opened())
    run, _ = await bench.held()
    bench.worker.clock.advance(3601.0)
    done = await bench.done(run)
    assert (done.state, done.result.ok) == ("expired", False) and "in time" in done.result.content
    assert bench.worker.calls == []


async def test_undelivered_result_expires_after_a_day(opened: Opened) -> None:
    bench = calling(await opened())
    run, approval = await bench.held()
    await bench.decide(approval)
    await bench.done(run)
    bench.worker.clock.advance(KEPT_S + 1)
    assert (await bench.held())[0].id != run.id


async def test_a_withdrawn_call_never_runs(opened: Opened) -> None:
    bench = calling(await opened())
    run, approval = await bench.held()
    await bench.calls.cancel(run, CALLER)
    with pytest.raises(GatewayError) as refused:
        await bench.decide(approval)
    assert refused.value.code == "decision_conflict" and bench.worker.calls == []
    assert (await bench.held())[0].id != run.id


async def test_cancelling_a_running_call_cancels_its_tool(opened: Opened) -> None:
    works = Endless()
    bench = calling(await opened(assessors=HARMLESS, does=works))
    run = await bench.begin()
    await works.began.wait()
    await bench.calls.cancel(run, CALLER)
    done = await bench.done(run)
    assert (done.state, done.result.ok) == ("cancelled", False) and "unknown" in done.result.content
    assert works.ended.is_set()
    stored = await bench.worker.store.run(run.id, tenant="t")
    assert stored is not None and stored.state == "cancelled"


async def test_a_call_of_another_tenant_cannot_be_cancelled(opened: Opened) -> None:
    bench = calling(await opened())
    run, approval = await bench.held()
    with pytest.raises(GatewayError, match="no such run"):
        await bench.calls.cancel(run, Caller("c", "u", CALLER.scopes))
    await bench.decide(approval)
    assert (await bench.done(run)).result.ok


async def test_failing_tool_returns_a_failed_result(opened: Opened) -> None:
    async def fails(_call: ToolCall) -> ToolResult:
        return ToolResult("no such note", ok=False)

    done = await calling(await opened(assessors=HARMLESS, does=fails)).called()
    assert done.result == ToolResult("no such note", ok=False)


async def test_a_long_result_is_shortened_and_stored_whole(opened: Opened) -> None:
    """`read_result` reads the rest; a picture in it stays."""
    image = {"type": "image", "mimeType": "image/png", "data": "iVBORw0KGgo="}

    async def tells(_call: ToolCall) -> ToolResult:
        return ToolResult("x" * 5000, True, [{"type": "text", "text": "x" * 5000}, image])

    bench = calling(await opened(assessors=HARMLESS, does=tells, limits=LoopLimits(result_chars=1000)))
    done = await bench.called()
    assert len(done.result.content) < 1100 and "4000 characters omitted; id res_" in done.result.content
    assert done.result.parts == [{"type": "text", "text": done.result.content}, image]
    (step,) = await bench.worker.store.list_steps(done.run_id, tenant="t")
    assert step.result == "x" * 5000


async def test_overloaded_gateway_refuses_the_call_before_storing_a_run(opened: Opened) -> None:
    bench = calling(await opened(assessors=HARMLESS))

    def full() -> None:
        raise GatewayError("overloaded", "The gateway is full.")

    bench.calls.admit = full
    with pytest.raises(GatewayError, match="full"):
        await bench.begin()
    assert bench.worker.calls == [] and (await bench.worker.store.list_runs(tenant="t", limit=1)).runs == []


async def test_tool_call_is_counted_and_audited_with_its_channel(opened: Opened) -> None:
    bench = calling(await opened())
    run, approval = await bench.held()
    await bench.decide(approval)
    await bench.done(run)
    lines = [row.line for row in await bench.worker.store.audit(after=0, limit=10)]
    assert [(line.event, line.via) for line in lines] == [
        ("verdict", ""),
        ("decision", "mcp"),
        ("started", ""),
        ("finished", ""),
    ]

    async def completed() -> float | None:
        return samples(bench.worker.counters).get(("gateway_tool_runs_total", ("completed",)))

    await until_read(completed, lambda count: count == 1)


async def test_call_denied_by_policy_returns_a_recorded_result(opened: Opened) -> None:
    bench = calling(await opened(rules={"look": "deny"}))
    done = await bench.called()
    assert not done.result.ok and "refused by policy" in done.result.content and bench.worker.calls == []
    stored = await bench.worker.store.run(done.run_id, tenant="t")
    assert stored is not None and stored.kind == "tool"


async def test_client_supplied_risk_level_does_not_lower_the_risk(opened: Opened) -> None:
    """No model rates the risk of the call: `risk_level` is an argument like all others."""
    bench = calling(await opened())
    _, approval = await bench.held(arguments={"x": 1, "risk_level": "low"})
    assert approval.arguments == '{"risk_level":"low","x":1}' and approval.basis == "default"


async def test_held_call_is_rejected_where_approvals_are_disabled(opened: Opened) -> None:
    worker = await opened()
    done = await calling(worker).called(caller=replace(CALLER, approvals="reject"))
    assert done.state == "rejected" and not done.result.ok and worker.calls == []


async def test_unknown_tool_is_refused_as_not_found(opened: Opened) -> None:
    bench = calling(await opened())
    with pytest.raises(GatewayError) as refused:
        await bench.begin(tool="lok")
    assert refused.value.code == "tool_not_found"


async def test_calls_with_one_idempotency_key_run_once(opened: Opened) -> None:
    """However often it comes, also at the same time; another call with the key is refused."""
    bench = calling(await opened(assessors=HARMLESS))
    bench.worker.lane.earlier = _earlier(bench.worker.store)
    runs = await asyncio.gather(*(bench.begin(idempotency_key="k") for _ in range(3)))
    results = [await bench.done(run) for run in runs]
    results.append(await bench.called(idempotency_key="k"))
    assert len({result.run_id for result in results}) == len(bench.worker.calls) == 1
    with pytest.raises(GatewayError) as refused:
        await bench.begin(2, idempotency_key="k")
    assert refused.value.code == "idempotency_mismatch"


def _earlier(store: SqliteStore) -> Callable[[RequestKey, Caller], Awaitable[StoredRun | None]]:
    async def earlier(request_key: RequestKey, caller: Caller) -> StoredRun | None:
        assert request_key.idempotency_key is not None
        found = await store.list_runs_with_key(request_key.idempotency_key[2], tenant=caller.tenant, caller=caller.name)
        if any(run.fingerprint != request_key.fingerprint for run in found):
            raise build_mismatch_error()
        return next(iter(found), None)

    return earlier


async def test_image_and_structured_content_of_a_result_are_kept(opened: Opened) -> None:
    """An image and structured content reach the client that waits, and the one that comes back."""
    parts = [{"type": "text", "text": "a chart"}, {"type": "image", "mimeType": "image/png", "data": "iVBORw0KGgo="}]

    async def draws(_call: ToolCall) -> ToolResult:
        return ToolResult("a chart\n[image]", True, parts, {"bars": 3})

    bench = calling(await opened(does=draws))
    run, approval = await bench.held()
    await bench.decide(approval)
    done = await bench.done(run)
    assert (done.result.parts, done.result.structured) == (parts, {"bars": 3})
    assert (await bench.done(await bench.begin())).result == done.result
