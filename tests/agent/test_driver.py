"""Runs over a scripted model: usage of all its answers, one budget, and what a client is told on the way."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

import orjson
import pytest

from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import Emit, Reply
from gateway.contracts.plugin import LoopLimits
from gateway.contracts.storage.journal import Change
from gateway.contracts.storage.store import HiddenTurn, Json, StoreError
from gateway.contracts.tools import ToolCall, ToolResult
from gateway.plugins.stores.sqlite import SqliteStore
from gateway.runs.live_run import EFFECTS, RECORDED

from .agent_bench import USAGE, Bench, Harmless, answer, call, settings, texts, workflow
from .doubles import samples
from .models import chunk


class Forgetful(SqliteStore):
    """A store that keeps no hidden turns."""

    async def put_hidden(self, turn: HiddenTurn, *, keys: Sequence[str], tenant: str, now_s: float) -> None:
        raise StoreError(f"the disk is full: {turn}, {keys}, {tenant}, {now_s}")

    async def find_hidden_turns(self, keys: Sequence[str], *, tenant: str) -> Mapping[str, HiddenTurn | None]:
        raise StoreError(f"the disk is gone: {keys}, {tenant}")


class Full(SqliteStore):
    """A store that takes no line of a run."""

    async def write(self, change: Change) -> None:
        raise StoreError(f"the disk is full: {change.run.id}")


def usage_of(told: list[Json]) -> Json:
    (usage,) = [one for one in told if "usage" in one]
    return usage


# Usage.


async def test_usage_is_summed_over_all_answers_of_a_turn() -> None:
    """Told once, at the end."""
    bench = Bench([answer(call()), answer("Done.")])
    told = await bench.run()
    assert told[-1] == {"choices": [], "usage": {"prompt_tokens": 20, "completion_tokens": 8, "total_tokens": 28}}
    assert texts(told) == "Done."


async def test_missing_usage_is_estimated_and_marked() -> None:
    """UTF-8 bytes / 4, rounded up, of what was sent and of what came."""
    bench = Bench([answer("12345", usage=None)])
    told = usage_of(await bench.run())
    sent = len(orjson.dumps(bench.asked[0].body["messages"]))
    assert told["usage"]["prompt_tokens"] == -(-sent // 4)
    assert told["usage"]["completion_tokens"] == 2
    assert told["context"] == {"usage_estimated": True}


async def test_cumulative_usage_in_every_chunk_counts_once() -> None:
    """Some upstreams tell their tokens so far with each chunk."""
    said = [chunk("a", usage={**USAGE, "completion_tokens": 1}), chunk("b", finish="stop", usage=USAGE)]
    assert usage_of(await Bench([said]).run())["usage"] == USAGE


# One answer.


async def test_turn_streams_as_one_answer_without_tool_calls() -> None:
    """Text as it comes, no call of ours, one finish reason; text before a call stays."""
    bench = Bench([answer("Let me ", "look. ", call(x=1)), answer("Found ", "it.")])
    told = await bench.run()
    assert texts(told) == "Let me look. Found it."
    reasons = [c.get("finish_reason") for one in told for c in one["choices"] if c.get("finish_reason")]
    assert reasons == ["stop"]
    assert not any("tool" in c["delta"] for one in told for c in one["choices"])
    second = bench.asked[1].body["messages"]
    assert [message["role"] for message in second] == ["user", "assistant", "tool"]
    assert second[2]["content"] == "looked at {'x': 1}"  # without the risk level
    assert bench.released == 2


async def test_json_format_answer_is_passed_to_the_client_unchanged() -> None:
    """With `response_format` nothing is looked for in it, and nothing of ours is added."""
    bench = Bench([answer(call())])
    body: Json = {"messages": [{"role": "user", "content": "Hi"}], "response_format": {"type": "json_object"}}
    assert texts(await bench.run(body=body)) == call()
    assert bench.asked[0].body == body


async def test_tool_call_limit_fails_the_run_and_is_counted() -> None:
    """`max_tool_calls`: one more question, then the error, counted by its outcome."""
    bench = Bench([answer(call(x=i)) for i in range(3)], limits=LoopLimits(max_tool_calls=2))
    with pytest.raises(GatewayError) as failed:
        await bench.run()
    assert failed.value.code == "agent_iteration_limit" and len(bench.asked) == 3
    assert samples(bench.counters)["gateway_agent_runs_total", ("limit",)] == 1


# Runs without a client.


class Ordered(SqliteStore):
    """A store that notes how often the model was called before each line."""

    def __init__(self, asked: Sequence[object]) -> None:
        super().__init__(":memory:")
        self.asked = asked
        self.lines: list[tuple[str, int]] = []

    async def write(self, change: Change) -> None:
        await super().write(change)
        self.lines.append((change.run.state, len(self.asked)))


async def test_background_run_is_stored_before_its_first_model_call() -> None:
    """Also if it needs no tool; its end and its answer are there, too."""
    bench = Bench([answer("Done.")])
    bench.store = store = Ordered(bench.asked)
    reply, marks = await bench.reply(background=True), list[Json]()
    await reply.stream(lambda one: marks.append(one) if isinstance(one, dict) and RECORDED in one else None)
    await reply.release()
    assert store.lines == [("running", 0), ("completed", 1)] and marks == [{RECORDED: True}]
    run = await bench.stored()
    assert run.kind == "chat" and not run.effects and orjson.loads(run.answer or b"")["content"] == "Done."
    await bench.close()


async def test_background_dry_run_is_not_stored() -> None:
    """It does nothing."""
    bench = Bench([answer("Done.")])
    await bench.run(background=True, dry=True)
    assert await bench.store.run("run_1", tenant="t") is None
    await bench.close()


@pytest.mark.parametrize("text", [call(), "{}", '{"tool": "look", "parameters": '])
async def test_background_json_answer_is_stored_unchanged(text: str) -> None:
    """In the background it has a run, without our tools; a call of the client's own is one."""
    theirs = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "theirs", "arguments": "{}"}}
    body: Json = {
        "messages": [{"role": "user", "content": "Hi"}],
        "response_format": {"type": "json_object"},
        "tools": [{"type": "function", "function": {"name": "theirs"}}],
    }
    native: Json = {"choices": [{"index": 0, "delta": {"tool_calls": [theirs]}, "finish_reason": None}]}
    bench = Bench([[chunk(text[:3]), chunk(text[3:]), native, *answer()]], limits=LoopLimits(tool_format="native"))
    told = await bench.run(body=body, background=True)
    assert texts(told) == text and bench.asked[0].body == body and bench.calls == []
    stored = orjson.loads((await bench.stored()).answer or b"")
    assert stored["content"] == text and [one["function"]["name"] for one in stored["tool_calls"]] == ["theirs"]
    await bench.close()


