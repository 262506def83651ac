"""People and the stage of the agent loop: many decide, clients leave, approvals expire."""

import asyncio

import pytest

from gateway.contracts.errors import GatewayError
from gateway.contracts.plugin import LoopLimits
from gateway.contracts.tools import ToolCall, ToolResult
from tests.scripted_replies import stepping, whole

from .agent_bench import Bench, answer, behind_question, group, texts
from .rounds import until_asked
from .staging import risky, xs


async def test_concurrent_decisions_on_a_held_stream_count_once() -> None:
    """A hundred at once, for and against: the call runs once or not at all, and the stream says which."""
    bench = Bench([answer(risky()), answer("Done.")])
    running = asyncio.create_task(bench.run(approvals="hold"))
    await until_asked(bench)

    async def decide(i: int) -> str:
        try:
            return (await bench.decide(approve=i % 2 == 0, index=0)).state
        except GatewayError as error:
            return error.code

    told = await asyncio.gather(*map(decide, range(100)))
    text = behind_question(await running)
    if told[0] == "approved":
        assert text == "Done." and xs(bench) == [1] and told.count("decision_conflict") == 50
    else:
        assert "rejected" in text and bench.calls == []
    await bench.close()


async def test_approval_expiry_ends_a_held_stream() -> None:
    """With a text, and nothing ran."""
    bench = Bench([answer(risky())])
    running = asyncio.create_task(bench.run(approvals="hold"))
    await until_asked(bench)
    bench.clock.advance(3601)
    await bench.approvals.expire()
    assert "in time" in texts(await running)
    assert (await bench.stored()).state == "expired" and bench.calls == []
    await bench.close()


async def test_run_cancelled_during_a_held_stream_reports_the_cancellation() -> None:
    """The client gets an answer, not a failure; the run stays cancelled."""
    bench = Bench([answer(risky())])
    running = asyncio.create_task(bench.run(approvals="hold"))
    await until_asked(bench)
    await bench.store.cancel("run_1", tenant="t", now_s=1.0, events=(), audit=())
    bench.feed.nudge()
    told = await running
    assert "cancelled together with its run" in texts(told)
    assert [c["finish_reason"] for one in told for c in one["choices"] if "finish_reason" in c] == ["stop"]
    assert (await bench.stored()).state == "cancelled" and bench.calls == []
    assert [one.state for one in await bench.pending_approvals()] == ["cancelled"]
    await bench.close()


async def test_client_disconnect_leaves_the_approval_pending() -> None:
    """Wherever it stopped reading: the question can be answered later."""
    bench = Bench([answer(risky()), answer("Done.")])
    reply = await bench.reply(approvals="hold")
    async with stepping(reply) as steps:
        async for one in steps:
            if whole(one).get("context", {}).get("type") == "approval.required":
                break
    await reply.release()
    assert (await bench.stored()).state == "awaiting_approval"
    await bench.decide()
    assert texts(await bench.resumed()) == "Done." and xs(bench) == [1]
    await bench.close()


async def test_failed_run_cancels_its_pending_approvals() -> None:
    """The first of a group takes too long: the second can be approved no more."""

    async def endless(_asked: ToolCall) -> ToolResult:
        await asyncio.Event().wait()
        raise AssertionError

    bench = Bench([group(risky(1), risky(2))], does=endless, limits=LoopLimits(timeout_s=1))
    running = asyncio.create_task(bench.run(approvals="hold"))
    await until_asked(bench)
    await bench.decide(index=0)
    with pytest.raises(GatewayError) as failed:
        await running
    assert failed.value.code == "agent_timeout"
    assert [one.state for one in await bench.pending_approvals()] == ["unknown", "cancelled"]
    with pytest.raises(GatewayError) as late:
        await bench.decide(index=1)
    assert late.value.code == "decision_conflict"
    await bench.close()


async def test_approved_call_runs_even_if_request_rejects_approvals() -> None:
    """The request that brings the decision says `reject`: that is about further questions."""
    bench = Bench([answer(risky(1)), answer(risky(2))])
    await bench.run()
    await bench.decide()
    told = await bench.resumed(approvals="reject")
    assert xs(bench) == [1] and "no person can approve it here" in texts(told)
    assert (await bench.stored()).state == "rejected"
    await bench.close()
