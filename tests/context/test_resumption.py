"""Runs on record that go on: in the request that decides, in one that repeats them, or by themselves."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from running import until

from gateway.approvals.approvals import word_of
from gateway.approvals.chat_replies import ChatDecision
from gateway.context.approval_mode import ApprovalModes
from gateway.context.chain import Chain, Link, fold
from gateway.context.lane import AGENT_LOOP, ContextLane
from gateway.context.resumption import OFTEN, RepeatedRequest, Resumption
from gateway.contracts.exchange import Exchange, Handler
from gateway.contracts.exchange import Reply as ModelReply
from gateway.contracts.journal import Change, StoredRun, StoredStep
from gateway.contracts.store import Json, StoreError
from gateway.contracts.tools import ToolCall, ToolResult
from gateway.errors import GatewayError
from gateway.plugins.stores.sqlite import SqliteStore
from gateway.runs.asking import RequestKey
from gateway.runs.lease import LEASE_S
from gateway.runs.live import LiveRun, LiveRuns
from tests import telling
from tests.agent.benches import CALLER, USAGE, Bench, answer, call, group, texts
from tests.agent.doubles import Clock

HI: Json = {"role": "user", "content": "Hi"}


def risky(x: int = 1) -> str:
    return call(risk_level="high", x=x)


@dataclass
class Worker(Bench):
    """A process whose lane runs one chain around the scripted model."""

    chains: dict[str, Chain] = field(default_factory=dict)

    async def open(self) -> None:
        agents = await self.agents()
        clock = Clock(self.clock)
        links = (Link("memory", _passes), Link(AGENT_LOOP, agents.stage(self.limits)))
        self.chains = {"main": fold("main", links, self._model, counters=self.counters, clock=clock)}
        self.runs = LiveRuns(clock=clock)
        self.lane = ContextLane(
            tool_names=tuple,
            chains=self.chains,
            chain="main",
            prompt="default",
            prompt_text=_no_prompt,
            prompt_names=_no_prompts,
            keepalive_s=10.0,
            status_wait_s=10.0,
            body_bytes=1000,
            body_values=1000,
            approval_modes=ApprovalModes(),
            approvals=self.approvals,
            runs=self.runs,
            earlier=_no_earlier,
            close=_nothing,
            plain=self._model,
        )
        self.resumption = Resumption(
            lane=lambda: self.lane,
            runs=self.runs,
            leases=self.leases,
            feed=self.feed,
            store=self.store,
            clock=clock,
        )

    async def close(self) -> None:
        await self.runs.close()
        await super().close()

    def request_key(self, *messages: Json, request_id: str = "run_1", **facts: object) -> RepeatedRequest:
        body: Json = {"model": "m", "messages": [*messages]}
        given: dict[str, object] = {"caller": CALLER, "chain": "main", "fingerprint": "f", **facts}
        exchange = Exchange(id=request_id, body=body, **given)  # type: ignore[arg-type]
        return RepeatedRequest(
            body=body, request_key=RequestKey(f"f{request_id}", None, repeats=False), exchange=exchange
        )

    async def first(self, **facts: object) -> list[Json]:
        """The first request, to its end."""
        repeated = self.request_key(HI, **facts)  # type: ignore[arg-type]
        return await whole(self.lane.begin(repeated.exchange, repeated.request_key))

    async def message(self, text_id: str = "", *, approve: bool = True, **facts: object) -> list[Json]:
        """A chat message that decides on these approvals (default: all that are pending), in a request of its own."""
        ids = tuple(text_id.split()) or tuple(
            one.id for one in await self.pending_approvals() if one.state == "pending"
        )
        repeated = self.request_key(HI, {"role": "user", "content": f"approve {ids}"}, request_id="run_2", **facts)
        words = tuple((one.id, word_of(one)) for one in await self.pending_approvals())
        return await whole(await self.resumption.reply(ChatDecision(approve, ids, None, words), repeated))

    async def repeat(self, **facts: object) -> LiveRun:
        repeated = self.request_key(HI, request_id="run_3", **facts)
        return await self.resumption.repeat(await self.stored(), repeated)


async def _passes(exchange: Exchange, call_next: Handler) -> ModelReply:
    return await call_next(replace(exchange, notes=("passed",)))


async def _no_prompt(_prompt_id: str, _tenant: str) -> str | None:
    return None


async def _no_prompts(_tenant: str) -> Sequence[str]:
    return ()


async def _no_earlier(*_: object) -> StoredRun | None:
    return None


async def _nothing() -> None:
    return


async def whole(run: LiveRun) -> list[Json]:
    await run.begun()
    return list(map(telling.whole, await run.transcript.whole()))


def context_of(told: list[Json]) -> Json:
    return {key: value for one in told for key, value in one.get("context", {}).items()}


class Unwilling(SqliteStore):
    """A store that lets nobody take up a run, or read its steps, as long as `fails` names that."""

    fails = ""

    async def claim(self, **which: object) -> list[StoredRun]:  # type: ignore[override]
        self._check("claim")
        return list(await super().claim(**which))  # type: ignore[arg-type]

    async def steps(self, run_id: str, *, tenant: str) -> list[StoredStep]:
        self._check("steps")
        return list(await super().steps(run_id, tenant=tenant))

    def _check(self, what: str) -> None:
        if self.fails == what:
            raise StoreError("disk I/O error")


@pytest.fixture
async def opened() -> AsyncIterator[Callable[..., object]]:
    made: list[Worker] = []

    async def make(*answers: list[Json] | BaseException, place: str = ":memory:", **facts: object) -> Worker:
        worker = Worker(list(answers), store=SqliteStore(place), **facts)  # type: ignore[arg-type]
        await worker.open()
        made.append(worker)
        return worker

    yield make
    for worker in made:
        await worker.close()


Opened = Callable[..., "asyncio.Future[Worker]"]


# A chat message that decides.


async def test_a_run_goes_on_in_the_request_that_decides(opened: Opened) -> None:
    """From its agent loop on: what stands above it has had its say. The answer is under that request's id."""
    worker = await opened(answer("First. ", risky()), answer("Done."))
    assert "approve ap_" in texts(await worker.first())
    repeated = worker.request_key(HI, {"role": "user", "content": "approve it"}, request_id="run_2")
    (pending,) = await worker.pending_approvals()
    run = await worker.resumption.reply(ChatDecision(True, (pending.id,), None), repeated)
    assert texts(await whole(run)) == "Done."
    assert (run.exchange.id, run.request_id, run.body) == ("run_1", "run_2", repeated.body)
    assert [one.notes for one in worker.asked] == [("passed",), ()]
    assert (await worker.pending_approvals())[0].via == "chat" and (await worker.stored()).state == "completed"