# The budget.


async def test_each_model_request_gets_the_remaining_time_budget() -> None:
    """Of the run's own limit or of the request's, whichever is less."""
    bench = Bench([answer(call()), answer("Done.")], limits=LoopLimits(timeout_s=100))
    bench.on_call = lambda: bench.clock.advance(30)
    await bench.run(budget_s=80.0)
    assert [exchange.execution.budget_s for exchange in bench.asked] == [80, 50]


async def test_a_tool_that_takes_too_long_ends_the_run() -> None:
    """It is cancelled; after an effect no client tries again."""
    ended = asyncio.Event()

    async def endless(_asked: ToolCall) -> ToolResult:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError

    bench = Bench([answer(call())], does=endless, limits=LoopLimits(timeout_s=0.05))
    with pytest.raises(GatewayError) as failed:
        await bench.run()
    error = failed.value
    assert (error.code, error.facts.status, error.settled) == ("agent_timeout", 422, True)
    assert "0.05 s" in error.message and "run_1" in error.message
    assert ended.is_set()


async def test_failure_before_any_effect_keeps_its_retryable_status() -> None:
    """The model's own error, as it came; behind a tool it is one that nobody repeats."""
    broken = GatewayError("upstream_rejected", "It broke.").with_status(409)
    for answers, status in (([broken], 409), ([answer(call()), broken], 422)):
        bench = Bench(answers)  # type: ignore[arg-type]
        with pytest.raises(GatewayError) as failed:
            await bench.run()
        assert (failed.value.code, failed.value.facts.status) == ("upstream_rejected", status)
        assert samples(bench.counters)["gateway_agent_runs_total", ("error",)] == 1


# Events.


async def test_events_report_run_progress_without_arguments_only_if_requested() -> None:
    """Only where they were asked for; each with an empty delta and without arguments or results."""
    answers = [answer(call(x="secret")), answer("Done.")]
    plain = await Bench(list(answers)).run()
    assert not any("type" in one.get("context", {}) for one in plain)
    told = await Bench(list(answers)).run(events=True)
    events = [one["context"] for one in told if "type" in one.get("context", {})]
    kinds = [event["type"] for event in events]
    assert kinds[0] == "run.started" and kinds.index("tool.started") < kinds.index("tool.finished")
    assert {event["tool"] for event in events if event["type"].startswith("tool.")} == {"look"}
    assert b"secret" not in orjson.dumps(events)
    assert all(c["delta"] == {} for one in told if "context" in one for c in one["choices"])


# Hidden turns.


@pytest.mark.parametrize(
    ("store", "roles"),
    [
        (SqliteStore, ["user", "assistant", "tool", "assistant", "user"]),
        (Forgetful, ["user", "assistant", "user"]),
    ],
)
async def test_hidden_messages_are_restored_in_the_next_request(store: type[SqliteStore], roles: list[str]) -> None:
    """Call and result stand in front of the answer that they led to; a store that fails costs only that."""
    bench = Bench([answer(call(x=1)), answer("Done."), answer("Again.")], store=store(":memory:"))
    await bench.run(user="ann")
    later = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Done."},
        {"role": "user", "content": "And?"},
    ]
    assert texts(await bench.run(body={"messages": later}, user="ann")) == "Again."
    assert [message["role"] for message in bench.asked[2].body["messages"]] == roles


