"""A run that the stage lost, or took over: what strangers wrote, a second process, the accounts."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.journal import Change
from gateway.contracts.storage.store import Json
from gateway.contracts.tools import ToolCall, ToolResult
from gateway.plugins.stores.sqlite import SqliteStore
from gateway.runs import leases as keeping
from gateway.runs.lease import LEASE_S
from gateway.tools.gate import Policy

from .agent_bench import CALLER, Bench, answer, call, group, texts, told_by
from .doubles import samples
from .staging import KilledError, risky, xs


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


async def test_resumed_run_shows_only_calls_after_its_question(tmp_path: Path) -> None:
    """Its client has those before the question, in an earlier answer."""
    place = str(tmp_path / "gateway.db")
    first = Bench([answer("First. ", call(x=1)), answer(risky(2))], store=SqliteStore(place))
    await first.run(shows_calls=True)
    await first.decide()
    await first.store.close()
    hi: Json = {"role": "user", "content": "Hi"}
    second = Bench([], store=Dying(place, at=2), clock=first.clock)
    with pytest.raises(KilledError):
        await second.resumed(messages=[hi])
    await second.store.close()
    third = Bench([answer("Done.")], store=SqliteStore(place), clock=first.clock)
    told = await third.resumed()
    assert [one["context"]["type"] for one in told if "type" in one.get("context", {})] == [
        "run.resumed",
        "tool.started",
        "tool.finished",
    ]
    assert texts(told) == "Done." and xs(third) == [2]
    await third.close()


# What strangers wrote.


async def test_run_with_untrusted_content_stays_tainted_in_another_process(tmp_path: Path) -> None:
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


async def test_call_refused_by_changed_policy_never_runs(tmp_path: Path) -> None:
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
async def test_run_lost_during_a_call_stops_its_first_process(
    idempotent: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hung for longer than its lease: the other process goes on, and nothing of the first one's comes after that."""
    monkeypatch.setattr(keeping, "LOOK_S", 0.005)
    monkeypatch.setattr("gateway.agent.call_execution.TOOL_GRACE_S", 0.02)
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


async def test_process_that_lost_its_run_executes_no_further_calls(tmp_path: Path) -> None:
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


async def test_unread_reply_starts_no_run() -> None:
    """A stage above may give up: no run is begun."""
    bench = Bench([answer(call(x=1))])
    reply = await bench.reply()
    await reply.release()
    await reply.release()
    assert await bench.store.run("run_1", tenant="t") is None and bench.asked == []
    await bench.close()


async def test_other_caller_sees_no_hidden_turns() -> None:
    """The same words from another key get nothing of what was hidden."""
    bench = Bench([answer(call(x=1)), answer("Done."), answer("Hm.")])
    await bench.run()
    later: Json = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Done."}]}
    await told_by(await bench.reply(body=later, caller=replace(CALLER, name="other")))
    assert [message["role"] for message in bench.asked[2].body["messages"]] == ["user", "assistant"]
    await bench.close()
