"""The sections about tools, risk, approvals and MCP servers."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from gateway.config.settings import Settings
from gateway.config.tools import Approvals, McpServer, Risk, Tools


def test_nothing_is_on_unless_it_is_named() -> None:
    """Without a word about tools there are none."""
    tools = Tools.model_validate({})
    named = (tools.file_operations, tools.http_request, tools.execute_sql, tools.execute_command)
    assert named == (None, None, None, None)
    assert tools.plugins == {}


def test_a_built_in_tool_that_is_named_has_safe_defaults() -> None:
    """No writing, no private networks, no changes to a database, a sandbox; paths begin at the file."""
    named: dict[str, object] = {"file_operations": {}, "http_request": {}, "execute_sql": {}, "execute_command": {}}
    tools = Tools.model_validate(named, context={"folder": Path("/f")})
    assert tools.file_operations and tools.http_request and tools.execute_sql and tools.execute_command
    assert (tools.file_operations.roots, tools.file_operations.write) == ((Path("/f/work"),), False)
    assert (tools.http_request.private_networks, tools.http_request.untrusted) == (False, True)
    assert tools.execute_sql.read_only and tools.execute_sql.url.reveal() == "sqlite:///./data.db"
    command = tools.execute_command
    assert (command.cwd, command.timeout, command.sandbox, command.requires_approval) == (
        Path("/f/work"),
        30.0,
        "auto",
        False,
    )


def test_every_other_tool_is_a_plugin() -> None:
    """By the name of the tool, or another one; keys of built-in tools are not known there."""
    tools = Tools.model_validate({"mine": {}, "yours": {"use": "theirs", "with": {"a": 1}, "untrusted": True}})
    assert tools.plugins["mine"].use is None
    assert (tools.plugins["yours"].use, tools.plugins["yours"].with_, tools.plugins["yours"].untrusted) == (
        "theirs",
        {"a": 1},
        True,
    )
    with pytest.raises(ValidationError):
        Tools.model_validate({"mine": {"roots": ["."]}})


def test_the_defaults_of_risk_and_approvals_are_those_of_the_contract() -> None:
    """A model's own low counts, the standard profile, ask by default."""
    assert Risk().model_dump() == {
        "trust_llm": "always",
        "profile": "standard",
        "default": "confirm",
        "assessors": {},
    }
    assert Approvals().model_dump() == {
        "mode": "auto",
        "inline_wait": 120.0,
        "expires": 86400.0,
        "on_reject": "abort",
        "notify": (),
    }


def test_an_mcp_server_keeps_its_credentials_to_itself() -> None:
    """Environment, headers and address are secrets; the timeout is ours."""
    server = McpServer.model_validate(
        {
            "url": "https://m/canary",
            "headers": {"Authorization": "Bearer canary"},
            "env": {"A": "canary"},
            "timeout": 60,
        }
    )
    assert "canary" not in repr(server) + server.model_dump_json()
    assert server.timeout == 60.0 and McpServer.model_validate({"command": "x"}).timeout == 30.0
    assert server.headers["Authorization"].reveal() == "Bearer canary"


def test_mcp_servers_may_have_any_name_of_one_line() -> None:
    """Blocks that people already have use such names."""
    names = ["time", "@scope/server", "文件", "My Server"]
    settings = Settings.model_validate({"mcp": {"servers": {name: {"command": "x"} for name in names}}})
    assert list(settings.mcp.servers) == names
