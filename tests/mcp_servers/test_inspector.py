"""The command line of the protocol's inspector, `@modelcontextprotocol/inspector --cli`, at a gateway."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
from gateways import until_read

from tests.mcp_server.serving import keys
from tests.mcp_servers.servers import NODE
from tests.support.gateway_process import GatewayProcess

pytestmark = pytest.mark.mcp_servers

_PROGRAM: Final = NODE / "node_modules" / ".bin" / "mcp-inspector"
ANNA: Final = {"Authorization": "Bearer anna"}

by_both_eras = pytest.mark.parametrize("era", ["legacy", "modern"])


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[GatewayProcess]:
    """With one tool, a client's key, and one of somebody who decides."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "note.txt").write_text("Two lanes.", encoding="utf-8")
    config = {
        "keys": keys(inspector=["tools"], anna=["approve"]),
        "tools": {"file_operations": {"roots": [str(tmp_path / "work")], "write": True}},
        "mcp": {"serve": {"wait": "50s"}},
    }
    async with GatewayProcess(json.dumps(config)) as gateway:
        yield gateway


async def inspected(gateway: GatewayProcess, home: Path, era: str, *arguments: str, key: str = "inspector") -> Any:
    """Return the exit code of the inspector, and its two outputs."""
    where = ("--server-url", f"{gateway.base_url}/mcp", "--transport", "http", "--protocol-era", era)
    options = ("--header", f"Authorization: Bearer {key}", "--format", "json", "--quiet", "--stored-auth-only")
    process = await asyncio.create_subprocess_exec(
        *("node", str(_PROGRAM), "--cli", *where, *options, *arguments),
        cwd=home,
        env={"PATH": os.environ["PATH"], "HOME": str(home)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    printed, told = await process.communicate()
    return process.returncode, printed.decode(), told.decode()


def calling(**arguments: str) -> tuple[str, ...]:
    call = ("--method", "tools/call", "--tool-name", "file_operations")
    return (*call, "--tool-args-json", json.dumps(arguments))


@by_both_eras
async def test_inspector_lists_the_tools(gateway: GatewayProcess, tmp_path: Path, era: str) -> None:
    """By their names, with their schemas."""
    code, printed, told = await inspected(gateway, tmp_path, era, "--method", "tools/list")
    assert code == 0, told
    tools = {tool["name"]: tool for tool in json.loads(printed)["result"]["tools"]}
    assert sorted(tools) == ["file_operations", "read_result"]
    assert "operation" in tools["file_operations"]["inputSchema"]["required"]


@by_both_eras
async def test_inspector_calls_a_read_only_tool(gateway: GatewayProcess, tmp_path: Path, era: str) -> None:
    """A call that only reads runs at once."""
    code, printed, told = await inspected(gateway, tmp_path, era, *calling(operation="read", path="note.txt"))
    assert code == 0, told
    assert json.loads(printed)["result"]["content"] == [{"type": "text", "text": "Two lanes."}]


@by_both_eras
async def test_inspector_call_waits_for_its_approval(gateway: GatewayProcess, tmp_path: Path, era: str) -> None:
    """Somebody approves it over REST, and it has run."""
    call = calling(operation="write", path="new.txt", content="Milk")
    inspecting = asyncio.create_task(inspected(gateway, tmp_path, era, *call))
    async with aiohttp.ClientSession(gateway.base_url, headers=ANNA) as session:

        async def waiting() -> Any:
            async with session.get("/context/approvals?status=pending") as response:
                return (await response.json())["data"]

        [approval] = await until_read(waiting)
        assert approval["client"]["name"].startswith("inspector")
        async with session.post(f"/context/approvals/{approval['id']}", json={"decision": "approve"}) as response:
            assert response.status == 200
    code, printed, told = await inspecting
    assert code == 0, told
    assert "wrote 'new.txt'" in printed and (tmp_path / "work" / "new.txt").read_text() == "Milk"


@by_both_eras
async def test_inspector_with_a_wrong_key_fails_with_auth_required(
    gateway: GatewayProcess, tmp_path: Path, era: str
) -> None:
    """The inspector fails, and signs in nowhere."""
    code, printed, told = await inspected(gateway, tmp_path, era, "--method", "tools/list", key="wrong")
    assert code != 0 and printed == "" and "auth_required" in told
