"""A request that comes again gets the answer that is on record, or waits for it."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from functional.through import breathe
from gateways import until_read

from gateway.context.resumption import TELLS_S
from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.journal import Change
from gateway.contracts.storage.store import Json
from gateway.contracts.tools import ToolCall, ToolResult
from tests.agent.agent_bench import USAGE, answer, call, texts

from .workers import (
    HI,
    Opened,
    context_of,
    risky,
    whole,
)


async def test_a_repeated_request_gets_the_stored_answer(opened: Opened) -> None:
    """With its usage; nothing runs, and no model is asked."""
    worker = await opened(answer("Look. ", call(x=1)), answer("Done."))
    first = await worker.first()
    told = await whole(await worker.repeat())
    assert texts(told) == texts(first) == "Look. Done."
    (usage,) = [one["usage"] for one in told if "usage" in one]
    assert usage["total_tokens"] == 2 * USAGE["total_tokens"]
    assert [c["finish_reason"] for one in told for c in one["choices"] if "finish_reason" in c] == ["stop"]
    assert (len(worker.calls), len(worker.asked)) == (1, 2)


async def test_turn_is_finished_once_no_worker_streams_its_answer(opened: Opened, tmp_path: Path) -> None:
    """Nor may another worker be about to."""
    place = str(tmp_path / "gateway.db")
    worker = await opened(answer(risky()), place=place)
    await worker.first()
    run = await worker.stored()
    assert await worker.resumption.is_turn_finished(run)
    (told,) = worker.runs._runs.values()
    worker.runs.join(told)
    assert not await worker.resumption.is_turn_finished(run)
    worker.runs.remove_client(told, whole=True)
    other = await opened(place=place, clock=worker.clock)
    assert not await other.resumption.is_turn_finished(run)
    worker.clock.advance(TELLS_S)
    assert await other.resumption.is_turn_finished(run) and await worker.resumption.is_turn_finished(run)


async def test_repeated_request_repeats_its_approval_question(opened: Opened) -> None:
    """The same text to the letter, and nobody is asked twice."""
    worker = await opened(answer(risky()))
    first = await worker.first()
    told = await whole(await worker.repeat())
    assert texts(told) == texts(first)
    assert context_of(told)["approvals"] == context_of(first)["approvals"]
    assert len(await worker.pending_approvals()) == len(worker.asked) == 1


async def test_repeated_request_continues_after_the_decision(opened: Opened) -> None:
    """As if it had waited."""
    worker = await opened(answer("First. ", risky()), answer("Done."))
    await worker.first()
    await worker.decide()
    assert texts(await whole(await worker.repeat())) == "Done." and len(worker.calls) == 1


async def test_repeated_request_supplies_its_credential_to_the_waiting_run(opened: Opened) -> None:
    """A run that waits for it goes on."""
    refused = GatewayError("upstream_refused", "Upstream 'up' answered 401.")
    worker = await opened(answer(risky()), refused, answer("Done."))
    await worker.first(credential=b"Authorization: Bearer secret\r\n")
    await worker.decide()
    await worker.resumption.resume_if_ready("run_1")
    waits = await until_read(worker.stored, lambda run: run.state == "awaiting_client")
    _, error = await worker.resumption.load_answer(waits, shows_calls=False, decided=())  # as who followed it gets it
    assert error is not None and "send the same request again with the credential" in error.message
    told = await whole(await worker.repeat(credential=b"Authorization: Bearer secret\r\n"))
    assert texts(told) == "Done." and len(worker.calls) == 1
    assert worker.asked[-1].origin.credential == b"Authorization: Bearer secret\r\n"


async def test_a_repeated_request_waits_for_a_run_that_another_process_drives(opened: Opened, tmp_path: Path) -> None:
    """It gets the answer, once that is there."""
    place, began, go_on = str(tmp_path / "gateway.db"), asyncio.Event(), asyncio.Event()

    async def slow(_asked: ToolCall) -> ToolResult:
        began.set()
        await go_on.wait()
        return ToolResult("done")

    one = await opened(answer(call(x=1)), answer("Done."), place=place, does=slow)
    two = await opened(place=place, clock=one.clock)
    repeated = one.request_key(HI)
    running = await one.lane.begin(repeated.exchange, repeated.request_key)
    one.runs.join(running)
    await asyncio.wait_for(began.wait(), 120)
    following = await two.repeat()
    two.runs.join(following)
    await following.wait_for_reply()
    assert not following.done
    go_on.set()
    assert texts(await asyncio.wait_for(whole(following), 120)) == "Done." == texts(await whole(running))
    assert two.calls == [] and two.asked == []


async def test_repeated_request_waits_for_a_run_of_a_stopped_process(opened: Opened, tmp_path: Path) -> None:
    """Nobody has it just now: whoever takes it up brings the answer."""
    place, began, go_on = str(tmp_path / "gateway.db"), asyncio.Event(), asyncio.Event()

    async def slow(_asked: ToolCall) -> ToolResult:
        began.set()
        await go_on.wait()
        return ToolResult("done")

    one = await opened(answer(call(x=1)), answer("never"), place=place, does=slow)
    two = await opened(answer("Done."), place=place, clock=one.clock)
    repeated = one.request_key(HI)
    one.runs.join(await one.lane.begin(repeated.exchange, repeated.request_key))
    await asyncio.wait_for(began.wait(), 120)
    closing = asyncio.create_task(one.runs.close())
    await breathe()
    assert not closing.done(), "the tool has its grace"
    go_on.set()
    await closing
    run = await two.stored()
    assert (run.state, run.owner) == ("running", None)
    following = await two.repeat()
    two.runs.join(following)
    await following.wait_for_reply()
    assert not following.done
    await two.resumption.resume_if_ready("run_1")
    assert texts(await asyncio.wait_for(whole(following), 120)) == "Done."


async def test_repeated_request_waits_for_a_run_already_claimed(opened: Opened) -> None:
    """It was read as one that waits for a person, who has decided since."""
    worker = await opened(answer(risky()), answer("Done."))
    await worker.first()
    stale = await worker.stored()
    await worker.decide()
    assert await worker.leases.claim("run_1", "awaiting_approval") is not None
    run = await worker.store.run("run_1", tenant="t")
    assert run is not None
    await worker.store.write(Change(run=replace(run, state="running")))
    following = await worker.resumption.repeat(stale, worker.request_key(HI, request_id="run_3"))
    worker.runs.join(following)
    await following.wait_for_reply()
    assert not following.done
    ended = b'{"content": "Done.", "tool_calls": [], "finish_reason": "stop", "usage": {}, "context": {}}'
    await worker.store.write(Change(run=replace(run, state="completed", answer=ended, owner=None)))
    worker.feed.nudge()
    assert texts(await asyncio.wait_for(whole(following), 120)) == "Done."


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        ({"state": "failed", "error_code": "agent_timeout", "error": "Too long."}, "agent_timeout"),
        ({"state": "interrupted"}, "run_interrupted"),
        ({"state": "cancelled"}, "run_cancelled"),
    ],
)
async def test_run_without_an_answer_returns_a_non_retryable_error(opened: Opened, facts: Json, code: str) -> None:
    """What its tools did stays done."""
    worker = await opened(answer(risky()))
    await worker.first()
    there = await worker.stored()
    await worker.store.write(Change(run=replace(there, **facts)))
    with pytest.raises(GatewayError) as error:
        await whole(await worker.repeat())
    assert (error.value.code, error.value.facts.status, error.value.settled) == (code, 422, True)


async def test_run_with_unknown_outcome_returns_resume_instructions(opened: Opened) -> None:
    """Again and again, until somebody has looked."""
    worker = await opened(answer(risky()))
    await worker.first()
    there = await worker.stored()
    (step,) = await worker.steps()
    await worker.store.write(
        Change(run=replace(there, state="unknown"), steps=(replace(step, state="unknown", started_s=1.0),))
    )
    for _ in range(2):
        text = texts(await whole(await worker.repeat()))
        assert "unknown" in text and "POST /context/runs/run_1/resume" in text and '"step": 0' in text
