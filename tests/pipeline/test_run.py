"""Runs over a scripted model: usage of all its answers, one budget, and what a client is told on the way."""

import asyncio
from collections.abc import Mapping, Sequence

import orjson
import pytest

from gateway.contracts import Json, LoopLimits, ToolCall, ToolResult
from gateway.errors import GatewayError
from gateway.store import StoreError
from plugins.stores.sqlite import SqliteStore

from .benches import USAGE, Bench, answer, call, texts
from .doubles import samples
from .models import chunk


class Forgetful(SqliteStore):
    """A store that keeps no hidden turns."""

    async def put_hidden(self, prefix: str, messages: Sequence[Json], *, tenant: str, now_s: float) -> None:
        raise StoreError(f"the disk is full: {prefix}, {messages}, {tenant}, {now_s}")

    async def hidden(self, prefixes: Sequence[str], *, tenant: str) -> Mapping[str, Sequence[Json]]:
        raise StoreError(f"the disk is gone: {prefixes}, {tenant}")


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


async def test_what_a_model_does_not_say_is_estimated_and_marked() -> None:
    """UTF-8 bytes / 4, rounded up, of what was sent and of what came."""
    bench = Bench([answer("12345", usage=None)])
    told = usage_of(await bench.run())
    sent = len(orjson.dumps(bench.asked[0].body["messages"]))
    assert told["usage"]["prompt_tokens"] == -(-sent // 4)
    assert told["usage"]["completion_tokens"] == 2
    assert told["context"] == {"usage_estimated": True}


async def test_a_running_total_in_every_chunk_counts_once() -> None:
    """Some upstreams tell their tokens so far with each chunk."""
    said = [chunk("a", usage={**USAGE, "completion_tokens": 1}), chunk("b", finish="stop", usage=USAGE)]
    assert usage_of(await Bench([said]).run())["usage"] == USAGE


# One answer.


async def test_a_turn_is_one_clean_answer() -> None:
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


async def test_an_answer_in_json_is_the_clients() -> None:
    """With `response_format` nothing is looked for in it, and nothing of ours is added."""
    bench = Bench([answer(call())])
    body: Json = {"messages": [{"role": "user", "content": "Hi"}], "response_format": {"type": "json_object"}}
    assert texts(await bench.run(body=body)) == call()
    assert bench.asked[0].body == body


async def test_the_limits_are_those_of_the_stage() -> None:
    """`max_tool_calls`: one more question, then the error, counted by its outcome."""
    bench = Bench([answer(call(x=i)) for i in range(3)], limits=LoopLimits(max_tool_calls=2))
    with pytest.raises(GatewayError) as failed:
        await bench.run()
    assert failed.value.code == "agent_iteration_limit" and len(bench.asked) == 3
    assert samples(bench.counters)["gateway_agent_runs_total", ("limit",)] == 1


# The budget.


async def test_each_call_of_the_model_gets_what_is_left() -> None:
    """Of the run's own limit or of the request's, whichever is less."""
    bench = Bench([answer(call()), answer("Done.")], limits=LoopLimits(timeout_s=100))
    bench.on_call = lambda: bench.clock.advance(30)
    await bench.run(budget_s=80.0)
    assert [exchange.budget_s for exchange in bench.asked] == [80, 50]


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


async def test_a_failure_before_any_effect_may_be_tried_again() -> None:
    """The model's own error, as it came; behind a tool it is one that nobody repeats."""
    broken = GatewayError("upstream_error", "It broke.")
    for answers, status in (([broken], 502), ([answer(call()), broken], 422)):
        bench = Bench(answers)  # type: ignore[arg-type]
        with pytest.raises(GatewayError) as failed:
            await bench.run()
        assert (failed.value.code, failed.value.facts.status) == ("upstream_error", status)
        assert samples(bench.counters)["gateway_agent_runs_total", ("error",)] == 1


# Events.


async def test_events_tell_what_happens() -> None:
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
async def test_what_the_client_does_not_see_is_put_back_into_the_next_request(
    store: type[SqliteStore], roles: list[str]
) -> None:
    """Call and result stand in front of the answer that they led to; a store that fails costs only that."""
    bench = Bench([answer(call(x=1)), answer("Done."), answer("Again.")], store=store(":memory:"))
    await bench.run()
    later = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Done."},
        {"role": "user", "content": "And?"},
    ]
    assert texts(await bench.run(body={"messages": later})) == "Again."
    assert [message["role"] for message in bench.asked[2].body["messages"]] == roles
