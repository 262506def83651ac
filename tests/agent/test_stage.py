"""The stage of the agent loop, attacked: stores that fail, processes that lose a run, people who race."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.agent.driver import ASK_BEFORE
from gateway.contracts.exchange import Intent
from gateway.contracts.journal import AskBefore, Change, StoredStep
from gateway.contracts.plugin import LoopLimits
from gateway.contracts.store import Json, StoreError
from gateway.contracts.tools import ToolCall, ToolResult
from gateway.errors import GatewayError
from gateway.plugins.stores.sqlite import SqliteStore
from gateway.runs import leases as keeping
from gateway.runs.lease import LEASE_S
from gateway.tools.gate import Policy
from tests.telling import stepping, whole

from .benches import CALLER, Bench, answer, behind_question, call, group, settings, texts, told_by
from .doubles import samples
from .models import chunk

ASK = Intent("hitl", ASK_BEFORE)


class Failing(SqliteStore):
    """A store that cannot write the lines of these numbers, or read what it is told not to."""

    def __init__(self, place: str = ":memory:", *, fails_at: Sequence[int] = (), unreadable: bool = False) -> None:
        super().__init__(place)
        self.fails_at = fails_at
        self.unreadable = unreadable
        self.writes = 0

    async def write(self, change: Change) -> None:
        self.writes += 1
        if self.writes in self.fails_at:
            raise StoreError("database or disk is full")
        await super().write(change)

    async def steps(self, run_id: str, *, tenant: str) -> Sequence[StoredStep]:
        if self.unreadable:
            raise StoreError("disk I/O error")
        return await super().steps(run_id, tenant=tenant)

    async def ask_before(self, ask: AskBefore) -> None:
        if self.unreadable:
            raise StoreError("disk I/O error")
        await super().ask_before(ask)

    async def ask(self, *, tenant: str, caller: str, conversation: str, now_s: float) -> AskBefore | None:
        if self.unreadable:
            raise StoreError("disk I/O error")
        return await super().ask(tenant=tenant, caller=caller, conversation=conversation, now_s=now_s)


class KilledError(BaseException):
    """What the process does not survive."""


class Dying(SqliteStore):
    """The store of a process that dies before its n-th write."""

    def __init__(self, place: str, *, at: int) -> None:
        super().__init__(place)
        self.at = at
        self.writes = 0

    async def write(self, change: Change) -> None:
        self.writes += 1
        if self.writes >= self.at:
            raise KilledError
        await super().write(change)


def risky(x: int = 1, **facts: bool) -> str:
    return call(risk_level="high", x=x, **facts)  # type: ignore[arg-type]


def xs(bench: Bench) -> list[object]:
    return [asked.arguments["x"] for asked in bench.calls]


async def until_asked(bench: Bench) -> None:
    async with asyncio.timeout(120):
        while not bench.is_open or not await bench.pending_approvals():
            await asyncio.sleep(0.002)


def results(bench: Bench, index: int = -1) -> list[str]:
    return [message["content"] for message in bench.asked[index].body["messages"] if message["role"] == "tool"]


# A store that fails.


@pytest.mark.parametrize(
    ("fails_at", "ran", "status"),
    [(1, [], 507), (2, [0, 1], None), (3, [0], 422), (4, [0, 1], None), (5, [0, 1], None)],
)
async def test_a_line_that_cannot_be_written(fails_at: int, ran: list[object], status: int | None) -> None:
    """Before a call: it does not run, and the run ends. Behind one: the run goes on, and the next line brings it."""
    bench = Bench([answer(call(x=0)), answer(call(x=1)), answer("Done.")], store=Failing(fails_at=[fails_at]))
    if status is None:
        assert texts(await bench.run()) == "Done."
    else:
        with pytest.raises(GatewayError) as failed:
            await bench.run()
        error = failed.value
        assert (error.code, error.facts.status, error.settled) == ("store_full", status, status == 422)
    assert xs(bench) == ran
    if fails_at == 1:
        assert await bench.store.run("run_1", tenant="t") is None
    elif fails_at in (2, 4):
        assert (await bench.stored()).state == "completed"
        assert [step.state for step in await bench.steps()] == ["finished", "finished"]
    elif fails_at == 3:
        assert (await bench.stored()).state == "failed"
        assert [step.state for step in await bench.steps()] == ["finished", "planned"]
    await bench.close()


async def test_a_question_that_cannot_be_written_down_is_not_asked() -> None:
    """No client is told to approve what nobody can; nothing runs."""
    bench = Bench([answer(risky())], store=Failing(fails_at=[1]))
    with pytest.raises(GatewayError) as failed:
        await bench.run()
    assert (failed.value.code, failed.value.facts.status) == ("store_full", 507)
    assert bench.calls == [] and await bench.pending_approvals() == []
    await bench.close()


async def test_a_run_that_cannot_be_read_does_nothing() -> None:
    """Whoever comes after its lease tries again."""
    bench = Bench([answer(risky()), answer("Done.")], store=Failing())
    await bench.run()
    await bench.decide()
    bench.store.unreadable = True  # type: ignore[attr-defined]
    with pytest.raises(GatewayError) as failed:
        await bench.resumed()
    assert failed.value.code == "store_full" and bench.calls == []
    bench.store.unreadable = False  # type: ignore[attr-defined]
    assert texts(await bench.resumed()) == "Done." and len(bench.calls) == 1
    await bench.close()


# "Ask me before ..."


async def test_who_wants_to_be_asked_before_is() -> None:
    """In this conversation from now on, and in no other; also for what the model calls harmless."""
    bench = Bench([answer("I will."), answer(call(x=1)), answer(call(x=2)), answer("Done.")])
    await bench.run(intent=ASK, conversation="c1")
    assert "approve ap_" in texts(await bench.run(conversation="c1")) and bench.calls == []
    (asked,) = await bench.pending_approvals()
    assert (asked.basis, asked.rule) == ("operator", "asked_for")
    await bench.store.cancel("run_1", tenant="t", now_s=0.0, events=(), audit=())
    for conversation in ("c2", None):
        assert not await bench.store.ask(tenant="t", caller="c", conversation=conversation or "", now_s=0.0)
    await bench.close()


async def test_without_a_conversation_it_holds_for_this_run() -> None:
    """Wherever the run goes on."""
    bench = Bench([answer(call(x=1)), answer(call(x=2)), answer("never")])
    assert "x: 1" in texts(await bench.run(intent=ASK))
    await bench.decide()
    assert "x: 2" in texts(await bench.resumed()), "still, in another process"
    assert xs(bench) == [1]
    await bench.close()


async def test_an_explanation_makes_nobody_ask() -> None:
    """A dry run stores nothing."""
    bench = Bench([answer("Hi.")])
    await bench.run(intent=ASK, conversation="c1", dry=True)
    assert not await bench.store.ask(tenant="t", caller="c", conversation="c1", now_s=0.0)
    await bench.close()


async def test_a_wish_to_be_asked_is_never_lost_with_the_store() -> None:
    """It cannot be kept: nothing is answered. It cannot be looked up: every call asks."""
    bench = Bench([answer(call(x=1))], store=Failing(unreadable=True))
    with pytest.raises(GatewayError) as failed:
        await bench.run(intent=ASK, conversation="c1")
    assert failed.value.code == "store_full" and bench.asked == []
    assert "approve ap_" in texts(await bench.run(conversation="c1")) and bench.calls == []
    await bench.close()


# Groups.


async def test_a_long_group_of_all_kinds_runs_in_its_order() -> None:
    """Each call has its result, and the model gets them in the order in which it asked."""
    calls = [call(x=0), risky(1), call("lok", x=2), call(x=3), risky(4), call("look", y=5, x=5), risky(6), call(x=7)]
    bench = Bench([group(*calls), answer("Done.")], asks=settings(on_reject="continue"))
    assert "approve" in texts(await bench.run())
    assert xs(bench) == [0]
    for index, approve in enumerate((True, False, True)):
        await bench.decide(approve=approve, index=index)
    assert texts(await bench.resumed()) == "Done."
    assert xs(bench) == [0, 1, 3, 5, 6, 7]
    told = results(bench)
    assert len(told) == 8 and "no tool 'lok'" in told[2] and "rejected" in told[4]
    assert [told[i] for i in (0, 1, 3, 6, 7)] == [f"looked at {{'x': {i}}}" for i in (0, 1, 3, 6, 7)]
    states = [step.state for step in await bench.steps()]
    assert states == [
        "finished",
        "finished",
        "refused",
        "finished",
        "rejected",
        "finished",
        "finished",
        "finished",
    ]
    await bench.close()


async def test_a_group_that_waits_twice_runs_nothing_twice() -> None:
    """`continue`: what is approved runs when its turn comes, and the run waits again for the next."""
    bench = Bench([group(risky(0), risky(1), risky(2)), answer("Done.")])
    await bench.run()
    for n in range(3):
        assert await bench.leases.claim("run_1", "awaiting_approval") is None
        await bench.decide(index=n)
    assert texts(await bench.resumed()) == "Done." and xs(bench) == [0, 1, 2]
    await bench.close()


async def test_the_last_word_of_a_tool_ends_a_run_that_goes_on() -> None:
    """`terminate`: in another process as in this one; the answer is the whole result."""
    bench = Bench([group(call(x=0), risky(1, terminate=True))])
    await bench.run()
    await bench.decide()
    assert texts(await bench.resumed()) == "looked at {'x': 1}" and len(bench.asked) == 1
    assert (await bench.stored()).state == "completed"
    await bench.close()


@pytest.mark.parametrize("dies", [False, True])
async def test_a_call_that_was_rejected_is_nobodys_last_word(dies: bool, tmp_path: Path) -> None:
    """It never ran, so the model is told, whatever it wanted to come of the call; also by another process."""
    place, continues = str(tmp_path / "gateway.db"), settings(on_reject="continue")
    calls = group(risky(0, terminate=True), risky(1))
    bench = Bench([calls, KilledError() if dies else answer("Then not.")], asks=continues, store=SqliteStore(place))
    await bench.run()
    await bench.decide(approve=False, index=0)
    await bench.decide(index=1)
    if dies:
        with pytest.raises(KilledError):
            await bench.resumed()
        await bench.store.close()
        after = Bench([answer("Then not.")], asks=continues, store=SqliteStore(place), clock=bench.clock)
        assert texts(await after.resumed()) == "Then not." and after.calls == []
        assert "rejected" in results(after)[0]
        await after.close()
    else:
        assert texts(await bench.resumed()) == "Then not." and "rejected" in results(bench)[0]
        await bench.close()
    assert xs(bench) == [1]


async def test_a_clients_own_calls_wait_for_ours() -> None:
    """They come with the answer of the request in which the run goes on."""
    theirs: Json = {"type": "function", "function": {"name": "mine", "parameters": {"type": "object"}}}
    body: Json = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "tools": [theirs]}
    bench = Bench([group(risky(1), call("mine", y=2))])
    told = await bench.run(body=body)
    assert "approve ap_" in texts(told) and not any("tool_calls" in c["delta"] for one in told for c in one["choices"])
    await bench.decide()
    said: list[Json] = [
        *body["messages"],
        {"role": "assistant", "content": texts(told)},
        {"role": "user", "content": "ok"},
    ]
    told = await bench.resumed(messages=said)
    (calls,) = [c["delta"]["tool_calls"] for one in told for c in one["choices"] if "tool_calls" in c["delta"]]
    assert [one["function"]["name"] for one in calls] == ["mine"] and '"y":2' in calls[0]["function"]["arguments"]
    assert [c["finish_reason"] for one in told for c in one["choices"] if "finish_reason" in c] == ["tool_calls"]
    assert xs(bench) == [1] and len(bench.asked) == 1
    await bench.close()


async def test_a_native_call_waits_and_goes_on_under_its_own_id() -> None:
    """`tool_format: native`: the model's id stands in what it reads of the call."""
    function = {"name": "look", "arguments": '{"x": 1, "risk_level": "high"}'}
    native = {"index": 0, "id": "their_7", "type": "function", "function": function}
    asks: Json = {"choices": [{"index": 0, "delta": {"tool_calls": [native]}}]}
    bench = Bench([[asks, chunk(finish="tool_calls")], answer("Done.")], limits=LoopLimits(tool_format="native"))
    assert "approve ap_" in texts(await bench.run())
    names = [tool["function"]["name"] for tool in bench.asked[0].body["tools"]]
    assert sorted(names) == ["look", "peek"]
    await bench.decide()
    assert texts(await bench.resumed()) == "Done."
    said, result = bench.asked[1].body["messages"][1:]
    assert [one["id"] for one in said["tool_calls"]] == ["their_7"] and result["tool_call_id"] == "their_7"
    assert said["tool_calls"][0]["function"]["arguments"] == '{"x":1}'
    assert bench.asked[1].body["tools"] == bench.asked[0].body["tools"]
    await bench.close()


