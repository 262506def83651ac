"""Several endpoints of an upstream, behind runs with tools: the client sees one answer, and no tool runs twice."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from gateways import until_read

from .models import CUT, Answer, Json, Model, calls, refuses, says
from .talking import World, desk, talking

WRITE = calls("file_operations", operation="write", path="new.txt", content="x")
RAN = 'gateway_tool_calls_total{outcome="ok",tool="file_operations"}'
DONE = says("Written.")
BUSY = refuses(503, "busy").but(headers=(("retry-after-ms", "1"),))
TOLD_NOT = BUSY.but(headers=(("x-should-retry", "false"),))
LOST = says(CUT)


@dataclass(frozen=True)
class Endpoints:
    """A gateway with an upstream `up` of several endpoints, each a model."""

    world: World
    models: list[Model]

    @property
    def asked(self) -> list[int]:
        return [len(model.asked) for model in self.models]


@asynccontextmanager
async def endpoints(
    *answers: tuple[Answer, ...], upstream: Json | None = None, **settings: Any
) -> AsyncIterator[Endpoints]:
    """The answers of each; `upstream` are settings of the upstream."""
    async with AsyncExitStack() as stack:
        models = [await stack.enter_async_context(Model(*each)) for each in answers]
        entry = {
            "name": "up",
            "endpoints": [{"url": model.upstream.base_url, "name": f"e{i}"} for i, model in enumerate(models)],
            **(upstream or {}),
        }
        world = await stack.enter_async_context(talking(**{"upstreams": [entry], **settings}))
        yield Endpoints(world, models)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("failure", [BUSY, LOST, refuses(429)])
async def test_failed_endpoint_is_replaced_in_each_round(failure: Answer, tmp_path: Path, *, stream: bool) -> None:
    """One fails in each round. Nothing of it shows, nothing waits, and the record says who answered."""
    async with endpoints((failure, DONE), (WRITE, failure), tools=desk(tmp_path, write=True)) as made:
        if stream:
            streamed = await made.world.stream("Write.")
            text, run_id = streamed.text, streamed.response.headers["X-Context-Run-Id"]
        else:
            answer = await made.world.chat("Write.")
            text, run_id = answer.text, answer.headers["X-Context-Run-Id"]
        assert text == "Written." and made.asked == [2, 2]
        assert await made.world.counted(RAN) == 1
        assert await made.world.counted("gateway_model_retries_total") == 0
        run = await made.world.run(run_id, state="completed")
        assert [(call["upstream"], call["endpoint"]) for call in run["model_calls"]] == [("up", "e1"), ("up", "e0")]


async def test_partly_streamed_answer_is_not_restarted(tmp_path: Path) -> None:
    """Its client has a part of it. The run waits, and goes on with the next request; the tool has run once."""
    tools = desk(tmp_path, write=True)
    async with endpoints((WRITE, DONE), (says("Wri", CUT),), tools=tools) as made:
        streamed = await made.world.stream("Write.")
        assert streamed.text == "Wri" and not streamed.finishes and sum(made.asked) == 2
        again = await made.world.stream("Write.")
        assert again.text == "Written." and sum(made.asked) == 3
        assert await made.world.counted(RAN) == 1


async def test_unstreamed_answer_is_restarted_on_another_endpoint(tmp_path: Path) -> None:
    """The next model of an alias answers such a request, of which its client has read no part."""
    tools = desk(tmp_path, write=True)
    async with endpoints((WRITE, DONE), (says("Wri", CUT),), tools=tools) as made:
        assert (await made.world.chat("Write.")).text == "Written." and made.asked == [2, 1]
        assert await made.world.counted(RAN) == 1


async def test_run_and_endpoint_retries_do_not_multiply(tmp_path: Path) -> None:
    """Up to three tries at once, then five times one. Then the run waits for its client."""
    failures = (BUSY,) * 8
    tools = desk(tmp_path, write=True)
    async with endpoints((WRITE, *failures), failures, tools=tools, upstream={"breaker": {"failures": 0}}) as made:
        answer = await made.world.chat("Write.")
        assert answer.status == 422 and "gateway runs resume" in answer.error["message"]
        at_once = sum(made.asked) - 1 - 5
        assert at_once in (2, 3)  # the first endpoint may not be back from its pause of 1 ms
        assert await made.world.counted(RAN) == 1
        assert await made.world.counted("gateway_model_retries_total") == 5


async def test_run_does_not_retry_when_upstream_forbids_it(tmp_path: Path) -> None:
    """`x-should-retry: false`, in a round behind an effect."""
    async with endpoints((WRITE, TOLD_NOT), (TOLD_NOT,), tools=desk(tmp_path, write=True)) as made:
        answer = await made.world.chat("Write.")
        assert (answer.status, answer.headers["x-should-retry"]) == (422, "false")
        assert sum(made.asked) == 2 and await made.world.counted("gateway_model_retries_total") == 0


async def test_failed_first_round_returns_the_last_upstream_error() -> None:
    """With its status and its words, for the client to try again."""
    async with endpoints((BUSY,) * 2, (refuses(502, "down"),) * 2) as made:
        answer = await made.world.chat()
        assert answer.status in (502, 503) and sum(made.asked) == 3


async def test_sticky_conversations_stay_on_their_endpoint(tmp_path: Path) -> None:
    """With all rounds of their runs."""
    both = (WRITE, DONE) * 8
    upstream = {"balance": "sticky"}
    async with endpoints(both, both, tools=desk(tmp_path, write=True), upstream=upstream) as made:
        for name in "abcdefgh":
            await made.world.chat("Write.", headers={"X-Context-Conversation": name})
        assert all(n % 2 == 0 for n in made.asked) and all(made.asked)


async def test_run_waits_for_a_free_concurrency_slot(tmp_path: Path) -> None:
    """Its rounds take one each time, and leave it to others between them."""
    upstream = {"queue": {"size": 10, "wait": "60s"}}
    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(Model(*(WRITE, DONE) * 3))
        upstream["endpoints"] = [{"url": model.upstream.base_url, "concurrent": 1}]  # type: ignore[assignment]
        settings: Json = {"upstreams": [{"name": "up", **upstream}], "tools": desk(tmp_path, write=True)}
        world = await stack.enter_async_context(talking(**settings))
        assert (await world.chat("Write.")).text == "Written."
        assert await world.counted('gateway_upstream_queued_requests{upstream="up"}') == 0


async def test_open_circuit_returns_503_without_calling_the_upstream() -> None:
    """503 `circuit_open` with the pause, also to a stream; nothing is sent."""
    failures = (refuses(503),) * 4
    async with endpoints(failures, upstream={"breaker": {"failures": 1}, "retry": {"tries": 1}}) as made:
        assert (await made.world.chat()).status == 503
        for stream in (False, True):
            body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stream": stream}
            answer = await made.world.post(body)
            assert (answer.status, answer.error["code"]) == (503, "circuit_open")
            assert 0 < int(answer.headers["Retry-After"]) <= 10
        assert made.asked == [1]


async def test_fallback_upstream_answers_and_is_reported(tmp_path: Path) -> None:
    """In the access log, the header and the record it is who answered."""
    async with Model(says("Hi.")) as other:
        spare = {"name": "spare", "base_url": other.upstream.base_url, "paths": ["/spare/"]}
        async with Model(BUSY) as first:
            up = {"name": "up", "base_url": first.upstream.base_url, "fallback": ["spare"]}
            async with talking(upstreams=[up, spare]) as world:
                answer = await world.chat()
                assert (answer.text, answer.headers["X-Context-Upstream"]) == ("Hi.", "spare")
                sample = 'gateway_upstream_retries_total{reason="fallback",upstream="up"}'
                assert await until_read(lambda: world.counted(sample)) == 1
                assert json.loads(other.upstream.requests[0].payload)["model"] == "m"
