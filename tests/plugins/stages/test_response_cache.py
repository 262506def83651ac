"""The response cache through a gateway: which requests get a kept answer, which never do, and who shares one."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from gateways import until, until_read

from gateway.aio.clock import SystemClock
from gateway.plugin import Stage
from gateway.plugins.stages.response_cache import PLUGIN, Config
from gateway.testing import FakeHost, ScriptedModel, check_stage, collect_answer, make_exchange
from tests.e2e.models import CUT, Answer, Json, call, says
from tests.e2e.talking import Completed, World, desk, talking

STOP: Json = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
ALONE = {"X-Context-Chain": "alone"}


class Time(SystemClock):
    """A clock that a test moves; the event loop goes on by its own."""

    ahead_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead_s


@asynccontextmanager
async def caching(*answers: Answer, cache: Mapping[str, object] | None = None, **settings: Any) -> AsyncIterator[World]:
    """A gateway with the default chain, the cache below its agent loop; `alone` is the cache alone."""
    last = {"use": "response_cache", "with": dict(cache or {})}
    uses = ["intent", "memory", "prompt_enhancer", "agent_loop"]
    chains = {"assistant": [*({"use": use} for use in uses), last], "alone": [last]}
    async with talking(*answers, **{"chains": chains, **settings}) as world:
        yield world


def built(**settings: Any) -> Stage:
    """The stage, after the check of a plugin, in which no request has a temperature."""
    check_stage("response_cache", settings)
    return PLUGIN.build(Config(any_temperature=True, **settings), FakeHost())


async def ask(world: World, text: str = "Hello?", *, headers: Mapping[str, str] = {}, **body: Any) -> Completed:
    return await world.chat(text, headers=headers, **{"temperature": 0, **body})


def found(answer: Completed) -> tuple[int, str, str | None]:
    return answer.status, answer.text, answer.headers.get("X-Context-Cache")


@pytest.mark.parametrize("headers", [{}, ALONE], ids=["agent loop", "alone"])
async def test_equal_request_gets_the_cached_response(headers: Mapping[str, str]) -> None:
    """Streamed or whole, with the same pieces, no tokens, and no call of the model."""
    async with caching(says("Hel", "lo.")) as world:
        missed = await ask(world, headers=headers)
        assert found(missed) == (200, "Hello.", "miss") and missed.json["usage"]["total_tokens"] == 18
        hit = await ask(world, headers=headers)
        assert found(hit) == (200, "Hello.", "hit")
        assert hit.json["usage"] == {
            "prompt_tokens": 0,
            "completion_tokens": 0,
            "total_tokens": 0,
            "cached_answers": 1,
        }
        stream = await world.stream("Hello?", headers=headers, temperature=0)
        assert (stream.response.headers["X-Context-Cache"], stream.finishes) == ("hit", ["stop"])
        assert [d["content"] for d in stream.deltas if d.get("content")] == ["Hel", "lo."]
        assert len(world.model.asked) == 1
        assert await world.counted('gateway_response_cache_requests_total{result="hit"}') == 2
        assert await world.counted('gateway_tokens_total{key="local",type="prompt"}') == 11


async def test_streamed_response_is_cached() -> None:
    async with caching(says("Hel", "lo.")) as world:
        stream = await world.stream("Hello?", temperature=0)
        assert stream.response.headers["X-Context-Cache"] == "miss"
        assert found(await ask(world)) == (200, "Hello.", "hit")


@pytest.mark.parametrize(
    "body",
    [
        {"temperature": 0.7},
        {"temperature": None},
        {"web_search_options": {}},
        {"tools": [{"type": "web_search"}]},
    ],
)
async def test_nondeterministic_requests_bypass_the_cache(body: Json) -> None:
    async with caching(says("a"), says("b")) as world:
        assert found(await ask(world, headers=ALONE, **body)) == (200, "a", "bypass")
        assert found(await ask(world, headers=ALONE, **body)) == (200, "b", "bypass")
        assert await world.counted('gateway_response_cache_requests_total{result="bypass"}') == 2


async def test_seed_or_any_temperature_setting_makes_a_response_cacheable() -> None:
    async with caching(says("a"), says("b"), cache={"any_temperature": True}) as world:
        assert [(await ask(world, temperature=1)).text for _ in range(2)] == ["a", "a"]
    async with caching(says("a"), says("b")) as world:
        assert [(await ask(world, temperature=1, seed=7)).text for _ in range(2)] == ["a", "a"]


@pytest.mark.parametrize(
    "answer",
    [
        says("a", finish="length"),
        says("a", finish="content_filter"),
        says(""),
        says(
            {"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
            finish="tool_calls",
        ),
    ],
    ids=["length", "filter", "empty", "call"],
)
async def test_incomplete_responses_are_not_cached(answer: Answer) -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    async with caching(answer, says("b")) as world:
        assert (await ask(world, headers=ALONE, tools=tools)).status == 200
        assert found(await ask(world, headers=ALONE, tools=tools)) == (200, "b", "miss")


@pytest.mark.parametrize("broken", [says("a", CUT), Answer(status=500, content=b"{}")], ids=["cut", "error"])
async def test_failed_responses_are_not_cached(broken: Answer) -> None:
    async with caching(broken, says("b")) as world:
        assert (await ask(world)).status >= 500
        assert found(await ask(world)) == (200, "b", "miss")


async def test_tool_call_in_a_cached_response_runs_again(tmp_path: Path) -> None:
    """The tool is called for each request; the model's answer to an equal result is kept."""
    reads = says(json.dumps(call("file_operations", operation="read", path="notes.txt")))
    async with caching(reads, says("Behind the mirror."), reads, says("unused"), tools=desk(tmp_path)) as world:
        first = await ask(world, "Where is the safe?")
        (tmp_path / "work" / "notes.txt").write_text("The safe is gone.\n")
        world.model.then(reads, says("It is gone."))
        again = await ask(world, "Where is the safe?")
        assert first.text == "Behind the mirror." and "mirror" not in again.text
        results = [asked["messages"][-1]["content"] for asked in world.model.asked if len(asked["messages"]) > 2]
        assert "mirror" in results[0] and "gone" in results[1]


