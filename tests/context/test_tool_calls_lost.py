"""Tool calls whose process dies: nothing runs without its approval, nothing runs twice unsaid, and nothing is lost."""

import asyncio
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from gateways import until, until_read

from gateway.approvals.approvals import Decision
from gateway.context.call_runs import CallRun, Done, WaitingCall
from gateway.contracts.errors import ExitError, GatewayError
from gateway.contracts.storage.journal import Change, StoredRun
from gateway.contracts.tools import ToolCall, ToolResult
from gateway.plugins.stores.sqlite import SqliteStore
from gateway.runs.leases import abandon
from tests.agent.agent_bench import CALLER
from tests.agent.staging import KilledError

from .calling import HARMLESS, Calling, calling
from .workers import Opened, Worker

#: More than any one call writes.
WRITES = 7


class Dying(SqliteStore):
    """The store of a process that dies before its n-th write to a run, or right behind it."""

    at, behind = 10**9, False

    def __init__(self, place: str) -> None:
        super().__init__(place)
        self.writes = 0
        self.died = asyncio.Event()

    async def write(self, change: Change) -> None:
        self.writes += 1
        if self.writes >= self.at:
            if self.writes == self.at and self.behind:
                await super().write(change)
            self.died.set()
            raise KilledError
        await super().write(change)


async def until_it_died(place: str, *, at: int, behind: bool, **facts: object) -> Calling:
    """Return what a process left that died at this write, while its client called and a person approved."""
    store = Dying(place)
    store.at, store.behind = at, behind
    worker = Worker([], store=store, **facts)  # type: ignore[arg-type]
    await worker.open()
    bench = calling(worker)
    client, death = asyncio.create_task(driven(bench)), asyncio.create_task(store.died.wait())
    await asyncio.wait({client, death}, return_when=asyncio.FIRST_COMPLETED)
    for task in (client, death):
        task.cancel()
    await asyncio.wait({client, death})
    await worker.close()
    return bench


async def driven(bench: Calling) -> None:
    """A client calls, a person approves what is asked, and the client gets the result."""
    with suppress(ExitError, GatewayError):
        run = await bench.begin()
        outcome = await bench.calls.wait_for_outcome(run, wait_s=0.0)
        if isinstance(outcome, WaitingCall):
            await approved(bench, outcome)
            await bench.calls.wait_for_outcome(run, wait_s=0.0)


def _rests(run: StoredRun | None) -> bool:
    return run is not None and run.state != "running"


async def approved(bench: Calling, held: WaitingCall) -> None:
    (approval,) = held.approvals
    wish = Decision(approve=True, via="mcp", sha256=approval.sha256)
    await bench.calls.decide(approval.id, wish, caller=CALLER)


async def came_back(bench: Calling) -> list[Done]:
    """The client calls again until it has a result; a person approves what is asked; runs without an owner go on."""
    bench.worker.clock.advance(60.0)  # whoever had the run before is gone
    found = await bench.worker.store.list_runs(tenant="t", limit=10)
    for stored in found.runs:
        await bench.worker.resumption.resume_if_ready(stored.id)
        await until_read(partial(bench.worker.store.run, stored.id, tenant="t"), _rests)
    told: list[Done] = []
    while not told or told[-1].state == "unknown":
        run: CallRun = await bench.begin()
        outcome = await bench.calls.wait_for_outcome(run, wait_s=0.0)
        if isinstance(outcome, WaitingCall):
            await approved(bench, outcome)
            outcome = await bench.calls.wait_for_outcome(run, wait_s=0.0)
        assert isinstance(outcome, Done)
        told.append(outcome)
        bench.calls.mark_delivered(run)
        await bench.calls.close()
    return told