# Workflows: a script stands where a loop stands.

LOOK: Json = {"name": "seen", "tool": "look", "with": {"x": "{{params.x}}"}}
SAY: Json = {"name": "said", "model": "What of {{steps.seen}}?"}
END: Json = {"name": "end", "prompt": "{{steps.said}}!"}


def harmless(*answers: list[Json] | BaseException, **facts: object) -> Bench:
    """A bench whose tool may always be called."""
    return Bench(list(answers), assessors={"look": Harmless()}, **facts)  # type: ignore[arg-type]


async def marks_of(reply: Reply) -> list[str]:
    """The marks for whoever keeps the run, in order."""
    marks: list[str] = []

    def emit(one: str | Json) -> None:
        if isinstance(one, dict):
            marks.extend(mark for mark in (RECORDED, EFFECTS) if mark in one)

    stream: Callable[[Emit], Awaitable[None]] = reply.stream
    await stream(emit)
    await reply.release()
    return marks


async def test_workflow_run_returns_only_its_final_result() -> None:
    """One text, one finish reason, the usage of its model; neither the conversation nor its tools go to the model."""
    bench = harmless(answer("It is ", "good"))
    asked = {"model": "m", "tools": [], "messages": [{"role": "user", "content": "/w x=1"}], "temperature": 0}
    told = await bench.run(body=asked, workflow=workflow(LOOK, SAY, END, x=1))
    assert texts(told) == "It is good!" and usage_of(told)["usage"] == USAGE
    assert [c["finish_reason"] for one in told for c in one["choices"] if c.get("finish_reason")] == ["stop"]
    said = {"role": "user", "content": "What of looked at {'x': 1}?"}
    assert bench.asked[0].body == {"model": "m", "temperature": 0, "messages": [said]}
    assert [asked.arguments for asked in bench.calls] == [{"x": 1}]
    assert samples(bench.counters)["gateway_workflow_runs_total", ("w", "completed")] == 1
    assert ("gateway_agent_runs_total", ("completed",)) not in samples(bench.counters)
    stored = await bench.stored()
    assert (stored.kind, stored.state) == ("workflow", "completed")


async def test_workflow_run_is_stored_before_its_first_step() -> None:
    """Also one that has no effect; whoever keeps the run is told, and of an effect only behind it."""
    bench = harmless(answer("Good"), answer("Good"))
    assert await marks_of(await bench.reply(workflow=workflow({"name": "said", "model": "Hi"}))) == [RECORDED]
    assert not (await bench.stored()).effects
    other = harmless()
    assert await marks_of(await other.reply(workflow=workflow(LOOK, x=1))) == [RECORDED, EFFECTS]


async def test_workflow_that_cannot_be_stored_runs_nothing() -> None:
    """Neither a tool nor a model: 507."""
    bench = harmless(store=Full(":memory:"))
    with pytest.raises(GatewayError) as failed:
        await bench.run(workflow=workflow(LOOK, SAY, x=1))
    assert (failed.value.code, failed.value.facts.status) == ("store_full", 507)
    assert (bench.calls, bench.asked) == ([], [])


async def test_a_model_that_fails_names_the_step() -> None:
    """Before an effect it may be tried again; behind one it may not."""
    broken = GatewayError("upstream_rejected", "It broke.").with_status(409)
    for steps, status in (((SAY,), 409), ((LOOK, SAY), 422)):
        bench = harmless(broken)
        with pytest.raises(GatewayError, match=r"It broke\. That was the step 'said' of the workflow 'w'") as failed:
            await bench.run(workflow=workflow(*steps, x=1))
        assert (failed.value.code, failed.value.facts.status) == ("upstream_rejected", status)
        stored = await bench.stored()
        assert (stored.state, stored.error_code) == ("failed", "upstream_rejected") and "'said'" in (stored.error or "")


async def test_workflow_ends_when_a_step_is_rejected() -> None:
    """Whatever people's rejections do to the runs of models (`on_reject: continue`)."""
    bench = Bench([answer("Never.")], asks=settings(on_reject="continue"))
    assert "approve ap_" in texts(await bench.run(workflow=workflow(LOOK, SAY, x=1)))
    await bench.decide(approve=False)
    assert "was rejected" in texts(await bench.resumed())
    assert ((await bench.stored()).state, bench.calls, bench.asked) == ("rejected", [], [])


async def test_workflow_ignores_the_response_format_of_the_request() -> None:
    """`response_format` is about what a client's own model says; a workflow's result is what it is."""
    body = {"model": "m", "messages": [], "response_format": {"type": "json_object"}}
    bench = harmless(answer("Good"))
    assert texts(await bench.run(body=body, workflow=workflow({"name": "said", "model": "Hi"}))) == "Good"
    assert "response_format" not in bench.asked[0].body