async def test_a_decision_on_a_part_says_what_is_still_waited_for(opened: Opened) -> None:
    """Nothing runs; the last decision lets the run go on."""
    worker = await opened(group(risky(1), risky(2)), answer("Both."))
    await worker.first()
    one, two = [approval.id for approval in await worker.pending_approvals()]
    told = await worker.message(one)
    assert f"approve {two}" in texts(told) and f"approve {one}" not in texts(told) and worker.calls == []
    assert [facts["id"] for facts in context_of(told)["approvals"]] == [two]
    assert texts(await worker.message(f"{one} {two}")) == "Both." and len(worker.calls) == 2


async def test_a_rejection_ends_the_run_in_its_own_request(opened: Opened) -> None:
    """With a normal answer."""
    worker = await opened(answer(risky()))
    await worker.first()
    assert "rejected" in texts(await worker.message(approve=False)) and worker.calls == []


async def test_a_decision_that_cannot_be_is_an_error(opened: Opened) -> None:
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


async def test_who_waits_in_a_stream_of_its_own_gets_the_answer_there(opened: Opened) -> None:
    """The message that decided is told so."""
    worker = await opened(answer(risky()), answer("Done."))
    repeated = worker.request_key(HI, approvals="hold")
    held = worker.lane.begin(repeated.exchange, repeated.request_key)
    worker.runs.join(held)
    await until(lambda: any("context" in chunk for chunk in held.transcript.chunks))
    assert "goes on where it is waited for" in texts(await worker.message())
    text = texts(await whole(held))
    assert text.startswith("This call waits") and text.endswith("\n\nDone.") and len(worker.calls) == 1


