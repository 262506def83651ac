"""The stage of the agent loop on stores that fail, with groups of calls and wishes to be asked before."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from gateway.agent.driver import ASK_BEFORE
from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import Intent
from gateway.contracts.plugin import LoopLimits
from gateway.contracts.storage.journal import AskBefore, Change, StoredStep
from gateway.contracts.storage.store import Json, StoreError
from gateway.plugins.stores.sqlite import SqliteStore

from .agent_bench import Bench, answer, call, group, settings, texts
from .models import chunk
from .staging import KilledError, risky, xs

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

    async def list_steps(self, run_id: str, *, tenant: str) -> Sequence[StoredStep]:
        if self.unreadable:
            raise StoreError("disk I/O error")
        return await super().list_steps(run_id, tenant=tenant)

    async def put_ask(self, ask: AskBefore) -> None:
        if self.unreadable:
            raise StoreError("disk I/O error")
        await super().put_ask(ask)

    async def ask_by_id(self, ask_id: str, *, tenant: str) -> AskBefore | None:
        if self.unreadable:
            raise StoreError("disk I/O error")
        return await super().ask_by_id(ask_id, tenant=tenant)


def results(bench: Bench, index: int = -1) -> list[str]:
    return [message["content"] for message in bench.asked[index].body["messages"] if message["role"] == "tool"]


# A store that fails.


@pytest.mark.parametrize(
    ("fails_at", "ran", "status"),
    [(1, [], 507), (2, [0, 1], None), (3, [0], 422), (4, [0, 1], None), (5, [0, 1], None)],
)
async def test_unwritable_run_record_prevents_the_call(fails_at: int, ran: list[object], status: int | None) -> None:
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


async def test_unstorable_approval_question_fails_without_being_shown() -> None:
    """No client is told to approve what nobody can; nothing runs."""
    bench = Bench([answer(risky())], store=Failing(fails_at=[1]))
    with pytest.raises(GatewayError) as failed:
        await bench.run()
    assert (failed.value.code, failed.value.facts.status) == ("store_full", 507)
    assert bench.calls == [] and await bench.pending_approvals() == []
    await bench.close()


async def test_unreadable_run_runs_nothing_until_the_store_recovers() -> None:
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


async def test_ask_before_intent_requires_approval_throughout_its_conversation() -> None:
    """In this conversation from now on, and in no other; also for what the model calls harmless."""
    bench = Bench([answer("I will."), answer(call(x=1)), answer(call(x=2)), answer("Done.")])
    await bench.run(intent=ASK, conversation="c1")
    assert "approve ap_" in texts(await bench.run(conversation="c1")) and bench.calls == []
    (asked,) = await bench.pending_approvals()
    assert (asked.basis, asked.rule) == ("operator", "asked_for")
    await bench.store.cancel("run_1", tenant="t", now_s=0.0, events=(), audit=())
    (kept,) = await bench.store.list_asks(tenant="t", now_s=0.0, limit=9)
    assert (kept.conversation, kept.user) == ("c1", None)
    await bench.close()


async def test_ask_before_without_a_conversation_applies_to_the_run() -> None:
    """Wherever the run goes on."""
    bench = Bench([answer(call(x=1)), answer(call(x=2)), answer("never")])
    assert "x: 1" in texts(await bench.run(intent=ASK))
    await bench.decide()
    assert "x: 2" in texts(await bench.resumed()), "still, in another process"
    assert xs(bench) == [1]
    await bench.close()


async def test_dry_run_stores_no_ask_before_setting() -> None:
    """A dry run stores nothing."""
    bench = Bench([answer("Hi.")])
    await bench.run(intent=ASK, conversation="c1", dry=True)
    assert await bench.store.list_asks(tenant="t", now_s=0.0, limit=9) == []
    await bench.close()


async def test_store_failure_never_bypasses_an_ask_before_setting() -> None:
    """It cannot be kept: nothing is answered. It cannot be looked up: every call asks."""
    bench = Bench([answer(call(x=1))], store=Failing(unreadable=True))
    with pytest.raises(GatewayError) as failed:
        await bench.run(intent=ASK, conversation="c1")
    assert failed.value.code == "store_full" and bench.asked == []
    assert "approve ap_" in texts(await bench.run(conversation="c1")) and bench.calls == []
    await bench.close()


# Groups.


async def test_mixed_call_group_runs_and_reports_in_order() -> None:
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


async def test_call_group_with_several_approvals_runs_each_call_once() -> None:
    """`continue`: what is approved runs when its turn comes, and the run waits again for the next."""
    bench = Bench([group(risky(0), risky(1), risky(2)), answer("Done.")])
    await bench.run()
    for n in range(3):
        assert await bench.leases.claim("run_1", "awaiting_approval") is None
        await bench.decide(index=n)
    assert texts(await bench.resumed()) == "Done." and xs(bench) == [0, 1, 2]
    await bench.close()


async def test_terminating_tool_ends_a_resumed_run() -> None:
    """`terminate`: in another process as in this one; the answer is the whole result."""
    bench = Bench([group(call(x=0), risky(1, terminate=True))])
    await bench.run()
    await bench.decide()
    assert texts(await bench.resumed()) == "looked at {'x': 1}" and len(bench.asked) == 1
    assert (await bench.stored()).state == "completed"
    await bench.close()


@pytest.mark.parametrize("dies", [False, True])
async def test_rejected_terminating_call_does_not_end_the_run(dies: bool, tmp_path: Path) -> None:
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


async def test_client_calls_are_returned_after_gateway_calls_are_approved() -> None:
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


async def test_native_call_keeps_its_id_after_approval() -> None:
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
