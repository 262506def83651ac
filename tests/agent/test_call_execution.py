"""From the line that a call starts to its result: what is looked at, and what is told when it is cut short."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from gateways import until

from gateway.agent import call_execution
from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import Chunk, Pause, Resume
from gateway.contracts.storage.journal import Change
from gateway.contracts.tools import ToolCall, ToolResult
from gateway.plugins.stores.sqlite import SqliteStore
from gateway.runs import leases as keeping
from gateway.runs.lease import LEASE_S
from gateway.runs.live_run import STOPPING
from gateway.runs.request_snapshot import load_exchange
from gateway.tools.gate import Rule
from tests.scripted_replies import told

from .agent_bench import Bench, answer, call, group, texts
from .doubles import samples


def risky(x: int, tool: str = "look") -> str:
    return call(tool, risk_level="high", x=x)


def xs(bench: Bench) -> list[object]:
    return [made.arguments["x"] for made in bench.calls]


class Stopped(SqliteStore):
    """A store whose process is told to stop while the start of a call is written."""

    driving: "asyncio.Task[object] | None" = None

    async def write(self, change: Change) -> None:
        starts = any(step.state == "started" for step in change.steps)
        if starts and self.driving is not None:
            driving, self.driving = self.driving, None
            driving.cancel(STOPPING)
        await super().write(change)


async def test_approved_call_survives_a_stop_before_its_start(tmp_path: Path) -> None:
    """Told to stop while its start is written, the gateway runs nothing; the next process runs it, once."""
    store = Stopped(str(tmp_path / "gateway.db"))
    bench = Bench([answer(risky(1)), answer("Done.")], store=store)
    await bench.run()
    await bench.decide()
    store.driving = going = asyncio.ensure_future(bench.resumed())
    await asyncio.wait({going})
    assert going.cancelled() and bench.calls == []
    (step,), (approval,) = await bench.steps(), await bench.pending_approvals()
    assert (step.state, approval.state, (await bench.stored()).state) == ("requested", "approved", "running")
    assert texts(await bench.resumed()) == "Done." and xs(bench) == [1]
    (approval,) = await bench.pending_approvals()
    assert approval.state == "done"
    await bench.close()


@pytest.mark.parametrize("edited", [None, {"x": 7}])
async def test_interrupted_idempotent_call_is_repeated_without_asking(
    edited: dict[str, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next process makes exactly the approved call again, and asks nobody anew."""
    monkeypatch.setattr(call_execution, "TOOL_GRACE_S", 0.01)
    began, ends = asyncio.Event(), asyncio.Event()

    async def works(asked: ToolCall) -> ToolResult:
        began.set()
        await ends.wait()
        return ToolResult(f"did {asked.arguments}")

    bench = Bench([answer(risky(1, "peek")), answer("Done.")], does=works)
    await bench.run()
    await bench.decide(arguments=edited)
    going = asyncio.ensure_future(bench.resumed())
    await began.wait()
    going.cancel(STOPPING)
    await asyncio.wait({going})
    (step,), (approval,) = await bench.steps(), await bench.pending_approvals()
    assert (step.state, approval.state, (await bench.stored()).state) == ("requested", "approved", "running")
    ends.set()
    assert texts(await bench.resumed()) == "Done." and xs(bench) == [(edited or {"x": 1})["x"]] * 2
    (step,), (approval,) = await bench.steps(), await bench.pending_approvals()
    assert (step.state, approval.state) == ("finished", "done")
    await bench.close()


