"""Aliases of models through a gateway: who is asked, what the client is told, and what is on record of it."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from gateways import until

from .models import CUT, Answer, Model, calls, refuses, says
from .talking import World, desk, talking
from .test_accounts import lines

FAST = {"fast": {"use": [{"model": "big", "upstream": "up"}, {"model": "small"}]}}
BUSY = refuses(503, "busy")
RESPONSES = "/context/v1/responses"


@dataclass(frozen=True)
class Two:
    """A gateway with two upstreams, `up` and `other`; `small` is a model of the second one."""

    world: World
    other: Model

    @property
    def asked(self) -> list[list[str]]:
        """The models that each upstream was asked for, in turn."""
        return [[body["model"] for body in model.asked] for model in (self.world.model, self.other)]


@asynccontextmanager
async def two(first: tuple[Answer, ...], second: tuple[Answer, ...], **settings: Any) -> AsyncIterator[Two]:
    """A gateway with these answers of the one and of the other."""
    async with AsyncExitStack() as stack:
        other = await stack.enter_async_context(Model(*second))
        up = await stack.enter_async_context(Model(*first))
        entries = [
            {"name": "up", "base_url": up.upstream.base_url},
            {"name": "other", "base_url": other.upstream.base_url, "models": ["small"], "paths": ["/other/"]},
        ]
        world = await stack.enter_async_context(talking(**{"models": FAST, "upstreams": entries, **settings}))
        yield Two(World(world.gateway, up, world.session, world.config), other)


@pytest.mark.parametrize("failures", [(), (BUSY,), (says(CUT),), (refuses(429),)])
@pytest.mark.parametrize("stream", [False, True])
async def test_alias_is_reported_as_the_model_of_the_answer(failures: tuple[Answer, ...], *, stream: bool) -> None:
    """Its answer has that name, whoever gave it; the headers say who did. No tool of the client's notices a failure."""
    first, second = (failures, (says("Hi."),)) if failures else ((says("Hi."),), ())
    async with two(first, second) as made:
        if stream:
            told = await made.world.stream(model="fast")
            text, headers, named = told.text, told.response.headers, {frame["model"] for frame in told.frames}
        else:
            answer = await made.world.chat(model="fast")
            text, headers, named = answer.text, answer.headers, {answer.json["model"]}
        assert (text, named) == ("Hi.", {"fast"})
        assert made.asked == ([["big"], ["small"]] if failures else [["big"], []])
        if not stream or failures != (says(CUT),):  # else the head went out before the connection broke
            last = ("other", "small") if failures else ("up", "big")
            assert (headers["X-Context-Upstream"], headers["X-Context-Model"]) == last


async def test_upstream_model_name_is_used_without_failover() -> None:
    """Under its own name; a failure is told as it is."""
    async with two((BUSY,), (says("Hi."),)) as made:
        assert (await made.world.chat(model="big")).status == 503
        answer = await made.world.chat(model="small")
        assert (answer.headers["X-Context-Upstream"], "X-Context-Model" in answer.headers) == ("other", False)
        assert made.asked == [["big"], ["small"]]


async def test_aliases_apply_to_all_dialects_and_tasks() -> None:
    """The Responses API, a title for a chat program, and `context.model`."""
    settings = {"context": {"model": "fast"}}
    async with two((BUSY, BUSY, says("Hi.")), (says("Hi."), says("Hi.")), **settings) as made:
        answer = await made.world.post({"input": "Hello?"}, path=RESPONSES)
        assert (answer.status, answer.headers["X-Context-Model"]) == (200, "small")
        await made.world.chat(headers={"X-Context-Task": "title"}, model="whatever")
        await made.world.chat(response_format={"type": "json_object"})
        assert made.asked == [["big", "big", "big"], ["small", "small"]]


async def test_response_reports_the_requested_alias() -> None:
    """As a chat completion has."""
    async with two((BUSY,), (says("Hi."),)) as made:
        answer = await made.world.post({"input": "Hello?", "model": "fast"}, path=RESPONSES)
        assert (answer.json["model"], answer.headers["X-Context-Upstream"]) == ("fast", "other")


async def test_run_records_the_upstream_of_each_model_call(tmp_path: Path) -> None:
    """Each call begins with the first model again. The tool runs once; the events and the log say the same."""
    write = calls("file_operations", operation="write", path="new.txt", content="x")
    ran = 'gateway_tool_calls_total{outcome="ok",tool="file_operations"}'
    async with two((BUSY, says("Done.")), (write,), tools=desk(tmp_path, write=True)) as made:
        stream = await made.world.stream("Write.", model="fast", headers={"X-Context-Events": "1"})
        steps = [event for event in stream.told if event["type"] == "step.finished"]
        assert steps == [
            {"type": "step.finished", "step": 1, "upstream": "other", "model": "small"},
            {"type": "step.finished", "step": 2, "upstream": "up", "model": "big"},
        ]
        assert await made.world.counted(ran) == 1
        run = await made.world.run(stream.response.headers["X-Context-Run-Id"], state="completed")
        hosts = [model.upstream.base_url.removeprefix("http://") for model in (made.other, made.world.model)]
        assert [(call["upstream"], call["endpoint"]) for call in run["model_calls"]] == [
            ("other", hosts[0]),
            ("up", hosts[1]),
        ]
        assert await made.world.counted('gateway_upstream_retries_total{reason="model",upstream="up"}') == 1
        assert await made.world.counted("gateway_model_retries_total") == 0


async def test_explain_lists_the_candidates_of_an_alias() -> None:
    """In their order; nobody is asked."""
    async with two((), ()) as made:
        body = {"model": "fast", "messages": [{"role": "user", "content": "Hi"}]}
        answer = await made.world.post(body, path="/context/explain")
        assert (answer.json["model"], answer.json["upstream"]) == ("fast", "up")
        assert answer.json["candidates"] == [
            {"model": "big", "upstream": "up", "quirks": [], "api": "chat", "not_sent": []},
            {"model": "small", "upstream": "other", "quirks": [], "api": "chat", "not_sent": []},
        ]
        assert made.asked == [[], []]


async def test_merged_model_list_contains_the_aliases() -> None:
    """Without `context.models` the list is that of the first upstream, as it is."""
    lists = [Answer(content=json.dumps({"data": [{"id": name}], "x": 1}).encode()) for name in ("big", "small")]
    async with two((lists[0],) * 2, (lists[1],)) as made:
        assert (await made.world.get("/context/v1/models")).json == {"data": [{"id": "big"}], "x": 1}
        await made.world.reload(context={"models": "merged"})
        listed = (await made.world.get("/context/v1/models")).json
        assert listed["object"] == "list"
        assert [model["id"] for model in listed["data"]] == ["fast", "big", "small"]


async def test_alias_does_not_fail_over_when_upstream_forbids_retries() -> None:
    """`x-should-retry: false`: neither another model nor the client tries again."""
    told_not = BUSY.but(headers=(("x-should-retry", "false"),))
    async with two((told_not,), ()) as made:
        answer = await made.world.chat(model="fast")
        assert (answer.status, answer.headers["x-should-retry"]) == (503, "false")
        assert made.asked == [["big"], []]


async def test_access_log_names_the_upstream_that_answered() -> None:
    """Upstream, endpoint and model: who accepted the request first, and not who was asked first."""
    async with two((BUSY,), (says("Hi."),), logging={"access": True}) as made:
        await made.world.chat(model="fast")
        await until(lambda: lines(made.world))
        (line,) = lines(made.world)
        host = made.other.upstream.base_url.removeprefix("http://")
        assert (line["upstream"], line["endpoint"], line["model"]) == ("other", host, "small")
