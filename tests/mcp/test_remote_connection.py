"""The connection to a server that runs at another worker, in front of that worker's pages."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from gateways import until

from gateway.contracts.exchange import CallProgress
from gateway.mcp.calls import AnsweredError, LostError, NotRunError
from gateway.mcp.placement import Placement
from gateway.mcp.remote_connection import RemoteConnection, open_remote_connection
from gateway.testing.local_gateway import LocalGateway
from tests.mcp_server.serving import server, services_of


@asynccontextmanager
async def connected(folder: Path) -> AsyncIterator[tuple[RemoteConnection, LocalGateway]]:
    """A connection of one gateway to the server `here` that another one runs."""
    config = {"store": f"sqlite:///{folder / 'gateway.db'}"}
    serving = {"mcp": {"servers": {"here": {**server(), "run": "one"}}}}
    async with LocalGateway({**config, **serving}) as owner, LocalGateway(config) as other:
        await until(lambda: any(service.running for service in services_of(owner)), timeout_s=120)
        replicas = other.gateway._shared.replicas
        await replicas.open()
        (name,) = owner.gateway._shared.places._served
        placement = Placement(name, replicas)
        worker = await placement.choose()
        assert worker is not None
        async with open_remote_connection(placement, worker) as connection:
            yield connection, owner


async def test_server_is_used_as_if_it_ran_here(tmp_path: Path) -> None:
    """Its facts, its tools, its results, its progress, its errors, and its prompts."""
    async with connected(tmp_path) as (remote, _):
        assert remote.protocol == "2025-11-25" and remote.offers("prompts") and not remote.offers("tools")
        tools, problems = await remote.list_tools()
        assert "echo" in {tool["name"] for tool in tools} and problems == []
        reports: list[CallProgress] = []
        result = await remote.call("echo", {"text": "hi"}, progressed=reports.append)
        assert result["content"][0]["text"] == "hi"
        await remote.call("progress", {"steps": 3, "pause": 0.01}, progressed=reports.append, meta={"x": "y"})
        assert reports and reports[-1].progress is not None
        assert (await remote.ask("prompts/list", {}))["prompts"][0]["name"] == "greet"
        with pytest.raises(AnsweredError):
            await remote.call("none", {}, progressed=reports.append)
        await remote.ping()


async def test_connection_ends_with_the_server(tmp_path: Path) -> None:
    """A call under way may have run; a later one has not."""
    async with connected(tmp_path) as (remote, owner):
        calling: asyncio.Task[Any] = asyncio.create_task(
            remote.call("sleep", {"seconds": 3600}, progressed=lambda _: None)
        )
        services = owner.gateway._shared.mcp_servers._members["here"].service
        await until(lambda: owner.gateway._built.replica_pages.services._under_way)
        await services.stop()
        with pytest.raises(LostError) as caught:
            await calling
        assert not isinstance(caught.value, NotRunError)
        await remote.closed_future
        with pytest.raises(NotRunError):
            await remote.call("echo", {"text": "hi"}, progressed=lambda _: None)


async def test_change_of_tools_is_reported(tmp_path: Path) -> None:
    async with connected(tmp_path) as (remote, owner):
        remote.stirred.clear()
        owner.gateway._shared.mcp_servers._members["here"].service._session._tell()  # type: ignore[attr-defined]
        async with asyncio.timeout(60):
            await remote.stirred.wait()
        assert not remote.closed_future.done()