# People.


async def test_many_decisions_on_a_held_stream_are_one() -> None:
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


async def test_an_approval_that_expires_while_a_stream_is_held_ends_it() -> None:
    """With a text, and nothing ran."""
    bench = Bench([answer(risky())])
    running = asyncio.create_task(bench.run(approvals="hold"))
    await until_asked(bench)
    bench.clock.advance(3601)
    await bench.approvals.expire()
    assert "in time" in texts(await running)
    assert (await bench.stored()).state == "expired" and bench.calls == []
    await bench.close()


async def test_a_run_that_is_cancelled_while_its_stream_is_held_says_so() -> None:
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


async def test_a_client_that_leaves_with_a_question_leaves_it_open() -> None:
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


async def test_a_run_that_fails_asks_nobody_any_more() -> None:
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


async def test_what_was_approved_runs_also_where_nobody_is_asked() -> None:
    """The request that brings the decision says `reject`: that is about further questions."""
    bench = Bench([answer(risky(1)), answer(risky(2))])
    await bench.run()
    await bench.decide()
    told = await bench.resumed(approvals="reject")
    assert xs(bench) == [1] and "nobody is asked here" in texts(told)
    assert (await bench.stored()).state == "rejected"
    await bench.close()


# What strangers wrote.


async def test_a_run_that_has_read_what_strangers_wrote_stays_tainted(tmp_path: Path) -> None:
    """In the middle of a round, too, and in another process: the model's word counts for nothing from then on."""
    policy = Policy(trust_llm="until_tainted", default="confirm")
    plain = Bench([answer(call(x=1)), answer(call(x=2)), answer("Done.")], policy=policy)
    assert texts(await plain.run()) == "Done." and xs(plain) == [1, 2]
    await plain.close()
    place = str(tmp_path / "gateway.db")
    first = Bench([group(call(x=1), call(x=2))], policy=policy, untrusted=True, store=Dying(place, at=3))
    with pytest.raises(KilledError):
        await first.run()
    await first.store.close()
    assert xs(first) == [1]
    after = Bench([answer(call(x=3))], policy=policy, untrusted=True, store=SqliteStore(place))
    assert "x: 2" in texts(await after.resumed()), "judged anew, and nobody believes the model any more"
    assert after.calls == []
    await after.close()


