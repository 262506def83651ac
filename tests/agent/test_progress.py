"""Runs that go on from what is in the store, from whatever point they stopped at."""

from dataclasses import replace
from pathlib import Path

import pytest

from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.journal import Change
from gateway.contracts.storage.store import Json
from gateway.contracts.tools import ToolCall, ToolResult
from gateway.plugins.stores.sqlite import SqliteStore
from tests.scripted_replies import whole

from .agent_bench import USAGE, Bench, Harmless, answer, call, group, texts, workflow


class KilledError(BaseException):
    """The error that the process does not survive."""


#: More writes than a test makes.
NEVER = 1_000_000


class Dying(SqliteStore):
    """The store of a process that dies at its n-th write: before it, or right after it."""

    def __init__(self, place: str, *, at: int, written: bool) -> None:
        super().__init__(place)
        self.at = at
        self.written = written
        self.writes = 0

    async def write(self, change: Change) -> None:
        self.writes += 1
        if self.writes == self.at and self.written:
            await super().write(change)
        if self.writes >= self.at:
            raise KilledError
        await super().write(change)


class Effects:
    """The effects of a tool. In the middle of its first call the process dies, if that is given by its store."""

    def __init__(self) -> None:
        self.done: list[object] = []
        self.dies: Dying | None = None

    async def __call__(self, asked: ToolCall) -> ToolResult:
        if self.dies is not None:
            self.dies.at, self.dies = self.dies.writes, None
            raise RuntimeError("nothing of this reaches the store")
        self.done.append(asked.arguments["x"])
        return ToolResult(f"did {asked.arguments['x']}")


def model(n_calls: int) -> list[list[Json] | Exception]:
    """Calls `look` so often, one call after the other; then says so."""
    return [*(answer(f"Call {i}. ", call(x=i)) for i in range(n_calls)), answer("All done.")]


async def killed(bench: Bench, **facts: object) -> list[Json]:
    """Return the chunks that the client saw until the process died."""
    told: list[Json] = []
    reply = await bench.reply(**facts)

    with pytest.raises(KilledError):
        await reply.stream(lambda one: told.append(whole(one)))
    await bench.store.close()
    return told


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("at", range(1, 9))
async def test_no_call_runs_twice_wherever_the_process_dies(at: int, written: bool, tmp_path: Path) -> None:
    """Three calls, started and finished, and the end: a call whose end was not written is unknown, and stays so."""
    place, effects = str(tmp_path / "gateway.db"), Effects()
    first = Bench(model(3), does=effects, store=Dying(place, at=at, written=written))
    if at == 8:  # there are seven writes
        await first.run()
        await first.close()
        assert effects.done == [0, 1, 2]
        return
    await killed(first)
    done_before = list(effects.done)
    after = Bench(model(3), does=effects, store=SqliteStore(place))
    after.asked = list(first.asked)  # the model goes on where it was
    await after.agents()
    if at == 1 and not written:
        assert await after.store.run("run_1", tenant="t") is None and effects.done == []
        await after.close()
        return
    run = await after.stored()
    if run.state == "completed":
        assert effects.done == [0, 1, 2]
        await after.close()
        return
    steps = await after.steps()
    is_unknown = any(step.state == "started" for step in steps)
    after.asked = after.asked[: sum(step.state == "finished" for step in steps) + is_unknown]
    told = await after.resumed()
    if is_unknown:
        assert (await after.stored()).state == "unknown" and "unknown" in texts(told)
        assert effects.done == done_before, "nothing ran again"
        assert await after.leases.claim("run_1", "running", "awaiting_approval") is None
    else:
        assert texts(told).endswith("All done.") and (await after.stored()).state == "completed"
        assert effects.done == [0, 1, 2]
    await after.close()


