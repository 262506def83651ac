"""A store that fails under a run that a person was asked about: the run waits, and what was decided is carried out."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

import pytest

from gateway.agent.store_retry import WAIT_S
from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.journal import Approval, Change
from gateway.contracts.storage.store import StoreError, UncertainError
from gateway.plugins.stores.sqlite import SqliteStore
from gateway.testing.clock import ManualClock
from gateway.tools.gate import Policy

from .agent_bench import Bench, answer, behind_question, call, group, settings, texts, workflow
from .doubles import samples
from .rounds import until_asked

Error = Callable[[], StoreError]


def full() -> StoreError:
    return StoreError("database or disk is full")


def uncertain() -> StoreError:
    return UncertainError("disk I/O error; then, while that was undone: disk I/O error")


class Failing(SqliteStore):
    """A store whose next writes fail so often, and its next reads of approvals; `failed` hears of each."""

    def __init__(self, *, error: Error = full) -> None:
        super().__init__(":memory:")
        self.error = error
        self.fails = self.unreadable = 0
        self.failed: Callable[[], None] = lambda: None

    async def write(self, change: Change) -> None:
        if self.fails:
            self.fails -= 1
            self._fail()
        await super().write(change)

    async def list_approvals(self, **which: object) -> Sequence[Approval]:  # type: ignore[override]
        if self.unreadable:
            self.unreadable -= 1
            self._fail()
        return await super().list_approvals(**which)  # type: ignore[arg-type]

    def _fail(self) -> None:
        self.failed()
        raise self.error()


class Doubtful(Failing):
    """A store that says of its next writes that nobody knows about them, though each is there."""

    async def write(self, change: Change) -> None:
        fails, self.fails = self.fails, 0
        await super().write(change)
        if fails:
            self.fails = fails - 1
            self._fail()


def risky(x: int = 1) -> str:
    return call(risk_level="high", x=x)


def xs(bench: Bench) -> list[object]:
    return [asked.arguments["x"] for asked in bench.calls]


def waits(bench: Bench) -> Mapping[str, float]:
    """How many waits for the store there were, by what became of them."""
    name = "gateway_store_waits_total"
    return {labels[0]: count for (sample, labels), count in samples(bench.counters).items() if sample == name}


async def decided(store: Failing, *calls: str) -> Bench:
    """A run whose calls are all approved, in the hands of a process that is gone."""
    bench = Bench([group(*calls), answer("Done.")], store=store, asks=settings())
    await bench.run()
    for index in range(len(await bench.pending_approvals())):
        await bench.decide(index=index)
    return bench


@pytest.mark.parametrize("error", [full, uncertain])
@pytest.mark.parametrize("times", [1, 3])
async def test_approved_call_waits_for_a_failing_store_and_runs_once(error: Error, times: int) -> None:
    """Its line cannot be written: it does not run, nor is it refused; it runs once, as soon as that works."""
    store = Failing(error=error)
    bench = await decided(store, risky())
    store.fails = times
    store.failed = lambda: None if bench.calls == [] else pytest.fail("it ran before its line was written")
    assert texts(await bench.resumed()) == "Done."
    assert xs(bench) == [1] and (await bench.stored()).state == "completed"
    assert [one.state for one in await bench.pending_approvals()] == ["done"]
    assert waits(bench) == {"begun": 1, "resumed": 1}
    await bench.close()


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("is_stopped", [False, True])
async def test_call_with_an_uncertain_store_write_never_runs(times: int, *, is_stopped: bool) -> None:
    """Its run may be on record by the line that nobody knows about: it ends there, and no process goes on with it."""
    store = Doubtful(error=uncertain)
    bench = Bench([answer(call("peek", x=1)), answer("Never.")], store=store)
    store.fails = times
    if is_stopped:
        running = asyncio.ensure_future(bench.run())
        store.failed = lambda: store.fails or running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    else:
        with pytest.raises(GatewayError) as told:
            await bench.run()
        assert told.value.code == "store_uncertain"
        await bench.leases.close()  # an end that the store did not take is owed
    assert (await bench.stored()).state in ("failed", "interrupted")
    assert [step.state for step in await bench.steps()] == ["planned"] and bench.calls == []
    await bench.close()


def failing_at(store: Failing, number: int) -> None:
    """From here on the write of this number fails, counted from 1."""
    written, write = 0, store.write

    async def counted(change: Change) -> None:
        nonlocal written
        written += 1
        if written == number:
            raise full()
        await write(change)

    store.write = counted  # type: ignore[method-assign]


@pytest.mark.parametrize("fails_at", range(1, 12))
async def test_call_group_runs_once_when_the_store_fails_anywhere(fails_at: int) -> None:
    """An everyday call between two approved ones: each runs once, in order, and none is run or told twice."""
    store = Failing()
    bench = await decided(store, risky(1), call(x=2), risky(3))
    failing_at(store, fails_at)
    assert texts(await bench.resumed()) == "Done."
    assert xs(bench) == [1, 2, 3]
    assert [one.state for one in await bench.pending_approvals()] == ["done", "done"]
    assert [step.state for step in await bench.steps()] == ["finished"] * 3
    told = [message["content"] for message in bench.asked[-1].body["messages"] if message["role"] == "tool"]
    assert told == [f"looked at {{'x': {x}}}" for x in (1, 2, 3)]
    await bench.close()


@pytest.mark.parametrize("fails_at", range(1, 8))
async def test_edited_call_keeps_its_edit_when_the_store_fails(fails_at: int) -> None:
    """Wherever the store fails: never the call that the model asked for."""
    store = Failing()
    bench = Bench([answer(risky(1)), answer("Done.")], store=store)
    await bench.run()
    await bench.decide(arguments={"x": 7})
    failing_at(store, fails_at)
    assert texts(await bench.resumed()) == "Done." and xs(bench) == [7]
    (step,) = await bench.steps()
    assert (step.state, step.arguments) == ("finished", '{"x":7}')
    await bench.close()


@pytest.mark.parametrize("fails_at", range(1, 8))
async def test_rejected_call_stays_rejected_when_the_store_fails(fails_at: int) -> None:
    """`on_reject: continue`: the other one of the group runs, and the model reads what was said, once each."""
    store = Failing()
    bench = Bench([group(risky(1), risky(2)), answer("Then not.")], store=store, asks=settings(on_reject="continue"))
    await bench.run()
    await bench.decide(approve=False, index=0, comment="no")
    await bench.decide(index=1)
    failing_at(store, fails_at)
    assert texts(await bench.resumed()) == "Then not." and xs(bench) == [2]
    told = [message["content"] for message in bench.asked[-1].body["messages"] if message["role"] == "tool"]
    assert len(told) == 2 and "no" in told[0]
    assert [step.state for step in await bench.steps()] == ["rejected", "finished"]
    await bench.close()


@pytest.mark.parametrize("fails_at", [2, 3])
async def test_held_stream_continues_when_the_store_fails_anywhere(fails_at: int) -> None:
    """Behind its question: the same stream brings the answer, and the call runs once."""
    store = Failing()
    bench = Bench([answer(risky()), answer("Done.")], store=store)
    failing_at(store, fails_at)
    running = asyncio.create_task(bench.run(approvals="hold"))
    await until_asked(bench)
    await bench.decide()
    assert behind_question(await running) == "Done." and xs(bench) == [1]
    assert (await bench.stored()).state == "completed"
    await bench.close()


@pytest.mark.parametrize("fails_at", [1, 2, 4, 5, 6])
async def test_workflow_runs_each_step_once_when_the_store_fails(fails_at: int) -> None:
    """Two steps that each ask: both run once, in order. (The third line asks about a call that nobody knows yet.)"""
    store = Failing()
    steps = [{"name": name, "tool": "look", "with": {"x": name}} for name in ("a", "b")]
    bench = Bench([], store=store, policy=Policy(trust_llm="never", default="confirm"))
    await bench.run(workflow=workflow(*steps))
    await bench.decide()
    failing_at(store, fails_at)
    await bench.resumed()
    await bench.decide()
    await bench.resumed()
    assert xs(bench) == ["a", "b"] and (await bench.stored()).state == "completed"
    await bench.close()


@pytest.mark.parametrize("times", [1, 2])
async def test_unreadable_approvals_are_retried(times: int) -> None:
    """Nobody takes a question for unanswered because the store did not answer."""
    store = Failing()
    bench = await decided(store, risky(1), risky(2))
    store.unreadable = times
    assert texts(await bench.resumed()) == "Done." and xs(bench) == [1, 2]
    await bench.close()


async def test_recorded_question_survives_a_failed_park() -> None:
    """The turn could not be parked: it is, as soon as that works, and the same question is asked."""
    store = Failing()
    bench = Bench([answer(risky()), answer("Done.")], store=store)
    failing_at(store, 2)
    asked = texts(await bench.run())
    (approval,) = await bench.pending_approvals()
    assert approval.state == "pending" and asked.count(f"approve {approval.id}") == 1
    assert (await bench.stored()).state == "awaiting_approval"
    assert [e.type for e in await bench.store.list_events(after=0, limit=9)] == ["approval.required", "run.parked"]
    await bench.decide()
    assert texts(await bench.resumed()) == "Done." and xs(bench) == [1]
    await bench.close()


async def test_policy_change_during_store_failure_requires_a_new_approval() -> None:
    """What was approved under the old policy does not run; the old approval goes only with the new one."""
    store = Failing()
    bench = await decided(store, risky())
    store.fails, store.failed = 2, lambda: bench.reload(look="confirm")
    asked = texts(await bench.resumed())
    old, new = await bench.pending_approvals()
    assert (old.state, new.state) == ("cancelled", "pending") and new.id in asked and bench.calls == []
    events = [e.type for e in await bench.store.list_events(after=0, limit=20)]
    assert events.count("approval.resolved") == 2, "the decision, and that it holds no more"
    assert "cancelled" in [row.line.event for row in await bench.store.audit(after=0, limit=20)]
    await bench.decide()
    assert texts(await bench.resumed()) == "Done." and xs(bench) == [1]
    await bench.close()


@pytest.mark.parametrize("on_wait", ["full", "unreadable"])
async def test_run_survives_a_persistent_store_failure(on_wait: str) -> None:
    """After a while the client is told that the run waits; whoever can write takes it up, and the call runs."""
    store = Failing()
    bench = await decided(store, risky())
    if on_wait == "full":
        store.fails = 100
    else:
        store.unreadable = 100
    store.failed = lambda: bench.clock.advance(WAIT_S / 2)
    with pytest.raises(GatewayError) as left:
        await bench.resumed()
    assert left.value.code == "store_full" and "goes on by itself" in left.value.message
    assert left.value.facts.status == 422, "507 would tell who brought the decision that it was refused"
    assert waits(bench) == {"begun": 1, "left": 1}
    store.fails = store.unreadable = 0
    assert (await bench.stored()).state in ("running", "awaiting_approval") and bench.calls == []
    assert [one.state for one in await bench.pending_approvals()] == ["approved"]
    assert texts(await bench.resumed()) == "Done." and xs(bench) == [1]
    await bench.close()


async def test_unconfirmed_lease_withdraws_the_start_of_a_call() -> None:
    """The line is written, but so late that the run may be somebody else's: the start is withdrawn, and tried again."""
    clock = ManualClock()

    class Slow(Failing):
        async def write(self, change: Change) -> None:
            await super().write(change)
            if any(step.state == "started" for step in change.steps) and not slowed:
                slowed.append(True)
                clock.advance(60.0)
                self.fails = 1

    slowed: list[bool] = []
    store = Slow()
    bench = Bench([answer(risky()), answer("Done.")], store=store, clock=clock)
    await bench.run()
    await bench.decide()
    assert texts(await bench.resumed()) == "Done." and xs(bench) == [1]
    lines = [row.line.event for row in await bench.store.audit(after=0, limit=20)]
    assert lines == ["verdict", "decision", "started", "withdrawn", "started", "finished"]
    await bench.close()


async def test_run_without_decisions_reports_store_failure_at_once() -> None:
    """A run of everyday calls holds no decision of a person: its client hears of the store, and may try again."""
    store = Failing()
    bench = Bench([answer(call()), answer("Done.")], store=store)
    store.fails = 1
    with pytest.raises(GatewayError) as failed:
        await bench.run()
    assert (failed.value.code, failed.value.facts.status) == ("store_full", 507)
    assert bench.calls == [] and waits(bench) == {}
    await bench.close()
