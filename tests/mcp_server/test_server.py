"""Lists in pages, and what the gateway says of itself, in both eras."""

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import PaginatedRequestParams

from gateway.mcp.blocks import EVENT_BYTES
from gateway.mcp_server.server import PAGE, build_page
from tests.mcp_server.serving import Era, both_eras, server, world


def test_list_is_paged_and_unknown_cursor_is_refused() -> None:
    """A cursor names the first entry of its page; one that is gone is refused."""
    entries = [{"name": f"t{i}"} for i in range(2 * PAGE + 1)]
    cursor, found = None, []
    while True:
        page = build_page("tools", entries, cursor)
        found += page["tools"]
        cursor = page.get("nextCursor")
        if cursor is None:
            break
    assert found == entries
    with pytest.raises(MCPError, match="no such page"):
        build_page("tools", entries, "gone")


def test_page_of_an_mcp_list_is_bounded_in_bytes() -> None:
    """An entry that is too large for a page has one of its own. A name that comes again ends no list."""
    large = [{"name": f"t{i}", "x": "\u00fc" * 60_000} for i in range(5)]
    sizes, cursor = [], None
    while True:
        page = build_page("tools", [*large, {"name": "h", "x": "x" * EVENT_BYTES}, *large, {"name": "last"}], cursor)
        sizes.append(len(page["tools"]))
        cursor = page.get("nextCursor")
        if cursor is None:
            break
    assert sizes == [2, 2, 1, 1, 1]


@both_eras
async def test_mcp_client_reads_all_pages_of_tools(era: Era) -> None:
    """Of a server with many tools."""
    async with world(here=server("many-tools", "250")) as made, made.client(era) as client:
        names: set[str] = set()
        cursor = None
        while True:
            page = await client.session.list_tools(params=PaginatedRequestParams(cursor=cursor))
            names |= {tool.name for tool in page.tools}
            cursor = page.next_cursor
            if cursor is None:
                break
        assert len([name for name in names if name.startswith("here__")]) >= 250