async def test_a_message_that_is_sent_twice_runs_nothing_twice(opened: Opened) -> None:
    """Two at once, and once more afterwards."""
    worker = await opened(answer(risky()), answer("Done."))
    await worker.first()
    (pending,) = await worker.pending_approvals()
    told = await asyncio.gather(*(worker.message(pending.id) for _ in range(5)))
    assert [texts(one) for one in told].count("Done.") == 1 and len(worker.calls) == 1
    assert texts(await worker.message(pending.id)) == "Done.", "it is over by now"
    assert len(worker.calls) == 1


async def test_two_processes_that_hear_of_a_decision_drive_one_run(opened: Opened, tmp_path: Path) -> None:
    """Whoever has it, has it."""
    place = str(tmp_path / "gateway.db")
    one = await opened(answer(risky()), answer("Done."), answer("Done."), place=place)
    two = await opened(answer("Done."), answer("Done."), place=place, clock=one.clock)
    await one.first()
    (pending,) = await one.pending_approvals()
    await asyncio.gather(
        one.message(pending.id),
        two.message(pending.id),
        one.resumption.decided("run_1"),
        two.resumption.decided("run_1"),
    )
    async with asyncio.timeout(120):
        while (await one.stored()).state != "completed":
            await asyncio.sleep(0.002)
    assert len(one.calls) + len(two.calls) == 1 and (await one.stored()).fence == 1


# A request that comes again.


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


async def test_a_repeated_question_is_the_same_question(opened: Opened) -> None:
    """The same text to the letter, and nobody is asked twice."""
    worker = await opened(answer(risky()))
    first = await worker.first()
    told = await whole(await worker.repeat())
    assert texts(told) == texts(first)
    assert context_of(told)["approvals"] == context_of(first)["approvals"]
    assert len(await worker.pending_approvals()) == len(worker.asked) == 1


async def test_a_repeated_request_goes_on_with_what_was_decided_since(opened: Opened) -> None:
    """As if it had waited."""
    worker = await opened(answer("First. ", risky()), answer("Done."))
    await worker.first()
    await worker.decide()
    assert texts(await whole(await worker.repeat())) == "Done." and len(worker.calls) == 1


async def test_a_repeated_request_brings_its_credential(opened: Opened) -> None:
    """A run that waits for it goes on."""
    refused = GatewayError("upstream_refused", "Upstream 'up' answered 401.")
    worker = await opened(answer(risky()), refused, answer("Done."))
    await worker.first(credential=b"Authorization: Bearer secret\r\n")
    await worker.decide()
    await worker.resumption.decided("run_1")
    async with asyncio.timeout(120):
        while (await worker.stored()).state != "awaiting_client":
            await asyncio.sleep(0.002)
    told = await whole(await worker.repeat(credential=b"Authorization: Bearer secret\r\n"))
    assert texts(told) == "Done." and len(worker.calls) == 1
    assert worker.asked[-1].credential == b"Authorization: Bearer secret\r\n"


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
    running = one.lane.begin(repeated.exchange, repeated.request_key)
    one.runs.join(running)
    await asyncio.wait_for(began.wait(), 120)
    following = await two.repeat()
    two.runs.join(following)
    await following.begun()
    assert not following.done
    go_on.set()
    assert texts(await asyncio.wait_for(whole(following), 120)) == "Done." == texts(await whole(running))
    assert two.calls == [] and two.asked == []