async def test_a_call_that_policy_came_to_refuse_is_never_run(tmp_path: Path) -> None:
    """However often the run is taken up again."""
    place = str(tmp_path / "gateway.db")
    bench = Bench([group(call(x=1), call(x=2), call("peek", x=3))], store=Dying(place, at=3))
    with pytest.raises(KilledError):
        await bench.run()
    await bench.store.close()
    strict = Policy(trust_llm="never", default="deny")
    again = Bench([KilledError()], policy=strict, store=SqliteStore(place))  # behind the line of what is refused
    with pytest.raises(KilledError):
        await again.resumed()
    await again.store.close()
    last = Bench([answer("I see.")], policy=strict, store=SqliteStore(place), clock=again.clock)
    assert texts(await last.resumed()) == "I see."
    assert again.calls == last.calls == []
    assert [step.state for step in await last.steps()] == ["finished", "refused", "refused"]
    await last.close()


# Two processes.


@pytest.mark.parametrize("idempotent", [False, True])
async def test_who_lost_a_run_in_the_middle_of_a_call_is_stopped(
    idempotent: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hung for longer than its lease: the other process goes on, and nothing of the first one's comes after that."""
    monkeypatch.setattr(keeping, "LOOK_S", 0.005)
    monkeypatch.setattr("gateway.agent.effect.TOOL_GRACE_S", 0.02)
    place, began, ended = str(tmp_path / "gateway.db"), asyncio.Event(), asyncio.Event()

    async def hangs(_asked: ToolCall) -> ToolResult:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError

    tool = "peek" if idempotent else "look"
    one = Bench([answer(call(tool, x=1)), answer("never")], does=hangs, store=SqliteStore(place))
    two = Bench([answer("Done.")], store=SqliteStore(place), clock=one.clock)
    running = asyncio.create_task(one.run())
    await asyncio.wait_for(began.wait(), 120)
    await two.agents()
    assert await two.leases.claim("run_1", "running") is None, "its lease holds"
    one.clock.advance(LEASE_S + 1)
    text = texts(await two.resumed("running"))
    looking = asyncio.create_task(one.leases.run())
    await asyncio.wait({running})
    assert ended.is_set() and (running.cancelled() or isinstance(running.exception(), GatewayError))
    looking.cancel()
    await asyncio.wait({looking})
    run = await two.stored()
    if idempotent:
        assert (text, run.state, xs(two)) == ("Done.", "completed", [1])
    else:
        assert "unknown" in text and (run.state, two.calls) == ("unknown", [])
    assert len(one.asked) == 1, "no model is asked any more"
    await one.close()
    await two.close()


async def test_who_lost_a_run_runs_nothing_more(tmp_path: Path) -> None:
    """The next line is refused before its effect, also if nobody told it."""
    place, go_on, began = str(tmp_path / "gateway.db"), asyncio.Event(), asyncio.Event()

    async def slow(_asked: ToolCall) -> ToolResult:
        began.set()
        await go_on.wait()
        return ToolResult("done")

    one = Bench([group(call("peek", x=1), call("peek", x=2))], does=slow, store=SqliteStore(place))
    two = Bench([answer("Done.")], store=SqliteStore(place), clock=one.clock)
    running = asyncio.create_task(one.run())
    await asyncio.wait_for(began.wait(), 120)
    one.clock.advance(LEASE_S + 1)
    assert texts(await two.resumed("running")) == "Done." and xs(two) == [1, 2]
    go_on.set()
    with pytest.raises(GatewayError) as lost:
        await running
    assert (lost.value.code, lost.value.facts.status, lost.value.settled) == ("run_cancelled", 422, True)
    assert xs(one) == [1] and (await two.stored()).state == "completed"
    await one.close()
    await two.close()


async def test_a_run_is_counted_when_it_ends_and_not_when_it_waits() -> None:
    """Once, by its outcome."""
    bench = Bench([answer(risky()), answer("Done.")])
    await bench.run()
    assert not any(name == "gateway_agent_runs_total" for name, _ in samples(bench.counters))
    await bench.decide()
    await bench.resumed()
    assert samples(bench.counters)["gateway_agent_runs_total", ("completed",)] == 1
    await bench.close()


async def test_a_reply_that_nobody_reads_holds_nothing() -> None:
    """A stage above may give up: no run is begun."""
    bench = Bench([answer(call(x=1))])
    reply = await bench.reply()
    await reply.release()
    await reply.release()
    assert await bench.store.run("run_1", tenant="t") is None and bench.asked == []
    await bench.close()


async def test_another_callers_run_is_another_conversation() -> None:
    """The same words from another key get nothing of what was hidden."""
    bench = Bench([answer(call(x=1)), answer("Done."), answer("Hm.")])
    await bench.run()
    later: Json = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Done."}]}
    await told_by(await bench.reply(body=later, caller=replace(CALLER, name="other")))
    assert [message["role"] for message in bench.asked[2].body["messages"]] == ["user", "assistant"]
    await bench.close()
