"""Settlements by people, on a real store: calls with an unknown outcome, and runs that they end."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from gateway.contracts.caller import Caller
from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.journal import Change, ConflictError, StoredStep
from gateway.contracts.storage.store import StoreError
from gateway.plugins.stores.sqlite import SqliteStore
from gateway.runs.run_resolution import DONE, FAILED, Outcome, RunSettlement, cancel, resolve
from gateway.tools.decision_rules import DecisionRules
from tests.plugins.stores.records import approval, new, parked, run, step

from .failing import Failing

BOSS = Caller("bob", "acme", frozenset(("context", "approve")))
AGENT = Caller("ann", "acme", frozenset(("context",)))
RIVAL = Caller("eve", "other", frozenset(("context", "approve")))
LOST = step(state="unknown", started_s=150.0)


class Wall:
    """Stands still."""

    def monotonic(self) -> float:
        return 200.0

    def time(self) -> float:
        return 200.0


CLOCK = Wall()
RULES = DecisionRules()


@dataclass
class Shelf:
    """A store, and what a test asks of it."""

    store: SqliteStore

    async def resolve(
        self, outcome: Outcome, result: str | None = None, *, number: int = 1, caller: Caller = BOSS
    ) -> str:
        """The run's state afterwards."""
        settlement = RunSettlement(step=number, outcome=outcome, via="rest", result=result)
        return (await resolve(self.store, "run_1", settlement, caller=caller, rules=RULES, clock=CLOCK)).state

    async def step(self, number: int = 1) -> StoredStep:
        steps = await self.store.list_steps("run_1", tenant="acme")
        return next(one for one in steps if one.number == number)

    async def approval_state(self) -> str:
        there = await self.store.get_approval("ap_1", tenant="acme")
        assert there is not None
        return there.state

    async def can_be_claimed(self, state: str = "running") -> bool:
        found = await self.store.claim(
            owner="w",
            now_s=200.0,
            until_s=205.0,
            states=[state],
            run_id="run_1",
            limit=1,  # type: ignore[list-item]
        )
        return bool(found)


@pytest.fixture
async def shelf() -> AsyncIterator[Shelf]:
    store = SqliteStore(":memory:")
    await store.open()
    yield Shelf(store)
    await store.close()


def lost(*steps: StoredStep, **changes: object) -> Change:
    """A run in which nobody knows what became of a call."""
    return new(run(state="unknown", effects=True, **changes), steps=steps or (LOST,))


def lost_with_approval() -> Change:
    return new(
        run(state="unknown", effects=True),
        steps=(replace(LOST, approval_id="ap_1"),),
        approvals=(approval(state="unknown", decided_s=140.0, decided_by="bob", via="chat"),),
    )


@pytest.mark.parametrize(
    ("outcome", "told", "state", "result"),
    [
        ("done", None, "finished", DONE),
        ("done", "12 rows", "finished", "12 rows"),
        ("failed", None, "failed", FAILED),
        ("failed", "It hung.", "failed", f"{FAILED} It hung."),
        ("retry", None, "planned", None),
    ],
)
async def test_resolved_call_gets_its_result_or_runs_again(
    shelf: Shelf, outcome: Outcome, told: str, state: str, result: str | None
) -> None:
    """Becomes its result, or lets it run again; then the run is anybody's who goes on with it."""
    await shelf.store.write(lost())
    assert await shelf.resolve(outcome, told) == "running"
    after = await shelf.step()
    assert (after.state, after.result, after.shown) == (state, result, None)
    assert (after.started_s, after.finished_s) == ((None, None) if outcome == "retry" else (150.0, 200.0))
    assert await shelf.can_be_claimed()


@pytest.mark.parametrize(("outcome", "state"), [("done", "done"), ("failed", "failed"), ("retry", "approved")])
async def test_approval_follows_the_resolution_of_its_call(shelf: Shelf, outcome: Outcome, state: str) -> None:
    """A call that runs again needs no second approval."""
    await shelf.store.write(lost_with_approval())
    await shelf.resolve(outcome)
    assert await shelf.approval_state() == state


async def test_resolution_is_recorded_in_audit_log_and_events(shelf: Shelf) -> None:
    """In the audit log, and as an event of the run."""
    await shelf.store.write(lost())
    await shelf.resolve("done")
    (row,) = await shelf.store.audit(after=0, limit=10)
    line = row.line
    assert (line.event, line.decision, line.by, line.via, line.step) == ("resolved", "done", "bob", "rest", 1)
    assert (line.caller, line.tool, line.sha256) == ("ann", "execute_command", "a" * 64)
    (event,) = await shelf.store.list_events(after=0, tenant="acme", run_id="run_1", limit=10)
    assert (event.type, event.data) == (
        "step.resolved",
        b'{"run_id":"run_1","step":1,"tool":"execute_command","as":"done","state":"finished"}',
    )


async def test_run_continues_after_all_unknown_calls_are_resolved(shelf: Shelf) -> None:
    """Until then the run waits."""
    await shelf.store.write(lost(LOST, replace(LOST, number=2)))
    assert await shelf.resolve("done") == "unknown"
    assert not await shelf.can_be_claimed()
    assert await shelf.resolve("failed", number=2) == "running"
    assert await shelf.can_be_claimed()


