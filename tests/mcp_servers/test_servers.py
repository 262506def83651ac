"""The real servers work on this machine: each starts, lists its tools and answers a call of the SDK's own client."""

from pathlib import Path

import mcp_types as types
import pytest
from mcp import Client, StdioServerParameters

from tests.mcp_servers.conftest import NOTE
from tests.mcp_servers.servers import Program

pytestmark = pytest.mark.mcp_servers

#: The two eras: without a session, and with the handshake.
MODERN, HANDSHAKE = "2026-07-28", "2025-11-25"


def client_of(program: Program) -> Client:
    return Client(StdioServerParameters(command=program.command, args=list(program.args)))


async def names(client: Client) -> set[str]:
    return {tool.name for tool in (await client.list_tools()).tools}


async def text(client: Client, tool: str, arguments: dict[str, str]) -> str:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result
    return "\n".join(block.text for block in result.content if isinstance(block, types.TextContent))


async def test_time_server_answers_the_sdk_client(time_server: Program) -> None:
    """Of the new era."""
    async with client_of(time_server) as client:
        assert client.protocol_version == MODERN
        assert await names(client) == {"get_current_time", "convert_time"}
        noon = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
        assert "T21:00:00+09:00" in await text(client, "convert_time", noon)


async def test_git_server_answers_the_sdk_client(git_server: Program, repository: Path) -> None:
    """Of the new era; it works in the repository that it is given."""
    async with client_of(git_server) as client:
        assert client.protocol_version == MODERN
        assert {"git_status", "git_log", "git_add", "git_commit"} <= await names(client)
        assert "First lane" in await text(client, "git_log", {"repo_path": str(repository)})


async def test_filesystem_server_answers_the_sdk_client(filesystem_server: Program, notes: Path) -> None:
    """With the handshake; from npm."""
    async with client_of(filesystem_server) as client:
        assert client.protocol_version == HANDSHAKE
        assert {"read_text_file", "write_file", "list_directory"} <= await names(client)
        assert await text(client, "read_text_file", {"path": str(notes / "note.txt")}) == NOTE


async def test_everything_server_answers_the_sdk_client(everything_server: Program) -> None:
    """With the handshake; from npm."""
    async with client_of(everything_server) as client:
        await _everything(client)


async def test_everything_server_answers_the_sdk_client_over_http(everything_url: str) -> None:
    """The same over streamable HTTP."""
    async with Client(everything_url) as client:
        await _everything(client)


async def test_sqlite_server_answers_the_sdk_client(sqlite_server: Program) -> None:
    """With the handshake; on the SDK of before 2.0."""
    async with client_of(sqlite_server) as client:
        assert client.protocol_version == HANDSHAKE
        assert {"read_query", "write_query", "list_tables", "create_table"} <= await names(client)
        await text(client, "create_table", {"query": "CREATE TABLE goods (name TEXT)"})
        await text(client, "write_query", {"query": "INSERT INTO goods VALUES ('lamp')"})
        assert await text(client, "read_query", {"query": "SELECT name FROM goods"}) == "[{'name': 'lamp'}]"


async def _everything(client: Client) -> None:
    assert client.protocol_version == HANDSHAKE
    assert {"echo", "get-sum", "get-tiny-image", "trigger-long-running-operation"} <= await names(client)
    assert "lane" in await text(client, "echo", {"message": "lane"})
