"""The pages for workers that use servers of this one: what a gateway that stops does with them."""

import asyncio
from pathlib import Path

import pytest
from gateways import until

from gateway.mcp.calls import LostError, NotRunError
from tests.mcp.test_remote_connection import connected as connected


async def test_gateway_that_stops_lets_calls_end(tmp_path: Path) -> None:
    """Further ones have not run, and connections end."""
    async with connected(tmp_path) as (remote, owner):
        services = owner.gateway._built.replica_pages.services
        calling = asyncio.create_task(remote.call("sleep", {"seconds": 0.5}, progressed=lambda _: None))
        await until(lambda: services._under_way)
        leaving = asyncio.create_task(services.leave(60.0))
        assert "content" in await calling
        await leaving
        await remote.closed_future
        with pytest.raises(NotRunError):
            await remote.list_tools()


async def test_call_that_is_given_up_checks_the_server(tmp_path: Path) -> None:
    """The worker that runs it hears that the other one has left, and cancels the call."""
    async with connected(tmp_path) as (remote, owner):
        services = owner.gateway._built.replica_pages.services
        calling = asyncio.create_task(remote.call("sleep", {"seconds": 3600}, progressed=lambda _: None))
        await until(lambda: services._under_way)
        calling.cancel()
        await until(lambda: not services._under_way)
        with pytest.raises((asyncio.CancelledError, LostError)):
            await calling

        async def count() -> str:
            result = await remote.call("cancelled", {}, progressed=lambda _: None)
            return str(result["content"][0]["text"])

        while await count() != "1":
            await asyncio.sleep(0.01)
