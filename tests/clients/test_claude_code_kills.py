"""Claude Code goes on where its gateway was killed: nothing is lost, nothing runs twice, nothing without approval."""

import asyncio
import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from aiohttp import web

from gateway.testing.run import GatewayProcess
from tests.clients.driving import Say
from tests.clients.lane import Lane, configuration, shop
from tests.clients.person import line, pending
from tests.clients.scripted import Json, Reply, ScriptedModel
from tests.clients.test_claude_code import INSERTED, ClaudeCodeSession, build_insertion

pytestmark = [pytest.mark.clients, pytest.mark.clients_all]

POINTS = 50
#: The time of a turn, over which the kills are spread: two answers of the model, and a call between them.
TURN_S = 0.5
THINKS_S = 0.15


class LoggingModel(ScriptedModel):
    """Logs the name of each request, at no risk if it says so, as often as the request comes."""

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(THINKS_S)
        return await super()._answer(request)

    def _choose(self, body: Json) -> Reply:
        last = str(body["messages"][-1]["content"])
        if (asked := re.search(r"Log (\w+)( at no risk)?\.\s*\Z", last)) is not None:
            return Reply("", build_insertion(asked[1], risk_level="low" if asked[2] else None))
        return Reply("", "All done." if INSERTED in last else f"I got: {last[-400:]}")


async def turn_with_kill(gateway: GatewayProcess, moment_s: float, turn: Callable[[], str]) -> str:
    """Return the answer of a turn whose gateway is killed at this moment, and starts again."""
    answer = asyncio.create_task(asyncio.to_thread(turn))
    await asyncio.sleep(moment_s)
    await gateway.kill()
    await gateway.start()
    return await answer


async def log(number: int, lane: Lane, gateway: GatewayProcess, say: Say) -> str:
    """Have a name logged, every second one behind an approval, and return what became of it in one word."""
    name, moment_s = f"point{number}", TURN_S * (number + 0.5) / POINTS
    if number % 2:
        question = await asyncio.to_thread(say, f"Log {name}.")
        approval = await asyncio.to_thread(pending, lane, name)
        assert line(approval) in question and lane.count(name) == 0
        answer = await turn_with_kill(gateway, moment_s, lambda: say(line(approval)))
    else:
        answer = await turn_with_kill(gateway, moment_s, lambda: say(f"Log {name} at no risk."))
    count = lane.count(name)
    if count == 1 and "All done." in answer:
        return "done"
    if count > 1:
        return "repeated"
    print(f"{name}: ran {count} times, and the answer was: {answer}")
    return "told" if "may have run" in answer or "unknown" in answer else "lost"


async def test_session_survives_kills_at_fifty_points(tmp_path: Path) -> None:
    """In one conversation, with and without a decision."""
    home, database = tmp_path / "home", shop(tmp_path)
    home.mkdir()
    tools = {"execute_sql": {"url": f"sqlite:///{database}", "read_only": False}}
    with LoggingModel() as model:
        config = json.loads(configuration(model.base_url, tools=tools, keepalive_s=1))
        config |= {"approvals": {"mode": "turn"}, "store": f"sqlite:///{tmp_path / 'gateway.db'}"}
        async with GatewayProcess(json.dumps(config)) as gateway:
            lane = Lane(f"{gateway.base_url}/context", database)
            with ClaudeCodeSession(lane.root, home).talking() as say:
                assert await asyncio.to_thread(say, "Hello?")
                became = Counter([await log(number, lane, gateway, say) for number in range(POINTS)])
    print(became)
    assert became["lost"] == became["repeated"] == 0 and became["done"] + became["told"] == POINTS