#: Two calls with a model between them.
FLOW = workflow(
    {"name": "first", "tool": "look", "with": {"x": "{{params.x}}"}},
    {"name": "said", "model": "{{steps.first}}"},
    {"name": "second", "tool": "look", "with": {"x": "{{steps.said}}"}},
    {"name": "end", "prompt": "{{steps.first}}, {{steps.second}}"},
    x=1,
)


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("at", range(1, 8))
async def test_no_step_runs_twice_wherever_the_process_dies(at: int, written: bool, tmp_path: Path) -> None:
    """The beginning, two calls started and finished, the end: the workflow goes on from whatever is on record."""
    place, effects, harmless = str(tmp_path / "gateway.db"), Effects(), {"look": Harmless()}
    first = Bench([answer("two")], does=effects, store=Dying(place, at=at, written=written), assessors=dict(harmless))
    if at == 7:  # there are six writes
        assert texts(await first.run(workflow=FLOW)) == "did 1, did two" and effects.done == [1, "two"]
        await first.close()
        return
    await killed(first, workflow=FLOW)
    done_before = list(effects.done)
    after = Bench([answer("two")], does=effects, store=SqliteStore(place), assessors=dict(harmless))
    await after.agents()
    if at == 1 and not written:
        assert await after.store.run("run_1", tenant="t") is None and effects.done == []
    elif (await after.stored()).state == "completed":
        assert effects.done == [1, "two"]
    else:
        is_unknown = any(step.state == "started" for step in await after.steps())
        told = await after.resumed()
        if is_unknown:
            assert (await after.stored()).state == "unknown" and "unknown" in texts(told)
            assert effects.done == done_before, "nothing ran again"
        else:
            assert texts(told) == "did 1, did two" and (await after.stored()).state == "completed"
            assert effects.done == [1, "two"]
    await after.close()


async def test_idempotent_call_is_repeated_after_a_crash(tmp_path: Path) -> None:
    """The tool says so: `idempotent`."""
    place, effects = str(tmp_path / "gateway.db"), Effects()
    effects.dies = Dying(place, at=NEVER, written=False)
    first = Bench([answer(call("peek", x=1))], does=effects, store=effects.dies)
    await killed(first)
    after = Bench([answer("Done.")], does=effects, store=SqliteStore(place))
    assert texts(await after.resumed()) == "Done."
    assert effects.done == [1] and [step.state for step in await after.steps()] == ["finished"]
    await after.close()


async def test_interrupted_approved_call_resumes_without_a_new_approval(tmp_path: Path) -> None:
    """One that may run twice does so under the approval that it has."""
    place, effects = str(tmp_path / "gateway.db"), Effects()
    effects.dies = Dying(place, at=NEVER, written=False)
    first = Bench([answer(call("peek", risk_level="high", x=1))], does=effects, store=effects.dies)
    await first.run()
    await first.decide()
    with pytest.raises(KilledError):
        await first.resumed()
    await first.store.close()
    after = Bench([answer("Done.")], does=effects, store=SqliteStore(place))
    after.clock.advance(100)
    assert texts(await after.resumed()) == "Done." and effects.done == [1]
    assert [approval.state for approval in await after.pending_approvals()] == ["done"]
    await after.close()


async def test_resumed_run_returns_the_whole_answer(tmp_path: Path) -> None:
    """What was said before the process died comes first; usage is that of the whole turn."""
    place, effects = str(tmp_path / "gateway.db"), Effects()
    first = Bench(model(2), does=effects, store=Dying(place, at=4, written=True))
    await killed(first)
    after = Bench([answer("All done.")], does=effects, store=SqliteStore(place))
    told = await after.resumed()
    assert texts(told) == "Call 0. Call 1. All done."
    (usage,) = [one["usage"] for one in told if "usage" in one]
    assert usage["total_tokens"] == 3 * USAGE["total_tokens"]
    await after.close()


async def test_remaining_calls_of_a_group_run_in_order_after_a_crash(tmp_path: Path) -> None:
    """Calls that were cleared are judged anew, with what the model said of their risk."""
    place, effects = str(tmp_path / "gateway.db"), Effects()
    first = Bench([group(call(x=1), call(x=2), call(x=3))], does=effects, store=Dying(place, at=3, written=False))
    await killed(first)
    assert effects.done == [1]
    after = Bench([answer("All.")], does=effects, store=SqliteStore(place))
    assert texts(await after.resumed()) == "All." and effects.done == [1, 2, 3]
    await after.close()


