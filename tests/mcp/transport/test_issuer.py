"""The metadata of an authorization server. What is done with a token endpoint is in test_oauth.py."""

from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from pytest_aiohttp import AiohttpServer

from gateway.mcp.transport.guarded_network import GuardedNetwork
from gateway.mcp.transport.issuer import Issuer, IssuerError


@pytest.fixture
async def network() -> AsyncIterator[GuardedNetwork]:
    async with GuardedNetwork(private_networks=False, max_bytes=10_000) as network:
        yield network


async def test_issuer_metadata_url_is_validated(aiohttp_server: AiohttpServer, network: GuardedNetwork) -> None:
    """Only of an issuer that names itself so, and never a way that is less safe than the issuer's own."""

    async def metadata(request: web.Request) -> web.Response:
        return web.json_response({"issuer": f"http://{request.host}/", "jwks_uri": "https://x/keys", "ftp": "ftp://x"})

    app = web.Application()
    app.router.add_get("/.well-known/oauth-authorization-server", metadata)
    url = str((await aiohttp_server(app)).make_url("")).rstrip("/")
    issuer = Issuer(url, web=network)
    assert await issuer.get_url("jwks_uri") == "https://x/keys"
    for field in ("ftp", "absent"):
        with pytest.raises(IssuerError, match=f"names no {field} that is as safe"):
            await issuer.get_url(field)
    with pytest.raises(IssuerError, match="no metadata"):
        await Issuer(url + "/other", web=network).get_url("jwks_uri")
