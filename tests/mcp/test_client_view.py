"""The side of a service that MCP clients of the gateway see."""

from gateway.aio.cooperative import run_at_once
from gateway.mcp.client_view import McpSource
from gateway.mcp.definitions import build_client_fields, read_definitions
from gateway.mcp.service import McpService


def test_mcp_service_is_an_mcp_source() -> None:
    """Other things do not."""
    assert issubclass(McpService, McpSource) and not issubclass(dict, McpSource)


def test_icons_are_filtered_and_left_out_of_the_definition_hash() -> None:
    """Only addresses that a client may load; a definition's hash does not depend on them."""
    tool = {"name": "a", "inputSchema": {"type": "object"}, "title": "A"}
    icons = [{"src": "https://e/x.png"}, {"src": "file:///x"}, {"src": "javascript:x"}, 5]
    plain, shown, huge = (
        run_at_once(read_definitions([{**tool, **more}])).tools["a"]
        for more in ({}, {"icons": icons}, {"icons": [{"src": "https://e/" + "x" * (1 << 17)}]})
    )
    assert build_client_fields(shown) == {"title": "A", "icons": [{"src": "https://e/x.png"}]}
    assert build_client_fields(plain) == build_client_fields(huge) == {"title": "A"}
    assert plain.sha256 == shown.sha256
