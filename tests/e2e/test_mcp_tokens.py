"""Access tokens at the endpoint for MCP clients: real clients, a real issuer, whose keys rotate."""

import hashlib
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import httpx2
import pytest
from aiohttp import web
from mcp import Client
from mcp.client.auth import TokenStorage
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from mcp_types import ElicitResult

from gateway.testing.local_gateway import LocalGateway
from gateway.testing.ports import free_port
from tests.mcp_server.auth.issuer import AUDIENCE, OTHER_RSA_KEY, Issuer, issuing, public
from tests.mcp_server.serving import NO_TLS
from tests.support.gateway_process import GatewayProcess

ERAS = ["legacy", "2026-07-28"]
PERSON: Final = {"X-Gateway-Key": "person"}
WRITE: Final = {"operation": "write", "path": "note.txt", "content": "Buy milk"}


def config(issuer: Issuer, work: Path, **oauth: object) -> dict[str, object]:
    scopes = {"mcp:use": ["tools"], "mcp:decide": ["tools", "approve"]}
    known = {"issuer": issuer.url, "audience": AUDIENCE, "scopes": scopes, "tenant": "staff", **oauth}
    digest = hashlib.sha256(b"person").hexdigest()
    return {
        "keys": [{"name": "anna", "sha256": digest, "scopes": ["context", "approve"], "tenant": "staff"}],
        "public_url": "https://gateway.example.com",
        "console": {"enabled": False},
        "tools": {"file_operations": {"roots": [str(work)], "write": True}},
        "mcp": {"serve": {"wait": 0.05, "oauth": known}},
    }


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    async with issuing() as issuer:
        yield issuer


@asynccontextmanager
async def connected(base_url: str, era: str, token: str, **options: Any) -> AsyncIterator[Client]:
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, verify=NO_TLS) as http,
        Client(streamable_http_client(f"{base_url}/mcp", http_client=http), mode=era, **options) as client,
    ):
        yield client


async def approve(_context: object, _question: object) -> ElicitResult:
    return ElicitResult(action="accept", content={"decision": "approve"})


def text(result: Any) -> str:
    return str(result.content[0].text)


async def status(gateway: LocalGateway, token: str, path: str = "/mcp") -> tuple[int, str | None]:
    """Returns the status of a request with a token, and the code of an error."""
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    headers = {"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream"}
    async with (
        aiohttp.ClientSession() as client,
        client.post(gateway.base_url + path, json=ping, headers=headers) as answer,
    ):
        body: Mapping[str, Any] = await answer.json()
        code = body.get("error", {}).get("code")
        return answer.status, code if isinstance(code, str) else None


async def runs(gateway: LocalGateway, headers: Mapping[str, str]) -> Any:
    url = f"{gateway.base_url}/context/runs"
    async with aiohttp.ClientSession() as client, client.get(url, headers=headers) as answer:
        return (await answer.json())["data"]


@pytest.mark.parametrize("era", ERAS)
async def test_call_with_a_token_is_recorded_for_its_caller_and_tenant(
    issuer: Issuer, tmp_path: Path, era: str
) -> None:
    """The call is on record as the caller's, and people of the tenant see it."""
    tmp_path.joinpath("a.txt").write_text("two lanes", encoding="utf-8")
    async with LocalGateway(config(issuer, tmp_path)) as gateway:
        async with connected(gateway.base_url, era, issuer.token()) as client:
            result = await client.call_tool("file_operations", {"operation": "read", "path": "a.txt"})
        assert "two lanes" in text(result)
        [run] = await runs(gateway, PERSON)
        assert run["kind"] == "tool" and "oauth:anna" in str(run)


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(("scope", "written"), [("mcp:use", False), ("mcp:decide", True)])
async def test_only_token_with_the_decide_scope_can_approve(
    issuer: Issuer, tmp_path: Path, era: str, scope: str, written: bool
) -> None:
    """A client answers its own question; without the scope that counts for nothing, and nothing has run."""
    async with LocalGateway(config(issuer, tmp_path)) as gateway:
        token = issuer.token(scope=scope)
        async with connected(gateway.base_url, era, token, elicitation_callback=approve) as client:
            result = await client.call_tool("file_operations", WRITE)
    assert result.is_error is not written and ("NOT run" in text(result)) is not written
    assert tmp_path.joinpath("note.txt").exists() is written


