"""Limits in the context lane: a run is one request, each call of its model takes tokens, and clients can read why."""

import asyncio
from pathlib import Path

import pytest
from gateways import until_read

from gateway.aio.clock import SystemClock
from gateway.testing.clock import ManualClock

from .models import Json, Model, calls, refuses, says
from .talking import World, desk, talking

WRITE = calls("file_operations", operation="write", path="new.txt", content="x")
DONE = says("Written.")
REFUSED = 'gateway_limit_refused_total{limit="%s",scope="%s"}'


class Later(SystemClock, ManualClock):
    """The system's clock, and the seconds that a test adds."""

    def monotonic(self) -> float:
        return SystemClock.monotonic() + self()

    def time(self) -> float:
        return SystemClock.time() + self()


def tenants(**limits: object) -> Json:
    """Limits of the tenant of everybody, where there are no keys."""
    return {"tenants": {"local": limits}}


async def test_rate_limit_headers_report_the_remaining_requests() -> None:
    async with talking(*[says("Hello.")] * 3, limits=tenants(requests_per_minute=2)) as world:
        first, second, third = [await world.chat(f"Hello {n}") for n in range(3)]
    assert (first.status, second.status, third.status) == (200, 200, 429)
    assert [one.headers["x-ratelimit-remaining-requests"] for one in (first, second, third)] == ["1", "0", "0"]
    assert first.headers["x-ratelimit-limit-requests"] == "2"
    assert third.error["code"] == "rate_limit_exceeded"
    assert third.error["message"].startswith("The tenant 'local' has reached its limit of 2 requests per minute")
    assert 0 < int(third.headers["Retry-After"]) <= 60
    assert len(world.model.asked) == 2


async def test_run_with_tools_counts_as_one_request(tmp_path: Path) -> None:
    """However often it calls its model. A stream is refused with a status, too."""
    limits = tenants(requests_per_minute=1)
    async with talking(WRITE, DONE, tools=desk(tmp_path, write=True), limits=limits) as world:
        assert (await world.chat("Write.")).text == "Written."
        async with world.streaming("Write again.") as stream:
            assert stream.response.status == 429
        assert await world.counted(REFUSED % ("requests_per_minute", "tenant")) == 1


async def test_request_limit_is_shared_by_all_endpoints() -> None:
    """Responses, in the background as well, and chats, of one limit."""
    limits = tenants(requests_per_minute=2)
    async with talking(says("Hello."), says("Hello."), limits=limits) as world:
        answer = await world.post({"model": "m", "input": "Hello"}, path="/context/v1/responses")
        assert answer.status == 200
        assert answer.headers["x-ratelimit-remaining-requests"] == "1"
        assert (await world.chat("Hello?")).status == 200
        for background in (False, True):
            wanted = {"model": "m", "input": "Hello", "background": background}
            refused = await world.post(wanted, path="/context/v1/responses")
            assert (refused.status, refused.error["code"]) == (429, "rate_limit_exceeded")


async def test_exhausted_token_limit_refuses_the_next_request() -> None:
    """The model says how many it used."""
    hello = says("Hello.", usage=(90_000, 30_000))
    async with talking(hello, DONE, limits=tenants(tokens_per_minute=130_000)) as world:
        assert (await world.chat("Hello?")).status == 200
        refused = await world.chat("Hello again?")
    assert (refused.status, refused.error["code"]) == (429, "rate_limit_exceeded")
    assert "130000 tokens per minute" in refused.error["message"]
    assert refused.headers["x-ratelimit-remaining-tokens"] == "10000"


async def test_run_without_tokens_left_is_parked_and_resumed(tmp_path: Path) -> None:
    """Its tool has run: nothing runs twice, and the same request continues it once there is room."""
    clock = Later()
    settings = {"limits": tenants(tokens_per_minute=350_000), "loop": {"timeout": "5s"}, "clock": clock}
    write = WRITE.but(usage=(300_000, 20_000))
    async with talking(write, DONE, tools=desk(tmp_path, write=True), **settings) as world:
        parked = await world.chat("Write.")
        assert (parked.status, parked.error["code"]) == (422, "rate_limit_exceeded")
        assert "send the same request again" in parked.error["message"]
        clock.advance(61.0)
        resumed = await until_read(lambda: world.chat("Write."), lambda answer: answer.status == 200)
        assert resumed.text == "Written."
        assert await world.counted('gateway_tool_calls_total{outcome="ok",tool="file_operations"}') == 1