async def test_new_memory_misses_the_response_cache() -> None:
    async with caching(says("I do not know."), says("Noted."), says("Ada.")) as world:
        assert found(await ask(world, "What is my cat called?"))[1:] == ("I do not know.", "miss")
        await ask(world, "Remember that my cat is called Ada.")
        assert found(await ask(world, "What is my cat called?"))[1:] == ("Ada.", "miss")


@pytest.mark.parametrize("wish", ["max-age=30", 'max-age="30"'])
async def test_cached_response_expires_after_its_ttl_or_max_age(wish: str) -> None:
    clock = Time()
    async with caching(says("a"), says("b"), says("c"), cache={"ttl": "1m"}, clock=clock) as world:
        assert (await ask(world)).text == "a"
        clock.ahead_s = 59.0
        assert (await ask(world)).text == "a"
        assert found(await ask(world, headers={"Cache-Control": wish})) == (200, "b", "miss")
        assert (await ask(world)).text == "b"
        clock.ahead_s = 130.0
        assert found(await ask(world)) == (200, "c", "miss")


async def test_cache_control_of_the_request_is_obeyed() -> None:
    """`no-cache` asks the model and keeps the new answer; `no-store` leaves the cache alone."""
    async with caching(says("a"), says("b"), says("c")) as world:
        assert (await ask(world)).text == "a"
        assert found(await ask(world, headers={"Cache-Control": "no-store"})) == (200, "b", "bypass")
        assert found(await ask(world)) == (200, "a", "hit")
        assert found(await ask(world, headers={"Cache-Control": "No-Cache"})) == (200, "c", "miss")
        assert found(await ask(world)) == (200, "c", "hit")


async def test_unequal_requests_do_not_share_a_cached_response() -> None:
    """Another message, model, credential or a field of `vary`; another `stream` is no other request."""
    async with caching(*map(says, "abcdef")) as world:
        assert (await ask(world)).text == "a"
        assert (await ask(world, "Hello!")).text == "b"
        assert (await ask(world, model="n")).text == "c"
        assert (await ask(world, headers={"Authorization": "Bearer theirs"})).text == "d"
        assert (await ask(world, headers={"OpenAI-Project": "p"})).text == "e"
        assert (await ask(world, headers={"Anthropic-Beta": "b"})).text == "f"
        assert found(await ask(world, headers={"User-Agent": "another"})) == (200, "a", "hit")


