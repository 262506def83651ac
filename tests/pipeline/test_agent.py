"""Agent runs over a scripted model: usage of all its answers, one budget, and what a client is told on the way."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field

import orjson
import pytest
from tools.doubles import Does, Source, spec

from gateway.contracts import Caller, Exchange, Json, LoopLimits, Reply, StoreError, ToolCall, ToolResult
from gateway.counters import ContextCounters
from gateway.errors import GatewayError
from gateway.pipeline.agent import Agents
from gateway.testing.clock import ManualClock
from gateway.tools.catalog import load_catalog
from gateway.tools.gate import Gate, Policy
from gateway.tools.results import Results
from gateway.tools.runner import Runner

from .doubles import Clock, samples
from .models import chunk

USAGE = {"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14}
LIMITS = LoopLimits()


def call(tool: str = "look", *, terminate: bool = False, **parameters: object) -> str:
    asked = {"tool": tool, "parameters": {"risk_level": "low", **parameters}, "terminate": terminate}
    return orjson.dumps(asked).decode()


def answer(*texts: str, usage: Json | None = USAGE, **last: object) -> list[Json]:
    told = [] if usage is None else [{"choices": [], "usage": usage}]
    return [*map(chunk, texts), chunk(finish="stop", **last), *told]


class Hidden:
    """The part of a store that keeps hidden turns; `broken`: it fails."""

    def __init__(self, *, broken: bool = False) -> None:
        self.kept: dict[str, Sequence[Json]] = {}
        self.broken = broken

    async def put_hidden(self, prefix: str, messages: Sequence[Json], *, tenant: str, now_s: float) -> None:
        del tenant, now_s
        if self.broken:
            raise StoreError("the disk is full")
        self.kept[prefix] = list(messages)

    async def hidden(self, prefixes: Sequence[str], *, tenant: str) -> Mapping[str, Sequence[Json]]:
        del tenant
        if self.broken:
            raise StoreError("the disk is full")
        return {prefix: self.kept[prefix] for prefix in prefixes if prefix in self.kept}


async def _works(asked: ToolCall) -> ToolResult:
    return ToolResult(f"looked at {asked.arguments}")


@dataclass
class Bench:
    """An agent loop around `answers` of a model, one after the other; an exception is raised in its place."""

    answers: list[list[Json] | Exception]
    does: Does = _works
    limits: LoopLimits = LIMITS
    store: Hidden = field(default_factory=Hidden)
    clock: ManualClock = field(default_factory=ManualClock)
    counters: ContextCounters = field(default_factory=ContextCounters)
    asked: list[Exchange] = field(default_factory=list)
    released: int = 0
    on_call: Callable[[], None] = lambda: None

    async def reply(self, **facts: object) -> Reply:
        clock = Clock(self.clock)
        source = Source(spec(parameters={"type": "object", "properties": {"x": {}}}), does=self.does)
        agents = Agents(
            await load_catalog({"look": (source, False, False)}),
            Gate(Policy(trust_llm="always", default="confirm"), {}),
            Runner(Results(), counters=self.counters, clock=clock),
            store=self.store,  # type: ignore[arg-type]
            counters=self.counters,
            clock=clock,
        )
        body: Json = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
        given: dict[str, object] = {"body": body, "caller": Caller("c", "t", frozenset()), "chain": "main", **facts}
        exchange = Exchange(id="run_1", **given)  # type: ignore[arg-type]
        return await agents.stage(self.limits)(exchange, self._model)

    async def run(self, **facts: object) -> list[Json]:
        """What the client is told; marks that are none of its business are left out."""
        reply = await self.reply(**facts)
        try:
            return [one async for one in reply.chunks if "choices" in one]
        finally:
            await reply.release()

    async def _model(self, exchange: Exchange) -> Reply:
        self.asked.append(exchange)
        self.on_call()
        said = self.answers[len(self.asked) - 1]
        if isinstance(said, Exception):
            raise said
        return Reply(self._chunks(said), self._release)

    @staticmethod
    async def _chunks(said: list[Json]) -> AsyncIterator[Json]:
        for one in said:
            yield one

    async def _release(self) -> None:
        self.released += 1


def texts(told: list[Json]) -> str:
    return "".join(c["delta"].get("content", "") for one in told for c in one["choices"])


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
    ("broken", "roles"),
    [
        (False, ["user", "assistant", "tool", "assistant", "user"]),
        (True, ["user", "assistant", "user"]),
    ],
)
async def test_what_the_client_does_not_see_is_put_back_into_the_next_request(broken: bool, roles: list[str]) -> None:
    """Call and result stand in front of the answer that they led to; a store that fails costs only that."""
    bench = Bench([answer(call(x=1)), answer("Done."), answer("Again.")], store=Hidden(broken=broken))
    await bench.run()
    later = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Done."},
        {"role": "user", "content": "And?"},
    ]
    assert texts(await bench.run(body={"messages": later})) == "Again."
    assert [message["role"] for message in bench.asked[2].body["messages"]] == roles