async def test_uncancellable_tool_does_not_block_its_run(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its run ends, a person is asked what came of the call, and the log says so, also when it ends after all."""
    monkeypatch.setattr(call_execution, "TOOL_GRACE_S", 0.01)
    monkeypatch.setattr(call_execution, "TOOL_ENDS_S", 0.01)
    began, ends = asyncio.Event(), asyncio.Event()

    async def goes_on(_asked: ToolCall) -> ToolResult:
        began.set()
        while not ends.is_set():
            with suppress(asyncio.CancelledError):
                await ends.wait()
        return ToolResult("did it after all")

    bench = Bench([answer(call(x=1))], does=goes_on)
    going = asyncio.ensure_future(bench.run())
    await began.wait()
    going.cancel()
    await asyncio.wait({going})
    (step,) = await bench.steps()
    assert going.cancelled() and step.state == "unknown" and step.result is None
    assert samples(bench.counters)["gateway_unknown_outcomes_total", ("look",)] == 1
    ends.set()
    await until(lambda: "has ended after all, with a result" in caplog.text)
    assert "was cancelled 0.01 s ago and goes on: its outcome is unknown" in caplog.text
    (step,) = await bench.steps()
    assert step.state == "unknown"
    await bench.close()


@pytest.mark.parametrize("rule", ["deny", "confirm"])
@pytest.mark.parametrize("first", ["approved", "auto"])
async def test_reload_during_a_group_applies_to_its_next_call(rule: Rule, first: str) -> None:
    """What is denied does not run, whoever cleared it before; what asks by now is asked for, whoever approved it."""

    async def reloads(asked: ToolCall) -> ToolResult:
        if asked.arguments["x"] == 1:
            bench.reload(look=rule)
        return ToolResult("did it")

    calls = (risky(1, "peek"), risky(2)) if first == "approved" else (call("peek", x=1), call(x=2))
    bench = Bench([group(*calls), answer("Done.")], does=reloads)
    said = texts(await bench.run())
    if first == "approved":
        for index in range(2):
            await bench.decide(index=index)
        said = texts(await bench.resumed())
    assert xs(bench) == [1]
    if rule == "deny":
        assert said == "Done." and "refused by policy" in (await bench.steps())[1].result  # type: ignore[operator]
    else:
        assert "approve ap_" in said and (await bench.pending_approvals())[-1].state == "pending"
        await bench.decide()
        assert texts(await bench.resumed()) == "Done." and xs(bench) == [1, 2]
    await bench.close()


async def test_grant_revoked_during_a_group_clears_no_further_call() -> None:
    """Though it did when the group was asked for."""

    async def revokes(asked: ToolCall) -> ToolResult:
        if asked.arguments["x"] == 2:
            await revoke(bench.store)
        return ToolResult("did it")

    answers = [answer(risky(1)), group(call("peek", x=2), risky(1)), answer("Done.")]
    bench = Bench(answers, does=revokes)
    await bench.run()
    await bench.decide(remember="run")
    assert "approve ap_" in texts(await bench.resumed()) and xs(bench) == [1, 2]
    await bench.close()


class Revoking(SqliteStore):
    """A store in which the only grant is revoked right before the start of a call is written."""

    is_armed = False

    async def write(self, change: Change) -> None:
        if self.is_armed and any(step.state == "started" for step in change.steps):
            self.is_armed = False
            await revoke(self)
        await super().write(change)


async def revoke(store: SqliteStore) -> None:
    (kept,) = await store.list_grants(tenant="t", now_s=0.0, limit=2)
    assert await store.delete_grant(kept.id, tenant="t", audit=())


async def test_grant_revoked_before_a_start_clears_no_call() -> None:
    """The person who revokes it reads that no call uses it from then on."""
    store = Revoking(":memory:")
    bench = Bench([answer(risky(1)), answer(risky(1)), answer("Done.")], store=store)
    await bench.run(conversation="one")
    await bench.decide(remember="conversation")
    bench.on_call = lambda: setattr(store, "is_armed", True)
    assert "approve ap_" in texts(await bench.resumed()) and xs(bench) == [1]
    assert [step.state for step in await bench.steps()] == ["finished", "requested"]
    await bench.decide()
    assert texts(await bench.resumed()) == "Done." and xs(bench) == [1, 1]
    await bench.close()


@pytest.mark.parametrize("says", ["revoke", "ask"])
async def test_store_change_during_a_client_pause_applies_to_next_call(says: str) -> None:
    """A report that a call begins waits for its client: what the store says by then decides."""
    answers = [answer(risky(1)), answer(risky(1) if says == "revoke" else call(x=1))]
    bench = Bench(answers)
    await bench.run(conversation="one", events=True)
    await bench.decide(remember="conversation")

    async def paused() -> None:
        if says == "revoke":
            await revoke(bench.store)
        else:
            await bench.approvals.remembered.store_ask(bench.asked[-1])

    def emit(chunk: Chunk) -> Pause | None:
        began = isinstance(chunk, dict) and chunk.get("context", {}).get("type") == "tool.started"
        return paused if began and xs(bench) else None

    agents = await bench.agents()
    bench.clock.advance(60.0)
    run = await bench.leases.claim("run_1", "awaiting_approval")
    assert run is not None
    going_on = load_exchange(Resume(run), approvals="turn")
    going_on = replace(going_on, delivery=replace(going_on.delivery, events=True))
    reply = await agents.build_stage(bench.limits)(going_on, bench._model)
    await reply.stream(emit)
    await reply.release()
    assert xs(bench) == [1] and (await bench.pending_approvals())[-1].state == "pending"
    await bench.close()


@pytest.mark.parametrize("ends", ["done", "stopped"])
async def test_late_outcome_of_a_lost_run_is_recorded_and_logged(
    ends: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its run is somebody else's: it gets no time, and what came of its call stands beside the step, and in the log."""
    monkeypatch.setattr(keeping, "LOOK_S", 0.005)
    place, began, go = str(tmp_path / "gateway.db"), asyncio.Event(), asyncio.Event()

    async def hangs(_asked: ToolCall) -> ToolResult:
        began.set()
        await go.wait()
        return ToolResult("it is done")

    one = Bench([answer(call(x=1)), answer("never")], does=hangs, store=SqliteStore(place))
    two = Bench([answer("Done.")], store=SqliteStore(place), clock=one.clock)
    running = asyncio.ensure_future(one.run())
    await asyncio.wait_for(began.wait(), 120)
    assert "unknown" in texts(await two.resumed("running"))
    if ends == "done":
        go.set()
    looking = asyncio.ensure_future(one.leases.run())
    await asyncio.wait({running})
    looking.cancel()
    await asyncio.wait({looking})
    assert isinstance(running.exception(), GatewayError)
    (step,) = await two.steps()
    assert step.state == "unknown" and step.late is not None
    assert ("it is done" if ends == "done" else "how far it came is not known") in step.late
    lines = [row.line for row in await two.store.audit(after=0, limit=99)]
    assert [line.decision for line in lines if line.event == "late"] == ["finished" if ends == "done" else "unknown"]
    assert "tool.late" in {event.type for event in await two.store.list_events(after=0, limit=99)}
    assert samples(one.counters)["gateway_late_outcomes_total", ("look",)] == 1
    await one.close()
    await two.close()


class Frozen(SqliteStore):
    """A store whose process stands still behind the line of a start, for longer than a lease; another takes the run."""

    bench: Bench | None = None
    taken: object = None

    async def write(self, change: Change) -> None:
        await super().write(change)
        if self.bench is not None and any(step.state == "started" for step in change.steps):
            bench, self.bench = self.bench, None
            bench.clock.advance(LEASE_S + 1)
            now_s = 1_767_225_600.0 + bench.clock()
            self.taken = await self.claim(
                owner="other", now_s=now_s, until_s=now_s + 5, states=["running"], run_id="run_1", limit=1
            )


async def test_worker_that_lost_its_lease_does_not_run_the_call() -> None:
    """The lease is looked at right before the effect: the call is not run, and its new owner can read that."""
    store = Frozen(":memory:")
    bench = Bench([answer(call(x=1))], store=store)
    store.bench = bench
    with pytest.raises(GatewayError) as lost:
        await told(await bench.reply())
    assert lost.value.code == "run_cancelled" and store.taken and bench.calls == []
    (step,) = await bench.steps()
    assert step.state == "started" and step.late is not None and "did not run" in step.late
    await bench.close()


async def test_worker_with_expired_unclaimed_lease_runs_the_call_once() -> None:
    """No other worker has taken the run meanwhile."""

    class Slow(SqliteStore):
        async def write(self, change: Change) -> None:
            await super().write(change)
            if any(step.state == "started" for step in change.steps):
                bench.clock.advance(LEASE_S + 1)

    bench = Bench([answer(call(x=1)), answer("Done.")], store=Slow(":memory:"))
    assert texts(await bench.run()) == "Done." and xs(bench) == [1]
    await bench.close()
