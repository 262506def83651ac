"""A gateway with MCP servers behind it: what its operator sees of them, and calls as the requirement writes them."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from gateways import until_read

from tests.mcp.misbehaving import command

from .models import Answer, Json, says
from .talking import Completed, Streamed, World, talking

SERVICES = "/mcp/services"


def behaving(behaviour: str = "ok", *arguments: object, **settings: object) -> Json:
    """The entry of a server that behaves so."""
    program, *args = command(behaviour, *arguments)
    return {"command": program, "args": args, **settings}


def asks(name: str, **arguments: object) -> Answer:
    """A model's call of a tool, of which it says itself that its risk is low."""
    return says(json.dumps({"tool_call": {"name": name, "arguments": {"risk_level": "low", **arguments}}}))


def result(world: World) -> str:
    """What the model was told last: the result of the call that it made."""
    last = world.model.asked[-1]["messages"][-1]
    assert last["role"] == "tool", last
    content: str = last["content"]
    return content


async def called(world: World, name: str, **arguments: object) -> str:
    """What becomes of one call in a conversation, which goes on in any case."""
    world.model.then(asks(name, **arguments), says("I see."))
    answer = await world.chat(f"use {name} ({len(world.model.asked)})")  # a repeated request would bring its question
    assert (answer.status, answer.text) == (200, "I see.")
    return result(world)


async def told(world: World, name: str, **arguments: object) -> str:
    """What becomes of one call, by the demo model (`upstreams=[]`): of many conversations at once each has its own."""
    answer = await world.chat(f"tool {name} {json.dumps({'risk_level': 'low', **arguments})}")
    text: str = answer.text.partition("The result: ")[2]
    return text


async def started(world: World, stream: Streamed) -> None:
    """Returns once the first call of a run is on record as started: what comes then comes while it runs."""
    run_id = stream.response.headers["X-Context-Run-Id"]
    await until_read(
        lambda: world.get(f"/context/runs/{run_id}"),  # it is not there until its first call is
        lambda found: [step["state"] for step in found.json.get("steps", ())][:1] == ["started"],
    )


async def asked_of(world: World, path: str = "", content: Json | None = None, *, method: str = "POST") -> Completed:
    """An operator's request; `path` is below `/mcp/services`."""
    return await world.post(content or {}, path=f"{SERVICES}{path}", method=method)


async def seen(world: World, name: str) -> Json:
    """A service as its operator sees it."""
    found: Json = (await world.get(f"{SERVICES}/{name}")).json
    return found


async def until(world: World, name: str, state: str = "running", *, within_s: float = 180.0, **facts: object) -> Json:
    """The service once it is in this state, and its `facts` are these."""
    wanted = facts | {"state": state}
    return await until_read(lambda: seen(world, name), lambda found: found | wanted == found, timeout_s=within_s)


async def tools_of(world: World, name: str) -> list[Json]:
    """The tools of a service as its operator sees them."""
    found: list[Json] = (await world.get(f"{SERVICES}/{name}/tools")).json["data"]
    return found


async def until_pinned(world: World, name: str) -> None:
    """Returns once the definitions that were seen first are written down."""
    await until_read(lambda: tools_of(world, name), lambda tools: all(tool["accepted_sha256"] for tool in tools))


async def until_changed(world: World, name: str) -> None:
    """Returns once a service has come back with definitions that nobody has seen."""
    await until_read(lambda: tools_of(world, name), lambda tools: any(tool["changed"] for tool in tools))


@asynccontextmanager
async def serving(*answers: Answer, servers: Mapping[str, Json], **settings: Any) -> AsyncIterator[World]:
    """With servers that run."""
    async with talking(*answers, mcp={"servers": dict(servers)}, **settings) as world:
        for name in servers:
            await until(world, name)
        yield world
