"""`gateway mcp serve --stdio` in front of a gateway: a held call, its question, and what survives `kill -9`."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
from gateways import until_read
from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_types import ElicitResult

from tests.support.forkserver import fork_command
from tests.support.gateway_process import GatewayProcess

WRITE: Final = {"operation": "write", "path": "note.txt", "content": "Buy milk"}
SCOPES: Final = {"both": ["tools", "approve"], "client": ["tools"], "person": ["context", "approve"]}

both_eras = pytest.mark.parametrize("era", ["legacy", "2026-07-28"])


def config(work: Path) -> str:
    keys = [
        {"name": name, "sha256": hashlib.sha256(name.encode()).hexdigest(), "scopes": scopes, "tenant": "staff"}
        for name, scopes in SCOPES.items()
    ]
    tools = {"file_operations": {"roots": [str(work)], "write": True}}
    store = f"sqlite:///{work.parent / 'gateway.db'}"
    return json.dumps({"keys": keys, "tools": tools, "store": store, "mcp": {"serve": {"wait": 60}}})


@asynccontextmanager
async def relayed(gateway: GatewayProcess, era: str, *, key: str, **options: Any) -> AsyncIterator[Client]:
    command, *arguments = await asyncio.to_thread(fork_command, "mcp", "serve", "--stdio", "--url", gateway.base_url)
    program = StdioServerParameters(command=command, args=arguments, env={"GATEWAY_API_KEY": key})
    async with Client(stdio_client(program), mode=era, **options) as client:
        yield client


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@both_eras
@pytest.mark.parametrize(("action", "written"), [("accept", True), ("decline", False)])
async def test_approval_question_reaches_the_user_by_elicitation(
    work: Path, era: str, action: Any, written: bool
) -> None:
    """The question shows the call, and the answer decides."""
    asked: list[str] = []

    async def decide(_context: object, question: Any) -> ElicitResult:
        asked.append(question.message)
        return ElicitResult(action=action, content={"decision": "approve"} if written else None)

    async with (
        GatewayProcess(config(work)) as gateway,
        relayed(gateway, era, key="both", elicitation_callback=decide) as client,
    ):
        result = await client.call_tool("file_operations", WRITE)
    assert len(asked) == 1 and '"Buy milk"' in asked[0]
    assert bool(result.is_error) is not written and (work / "note.txt").exists() is written


async def pending(gateway: GatewayProcess) -> list[dict[str, Any]]:
    url, headers = f"{gateway.base_url}/context/approvals?status=pending", {"X-Gateway-Key": "person"}
    async with aiohttp.ClientSession(headers=headers) as client, client.get(url) as answer:
        return list((await answer.json())["data"])


async def approve(gateway: GatewayProcess, approval: dict[str, Any]) -> None:
    url, headers = f"{gateway.base_url}/context/approvals/{approval['id']}", {"X-Gateway-Key": "person"}
    body = {"decision": "approve", "sha256": approval["sha256"]}
    async with aiohttp.ClientSession(headers=headers) as client, client.post(url, json=body) as answer:
        assert answer.status == 200, await answer.text()


async def test_relay_reports_a_wrong_gateway_key(work: Path) -> None:
    """The client reads which key the gateway does not know."""
    async with GatewayProcess(config(work)) as gateway:
        with pytest.RaisesGroup(MCPError, flatten_subgroups=True) as raised:
            async with relayed(gateway, "legacy", key="wrong"):
                pass
    [error] = leaves(raised.value)
    assert str(error).startswith("The gateway answered 401: The gateway key is not valid")
    assert str(error).endswith(" Its key is the one in GATEWAY_API_KEY.")


def leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for one in error.exceptions for leaf in leaves(one)]
    return [error]


@both_eras
async def test_pending_call_survives_a_gateway_crash(work: Path, era: str) -> None:
    """The same call joins the approval that waited before the crash; decided once, it runs once."""
    async with GatewayProcess(config(work)) as gateway, relayed(gateway, era, key="client") as client:
        call = asyncio.create_task(client.call_tool("file_operations", WRITE))
        [approval] = await until_read(lambda: pending(gateway), lambda found: len(found) == 1)
        await gateway.kill()
        with pytest.raises(MCPError):
            await call
        assert not (work / "note.txt").exists()
        await gateway.start()
        again = asyncio.create_task(client.call_tool("file_operations", WRITE))
        [same] = await pending(gateway)
        assert same["id"] == approval["id"]
        await approve(gateway, same)
        result: Any = await again
        assert "wrote" in result.content[0].text and (work / "note.txt").read_text(encoding="utf-8") == "Buy milk"
        assert await pending(gateway) == []