async def test_concurrent_resolutions_settle_a_call_once(shelf: Shelf) -> None:
    """Of many who say something at once, one is heard."""
    await shelf.store.write(lost())
    heard = await asyncio.gather(*(shelf.resolve("done", str(i)) for i in range(20)), return_exceptions=True)
    refused = [error.code for error in heard if isinstance(error, GatewayError)]
    assert heard.count("running") == 1 and refused == ["run_not_waiting"] * 19
    assert len(await shelf.store.audit(after=0, limit=10)) == 1


@pytest.mark.parametrize(
    ("caller", "number", "code"),
    [
        (RIVAL, 1, "run_not_found"),
        (AGENT, 1, "scope_missing"),
        (BOSS, 7, "invalid_field"),
        (BOSS, 0, "run_not_waiting"),
    ],
)
async def test_invalid_or_unauthorized_resolution_changes_nothing(
    shelf: Shelf, caller: Caller, number: int, code: str
) -> None:
    """Another tenant, a key without the scope, no such step, a step whose end is known: the run waits on."""
    await shelf.store.write(lost(step(0, state="finished", result="ok"), LOST))
    with pytest.raises(GatewayError) as caught:
        await shelf.resolve("done", number=number, caller=caller)
    assert caught.value.code == code
    assert (await shelf.step()).state == "unknown"
    assert await shelf.can_be_claimed("unknown")


@pytest.mark.parametrize("change", [new(), parked(), new(run(state="completed"))])
async def test_resolving_a_run_that_is_not_waiting_is_refused(shelf: Shelf, change: Change) -> None:
    """It is told as it is."""
    await shelf.store.write(change)
    with pytest.raises(GatewayError) as caught:
        await shelf.resolve("done")
    assert caught.value.code == "run_not_waiting"


async def test_resolution_can_be_repeated_after_a_store_failure(tmp_path: Path) -> None:
    """The store fails, and nothing has changed: the next word is heard at once."""

    store = Failing(str(tmp_path / "gateway.db"))
    await store.open()
    try:
        await store.write(lost())
        store.broken = True
        with pytest.raises(StoreError):
            await Shelf(store).resolve("done")
        store.broken = False
        assert await Shelf(store).resolve("done", "12 rows") == "running"
        assert (await Shelf(store).step()).result == "12 rows"
    finally:
        await store.close()


async def test_resolution_with_a_changed_approval_is_refused(shelf: Shelf) -> None:
    """Nothing is written, and the person looks again."""

    class Moving(SqliteStore):
        async def write(self, change: Change) -> None:
            if change.moves:
                raise ConflictError("it moved")
            await super().write(change)

    store = Moving(":memory:")
    await store.open()
    try:
        await store.write(lost_with_approval())
        with pytest.raises(GatewayError) as caught:
            await Shelf(store).resolve("done")
        assert caught.value.code == "run_not_waiting"
    finally:
        await store.close()


async def test_cancelled_run_cancels_its_approval_and_is_audited(shelf: Shelf) -> None:
    """With what it waits for, by whom; again is no mistake."""
    await shelf.store.write(parked())
    for _ in range(2):
        after = await cancel(shelf.store, "run_1", caller=AGENT, via="rest", clock=CLOCK, tracer=None)
        assert (after.state, after.updated_s, after.owner) == ("cancelled", 200.0, None)
    assert await shelf.approval_state() == "cancelled"
    asked, row = await shelf.store.audit(after=0, limit=10)
    assert (asked.line.event, asked.line.by) == ("cancelled", "")
    assert (row.line.event, row.line.decision, row.line.by, row.line.rule) == (
        "decision",
        "cancelled",
        "ann",
        "run_cancelled",
    )
    kinds = [event.type for event in await shelf.store.list_events(after=0, limit=10)]
    assert kinds == ["approval.resolved", "run.finished"]


@pytest.mark.parametrize("state", ["completed", "rejected", "expired", "failed", "interrupted"])
async def test_cancelling_an_ended_run_is_refused(shelf: Shelf, state: str) -> None:
    """There is nothing to cancel."""
    await shelf.store.write(new(run(state=state)))
    with pytest.raises(GatewayError) as caught:
        await cancel(shelf.store, "run_1", caller=BOSS, via="rest", clock=CLOCK, tracer=None)
    assert caught.value.code == "run_ended"


@pytest.mark.parametrize(("run_id", "caller"), [("run_1", RIVAL), ("run_2", BOSS)])
async def test_cancellation_of_an_unknown_or_foreign_run_is_refused(shelf: Shelf, run_id: str, caller: Caller) -> None:
    """Nor is somebody else's one."""
    await shelf.store.write(parked())
    with pytest.raises(GatewayError) as caught:
        await cancel(shelf.store, run_id, caller=caller, via="rest", clock=CLOCK, tracer=None)
    assert caught.value.code == "run_not_found"
    assert await shelf.approval_state() == "pending"