@pytest.mark.parametrize(
    ("shared_by", "texts"),
    [("tenant", "aaab"), ("key", "aabc"), ("user", "abcd")],
)
async def test_cached_answer_is_shared_within_the_configured_scope(shared_by: str, texts: str) -> None:
    """Two users of one key, another key of the same tenant, a key of another tenant."""
    keys = [
        {"name": name, "sha256": hashlib.sha256(name.encode()).hexdigest(), "tenant": tenant, "scopes": ["context"]}
        for name, tenant in (("ann", "home"), ("ben", "home"), ("cy", "work"))
    ]
    async with caching(*map(says, "abcd"), cache={"shared_by": shared_by}, keys=keys) as world:
        told = [
            (await ask(world, headers={"X-Gateway-Key": key, "X-Context-User": user})).text
            for key, user in (("ann", "u"), ("ann", "v"), ("ben", "u"), ("cy", "u"))
        ]
    assert "".join(told) == texts


async def test_concurrent_equal_requests_call_the_model_once() -> None:
    ready = asyncio.Event()
    async with caching(says("a", before=ready), says("b")) as world:
        first = asyncio.ensure_future(ask(world))
        await until(lambda: len(world.model.asked) == 1)
        others = [asyncio.ensure_future(ask(world)) for _ in range(5)]
        await until_read(
            lambda: world.counted('gateway_inflight_requests{mode="context"}'), lambda n_inflight: n_inflight == 6
        )
        ready.set()
        assert [found(answer)[1:] for answer in await asyncio.gather(first, *others)] == [("a", "miss")] + [
            ("a", "hit")
        ] * 5
        assert len(world.model.asked) == 1


async def test_waiting_requests_all_proceed_when_an_answer_is_not_cached() -> None:
    """An answer that is not kept sends all of them to the model at once."""
    ready, both = asyncio.Event(), asyncio.Event()
    answers = says("a", before=ready, finish="length"), says("b", before=both), says("b", before=both)
    async with caching(*answers) as world:
        asking = [asyncio.ensure_future(ask(world)) for _ in range(3)]
        await until(lambda: len(world.model.asked) == 1)
        ready.set()
        await until(lambda: len(world.model.asked) == 3)
        both.set()
        assert sorted(answer.text for answer in await asyncio.gather(*asking)) == ["a", "b", "b"]


async def test_disconnect_of_the_first_client_passes_the_model_call_on() -> None:
    never = asyncio.Event()
    async with caching(says("a", before=never), says("b")) as world:
        async with world.streaming("Hello?", temperature=0):
            await until(lambda: len(world.model.asked) == 1)
            waiting = asyncio.ensure_future(ask(world))
        assert found(await waiting) == (200, "b", "miss")


def test_full_response_cache_evicts_its_oldest_entry() -> None:
    """The fourth request is answered without the model, which has no answer to it."""
    stage = built(max_entries=2)
    for text, answers in (("1", "a"), ("2", "b"), ("3", "c"), ("2", ""), ("1", "d")):
        model = ScriptedModel(*([answer, STOP] for answer in answers))
        asyncio.run(collect_answer(stage, make_exchange(text), model))


@pytest.mark.parametrize("size", [10, 5000])
def test_response_larger_than_max_bytes_is_not_cached(size: int) -> None:
    stage = built(max_bytes=4096)
    model = ScriptedModel(["x" * size, STOP], ["y", STOP])
    said = [asyncio.run(collect_answer(stage, make_exchange(), model))[0] for _ in range(2)]
    assert said == ["x" * size, "x" * size if size < 4096 else "y"]


async def test_request_calls_the_model_after_the_cache_wait_limit() -> None:
    never = asyncio.Event()
    async with caching(says("a", before=never), says("b"), cache={"wait": "20ms"}) as world:
        first = asyncio.ensure_future(ask(world))
        await until(lambda: len(world.model.asked) == 1)
        assert found(await ask(world)) == (200, "b", "miss")
        never.set()
        assert (await first).text == "a"


async def test_explain_reports_the_state_of_the_response_cache() -> None:
    async with caching(says("a")) as world:

        async def remarks(**body: Any) -> list[str]:
            asked = {"messages": [{"role": "user", "content": "Hello?"}], "model": "m", **body}
            remarks: list[str] = (await world.post(asked, path="/context/explain")).json["remarks"]
            return remarks

        assert await remarks() == ["response_cache: its answer is not kept: it has neither temperature 0 nor a seed"]
        assert await remarks(temperature=0) == ["response_cache: no answer is kept yet"]
        await ask(world)
        assert await remarks(temperature=0) == ["response_cache: an answer is kept"]
        assert len(world.model.asked) == 1
