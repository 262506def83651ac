"""Runs on record that go on: in the request that decides, or by themselves."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from gateways import until, until_read

from gateway.context.chain import fold
from gateway.context.resumption import OFTEN
from gateway.contracts.chat_decisions import ChatDecision
from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.journal import Approval, StoredRun, StoredStep
from gateway.contracts.storage.store import StoreError
from gateway.plugins.stores.sqlite import SqliteStore
from gateway.runs.lease import LEASE_S
from tests.agent.agent_bench import CALLER, answer, group, texts
from tests.agent.doubles import Clock

from .workers import (
    HI,
    Opened,
    Worker,
    context_of,
    risky,
    whole,
)


class Unwilling(SqliteStore):
    """A store that lets nobody take up a run, or read its steps, as long as `fails` names that."""

    fails = ""

    async def claim(self, **which: object) -> list[StoredRun]:  # type: ignore[override]
        self._check("claim")
        return list(await super().claim(**which))  # type: ignore[arg-type]

    async def list_steps(self, run_id: str, *, tenant: str) -> list[StoredStep]:
        self._check("steps")
        return list(await super().list_steps(run_id, tenant=tenant))

    def _check(self, what: str) -> None:
        if self.fails == what:
            raise StoreError("disk I/O error")


class Overtaken(SqliteStore):
    """A store in which `meanwhile` happens once, just before the calls that wait are listed."""

    meanwhile: Callable[[], Awaitable[object]] | None = None

    async def list_approvals(self, **which: object) -> list[Approval]:  # type: ignore[override]
        if which.get("state") == "pending" and self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            await meanwhile()
        return list(await super().list_approvals(**which))  # type: ignore[arg-type]


# A chat message that decides.


async def test_run_resumes_in_the_request_that_carries_the_decision(opened: Opened) -> None:
    """From its agent loop on: what stands above it has had its say. The answer is under that request's id."""
    worker = await opened(answer("First. ", risky()), answer("Done."))
    assert "approve ap_" in texts(await worker.first())
    repeated = worker.request_key(HI, {"role": "user", "content": "approve it"}, request_id="run_2")
    (pending,) = await worker.pending_approvals()
    run = await worker.resumption.decide_and_continue([ChatDecision(True, (pending.id,), None)], repeated)
    assert texts(await whole(run)) == "Done."
    assert (run.exchange.id, run.request_id, run.body) == ("run_1", "run_2", repeated.body)
    assert [one.notes for one in worker.asked] == [("passed",), ("passed",)]
    assert (await worker.pending_approvals())[0].via == "chat" and (await worker.stored()).state == "completed"


async def test_partial_decision_lists_the_remaining_approvals(opened: Opened) -> None:
    """Nothing runs; the last decision lets the run go on."""
    worker = await opened(group(risky(1), risky(2)), answer("Both."))
    await worker.first()
    one, two = [approval.id for approval in await worker.pending_approvals()]
    told = await worker.message(one)
    assert f"approve {two}" in texts(told) and f"approve {one}" not in texts(told) and worker.calls == []
    assert [facts["id"] for facts in context_of(told)["approvals"]] == [two]
    assert texts(await worker.message(f"{one} {two}")) == "Both." and len(worker.calls) == 2


async def test_rejecting_request_gets_the_final_response_of_the_run(opened: Opened) -> None:
    """With a normal answer."""
    worker = await opened(answer(risky()))
    await worker.first()
    assert "rejected" in texts(await worker.message(approve=False)) and worker.calls == []


async def test_invalid_decision_is_refused_with_its_error_code(opened: Opened) -> None:
    """There is no such approval, it is somebody else's, or it was decided otherwise."""
    worker = await opened(answer(risky()))
    await worker.first()
    (pending,) = await worker.pending_approvals()
    for facts, code in (
        ({"text_id": "ap_none"}, "approval_not_found"),
        ({"caller": replace(CALLER, tenant="other")}, "approval_not_found"),
        ({"caller": replace(CALLER, scopes=frozenset(("context",)))}, "scope_missing"),
    ):
        with pytest.raises(GatewayError) as error:
            await worker.message(**{"text_id": pending.id, **facts})  # type: ignore[arg-type]
        assert error.value.code == code
    await worker.message(approve=False)
    with pytest.raises(GatewayError) as error:
        await worker.message(pending.id)
    assert error.value.code == "decision_conflict"


async def test_waiting_stream_receives_the_answer_after_the_decision(opened: Opened) -> None:
    """The message that decided is told so."""
    worker = await opened(answer(risky()), answer("Done."))
    repeated = worker.request_key(HI, approvals="hold")
    held = await worker.lane.begin(repeated.exchange, repeated.request_key)
    worker.runs.join(held)
    await until(lambda: any("context" in chunk for chunk in held.transcript.chunks))
    assert "goes on where it is waited for" in texts(await worker.message())
    text = texts(await whole(held))
    assert text.startswith("This call waits") and text.endswith("\n\nDone.") and len(worker.calls) == 1


