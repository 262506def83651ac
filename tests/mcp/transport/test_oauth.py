"""Tokens by client credentials."""

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from pytest_aiohttp import AiohttpServer

from gateway.contracts.storage.store import Json
from gateway.mcp.server_facts import OAuth
from gateway.mcp.transport.guarded_network import GuardedNetwork
from gateway.mcp.transport.issuer import IssuerError
from gateway.mcp.transport.oauth import OAuthTokenSource
from tests.mcp.mcp_host import Clock

TOKEN: Json = {"access_token": "t1", "token_type": "bearer", "expires_in": 100}


class At(Clock):
    """A clock that is moved."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


class Issuer:
    """Answers with `metadata` at `place`, and with `token` at /token; remembers what it is asked."""

    def __init__(self, aiohttp_server: AiohttpServer, http: GuardedNetwork) -> None:
        self.place = "/.well-known/oauth-authorization-server"
        self.metadata: Json = {}
        self.token: Any = TOKEN
        self.status = 200
        self.forms: list[dict[str, str]] = []
        self.heads: list[str] = []
        self.url = ""
        self.clock = At()
        self._serve = aiohttp_server
        self._web = http

    async def tokens(self, *, path: str = "", scope: str | None = None) -> OAuthTokenSource:
        app = web.Application()
        app.router.add_get("/{place:.*}", self._metadata)
        app.router.add_post("/token", self._token)
        self.url = str((await self._serve(app)).make_url("")).rstrip("/") + path
        credentials = OAuth(issuer=self.url, client_id="my gateway", client_secret="s:/é", scope=scope)
        return OAuthTokenSource(credentials, resource="https://mcp.example.com/mcp", web=self._web, clock=self.clock)

    async def _metadata(self, request: web.Request) -> web.Response:
        if request.path != self.place:
            raise web.HTTPNotFound
        origin = f"http://{request.host}"
        return web.json_response({"issuer": self.url, "token_endpoint": f"{origin}/token", **self.metadata})

    async def _token(self, request: web.Request) -> web.Response:
        self.heads.append(request.headers["Authorization"])
        self.forms.append({key: str(value) for key, value in (await request.post()).items()})
        return web.json_response(self.token, status=self.status)


@pytest.fixture
async def issuer(aiohttp_server: AiohttpServer) -> AsyncIterator[Issuer]:
    async with GuardedNetwork(private_networks=False, max_bytes=10_000) as http:
        yield Issuer(aiohttp_server, http)


async def test_token_request_sends_client_credentials_and_resource_to_issuer(issuer: Issuer) -> None:
    """RFC 6749, sections 2.3.1 and 4.4.2; RFC 8707: for which server the token is."""
    tokens = await issuer.tokens(scope="read write")
    assert await tokens.get_token() == "t1"
    assert issuer.forms == [
        {"grant_type": "client_credentials", "resource": "https://mcp.example.com/mcp", "scope": "read write"}
    ]
    assert base64.b64decode(issuer.heads[0].removeprefix("Basic ")) == b"my%20gateway:s%3A%2F%C3%A9"


async def test_token_is_cached_until_shortly_before_its_expiry(issuer: Issuer) -> None:
    """Once for all who want it at once; half a minute before its end there is another one."""
    tokens = await issuer.tokens()
    assert set(await asyncio.gather(*(tokens.get_token() for _ in range(10)))) == {"t1"} and len(issuer.forms) == 1
    issuer.clock.now_s += 69
    issuer.token = {**TOKEN, "access_token": "t2"}
    assert await tokens.get_token() == "t1"
    issuer.clock.now_s += 1
    assert await tokens.get_token() == "t2"


async def test_discarded_token_is_replaced(issuer: Issuer) -> None:
    """There is another one; who still had the one before changes nothing."""
    tokens = await issuer.tokens()
    assert await tokens.get_token() == "t1"
    tokens.discard_token("t1")
    issuer.token = {**TOKEN, "access_token": "t2"}
    assert await tokens.get_token() == "t2"
    tokens.discard_token("t1")
    assert await tokens.get_token() == "t2" and len(issuer.forms) == 2


@pytest.mark.parametrize(
    "place",
    [
        "/.well-known/oauth-authorization-server/tenant",
        "/.well-known/openid-configuration/tenant",
        "/tenant/.well-known/openid-configuration",
    ],
)
async def test_metadata_discovery_finds_an_issuer_with_a_path(issuer: Issuer, place: str) -> None:
    """RFC 8414, section 3.1, and OpenID Connect Discovery."""
    issuer.place = place
    assert await (await issuer.tokens(path="/tenant")).get_token() == "t1"


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"place": "/elsewhere"}, "has no metadata"),
        ({"metadata": {"issuer": "https://evil.example"}}, "is that of another issuer"),
        ({"metadata": {"token_endpoint": "ftp://x"}}, "names no token_endpoint"),
        ({"metadata": {"token_endpoint": None}}, "names no token_endpoint"),
        ({"status": 401, "token": {"error": "invalid_client"}}, "answered with HTTP 401, 'invalid_client'"),
        ({"status": 500, "token": "x"}, "answered with HTTP 500$"),
        ({"token": {}}, "holds no access_token"),
        ({"token": {"access_token": "a\r\nb"}}, "holds no access_token"),
        ({"token": {"access_token": "a", "token_type": "mac"}}, "is no bearer token"),
        ({"token": ["t"]}, "is no JSON object"),
        ({"token": {"access_token": "x" * 20_000}}, "is not read: it is longer"),
    ],
)
async def test_token_failure_reports_its_reason_without_the_secret(
    issuer: Issuer, changes: dict[str, Any], error: str
) -> None:
    """Why, without the secret."""
    for name, value in changes.items():
        setattr(issuer, name, value)
    with pytest.raises(IssuerError, match=error) as raised:
        await (await issuer.tokens()).get_token()
    assert "s:/é" not in str(raised.value)


@pytest.mark.parametrize("life", [None, "soon", True, -5, 0])
async def test_token_of_unknown_lifetime_is_renewed_soon(issuer: Issuer, life: Any) -> None:
    """It is used; a new one is asked for soon."""
    issuer.token = {"access_token": "t1", "expires_in": life}
    tokens = await issuer.tokens()
    assert await tokens.get_token() == "t1"
    issuer.clock.now_s += 300
    await tokens.get_token()
    assert len(issuer.forms) == 2


async def test_unavailable_issuer_is_retried(issuer: Issuer) -> None:
    """A second try may succeed."""
    tokens = await issuer.tokens()
    issuer.status = 503
    with pytest.raises(IssuerError):
        await tokens.get_token()
    issuer.status = 200
    assert await tokens.get_token() == "t1"
