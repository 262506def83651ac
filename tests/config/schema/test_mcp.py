"""The section about MCP servers."""

import pytest
from pydantic import ValidationError

from gateway.config.schema.mcp import McpServer
from gateway.config.schema.settings import Settings


def test_mcp_server_settings_do_not_print_credentials() -> None:
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


def test_mcp_server_is_enabled_with_timeouts_from_its_section() -> None:
    """Per tool before per server, progress up to a limit; nothing is idempotent and no network private by itself."""
    server = McpServer.model_validate({"command": "x", "timeouts": {"slow": "5m"}, "max_timeout": "1h"})
    assert (server.timeouts, server.max_timeout, server.start_timeout) == ({"slow": 300.0}, 3600.0, 10.0)
    assert server.enabled and not server.requires_approval and not server.private_networks
    assert (server.oauth, server.idempotent) == (None, ())


def test_mcp_oauth_credentials_stay_secret_and_require_an_issuer() -> None:
    """An issuer must be named: the server must not say where the secret goes."""
    oauth = {"issuer": "https://i", "client_id": "gateway", "client_secret": "canary"}
    server = McpServer.model_validate({"url": "https://m", "oauth": oauth})
    assert server.oauth and server.oauth.client_secret.reveal() == "canary"
    assert "canary" not in repr(server) + server.model_dump_json()
    with pytest.raises(ValidationError, match="issuer"):
        McpServer.model_validate({"url": "https://m", "oauth": {"client_id": "a", "client_secret": "b"}})


def test_mcp_servers_may_have_any_name_of_one_line() -> None:
    """Blocks that people already have use such names."""
    names = ["time", "@scope/server", "文件", "My Server"]
    settings = Settings.model_validate({"mcp": {"servers": {name: {"command": "x"} for name in names}}})
    assert list(settings.mcp.servers) == names