async def test_each_model_call_counts_against_the_upstream_limit(tmp_path: Path) -> None:
    """A provider counts calls, whatever they are for."""
    upstream = {"limits": {"requests_per_minute": 2}}
    async with talking(WRITE, DONE, tools=desk(tmp_path, write=True), upstream=upstream) as world:
        assert (await world.chat("Write.")).text == "Written."
        refused = await world.chat("Hello?")
        assert refused.status == 429
        assert refused.error["message"].startswith("The upstream 'up'")


async def test_model_limit_applies_to_other_spellings_of_the_name() -> None:
    """Many upstreams take any letter case, and blanks; a keyboard may write wide letters."""
    limits = {"models": {"llama3*": {"requests_per_minute": 1}}}
    async with talking(says("Hello."), limits=limits) as world:
        names = ("llama3", "LLaMA3", " llama3", "Llama3:8B ", "\uff4clama3")
        assert [(await world.chat("Hello?", model=name)).status for name in names] == [200, 429, 429, 429, 429]


async def test_fallback_upstream_applies_its_own_limits() -> None:
    """It takes what its upstream has no room for; if neither has, the client hears of the upstream that it was for."""
    few = {"requests_per_minute": 1}
    async with Model(says("Own.")) as own, Model(says("Rented.")) as rented:
        upstreams = [
            {"name": "own", "base_url": own.upstream.base_url, "limits": few, "fallback": ["rented"]},
            {"name": "rented", "base_url": rented.upstream.base_url, "limits": few, "paths": ["/rented/"]},
        ]
        async with talking(upstreams=upstreams, limits={"models": {"m": {"requests_per_minute": 3}}}) as world:
            answers = [await world.chat(f"Hello {n}?") for n in range(6)]
            assert [one.text for one in answers[:2]] == ["Own.", "Rented."]
            assert {one.status for one in answers[2:]} == {429}
            assert answers[-1].error["message"].startswith("The upstream 'own' has reached its limit of 1")
            assert answers[1].headers["X-Context-Upstream"] == "rented"


async def test_fallback_upstream_at_its_limit_is_skipped() -> None:
    """The answer that the upstream gave is the client's."""
    async with Model(*[refuses(503, "down")] * 3) as own, Model(says("Rented.")) as rented:
        once = {"breaker": {"failures": 0}, "retry": {"tries": 2, "on": ["503"]}}
        upstreams = [
            {"name": "own", "base_url": own.upstream.base_url, "fallback": ["rented"], **once},
            {
                "name": "rented",
                "base_url": rented.upstream.base_url,
                "limits": {"requests_per_minute": 1},
                "paths": ["/rented/"],
            },
        ]
        async with talking(upstreams=upstreams) as world:
            assert (await world.chat("Hello?")).text == "Rented."
            refused = await world.chat("Hello again?")
            assert (refused.status, refused.error["code"]) == (503, "upstream_error")
            assert await world.counted(REFUSED % ("requests_per_minute", "upstream")) == 1


@pytest.mark.parametrize(("pattern", "status"), [("m", 429), ("m*", 429), ("other", 200)])
async def test_models_are_limited_by_name_or_glob(pattern: str, status: int) -> None:
    limits = {"models": {pattern: {"requests_per_minute": 1}}}
    async with talking(*[says("Hello.")] * 2, limits=limits) as world:
        assert (await world.chat("Hello?")).status == 200
        assert (await world.chat("Hello again?")).status == status


async def test_soft_limit_reports_without_refusing() -> None:
    async with talking(*[says("Hello.")] * 2, limits=tenants(requests_per_minute=1, soft=True)) as world:
        first, second = [await world.chat(f"Hello {n}") for n in range(2)]
        assert (first.status, second.status) == (200, 200)
        assert "X-Context-Limit" not in first.headers
        assert second.headers["X-Context-Limit"] == "requests_per_minute; scope=tenant"
        assert await world.counted('gateway_limit_exceeded_total{limit="requests_per_minute",scope="tenant"}') == 1


async def test_abandoned_run_releases_its_concurrency_slot() -> None:
    """Also if their client leaves."""
    async with talking(says("Hel", asyncio.Event()), DONE, limits=tenants(concurrent=1)) as world:
        async with world.streaming("Hello?"):
            await until_read(lambda: _asked(world), lambda count: count == 1)
            refused = await world.chat("Hello again?")
            assert (refused.status, refused.headers["Retry-After"]) == (429, "1")
        await until_read(lambda: world.chat("Hello again?"), lambda answer: answer.status == 200)


async def _asked(world: World) -> int:
    return len(world.model.asked)
