"""The side of a service that MCP clients of the gateway see."""

from gateway.mcp.definitions import facing_of, read_definitions
from gateway.mcp.facing import Facing
from gateway.mcp.service import McpService
from gateway.turns import at_once


def test_a_service_of_mcp_faces_clients() -> None:
    """Other things do not."""
    assert issubclass(McpService, Facing) and not issubclass(dict, Facing)


def test_icons_are_bounded_and_of_no_file() -> None:
    """Only addresses that a client may load; a definition's hash does not depend on them."""
    tool = {"name": "a", "inputSchema": {"type": "object"}, "title": "A"}
    icons = [{"src": "https://e/x.png"}, {"src": "file:///x"}, {"src": "javascript:x"}, 5]
    plain, shown, huge = (
        at_once(read_definitions([{**tool, **more}])).tools["a"]
        for more in ({}, {"icons": icons}, {"icons": [{"src": "https://e/" + "x" * (1 << 17)}]})
    )
    assert facing_of(shown) == {"title": "A", "icons": [{"src": "https://e/x.png"}]}
    assert facing_of(plain) == facing_of(huge) == {"title": "A"}
    assert plain.sha256 == shown.sha256
