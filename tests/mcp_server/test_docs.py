"""docs/mcp-server.md is true: its configurations are ones, and what runs there prints what stands there."""

import asyncio
import json
import shlex
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest

from gateway.config import load
from tests.clients.snippets import ADDRESS, Snippet, run, snippets_of
from tests.support.gateway_process import GatewayProcess

SNIPPETS: Final = tuple(snippets_of("docs/mcp-server.md"))
ENDPOINT: Final = f"http://{ADDRESS}/mcp"
HASHES: Final = {f"{name}_SHA256": str(i) * 64 for i, name in enumerate(("ANNA", "BUILDER", "PERSON"))}
KEY: Final = "Authorization: Bearer"


def named(name: str) -> Snippet:
    [found] = [snippet for snippet in SNIPPETS if snippet.name == f"mcp-server {name}".strip()]
    return found


def test_every_snippet_is_tested() -> None:
    """And each has a name of its own."""
    clients = ["claude-code", "claude-code file", "codex", "cursor", "vscode", "cline", "stdio"]
    assert [snippet.name for snippet in SNIPPETS] == [
        f"mcp-server {name}".strip()
        for name in ("", "call", *clients[:-1], "keys", "replicas", "search", "workflows", "oauth", clients[-1])
    ]


async def test_mcp_server_quick_start_prints_the_documented_output(tmp_path: Path) -> None:
    """A call that is held, approved in the client, and run."""
    config = named("").code.replace("./work", str(tmp_path / "work"))
    (tmp_path / "work").mkdir()
    async with GatewayProcess(config) as gateway:
        address = gateway.base_url.removeprefix("http://")
        printed = await asyncio.to_thread(run, named("call"), home=tmp_path, address=address)
    assert printed == named("call").output
    assert (tmp_path / "work" / "note.txt").read_text(encoding="utf-8") == "Buy milk"


@pytest.mark.parametrize("name", ["", "keys", "replicas", "search", "workflows", "oauth"])
def test_documented_configurations_are_accepted_without_warnings(name: str, tmp_path: Path) -> None:
    """Each is accepted as it stands, and serves."""
    (tmp_path / "work").mkdir()
    (tmp_path / "gateway.yaml").write_text(named(name).code, encoding="utf-8")
    loaded = load(tmp_path / "gateway.yaml", environ=HASHES, flags={})
    assert loaded.settings.mcp.serve is not None and loaded.warnings == ()


@pytest.mark.parametrize(
    ("name", "key", "variable"),
    [
        ("claude-code file", "mcpServers", "${GATEWAY_API_KEY}"),
        ("cursor", "mcpServers", "${env:GATEWAY_API_KEY}"),
        ("vscode", "servers", "${input:twolane-key}"),
    ],
)
def test_documented_client_files_name_endpoint_and_key_variable(name: str, key: str, variable: str) -> None:
    """The files name the endpoint, and a place for the key, which is not in them."""
    server: dict[str, Any] = json.loads(named(name).code)[key]["twolane"]
    assert server.pop("type", "http") == "http"
    assert server == {"url": ENDPOINT, "headers": {"Authorization": f"Bearer {variable}"}}


def test_vscode_snippet_prompts_for_the_key_as_a_password() -> None:
    """VS Code asks for the key as for a password."""
    [given] = json.loads(named("vscode").code)["inputs"]
    assert (given["id"], given["type"], given["password"]) == ("twolane-key", "promptString", True)


def test_codex_snippet_names_the_key_variable() -> None:
    """The file has the name of a variable in place of the key."""
    server = tomllib.loads(named("codex").code)["mcp_servers"]["twolane"]
    assert server == {"url": ENDPOINT, "bearer_token_env_var": "GATEWAY_API_KEY", "tool_timeout_sec": 300}


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("claude-code", f"claude mcp add --transport http twolane {ENDPOINT} --header '{KEY} ${{GATEWAY_API_KEY}}'"),
        (
            "cline",
            f"cline mcp add twolane {ENDPOINT} --transport streamableHttp --header '{KEY} $GATEWAY_API_KEY' --yes",
        ),
    ],
)
def test_documented_client_commands_contain_endpoint_and_key_variable(name: str, command: str) -> None:
    """Each is one line. Claude Code stores the name of the variable, Cline what the shell makes of it."""
    assert shlex.split(named(name).code) == shlex.split(command)


async def test_documented_stdio_client_program_speaks_the_protocol(tmp_path: Path) -> None:
    """The program that the client starts speaks the protocol."""
    server = json.loads(named("stdio").code)["mcpServers"]["twolane"]
    async with GatewayProcess("mcp: {serve: {}}") as gateway:
        address = gateway.base_url.removeprefix("http://")
        line = shlex.join([server["command"], *server["args"]])
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
        asked = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
        code = f"coproc {line}; echo {shlex.quote(asked)} >&${{COPROC[1]}}; head -n 1 <&${{COPROC[0]}}"
        snippet = Snippet("stdio", None, "sh", code, "")
        answer = json.loads(await asyncio.to_thread(run, snippet, home=tmp_path, address=address))
    assert answer["id"] == 1 and answer["result"]["protocolVersion"] == "2025-11-25"
