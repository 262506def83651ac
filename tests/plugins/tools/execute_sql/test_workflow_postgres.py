"""A workflow on PostgreSQL that MCP clients call as a tool, at two workers: it is held, joined, and runs once."""

from pathlib import Path
from typing import cast

import asyncpg
import pytest
import yaml
from gateways import until_read

from gateway.contracts.storage.store import Json
from gateway.testing.local_gateway import LocalGateway
from tests.mcp_server.serving import Era, World, both_eras, keys, texts
from tests.mcp_server.test_workflow_tools import flows
from tests.support.gateway_process import GatewayProcess

pytestmark = pytest.mark.postgres
#: What the fixture `server` prepares.
PREPARED = "CREATE ROLE writer LOGIN; CREATE TABLE fruit (name text); GRANT ALL ON fruit TO writer"
FLOW: Json = {
    "name": "new-fruit",
    "description": "Adds a fruit, and lists all.",
    "parameters": {"name": {"required": True}},
    "steps": [
        {
            "name": "add",
            "tool": "execute_sql",
            "with": {"sql": "INSERT INTO fruit VALUES ($1)", "params": ["{{params.name}}"]},
        },
        {"name": "all", "tool": "execute_sql", "with": {"sql": "SELECT name FROM fruit"}},
    ],
}


@both_eras
async def test_repeated_workflow_call_writes_once(era: Era, server: str, tmp_path: Path) -> None:
    """Its client calls it again and again; a person approves the step that writes; the one that reads runs unasked."""
    fruit = f"kiwi of {era}"
    store, url = f"sqlite:///{tmp_path}/gateway.db", f"postgresql://writer@{server}"
    team = keys(agent=["tools", "context"], anna=["approve", "context"])
    config: Json = flows(tmp_path, FLOW, keys=team, store=store, risk={"trust_llm": "never"}, workers=2)
    serve = {**config.pop("serve"), "wait": "0.2s"}
    config |= {
        "mcp": {"servers": {}, "serve": serve},
        "tools": {"execute_sql": {"url": url, "read_only": False}},
        "upstreams": [{"name": "up", "base_url": "http://127.0.0.1:9/v1"}],
    }
    async with GatewayProcess(yaml.safe_dump(config)) as gateway:
        made = World(cast(LocalGateway, gateway), config)

        async def called() -> str:
            async with made.client(era, key="agent") as client:
                return texts(await client.call_tool("workflow__new-fruit", {"name": fruit}))

        for _ in range(4):  # each on a connection of its own, to any worker
            assert "has NOT run" in await called()
        await made.decide("approve", key="anna")
        assert fruit in await until_read(called, lambda text: "has NOT run" not in text)
        assert len((await made.get("/context/runs?kind=workflow", key="anna"))["data"]) == 1
    connection = await asyncpg.connect(url)
    try:
        assert await connection.fetchval("SELECT count(*) FROM fruit WHERE name = $1", fruit) == 1
    finally:
        await connection.close()
