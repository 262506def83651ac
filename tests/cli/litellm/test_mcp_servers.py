"""MCP servers of a LiteLLM configuration: commands and streamable HTTP, without a secret."""

from typing import Any

import pytest

from gateway.cli.litellm.deployments import Secrets
from gateway.cli.litellm.mcp_servers import translate_mcp_servers


def told(**settings: Any) -> tuple[Any, list[str]]:
    notes: list[str] = []
    return translate_mcp_servers({"kb": settings}, Secrets(), notes.append).get("kb"), notes


def test_mcp_command_is_imported_with_arguments_and_environment() -> None:
    """Each value of the environment is a reference: it may be secret."""
    env = {"TOKEN": "s3cret", "HOME_DIR": "os.environ/HOME"}
    written, notes = told(transport="stdio", command="npx", args=["-y", "server", "$x"], env=env)
    assert written == {
        "command": "npx",
        "args": ["-y", "server", "$$x"],
        "env": {"TOKEN": "${MCP_KB_TOKEN}", "HOME_DIR": "${HOME}"},
    }
    assert notes == ["mcp_servers.kb: its TOKEN may be secret, and is not copied: export it as MCP_KB_TOKEN"]


@pytest.mark.parametrize(
    ("args", "found"),
    [
        (["--api-key", "s3cret"], ["--api-key", "${MCP_KB_API_KEY}"]),
        (["--token=s3cret"], ["--token=${MCP_KB_TOKEN}"]),
        (["sk-s3cret0123456789012"], ["${MCP_KB_ARGUMENT}"]),
        (["--auth", "--verbose"], ["--auth", "--verbose"]),
        (["postgresql://user:s3cret@host/db"], ["${MCP_KB_ARGUMENT}"]),
        (["https://host/mcp?id=s3cret"], ["${MCP_KB_ARGUMENT}"]),
        (["https://host/mcp", "server"], ["https://host/mcp", "server"]),
        (["--header", "X-Id: s3cret"], ["--header", "${MCP_KB_HEADER}"]),
        (["--header=X-Id: s3cret"], ["--header=${MCP_KB_HEADER}"]),
        (["-e", "ID=s3cret", "-e", "HOME"], ["-e", "ID=${MCP_KB_ID}", "-e", "HOME"]),
        (["sh", "-c", "API_TOKEN=s3cret server"], ["sh", "-c", "${MCP_KB_C}"]),
        (["Bearer s3cret", "x:sk-s3cret0123456789012"], ["${MCP_KB_ARGUMENT}", "${MCP_KB_ARGUMENT_2}"]),
    ],
)
def test_a_secret_among_the_arguments_is_not_copied(args: list[str], found: list[str]) -> None:
    written, notes = told(command="server", args=args)
    assert written["args"] == found and "s3cret" not in str(notes)


@pytest.mark.parametrize(
    ("kind", "headers"),
    [
        ("bearer_token", {"Authorization": "Bearer ${KB}"}),
        ("api_key", {"X-API-Key": "${KB}"}),
        ("basic", {"Authorization": "Basic ${KB}"}),
    ],
)
def test_http_server_secret_becomes_a_header(kind: str, headers: dict[str, str]) -> None:
    written, notes = told(
        url="https://kb.example.com/mcp", transport="http", auth_type=kind, auth_value="os.environ/KB"
    )
    assert written == {"url": "https://kb.example.com/mcp", "headers": headers} and notes == []


def test_a_secret_in_an_address_is_not_copied() -> None:
    written, _ = told(url="https://kb.example.com/mcp?key=s3cret")
    assert written == {"url": "${MCP_KB_URL}"}


@pytest.mark.parametrize(
    ("settings", "note"),
    [
        ({"url": "https://a/sse", "transport": "sse"}, "left out: its transport is sse"),
        ({}, "left out: it has neither a command nor a url"),
        ({"url": "https://a/mcp", "auth_type": "oauth2"}, "its auth_type oauth2 is not translated"),
        ({"url": "https://a/mcp", "auth_type": "token"}, "it has an auth_type and no auth_value"),
        ({"url": "https://a/mcp", "allowed_tools": ["x"]}, "not translated: allowed_tools"),
    ],
)
def test_untranslated_server_settings_are_noted(settings: dict[str, Any], note: str) -> None:
    assert any(note in one for one in told(**settings)[1])


def test_mcp_server_with_an_odd_name_or_section_is_left_out_and_noted() -> None:
    notes: list[str] = []
    assert translate_mcp_servers({"a b/": {"url": "https://a"}, "c": 3}, Secrets(), notes.append) == {}
    assert [note.partition(":")[0] for note in notes] == ["mcp_servers.a b/", "mcp_servers.c"]
    assert translate_mcp_servers(None, Secrets(), notes.append) == {}