async def test_elicitation_answer_is_authorised_by_its_own_token(issuer: Issuer, tmp_path: Path) -> None:
    """The call came with a token that has ended meanwhile, and the answer with a fresh one that may decide."""
    other = "https://other.example.com/mcp"
    async with LocalGateway(config(issuer, tmp_path)) as gateway, httpx2.AsyncClient(verify=NO_TLS) as http:

        async def late(_context: object, _question: object) -> ElicitResult:
            await gateway.reload(config(issuer, tmp_path, audience=other))
            http.headers["Authorization"] = f"Bearer {issuer.token(scope='mcp:decide', aud=other)}"
            return ElicitResult(action="accept", content={"decision": "approve"})

        http.headers["Authorization"] = f"Bearer {issuer.token(scope='mcp:decide')}"
        transport = streamable_http_client(f"{gateway.base_url}/mcp", http_client=http)
        async with Client(transport, mode="legacy", elicitation_callback=late) as client:
            result = await client.call_tool("file_operations", WRITE)
    assert not result.is_error, text(result)
    assert tmp_path.joinpath("note.txt").exists()


async def test_access_token_is_valid_only_for_the_mcp_endpoint(issuer: Issuer, tmp_path: Path) -> None:
    """All other pages, and the upstream, are for keys."""
    async with LocalGateway(config(issuer, tmp_path)) as gateway:
        token = issuer.token(scope="mcp:use mcp:decide")
        assert (await status(gateway, token))[0] != 401
        for path in ("/context/v1/chat/completions", "/context/approvals", "/mcp/services"):
            assert await status(gateway, token, path) == (401, "invalid_api_key")
        assert (await status(gateway, token, "/v1/chat/completions"))[0] == 401
        assert await status(gateway, issuer.token(scope="openid")) == (403, "scope_missing")


async def test_rotated_issuer_keys_are_accepted(
    issuer: Issuer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Tokens of a new key work at once; forged ones get no further than a wrong key, and are logged like one."""
    async with LocalGateway(config(issuer, tmp_path)) as gateway:
        issuer.keys = [public(OTHER_RSA_KEY, kid="k2")]
        assert (await status(gateway, issuer.token(key=OTHER_RSA_KEY, head={"kid": "k2"})))[0] != 401
        assert await status(gateway, issuer.token()) == (401, "invalid_api_key")
        assert await status(gateway, issuer.token(aud="https://other", key=OTHER_RSA_KEY, head={"kid": "k2"})) == (
            401,
            "invalid_token",
        )
        assert "a wrong key was refused: POST /mcp" in caplog.text
        assert issuer.asked == 1


async def test_unavailable_issuer_is_answered_with_503(
    issuer: Issuer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """No token is accepted before its keys are known. The gateway's own keys work."""
    issuer.status = 503
    async with LocalGateway(config(issuer, tmp_path)) as gateway:
        assert await status(gateway, issuer.token()) == (503, "issuer_unavailable")
        assert await status(gateway, "person") == (403, "scope_missing")
        assert "could not be read: the issuer answered with HTTP 503" in caplog.text


class Kept(TokenStorage):
    """The tokens of one client, in memory."""

    tokens: OAuthToken | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        raise AssertionError(f"no client registers itself here: {client_info}")


async def test_client_discovers_issuer_and_scopes_from_the_refusal(tmp_path: Path) -> None:
    """From the refusal to the metadata, the issuer, a token for this resource, and the list of tools."""
    asked: list[Mapping[str, Any]] = []

    async with issuing() as issuer:
        port = free_port()
        resource = f"http://127.0.0.1:{port}/mcp"

        async def token(request: web.Request) -> web.Response:
            form = await request.post()
            asked.append(dict(form))
            made = issuer.token(aud=form["resource"], scope=form["scope"])
            return web.json_response({"access_token": made, "token_type": "Bearer", "expires_in": 300})

        issuer.token_page = token
        settings = config(issuer, tmp_path, audience=resource)
        settings["public_url"] = f"http://127.0.0.1:{port}"
        auth = ClientCredentialsOAuthProvider(resource, Kept(), "client", "secret", issuer=issuer.url)
        async with (
            GatewayProcess(json.dumps(settings), port=port),
            httpx2.AsyncClient(auth=auth, verify=NO_TLS) as http,
            Client(streamable_http_client(resource, http_client=http)) as client,
        ):
            assert "file_operations" in {tool.name for tool in (await client.list_tools()).tools}
    assert [(form["resource"], form["scope"]) for form in asked] == [(resource, "mcp:use mcp:decide")]
