"""The services that continue stored runs, with the responses that follow them."""

from pathlib import Path

import aiohttp
from gateways import until_read

from gateway.testing.local_gateway import LocalGateway


async def test_background_response_continues_in_the_next_process(tmp_path: Path) -> None:
    """Its run is taken up, and its answer recorded, before anybody asks for it there."""
    config = {"upstreams": [], "store": f"sqlite:///{tmp_path / 'gateway.db'}"}
    body = {"model": "demo", "input": "slow 1", "background": True}
    async with LocalGateway(config) as first, aiohttp.ClientSession(first.base_url) as session:
        async with session.post("/context/v1/responses", json=body) as response:
            begun = await response.json()
        assert begun["status"] in ("queued", "in_progress")
    async with LocalGateway(config) as second, aiohttp.ClientSession(second.base_url) as session:
        await until_read(lambda: states(session), lambda found: "completed" in found)

        async def shown() -> dict[str, object]:
            async with session.get(f"/context/v1/responses/{begun['id']}") as response:
                return dict(await response.json())

        ended = await until_read(shown, lambda found: found["status"] not in ("queued", "in_progress"))
        assert ended["status"] == "completed"


async def states(session: aiohttp.ClientSession) -> list[str]:
    """The states of all runs."""
    async with session.get("/context/runs") as response:
        return [run["state"] for run in (await response.json())["data"]]