async def test_a_repeated_request_waits_for_a_run_whose_process_stopped(opened: Opened, tmp_path: Path) -> None:
    """Nobody has it just now: whoever takes it up brings the answer."""
    place, began = str(tmp_path / "gateway.db"), asyncio.Event()

    async def slow(_asked: ToolCall) -> ToolResult:
        began.set()
        await asyncio.sleep(0.02)
        return ToolResult("done")

    one = await opened(answer(call(x=1)), answer("never"), place=place, does=slow)
    two = await opened(answer("Done."), place=place, clock=one.clock)
    repeated = one.request_key(HI)
    one.runs.join(one.lane.begin(repeated.exchange, repeated.request_key))
    await asyncio.wait_for(began.wait(), 120)
    await one.runs.close()
    run = await two.stored()
    assert (run.state, run.owner) == ("running", None)
    following = await two.repeat()
    two.runs.join(following)
    await asyncio.sleep(0.02)
    assert not following.done
    await two.resumption.decided("run_1")
    assert texts(await asyncio.wait_for(whole(following), 120)) == "Done."


async def test_a_repeated_request_whose_run_was_taken_up_meanwhile_waits_for_it(opened: Opened) -> None:
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
    await asyncio.sleep(0.02)
    assert not following.done
    ended = b'{"content": "Done.", "tool_calls": [], "finish_reason": "stop", "usage": {}}'
    await worker.store.write(Change(run=replace(run, state="completed", answer=ended, owner=None)))
    worker.feed.nudge()


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        ({"state": "failed", "error_code": "agent_timeout", "error": "Too long."}, "agent_timeout"),
        ({"state": "interrupted"}, "run_interrupted"),
        ({"state": "cancelled"}, "run_cancelled"),
    ],
)
async def test_a_run_without_an_answer_is_an_error_that_nobody_repeats(opened: Opened, facts: Json, code: str) -> None:
    """What its tools did stays done."""
    worker = await opened(answer(risky()))
    await worker.first()
    there = await worker.stored()
    await worker.store.write(Change(run=replace(there, **facts)))
    with pytest.raises(GatewayError) as error:
        await whole(await worker.repeat())
    assert (error.value.code, error.value.facts.status, error.value.settled) == (code, 422, True)


async def test_a_run_with_an_unknown_outcome_says_what_to_do(opened: Opened) -> None:
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


# By itself.


async def test_a_decided_run_goes_on_without_a_client(opened: Opened) -> None:
    """At once, and once; nobody's leaving ends it."""
    worker = await opened(answer(risky()), answer("Done."))
    await worker.first()
    await worker.resumption.decided("run_1")
    assert worker.calls == [], "nobody has decided yet"
    await worker.decide()
    await asyncio.gather(*(worker.resumption.decided("run_1") for _ in range(5)))
    async with asyncio.timeout(120):
        while (await worker.stored()).state != "completed":
            await asyncio.sleep(0.002)
    await worker.resumption.decided("run_1")
    assert len(worker.calls) == 1 and len(worker.asked) == 2
    assert texts(await whole(await worker.repeat())) == "Done."


async def test_a_run_whose_chain_is_gone_is_ended(opened: Opened) -> None:
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
            await worker.resumption.decided("run_1")
        run = await worker.stored()
        assert (run.state, run.owner) == ("failed", None) and run.error is not None and "'main'" in run.error
        assert worker.calls == []


async def test_a_run_that_never_comes_to_an_end_is_ended(opened: Opened) -> None:
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
    await worker.resumption.go_on(run)
    ended = await worker.stored()
    assert (ended.state, ended.error) == ("failed", "it was begun too often") and worker.calls == []


@pytest.mark.parametrize("fails", ["claim", "steps"])
async def test_a_decision_that_is_on_record_is_not_answered_as_refused(fails: str) -> None:
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
