"""Two gateways on one store: a tool call is asked about at one, which is killed, and answered at the other."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from gateways import until_read

from gateway.contracts.storage.store import Json
from tests.support.gateway_process import GatewayProcess

from .effects import ASKS, effects, settings

VERSION = "2026-07-28"
CALL: Json = {"name": "ledger", "arguments": {"run": "replicas", "n": ASKS}}
CAPABILITIES: tuple[Json, ...] = ({"elicitation": {"form": {}}}, {})


@asynccontextmanager
async def two(folder: Path) -> AsyncIterator[tuple[GatewayProcess, GatewayProcess]]:
    config = json.dumps(settings(folder, mcp={"serve": {"wait": "50s"}}, limits={"drain": "1s"}))
    async with GatewayProcess(config) as one, GatewayProcess(config) as other:
        yield one, other


async def called(gateway: GatewayProcess, capabilities: Json, **more: object) -> Json:
    """The result of the call for a client of the newer era with these capabilities; `more` answers a question."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {**CALL, **more, "_meta": meta}}
    headers = {
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": VERSION,
        "Mcp-Method": "tools/call",
        "Mcp-Name": "ledger",
    }
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{gateway.base_url}/mcp", json=body, headers=headers) as response,
    ):
        answer = await response.json()
    result: Json = answer["result"]
    return result


async def pending(gateway: GatewayProcess) -> list[Json]:
    url = f"{gateway.base_url}/context/approvals?status=pending"
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return list((await response.json())["data"])


def text(result: Json) -> str:
    return "\n".join(block["text"] for block in result["content"])


async def test_mcp_question_of_a_killed_replica_is_answered_at_another(tmp_path: Path) -> None:
    """The first one is killed in between. The call runs once, however often the answer comes, and where."""
    async with two(tmp_path) as (one, other):
        asked = await called(one, CAPABILITIES[0])
        assert asked["resultType"] == "input_required" and set(asked["inputRequests"]) == {"approval"}
        await one.kill()
        answer = {"approval": {"action": "accept", "content": {"decision": "approve"}}}
        given: Json = {"inputResponses": answer, "requestState": asked["requestState"]}
        result = await called(other, CAPABILITIES[0], **given)
        assert not result["isError"] and text(result).startswith("wrote")
        await one.start()
        again = await called(one, CAPABILITIES[0], **given)
        assert (again["isError"], text(again)) == (False, text(result))
        assert len(effects(tmp_path, "replicas")) == 1 and await pending(other) == []


@pytest.mark.parametrize("is_back", [False, True])
async def test_waiting_mcp_call_is_decided_at_another_replica(tmp_path: Path, is_back: bool) -> None:
    """By REST. The same call joins it, at the other one or at the first one once it is back, and runs once."""
    async with two(tmp_path) as (one, other):
        waits = asyncio.create_task(called(one, CAPABILITIES[1]))
        (approval,) = await until_read(lambda: pending(one), lambda found: len(found) == 1)
        await one.kill()
        with pytest.raises(aiohttp.ClientError):
            await waits
        url = f"{other.base_url}/context/approvals/{approval['id']}"
        async with (
            aiohttp.ClientSession() as session,
            session.post(url, json={"decision": "approve", "sha256": approval["sha256"]}) as response,
        ):
            assert response.status == 200, await response.text()
        if is_back:
            await one.start()
        result = await called(one if is_back else other, CAPABILITIES[1])
        assert not result["isError"] and text(result).startswith("wrote")
        assert len(effects(tmp_path, "replicas")) == 1 and await pending(other) == []
