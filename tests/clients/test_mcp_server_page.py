"""docs/mcp-server.md: the clients' own programs take what the page tells their users to write, and connect."""

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Final

import pytest

from tests.clients.snippets import Snippet, run, save, snippets_of
from tests.support.gateway_process import GatewayProcess

pytestmark = [pytest.mark.clients, pytest.mark.clients_all]

KEY: Final = "the-key-of-a-client"
CONFIG: Final = json.dumps(
    {
        "keys": [{"name": "c", "sha256": hashlib.sha256(KEY.encode()).hexdigest(), "scopes": ["tools"]}],
        "mcp": {"serve": {}},
    }
)


def named(name: str) -> Snippet:
    [found] = [one for one in snippets_of("docs/mcp-server.md") if one.name == f"mcp-server {name}"]
    return found


async def told(code: str, *, home: Path, gateway: GatewayProcess, key: str = KEY) -> str:
    address = gateway.base_url.removeprefix("http://")
    snippet = Snippet("program", None, "sh", code, "")
    return await asyncio.to_thread(run, snippet, home=home, address=address, env={"GATEWAY_API_KEY": key})


@pytest.mark.parametrize("server", ["http", "stdio"])
async def test_claude_code_connects(server: str, tmp_path: Path) -> None:
    """By the page's command, and to the relay; a wrong key is one."""
    stdio = json.loads(named("stdio").code)["mcpServers"]["twolane"]["args"]
    code = named("claude-code").code if server == "http" else f"claude mcp add twolane -- gateway {' '.join(stdio)}"
    async with GatewayProcess(CONFIG) as gateway:
        await told(code, home=tmp_path, gateway=gateway)
        assert "Connected" in await told("claude mcp list", home=tmp_path, gateway=gateway)
        assert "Failed to connect" in await told("claude mcp list", home=tmp_path, gateway=gateway, key="wrong")


async def test_codex_reads_the_documented_configuration(tmp_path: Path) -> None:
    """As a server over HTTP with a token, and with its own patience."""
    async with GatewayProcess(CONFIG) as gateway:
        save(named("codex"), home=tmp_path, address=gateway.base_url.removeprefix("http://"))
        [server] = json.loads(await told("codex mcp list --json", home=tmp_path, gateway=gateway))
    assert (server["name"], server["enabled"], server["tool_timeout_sec"]) == ("twolane", True, 300)
    assert server["transport"]["url"] == f"{gateway.base_url}/mcp"
    assert server["auth_status"] == "bearer_token"


async def test_cline_writes_the_documented_configuration(tmp_path: Path) -> None:
    """With the key, as the page says."""
    async with GatewayProcess(CONFIG) as gateway:
        assert "Installed" in await told(named("cline").code, home=tmp_path, gateway=gateway)
    [file] = tmp_path.rglob("cline_mcp_settings.json")
    transport = json.loads(file.read_text(encoding="utf-8"))["mcpServers"]["twolane"]["transport"]
    headers = {"Authorization": f"Bearer {KEY}"}
    assert transport == {"type": "streamableHttp", "url": f"{gateway.base_url}/mcp", "headers": headers}
