"""Limits by further ways in, messages over a WebSocket and workflows, and budgets, by what was really used."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any
from uuid import uuid4

import pytest
from aiohttp import ClientSession
from functional.several import CHAT
from functional.through import post
from gateways import key, until_read

from gateway.testing.raw_connection import connect

from .models import Json, says
from .talking import Completed, World, talking
from .test_limits import REFUSED, Later, tenants
from .workflow_cases import run, working

RESPONSES = "/context/v1/responses"
DONE = says("Done.")


class Messages:
    """A client with a WebSocket for responses."""

    def __init__(self, world: World) -> None:
        self._session = ClientSession(world.gateway.base_url)

    async def __aenter__(self) -> "Messages":
        self._socket = await self._session.ws_connect(RESPONSES)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._session.close()

    async def say(self) -> None:
        await self._socket.send_json({"type": "response.create", "model": "m", "input": "Hi"})

    async def end(self) -> Json:
        """The last event of a response, or the error in its place."""
        while True:
            event: Json = await self._socket.receive_json()
            if event["type"] in ("response.completed", "response.failed", "error"):
                return event

    async def turn(self) -> Json:
        await self.say()
        return await self.end()


async def test_each_message_of_a_websocket_is_a_request() -> None:
    """Not the connection. One that is refused leaves it as it is."""
    clock = Later()
    limited = talking(*[DONE] * 3, limits=tenants(requests_per_minute=2), clock=clock)
    async with limited as world, Messages(world) as first, Messages(world) as second:
        assert [(await one.turn())["type"] for one in (first, second)] == ["response.completed"] * 2
        refused = await first.turn()
        assert (refused["type"], refused["status"]) == ("error", 429)
        assert refused["error"]["code"] == "rate_limit_exceeded"
        assert "The tenant 'local' has reached its limit of 2 requests per minute" in refused["error"]["message"]
        clock.advance(60.25)
        assert (await first.turn())["type"] == "response.completed"
    assert len(world.model.asked) == 3


async def test_websocket_counts_as_concurrent_only_while_answering() -> None:
    """One that waits for its next message takes no place."""
    release = asyncio.Event()
    limited = talking(says("Do", release, "ne."), DONE, limits=tenants(concurrent=1))
    async with limited as world, Messages(world) as first, Messages(world) as second:
        await first.say()
        await until_read(lambda: _asked(world), lambda count: count == 1)
        assert (await second.turn())["status"] == 429
        release.set()
        assert (await first.end())["type"] == "response.completed"
        ended = await until_read(second.turn, lambda event: event["type"] != "error")
        assert ended["type"] == "response.completed"


async def test_workflow_run_counts_as_one_request(tmp_path: Path) -> None:
    """However many steps it has; its step that asks the model takes tokens."""
    told = says("Ada.", usage=(90, 30))
    limits = tenants(requests_per_minute=2, tokens_per_minute=100_000)
    async with working(tmp_path, told, limits=limits) as world:
        assert (await run(world, "report", {"legs": 4})).status == 200
        assert await used(world) == {"requests_per_minute": 1, "tokens_per_minute": 120}
        assert (await run(world, "echo", {"text": "x"})).status == 200
        refused = await run(world, "echo", {"text": "x"})
        assert (refused.status, refused.error["code"]) == (429, "rate_limit_exceeded")
        assert 0 < int(refused.headers["Retry-After"]) <= 60
        assert await world.counted(REFUSED % ("requests_per_minute", "tenant")) == 1


OURS = {"X-Gateway-Key": "sk-spends"}
PRICES = "currency: EUR\nprices: [{model: '*', input: 1000, output: 4000}]\n"


BUDGETS = {
    "tokens_per_day": (300, 86_400.0, "300 tokens per day: wait for the next day"),
    "tokens_per_month": (300, 31 * 86_400.0, "300 tokens per month: wait for the next month"),
    "cost_per_day": (0.5, 86_400.0, "a cost of 0.5 per day: wait for the next day"),
    "cost_per_month": (0.5, 31 * 86_400.0, "a cost of 0.5 per month: wait for the next month"),
}


@pytest.mark.parametrize("scope", ["key", "tenant", "upstream", "model"])
@pytest.mark.parametrize("budget", BUDGETS)
async def test_exhausted_budget_refuses_its_scope_until_it_resets(tmp_path: Path, budget: str, scope: str) -> None:
    """By what the model said that it used, in both lanes: 150 tokens, or 0.3, with each request."""
    most, later_s, text = BUDGETS[budget]
    prices = tmp_path / "prices.yaml"
    prices.write_text(PRICES)
    limits, clock = {budget: most}, Later()
    entry = {**key("sk-spends", "passthrough", "context", "admin"), "name": "ci", "tenant": "core"}
    settings: dict[str, Any] = {
        "keys": [entry | ({"limits": limits} if scope == "key" else {})],
        "usage": {"enabled": True, "prices": str(prices)},
        "passthrough": {"by_model": True},
        "upstream": {"models": ["m"], **({"limits": limits} if scope == "upstream" else {})},
        "limits": {f"{scope}s": {{"tenant": "core", "model": "*m*"}[scope]: limits}}
        if scope in ("tenant", "model")
        else {},
    }
    async with talking(*[says("x", usage=(100, 50))] * 3, clock=clock, **settings) as world:
        assert [await passed(world), (await spend(world)).status] == [200, 200]
        await until_read(lambda: used(world, OURS), lambda found: found[budget] >= most)
        refused = await spend(world)
        assert (refused.error["code"], refused.error["type"]) == ("insufficient_quota", "rate_limit_error")
        whose = {"key": "key 'ci'", "tenant": "tenant 'core'", "upstream": "upstream 'up'", "model": "model '*m*'"}
        assert refused.error["message"].startswith(f"The {whose[scope]} has used up its budget of {text} (UTC)")
        assert (refused.status, refused.headers["x-should-retry"]) == (429, "false")
        assert "Retry-After" not in refused.headers
        assert await passed(world) == 429
        clock.advance(later_s)
        await until_read(lambda: used(world, OURS), lambda found: found[budget] == 0)
        assert (await spend(world)).status == 200


async def spend(world: World) -> Completed:
    """A chat that is like no other: the same request again would get the same answer."""
    return await world.chat(uuid4().hex, headers=OURS)


async def passed(world: World) -> int:
    """The status of a request that passes through."""
    request = post(b'{"model": "m", "messages": []}', CHAT, b"X-Gateway-Key: sk-spends")
    async with connect(world.gateway.host, world.gateway.port) as peer:
        await peer.send(request.replace(b"gw.example", b"localhost"))
        return (await peer.read_response()).status


async def used(world: World, headers: Mapping[str, str] = MappingProxyType({})) -> dict[str, float]:
    """Return what is used of each limit, by its name."""
    return {one["limit"]: one["used"] for one in (await world.get("/context/limits", **headers)).json["data"]}


async def _asked(world: World) -> int:
    return len(world.model.asked)