@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("at", range(1, WRITES + 1))
async def test_held_call_survives_a_crash_at_every_store_write(
    opened: Opened, tmp_path: Path, at: int, behind: bool
) -> None:
    """The effect is there once, or the client was told that nobody knows, before it asked for another one."""
    place, effects = str(tmp_path / "gateway.db"), list[str]()

    async def writes(call: ToolCall) -> ToolResult:
        effects.append(call.id)
        return ToolResult("written")

    first = await until_it_died(place, at=at, behind=behind, does=writes)
    before = len(effects)
    told = await came_back(calling(await opened(place=place, does=writes, clock=first.worker.clock)))
    assert told[-1].result == ToolResult("written")
    unknown = [done for done in told if done.state == "unknown"]
    assert len(effects) == 1 or (before == 1 and len(unknown) == 1 and len(effects) == 2)
    assert "unknown" not in "".join(done.result.content for done in told if done not in unknown)


@pytest.mark.parametrize("at", range(1, 4))
async def test_harmless_call_recovers_from_a_crash_at_every_write(opened: Opened, tmp_path: Path, at: int) -> None:
    """The outcome is unknown only where the call was started; the same call is told so, once."""
    place = str(tmp_path / "gateway.db")
    first = await until_it_died(place, at=at, behind=True, assessors=HARMLESS)
    second = calling(await opened(place=place, assessors=HARMLESS, clock=first.worker.clock))
    told = await came_back(second)
    assert [done.state for done in told] == (["unknown", "completed"] if at == 1 else ["completed"])


async def test_stalled_worker_reports_the_unknown_outcome_of_its_lost_run(
    opened: Opened, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Another one took the run meanwhile: a result that says that nobody knows, and not an error of the request."""
    place, goes_on, effects = str(tmp_path / "gateway.db"), asyncio.Event(), list[str]()

    async def writes(call: ToolCall) -> ToolResult:
        effects.append(call.id)
        await goes_on.wait()
        return ToolResult("the secret 4711")

    stalled = calling(await opened(place=place, assessors=HARMLESS, does=writes))
    other = calling(await opened(place=place, assessors=HARMLESS, clock=stalled.worker.clock))
    run = await stalled.begin()
    waits = asyncio.create_task(stalled.done(run))
    await until(lambda: effects)
    stalled.worker.clock.advance(60.0)
    await other.worker.resumption.resume_if_ready(run.id)
    stored = await until_read(partial(other.worker.store.run, run.id, tenant="t"), _rests)
    assert stored is not None and stored.state == "unknown"
    same = await other.done(await other.begin())
    goes_on.set()
    done = await waits
    assert (done.state, done.result.ok, done.run_id) == ("unknown", False, run.id)
    assert same == done and len(effects) == 1
    assert "was lost" in caplog.text and "4711" not in caplog.text
    (step,) = await other.worker.store.list_steps(run.id, tenant="t")
    assert step.late is not None and "4711" in step.late


async def test_held_call_survives_a_restart(opened: Opened, tmp_path: Path) -> None:
    """Decided before its client comes back, and by a process that knows neither."""
    place = str(tmp_path / "gateway.db")
    first = calling(await opened(place=place))
    run, approval = await first.held()
    await first.worker.close()
    second = calling(await opened(place=place, clock=first.worker.clock))
    await second.decide(approval)
    joined = await second.begin()
    assert joined.id == run.id
    assert (await second.done(joined)).result == ToolResult("looked at {'x': 1}")
    assert len(first.worker.calls + second.worker.calls) == 1


async def test_abandoned_held_call_reports_its_failure_once(opened: Opened) -> None:
    """The next same call asks anew."""
    bench = calling(await opened())
    run, _ = await bench.held()
    stored = await bench.worker.store.run(run.id, tenant="t")
    assert stored is not None
    await abandon(stored, "its plugin is gone", store=bench.worker.store, clock=bench.calls.clock, tracer=None)
    joined = await bench.begin()
    done = await bench.done(joined)
    assert (done.state, done.result.ok) == ("failed", False) and "its plugin is gone" in done.result.content
    bench.calls.mark_delivered(joined)
    assert (await bench.held())[0].id != run.id
