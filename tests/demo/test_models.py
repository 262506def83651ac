"""The list of models over a real socket."""

import aiohttp

from gateway.demo.models import MODELS


async def test_models_list_contains_every_model(client: aiohttp.ClientSession) -> None:
    """The list has what clients read, and each entry can be had alone."""
    async with client.get("/v1/models") as response:
        models = await response.json()
    assert (models["object"], [entry["id"] for entry in models["data"]]) == ("list", list(MODELS))
    assert all(entry.keys() == {"id", "object", "created", "owned_by"} for entry in models["data"])
    async with client.get(f"/v1/models/{MODELS[0]}") as response:
        assert await response.json() == models["data"][0]


async def test_unknown_model_returns_404(client: aiohttp.ClientSession) -> None:
    """An unknown model is 404 model_not_found, whatever its name."""
    async with client.get("/v1/models/org/other") as response:
        assert (response.status, (await response.json())["error"]["code"]) == (404, "model_not_found")