async def test_removed_tool_is_reported_to_the_model_on_resume(tmp_path: Path) -> None:
    """The run goes on without it."""
    place, effects = str(tmp_path / "gateway.db"), Effects()
    first = Bench([group(call(x=1), call(x=2))], does=effects, store=Dying(place, at=3, written=False))
    await killed(first)
    after = Bench([answer("I see.")], does=effects, store=SqliteStore(place))
    assert texts(await after.resumed(only_tools=("peek",))) == "I see."
    assert after.asked[0].body["messages"][-1]["content"].startswith("Not run: this tool is not there")
    await after.close()


async def test_parked_run_continues_in_the_deciding_request() -> None:
    """Its answer is that request's; the next request has what was hidden in front of it."""
    bench = Bench([answer("First. ", call(risk_level="high", x=1)), answer("Done."), answer("You asked.")])
    question = texts(await bench.run(user="ann"))
    await bench.decide()
    said: list[Json] = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": question},
        {"role": "user", "content": "approve it"},
    ]
    assert texts(await bench.resumed(messages=said)) == "Done."
    later = [*said, {"role": "assistant", "content": "Done."}, {"role": "user", "content": "And?"}]
    assert texts(await bench.run(body={"model": "m", "messages": later}, user="ann")) == "You asked."
    sent = bench.asked[-1].body["messages"]
    roles = [message["role"] for message in sent]
    assert roles == ["user", "assistant", "user", "assistant", "tool", "assistant", "user"]
    assert "tool_calls" not in sent[1] and sent[4]["content"] == "looked at {'x': 1}" and sent[5]["content"] == "Done."
    await bench.close()


async def test_answer_of_a_resumed_run_joins_the_conversation(tmp_path: Path) -> None:
    """The next request sees that the call ran, and what the model said to it, in the place of the question."""
    place = str(tmp_path / "gateway.db")
    bench = Bench(
        [answer("First. ", call(risk_level="high", x=1)), answer("It is done."), answer("Yes.")],
        store=SqliteStore(place),
    )
    question = texts(await bench.run())
    await bench.decide()
    await bench.resumed()
    later = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": question},
        {"role": "user", "content": "And?"},
    ]
    assert texts(await bench.run(body={"model": "m", "messages": later})) == "Yes."
    sent = bench.asked[-1].body["messages"]
    assert [m["role"] for m in sent] == ["user", "assistant", "tool", "assistant", "user"]
    assert "tool_calls" in sent[1] and sent[3]["content"] == "It is done."
    await bench.close()


async def test_a_run_without_its_clients_credential_waits_for_the_client() -> None:
    """The credential is never stored: who brings it lets the run go on."""
    refused = GatewayError("upstream_refused", "Upstream 'up' answered 401.")
    bench = Bench([answer(call(risk_level="high", x=1)), refused, answer("Done.")])
    await bench.run(credential=b"Authorization: Bearer secret\r\n")
    await bench.decide()
    assert b"secret" not in (await bench.stored()).request
    with pytest.raises(GatewayError):
        await bench.resumed()
    assert (await bench.stored()).state == "awaiting_client" and len(bench.calls) == 1
    told = await bench.resumed("awaiting_client", credential=b"Authorization: Bearer secret\r\n")
    assert texts(told) == "Done." and len(bench.calls) == 1
    await bench.close()


async def test_resumed_run_keeps_its_spent_time() -> None:
    """A restart gives a run no more of it."""
    bench = Bench([answer(call(x=1)), answer(call(risk_level="high", x=2)), answer("Done.")])
    bench.limits = replace(bench.limits, timeout_s=100.0)
    bench.on_call = lambda: bench.clock.advance(30)
    await bench.run()
    await bench.decide()
    await bench.resumed()
    assert [exchange.execution.budget_s for exchange in bench.asked] == [100, 70, 40]
    await bench.close()
