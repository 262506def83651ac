"""The metadata of the endpoint, as a client without a token reads them."""

import hashlib
from typing import Any

import aiohttp
import pytest

from gateway.testing.local_gateway import LocalGateway

KEYS = [{"name": "user", "sha256": hashlib.sha256(b"user").hexdigest(), "scopes": ["tools"]}]
OAUTH = {
    "issuer": "https://login.example.com/realm",
    "audience": "gateway",
    "scopes": {"mcp:use": ["tools"], "mcp:boss": ["tools", "approve"], 'a"b': ["tools"]},
    "tenant": "staff",
}


def configured(**changes: object) -> dict[str, object]:
    url = "https://gateway.example.com/"
    return {"keys": KEYS, "public_url": url, "mcp": {"serve": {"oauth": {**OAUTH, **changes}}}}


async def answer(gateway: LocalGateway, path: str) -> tuple[int, Any]:
    async with aiohttp.ClientSession() as client, client.get(gateway.base_url + path) as response:
        return response.status, await response.json()


@pytest.mark.parametrize("path", ["/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp"])
async def test_resource_metadata_names_the_issuer(path: str) -> None:
    """Without a key: a client that reads it has none yet."""
    async with LocalGateway(configured()) as gateway:
        assert await answer(gateway, path) == (
            200,
            {
                "resource": "https://gateway.example.com/mcp",
                "resource_name": "Twolane",
                "authorization_servers": ["https://login.example.com/realm"],
                "bearer_methods_supported": ["header"],
                "scopes_supported": ["mcp:use", "mcp:boss"],
            },
        )
        await gateway.reload(configured(scope_claim="roles", issuer="https://other.example.com"))
        status, found = await answer(gateway, path)
        assert status == 200 and "scopes_supported" not in found
        assert found["authorization_servers"] == ["https://other.example.com"]


async def test_resource_metadata_path_follows_the_endpoint_path() -> None:
    """Another path of the endpoint is another path of the metadata."""
    config = configured()
    config["mcp"] = {"serve": {"path": "/tools/mcp", "oauth": OAUTH}}
    async with LocalGateway(config) as gateway:
        status, found = await answer(gateway, "/.well-known/oauth-protected-resource/tools/mcp")
        assert (status, found["resource"]) == (200, "https://gateway.example.com/tools/mcp")


async def test_resource_metadata_is_absent_without_an_issuer() -> None:
    """The path is then as any other: an upstream's, where one serves it, and else nobody's."""
    config = {"keys": KEYS, "public_url": "https://gateway.example.com", "mcp": {"serve": {}}}
    async with LocalGateway(config) as gateway:
        status, found = await answer(gateway, "/.well-known/oauth-protected-resource/mcp")
        assert (status, found["error"]["code"]) == (404, "unknown_route")


@pytest.mark.parametrize(
    ("headers", "code", "error"),
    [
        ({}, "missing_api_key", None),
        ({"Authorization": "Bearer wrong"}, "invalid_api_key", "invalid_token"),
        ({"Authorization": "Bearer a.b.c"}, "invalid_api_key", "invalid_token"),
    ],
)
async def test_unauthorized_response_points_to_the_resource_metadata(
    headers: dict[str, str], code: str, error: str | None
) -> None:
    """At the endpoint and below it; other pages ask for a key as before."""
    async with LocalGateway(configured()) as gateway, aiohttp.ClientSession() as client:
        for path in ("/mcp", "/mcp/git"):
            async with client.post(gateway.base_url + path, json={}, headers=headers) as response:
                challenge = response.headers["WWW-Authenticate"]
                assert (response.status, (await response.json())["error"]["code"]) == (401, code)
            assert challenge.endswith(
                'resource_metadata="https://gateway.example.com/.well-known/oauth-protected-resource/mcp"'
            )
            assert (f'error="{error}"' in challenge) is (error is not None)
        async with client.get(gateway.base_url + "/context/runs", headers=headers) as response:
            assert (response.status, response.headers["WWW-Authenticate"]) == (401, "Bearer")
