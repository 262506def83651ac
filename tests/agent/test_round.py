"""Groups of calls: who is asked, what runs, in which order, and what is written down around it."""

import asyncio

import pytest
from gateways import until

from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import Chunk
from gateway.contracts.storage.endorsements import get_check_word
from gateway.contracts.storage.store import Json
from tests.approvals.room import Counting
from tests.scripted_replies import whole

from .agent_bench import Bench, answer, behind_question, call, group, settings, texts
from .doubles import samples
from .rounds import events_of, risky, until_asked


def context_of(told: list[Json]) -> Json:
    """What stands beside the answer."""
    merged: Json = {}
    for one in told:
        if "type" not in one.get("context", {}):
            merged |= one.get("context", {})
    return merged


def deltas(told: list[Json]) -> list[Json]:
    return [choice["delta"] for one in told for choice in one["choices"]]


# A turn that waits.


async def test_turn_ends_with_the_approval_question() -> None:
    """Nothing ran; the text says exactly what would, and how to answer; the run is in the store."""
    bench = Bench([answer("I will look. ", risky())])
    told = await bench.run()
    (approval,) = await bench.pending_approvals()
    assert bench.calls == [] and approval.state == "pending"
    said = texts(told)
    assert said.startswith("I will look. ") and f"approve {approval.id}" in said and "x: 1" in said
    context = context_of(told)
    assert (context["status"], context["run_id"]) == ("awaiting_approval", "run_1")
    assert [one["id"] for one in context["approvals"]] == [approval.id]
    run = await bench.stored()
    assert (run.state, run.effects, run.owner) == ("awaiting_approval", False, None)
    await bench.close()


async def test_an_approved_call_runs_once_and_the_run_goes_on() -> None:
    """In another process, from what is in the store alone."""
    bench = Bench([answer("Let me see. ", risky()), answer("It is fine.")])
    await bench.run()
    await bench.decide()
    told = await bench.resumed()
    assert texts(told) == "It is fine." and [c.arguments for c in bench.calls] == [{"x": 1}]
    sent = bench.asked[1].body["messages"]
    assert [m["role"] for m in sent] == ["user", "assistant", "tool"]
    assert sent[1]["content"] == "Let me see. " and sent[2]["content"] == "looked at {'x': 1}"
    (approval,) = await bench.pending_approvals()
    assert (approval.state, approval.via, approval.decided_by) == ("done", "rest", "c")
    run = await bench.stored()
    assert (run.state, run.effects, run.owner) == ("completed", True, None)
    assert await bench.leases.claim("run_1", "running", "awaiting_approval") is None
    await bench.close()


async def test_rejection_ends_the_run_and_skips_later_calls() -> None:
    """The calls behind it do not run either (default)."""
    bench = Bench([group(call(x=0), risky(1), call(x=2)), answer("never")])
    told = await bench.run()
    assert [c.arguments for c in bench.calls] == [{"x": 0}], "what came first has run"
    await bench.decide(approve=False, comment="not today")
    told = await bench.resumed()
    assert "rejected" in texts(told) and "not today" in texts(told) and len(bench.calls) == 1
    assert (await bench.stored()).state == "rejected"
    assert [step.state for step in await bench.steps()] == ["finished", "rejected", "planned"]
    assert len(bench.asked) == 1
    assert samples(bench.counters)["gateway_agent_runs_total", ("rejected",)] == 1
    await bench.close()


async def test_on_reject_continue_passes_the_rejection_to_the_model() -> None:
    """`on_reject: continue`: the other calls of the group run, and the model reads what the person said."""
    bench = Bench([group(risky(1), risky(2)), answer("Then not.")], asks=settings(on_reject="continue"))
    await bench.run()
    await bench.decide(approve=False, index=0, comment="no")
    await bench.decide(index=1)
    assert texts(await bench.resumed()) == "Then not."
    assert [c.arguments for c in bench.calls] == [{"x": 2}]
    results = [m["content"] for m in bench.asked[1].body["messages"] if m["role"] == "tool"]
    assert "rejected" in results[0] and "no" in results[0] and results[1] == "looked at {'x': 2}"
    await bench.close()


