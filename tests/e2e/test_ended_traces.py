"""Runs that end while nobody drives them: each sends its span once, with its outcome."""

from pathlib import Path

from collector import TRACE, Collector, Seen

from .asking import GO, HOLD, asks, birth, held, ranch
from .models import says
from .talking import World, stages, talking
from .test_traces import PARENT, until_state


async def ended(collector: Collector) -> Seen:
    """The span of the only run, after all others have arrived."""
    await collector.until("invoke_agent assistant")
    (run,) = [one for one in collector.spans if one.name == "invoke_agent assistant"]
    inside = [one for one in collector.spans if one.name in ("stage intent", "chat m")]
    assert {one.parent for one in inside} == {run.id} and run.trace == TRACE
    return run


async def asked(world: World) -> str:
    (approval,) = (await world.chat(GO, headers=PARENT)).asks
    return str(approval["run_id"])


def decided(collector: Collector, run: Seen) -> list[tuple[str, ...]]:
    """The spans of its approvals: each once, below the run, ended no later than it."""
    told = [one for one in collector.spans if one.name.startswith("approval ")]
    assert all((one.trace, one.parent) == (TRACE, run.id) for one in told)
    assert all(run.began_ns <= one.began_ns <= one.ended_ns <= run.ended_ns for one in told)
    names = ("twolane.approval.state", "twolane.approval.via", "twolane.approval.by")
    return sorted(tuple(one.attributes[name] for name in names if name in one.attributes) for one in told)


async def test_run_cancelled_while_waiting_sends_its_span(tmp_path: Path) -> None:
    async with Collector() as collector:
        async with talking(asks(), tools=ranch(tmp_path), tracing={"endpoint": collector.url}) as world:
            run_id = await asked(world)
            assert (await world.post({}, path=f"/context/runs/{run_id}/cancel")).status == 200
            assert (await world.post({}, path=f"/context/runs/{run_id}/cancel")).status == 200
        run = await ended(collector)
        assert run.attributes["twolane.run.outcome"] == run.attributes["error.type"] == "cancelled"
        assert run.attributes["twolane.run.id"] == run_id and run.attributes["twolane.chain"] == "assistant"
        assert decided(collector, run) == [("cancelled", "rest", "local")]


async def test_cancelled_run_trace_includes_earlier_decisions(tmp_path: Path) -> None:
    async with Collector() as collector:
        facts = {"tools": ranch(tmp_path), "tracing": {"endpoint": collector.url}}
        async with talking(asks(birth("Di"), birth("Ed")), **facts) as world:
            first, _ = (await world.chat(GO, headers=PARENT)).asks
            await world.decide(first["id"], "approve")
            assert (await world.post({}, path=f"/context/runs/{first['run_id']}/cancel")).status == 200
        told = decided(collector, await ended(collector))
        assert told == [("approved", "rest", "local"), ("cancelled", "rest", "local")]


async def test_rejection_ends_other_approval_spans_of_its_run(tmp_path: Path) -> None:
    async with Collector() as collector:
        facts = {"tools": ranch(tmp_path), "tracing": {"endpoint": collector.url}}
        async with talking(asks(birth("Di"), birth("Ed")), **facts) as world:
            first, second = (await world.chat(GO, headers=PARENT)).asks
            await world.decide(second["id"], "reject")
            await until_state(world, first["run_id"], "rejected")
        told = decided(collector, await ended(collector))
        assert told == [("rejected", "rest", "local")] * 2


async def test_run_cancelled_during_a_held_answer_sends_one_span(tmp_path: Path) -> None:
    async with Collector() as collector:
        facts = {"tools": ranch(tmp_path), "tracing": {"endpoint": collector.url}}
        async with talking(asks(), **facts) as world, world.streaming(GO, headers={**PARENT, **HOLD}) as stream:
            (approval,) = await held(stream)
            path = f"/context/runs/{approval['run_id']}/cancel"
            assert (await world.post({}, path=path)).status == 200
            await stream.rest()
        run = await ended(collector)
        assert run.attributes["twolane.run.outcome"] == "cancelled"
        assert decided(collector, run) == [("cancelled", "rest", "local")]


async def test_expired_approval_ends_the_run_span_as_expired(tmp_path: Path) -> None:
    async with Collector() as collector:
        facts = {"tools": ranch(tmp_path), "tracing": {"endpoint": collector.url}, "approvals": {"expires": "1s"}}
        async with talking(asks(), **facts) as world:
            await until_state(world, await asked(world), "expired")
        run = await ended(collector)
        assert run.attributes["twolane.run.outcome"] == "expired"
        assert decided(collector, run) == [("expired",)]


async def test_run_that_cannot_resume_sends_a_failed_span(tmp_path: Path) -> None:
    """Its chain runs no tools any more."""
    async with Collector() as collector:
        facts = {"tools": ranch(tmp_path), "tracing": {"endpoint": collector.url}}
        async with talking(asks(), says("Done."), **facts) as world:
            (approval,) = (await world.chat(GO, headers=PARENT)).asks
            chains = stages()
            chains["assistant"] = [one for one in chains["assistant"] if "agent_loop" not in str(one)]
            await world.reload(chains=chains)
            await world.decide(approval["id"], "approve")
            await until_state(world, approval["run_id"], "failed")
        run = await ended(collector)
        assert run.attributes["twolane.run.outcome"] == "failed"
        assert run.attributes["error.type"] == "internal_error"
        assert decided(collector, run) == [("approved", "rest", "local")]
