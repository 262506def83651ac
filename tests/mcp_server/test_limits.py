"""Limits of MCP clients: each tool call is one request of its key, and nothing else is."""

import pytest
from mcp.shared.exceptions import MCPError

from tests.mcp_server.serving import Era, both_eras, keys, texts, world
from tests.mcp_server.test_tool_calls import Asked, says


@both_eras
async def test_each_tool_call_counts_as_one_rate_limited_request(era: Era) -> None:
    """Lists are none. A client is told when to come back, and nothing runs."""
    (boss,) = keys(boss=["tools", "approve"])
    limited = [{**boss, "limits": {"requests_per_minute": 2}}]
    async with world(keys=limited) as made:
        person = Asked(*[says("approve")] * 2)
        async with made.client(era, key="boss", elicitation_callback=person) as client:
            for n in range(2):
                await client.list_tools()
                assert texts(await client.call_tool("here__echo", {"text": f"hi {n}"})) == f"hi {n}"
            with pytest.raises(MCPError, match="The key 'boss' has reached its limit of 2 requests") as refused:
                await client.call_tool("here__echo", {"text": "hi 2"})
            data = refused.value.error.data
            assert data["code"] == "rate_limit_exceeded" and 0 < data["retryAfter"] <= 60
            await client.list_tools()
        assert len(person.questions) == 2