async def test_repeated_decision_message_runs_the_call_once(opened: Opened) -> None:
    """Five at once, and once more afterwards: each gets the answer."""
    worker = await opened(answer(risky()), answer("Done."))
    await worker.first()
    (pending,) = await worker.pending_approvals()
    told = await asyncio.gather(*(worker.message(pending.id) for _ in range(5)))
    assert [texts(one) for one in told] == ["Done."] * 5 and len(worker.calls) == 1
    assert texts(await worker.message(pending.id)) == "Done.", "it is over by now"
    assert len(worker.calls) == 1


async def test_racing_decision_messages_without_check_word_both_get_the_response() -> None:
    """The other one decided after this one had found the call, and before it looked which calls wait."""
    store = Overtaken(":memory:")
    worker = Worker([answer(risky()), answer("Done.")], store=store)
    await worker.open()
    await worker.first()
    (pending,) = await worker.pending_approvals()
    said = ChatDecision(True, (pending.id,), None)

    async def sent(request_id: str) -> str:
        repeated = worker.request_key(HI, {"role": "user", "content": "approve it"}, request_id=request_id)
        return texts(await whole(await worker.resumption.decide_and_continue([said], repeated)))

    store.meanwhile = partial(sent, "run_2")
    assert await sent("run_3") == "Done." and store.meanwhile is None and len(worker.calls) == 1
    await worker.close()


async def test_concurrent_processes_resume_a_decided_run_once(opened: Opened, tmp_path: Path) -> None:
    """Whoever has it, has it."""
    place = str(tmp_path / "gateway.db")
    one = await opened(answer(risky()), answer("Done."), answer("Done."), place=place)
    two = await opened(answer("Done."), answer("Done."), place=place, clock=one.clock)
    await one.first()
    (pending,) = await one.pending_approvals()
    await asyncio.gather(
        one.message(pending.id),
        two.message(pending.id),
        one.resumption.resume_if_ready("run_1"),
        two.resumption.resume_if_ready("run_1"),
    )
    await until_read(one.stored, lambda run: run.state == "completed")
    assert len(one.calls) + len(two.calls) == 1 and (await one.stored()).fence == 1


# By itself.


async def test_a_decided_run_goes_on_without_a_client(opened: Opened) -> None:
    """At once, and once; nobody's leaving ends it."""
    worker = await opened(answer(risky()), answer("Done."))
    await worker.first()
    await worker.resumption.resume_if_ready("run_1")
    assert worker.calls == [], "nobody has decided yet"
    await worker.decide()
    await asyncio.gather(*(worker.resumption.resume_if_ready("run_1") for _ in range(5)))
    await until_read(worker.stored, lambda run: run.state == "completed")
    await worker.resumption.resume_if_ready("run_1")
    assert len(worker.calls) == 1 and len(worker.asked) == 2
    assert texts(await whole(await worker.repeat())) == "Done."


async def test_run_whose_chain_was_removed_fails_with_a_reason(opened: Opened) -> None:
    """With a reason, whoever finds it out; nobody takes it up for ever."""
    for by_reply in (False, True):
        worker = await opened(answer(risky()))
        await worker.first()
        worker.chains["main"] = fold(
            "main", (), worker.chains["main"].handler, counters=worker.counters, clock=Clock(worker.clock)
        )
        if by_reply:
            with pytest.raises(GatewayError) as error:
                await worker.message()
            assert error.value.code == "run_cancelled" and "'main'" in error.value.message
        else:
            await worker.decide()
            await worker.resumption.resume_if_ready("run_1")
        run = await worker.stored()
        assert (run.state, run.owner) == ("failed", None) and run.error is not None and "'main'" in run.error
        assert worker.calls == []


async def test_run_resumed_too_often_is_failed(opened: Opened) -> None:
    """It was taken up so often that it is at fault itself."""
    worker = await opened(answer(risky()))
    await worker.first()
    await worker.decide()
    run = await worker.leases.claim("run_1", "awaiting_approval")
    assert run is not None
    for _ in range(OFTEN):
        worker.clock.advance(LEASE_S + 1)
        run = await worker.leases.claim("run_1", "awaiting_approval")
        assert run is not None
    await worker.resumption.resume_run(run)
    ended = await worker.stored()
    assert (ended.state, ended.error) == ("failed", "it was begun too often") and worker.calls == []


@pytest.mark.parametrize("fails", ["claim", "steps"])
async def test_recorded_decision_is_reported_as_accepted_despite_store_failure(fails: str) -> None:
    """The store fails behind it: the client hears that the run goes on by itself, and it does; 507 would say no."""
    worker = Worker([answer(risky()), answer("Done.")], store=Unwilling(":memory:"))
    await worker.open()
    await worker.first()
    worker.store.fails = fails  # type: ignore[attr-defined]
    if fails == "claim":
        assert "run_1" in texts(await worker.message())
    else:
        with pytest.raises(GatewayError) as waits:
            await worker.message()
        assert waits.value.facts.status == 422 and "goes on by itself" in waits.value.message
    assert [one.state for one in await worker.pending_approvals()] == ["approved"] and worker.calls == []
    worker.store.fails = ""  # type: ignore[attr-defined]
    assert texts(await worker.resumed()) == "Done." and len(worker.calls) == 1
    await worker.close()
