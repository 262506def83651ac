"""The facts of the status page of a running gateway."""

import json
from typing import Any

import aiohttp
from gateways import until_read

from gateway.testing.local_gateway import LocalGateway

SECRET = "sk-canary-0123456789"


async def status_of(made: LocalGateway) -> Any:
    async with aiohttp.ClientSession(made.base_url) as session, session.get("/context/status") as response:
        assert response.status == 200
        return await response.json()


async def test_status_page_of_a_fresh_gateway_shows_its_facts() -> None:
    """Its demo model, its configuration, and a first point of the history."""
    async with LocalGateway({"upstreams": []}) as made:
        found = await status_of(made)
    assert found["workers"] == 1 and found["problems"] == []
    assert found["uptime_s"] >= 0 and found["started_at"] > 1e9
    (demo,) = found["upstreams"]
    assert demo["name"] == "demo" and demo["base_url"].startswith("http://127.0.0.1:") and demo["up"] is True
    assert found["configuration"]["context"]["chain"] == "assistant"
    (point,) = found["history"]["points"]
    assert (point["errors"], point["pending"]) == (0, 0)


async def test_status_page_counts_requests_at_once() -> None:
    """With the time that the gateway itself added."""
    async with LocalGateway({"upstreams": []}) as made, aiohttp.ClientSession(made.base_url) as session:
        for _ in range(3):
            async with session.get("/v1/models") as response:
                await response.read()
        found = await until_read(lambda: status_of(made), lambda found: found["history"]["points"][-1]["requests"] >= 3)
        assert found["history"]["points"][-1]["overhead_ms"] > 0
        (demo,) = found["upstreams"]
        assert demo["idle"] + demo["busy"] >= 1


async def test_secrets_are_masked_and_problems_named() -> None:
    """The warnings of the configuration and the obstacles of tools."""
    upstream = {"name": "up", "base_url": "http://127.0.0.1:9/v1", "api_key": SECRET}
    async with LocalGateway({"upstreams": [upstream]}) as made:
        made.gateway._context.obstacles.append(f"the tool cannot run with {SECRET}")
        found = await status_of(made)
    assert SECRET not in json.dumps(found)
    assert found["problems"] == ["the tool cannot run with ***"]
    assert found["configuration"]["upstreams"][0]["api_key"] == "***"
    assert [(one["name"], one["base_url"]) for one in found["upstreams"]] == [("up", "http://127.0.0.1:9/v1")]