async def test_group_calls_share_a_question_and_one_rejection_ends_all() -> None:
    """And one rejection ends them all."""
    bench = Bench([group(risky(1), risky(2))])
    told = await bench.run()
    first, second = await bench.pending_approvals()
    assert f"approve {first.id} {get_check_word(first)} {second.id} {get_check_word(second)}" in texts(told)
    await bench.decide(approve=False, index=1)
    assert [a.state for a in await bench.pending_approvals()] == ["rejected", "rejected"]
    assert "rejected" in texts(await bench.resumed()) and bench.calls == []
    await bench.close()


async def test_call_group_continues_only_when_every_call_is_decided() -> None:
    """Nobody takes it up before."""
    bench = Bench([group(risky(1), risky(2)), answer("Both.")])
    await bench.run()
    await bench.decide(index=0)
    assert await bench.leases.claim("run_1", "awaiting_approval") is None
    await bench.decide(index=1)
    assert texts(await bench.resumed()) == "Both."
    assert [c.arguments for c in bench.calls] == [{"x": 1}, {"x": 2}]
    await bench.close()


async def test_an_expired_approval_ends_the_run() -> None:
    """Nothing ran."""
    bench = Bench([answer(risky())])
    await bench.run()
    bench.clock.advance(3601)
    await bench.approvals.expire()
    with pytest.raises(GatewayError) as refused:
        await bench.decide()
    assert refused.value.code == "approval_expired"
    assert "in time" in texts(await bench.resumed())
    assert bench.calls == [] and (await bench.stored()).state == "expired"
    await bench.close()


async def test_approvals_reject_refuses_the_call_without_pending_approval() -> None:
    """`approvals: reject`: a normal answer that says what was refused."""
    bench = Bench([answer(risky())])
    told = await bench.run(approvals="reject")
    assert "no person can approve it here" in texts(told) and bench.calls == []
    assert await bench.pending_approvals() == [] and (await bench.stored()).state == "rejected"
    await bench.close()


# A stream that is held.


async def test_held_stream_continues_when_its_call_is_approved() -> None:
    """The question is the beginning of the answer, with one event for programs; the rest comes in the same stream."""
    bench = Bench([answer(risky()), answer("Done.")])
    running = asyncio.create_task(bench.run(approvals="hold"))
    await until_asked(bench)
    await bench.decide()
    told = await running
    assert behind_question(told) == "Done." and len(bench.calls) == 1
    assert events_of(told) == ["approval.required", "approval.resolved"]
    assert "gateway approvals approve ap_" in texts(told) and not any("reasoning_content" in d for d in deltas(told))
    await bench.close()


async def test_held_stream_ends_as_a_turn_after_its_wait() -> None:
    """After a while, with a word that it did: the question stands there already."""
    bench = Bench([answer(risky()), answer("Done.")], asks=settings(inline_wait_s=0.02))
    told = await bench.run(approvals="hold")
    assert behind_question(told).startswith("No person has decided so far")
    assert (await bench.stored()).state == "awaiting_approval"
    await bench.decide()
    assert texts(await bench.resumed()) == "Done."
    await bench.close()


async def test_waiting_for_an_approval_costs_no_run_time() -> None:
    """The budget stands still meanwhile."""
    store = Counting(":memory:")
    bench = Bench([answer(risky()), answer("Done.")], store=store)
    reply = await bench.reply(approvals="hold", budget_s=50.0)
    looked, rest = list[int](), list[Json]()

    def tell(one: Chunk) -> None:
        if "choices" in whole(one):
            rest.append(whole(one))
        if events_of([whole(one)]) == ["approval.required"]:
            looked.append(store.looked)

    running = asyncio.create_task(reply.stream(tell))
    await until(lambda: looked and store.looked > looked[0])  # it waits
    bench.clock.advance(1000)
    await bench.decide()
    await running
    await reply.release()
    assert behind_question(rest) == "Done."
    assert bench.asked[1].execution.budget_s == 50
    await bench.close()


async def test_held_run_stays_stored_and_approvable_after_client_disconnect() -> None:
    """And can be approved later."""
    bench = Bench([answer(risky()), answer("Done.")])
    running = asyncio.create_task(bench.run(approvals="hold"))
    await until_asked(bench)
    running.cancel()
    await asyncio.wait({running})
    assert (await bench.stored()).state == "awaiting_approval"
    await bench.decide()
    assert texts(await bench.resumed()) == "Done."
    await bench.close()
