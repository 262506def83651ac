"""Held calls of MCP clients that another key must approve: their own client's answer is not enough."""

import asyncio

from gateways import until_read
from mcp_types import ElicitResult

from gateway.contracts.storage.store import Json
from tests.mcp_server.serving import Era, both_eras, keys, texts, world

KEYS = keys(agent=["tools", "context", "approve"], anna=["context", "approve"])


@both_eras
async def test_client_cannot_approve_calls_of_its_own_key(era: Era) -> None:
    """Its user is not asked, and is told who may; another key decides."""
    asked: list[object] = []

    async def accept(_context: object, question: object) -> ElicitResult:
        asked.append(question)
        return ElicitResult(action="accept", content={"decision": "approve"})

    settings: Json = {"keys": KEYS, "approvals": {"self": "refuse"}}
    async with (
        world({"wait": "0.1s"}, **settings) as made,
        made.client(era, key="agent", elicitation_callback=accept) as client,
    ):
        held = await client.call_tool("here__echo", {"text": "hello"})
        assert held.is_error and "Your key may not approve its own calls here" in texts(held)
        assert "Keys that may decide: anna" in texts(held) and asked == []
        (pending,) = await made.approvals(key="agent")
        path = f"/context/approvals/{pending['id']}"
        status, refused = await made.post(path, {"decision": "approve"}, key="agent")
        assert (status, refused["error"]["code"]) == (403, "own_call")
        await made.decide("approve", key="anna")
        done = await client.call_tool("here__echo", {"text": "hello"})
        assert not done.is_error and "hello" in texts(done)


@both_eras
async def test_client_approval_counts_as_one_of_two_required(era: Era) -> None:
    """The call goes on waiting for another key, and says so where it shows it."""
    asked: list[str] = []

    async def accept(_context: object, question: object) -> ElicitResult:
        asked.append(str(question))
        return ElicitResult(action="accept", content={"decision": "approve"})

    settings: Json = {"keys": KEYS, "approvals": {"require": [{"approvals": 2}]}}
    async with (
        world({"wait": "30s"}, **settings) as made,
        made.client(era, key="agent", elicitation_callback=accept) as client,
    ):
        call = asyncio.create_task(client.call_tool("here__echo", {"text": "hello"}))

        async def endorsers() -> list[str]:
            assert not call.done(), texts(await call)
            return [one["by"] for found in await made.approvals(key="anna") for one in found["approved_by"]]

        await until_read(endorsers, lambda names: names == ["agent"])
        await made.decide("approve", key="anna")
        done = await call
        assert not done.is_error and "hello" in texts(done)
        assert len(asked) == 1 and "approvals: 0 of 2, by different keys" in asked[0]
