"""Proxies and certificates reach the program of an MCP server that names them, as docs/mcp.md prints it."""

import json
import shlex
from pathlib import Path

import aiohttp
from gateways import until_read

from tests.clients.snippets import snippets_of
from tests.mcp.misbehaving import command
from tests.support.gateway_process import GatewayProcess

from .talking import CHAT

#: Nobody names the last one.
NAMED = {"HTTPS_PROXY": "http://proxy.example:3128", "SSL_CERT_FILE": "/etc/company.pem"}
GIVEN = {**NAMED, "NO_PROXY": "", "ALL_PROXY": "http://other.example"}


async def test_configured_variables_reach_the_mcp_program(tmp_path: Path) -> None:
    """Their values are those of the gateway, else the printed ones; what nobody names stays away."""
    [printed] = (snippet for snippet in snippets_of("docs/mcp.md") if snippet.name == "mcp proxy")
    program = tmp_path / "uvx"
    program.write_text(f"#!/bin/sh\nexec {shlex.join(command('ok'))}\n")
    program.chmod(0o700)
    env = {**GIVEN, "PATH": f"{tmp_path}:/usr/bin:/bin"}
    ask = {"model": "demo", "messages": [{"role": "user", "content": "risk_level low tool time.env {}"}]}
    async with GatewayProcess(printed.code, env=env) as gateway, aiohttp.ClientSession(gateway.base_url) as client:

        async def state() -> str:
            async with client.get("/mcp/services/time") as answer:
                return str((await answer.json())["state"])

        await until_read(state, lambda now: now == "running")
        async with client.post(CHAT, json=ask) as answer:
            said: str = (await answer.json())["choices"][0]["message"]["content"]
    environment = json.loads(said.partition("The result: ")[2])
    assert NAMED.items() <= environment.items() and environment["NO_PROXY"] == "localhost,127.0.0.1"
    assert "ALL_PROXY" not in environment
