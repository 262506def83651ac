"""The definitions of MCP servers that are not the same at each start, behind a whole gateway."""

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.contracts.storage.store import Json

from .models import says
from .serving import SERVICES, World, asked_of, behaving, called, serving, until, until_pinned

#: The connections themselves are tested on both loops.
pytestmark = pytest.mark.asyncio(loop_factories=["uvloop"])

FLAG: Json = {"type": ["boolean", "string"]}
NEEDED: Json = {**FLAG, "description": "Whether another step is needed"}


def thinks(**schema: Any) -> Json:
    """A tool with a schema as its library writes it."""
    properties = {"needed": NEEDED, "revises": {**FLAG, "description": "Whether this revises"}}
    return {
        "name": "think",
        "description": "Thinks.",
        "inputSchema": {"type": "object", "properties": properties, **schema},
        "result": "thought",
    }


def reads(folder: str, name: str = "read") -> Json:
    """A tool whose schema has the folder in which its server was started."""
    path = {"type": "string", "default": folder}
    return {**thinks(properties={"path": path}), "name": name, "description": "Reads."}


async def restarted(world: World, listed: Path, *tools: Json) -> None:
    """The service once it has been started anew with these tools."""
    listed.write_text(json.dumps(tools))
    before = (await world.get(f"{SERVICES}/box")).json["since"]
    await asked_of(world, "/box/restart")
    found = await until(world, "box", tools=len(tools))
    assert found["since"] > before


async def test_equivalent_schema_spelling_keeps_the_tool_pinned(tmp_path: Path) -> None:
    """As zod 3 and zod 4 write one schema: with references and notes for validators, and without."""
    listed = tmp_path / "tools.json"
    reference = {"$ref": "#/properties/needed", "description": "Whether this revises"}
    older = {"properties": {"needed": NEEDED, "revises": reference}, "additionalProperties": False}
    listed.write_text(json.dumps([thinks(**older, **{"$schema": "http://json-schema.org/draft-07/schema#"})]))
    async with serving(servers={"box": behaving("defined", listed)}) as world:
        await until_pinned(world, "box")
        await restarted(world, listed, thinks())
        assert (await until(world, "box"))["changed"] == []
        assert await called(world, "box.think") == "thought"


async def test_server_pinned_by_names_accepts_changed_descriptions(tmp_path: Path) -> None:
    """Its tools may describe themselves in another way at each start; a further tool asks until it is accepted."""
    listed = tmp_path / "tools.json"
    listed.write_text(json.dumps([reads("/home/a")]))
    async with serving(servers={"box": behaving("defined", listed, pin="names")}) as world:
        await until_pinned(world, "box")
        world.model.then(says(json.dumps({"tool_call": {"name": "box.read", "arguments": {}}})))
        (approval,) = (await world.chat("use box.read")).asks
        await restarted(world, listed, reads("/home/b"), reads("/home/b", "write"))
        assert (await until(world, "box", changed=["write"]))["changed"] == ["write"]
        world.model.then(says("I see."))
        assert (await world.decide(approval["id"])).status == 200
        await world.run(approval["run_id"], state="completed")
        assert await called(world, "box.read") == "thought"
        await asked_of(world, "/box/accept")
        assert (await until(world, "box"))["changed"] == []
        await restarted(world, listed, reads("/home/c"), reads("/home/c", "write"))
        assert (await until(world, "box"))["changed"] == []


async def test_unpinned_server_accepts_new_tools_without_approval(tmp_path: Path) -> None:
    """Neither other definitions nor further tools ask for that."""
    listed = tmp_path / "tools.json"
    listed.write_text(json.dumps([reads("/home/a")]))
    async with serving(servers={"box": behaving("defined", listed, pin="none")}) as world:
        await until_pinned(world, "box")
        await restarted(world, listed, reads("/home/b"), reads("/home/b", "write"))
        assert (await until(world, "box"))["changed"] == []
        assert await called(world, "box.write") == "thought"
