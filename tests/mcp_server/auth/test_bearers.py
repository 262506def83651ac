"""The callers of the endpoint: keys first, then tokens; and the header that tells a client how to get in."""

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator

import pytest

from gateway.auth.keyring import Identity
from gateway.config import Settings
from gateway.contracts.errors import GatewayError
from gateway.http.request_head import HeadLimits, RequestHead, parse_request_head
from gateway.mcp_server.auth.bearers import Bearers
from gateway.server.lanes.passthrough import build_router
from gateway.telemetry.metrics import Metrics
from gateway.testing.clock import ManualClock
from tests.mcp_server.auth.issuer import AUDIENCE, OTHER_RSA_KEY, Issuer

KEYS = [
    {"name": name, "sha256": hashlib.sha256(name.encode()).hexdigest(), "scopes": scopes}
    for name, scopes in (("user", ["tools"]), ("a.b.c", ["tools"]), ("viewer", ["metrics"]))
]


class InUse:
    """The callers of a configuration that a test changes."""

    def __init__(self, oauth: dict[str, object] | None) -> None:
        self.use(oauth)
        self.bearers = Bearers(identify=self._by_key, in_use=lambda: self.settings, clock=ManualClock(time.time()))

    def use(self, oauth: dict[str, object] | None) -> None:
        serve = {} if oauth is None else {"oauth": oauth}
        tree = {"keys": KEYS, "public_url": "https://gateway.example.com/", "mcp": {"serve": serve}}
        self.settings = Settings.model_validate(tree)
        self._router = build_router(
            self.settings, metrics=Metrics(), clock=ManualClock(), demo_url="http://127.0.0.1:1/v1", own_paths=()
        )

    def _by_key(self, head: RequestHead, has_key: bool, scope: str) -> Identity:
        return self._router.identify(head, upstream_has_key=has_key, scope=scope)

    async def name(self, *fields: str) -> str:
        """Returns the name of the caller of a request, or the code of its refusal."""
        lines = "".join(f"{field}\r\n" for field in fields)
        head = parse_request_head(f"POST /mcp HTTP/1.1\r\nHost: h\r\n{lines}\r\n".encode(), HeadLimits())
        try:
            return (await self.bearers.identify(head)).caller.name
        except GatewayError as error:
            return error.code

    def challenge(self, code: str) -> str | None:
        return self.bearers.challenge(GatewayError(code, "text")).get("WWW-Authenticate")


def oauth(issuer: Issuer, **changes: object) -> dict[str, object]:
    scopes = {"mcp:use": ["tools"], "mcp:boss": ["tools", "approve"], "mcp:decide": ["approve"]}
    return {"issuer": issuer.url, "audience": AUDIENCE, "scopes": scopes, "tenant": "staff", **changes}


@pytest.fixture
async def used(issuer: Issuer) -> AsyncIterator[InUse]:
    used = InUse(oauth(issuer))
    yield used
    await used.bearers.close()


async def test_gateway_keys_take_precedence_over_tokens(issuer: Issuer, used: InUse) -> None:
    """Also one that looks like a token; a token counts in one header only."""
    assert await used.name("Authorization: Bearer user") == "user"
    assert await used.name("Authorization: Bearer a.b.c") == "a.b.c"
    assert await used.name("X-Gateway-Key: user", f"Authorization: Bearer {issuer.token()}") == "user"
    assert await used.name("Authorization: Bearer viewer") == "scope_missing"
    assert issuer.asked == 0
    token = issuer.token()
    assert await used.name(f"authorization: bearer {token}") == "oauth:anna"
    assert await used.name(f"X-Gateway-Key: {token}") == "invalid_api_key"
    assert await used.name(f"X-Api-Key: {token}") == "invalid_api_key"
    assert await used.name("X-Gateway-Key: wrong", f"Authorization: Bearer {token}") == "invalid_api_key"
    assert await used.name(f"Authorization: Basic {token}") == "missing_api_key"
    assert await used.name("Authorization: Bearer wrong") == "invalid_api_key"
    assert await used.name() == "missing_api_key"


async def test_concurrent_first_tokens_fetch_the_issuer_keys_once(issuer: Issuer, used: InUse) -> None:
    """All are checked by one check, which reads the keys once."""
    token = f"Authorization: Bearer {issuer.token()}"
    assert await asyncio.gather(*(used.name(token) for _ in range(20))) == ["oauth:anna"] * 20
    assert issuer.asked == 1


async def test_token_without_the_tools_scope_is_refused(issuer: Issuer, used: InUse) -> None:
    """Such a token is valid, and may do nothing here."""
    assert await used.name(f"Authorization: Bearer {issuer.token(scope='mcp:decide')}") == "scope_missing"


async def test_token_without_a_configured_issuer_is_an_invalid_key(issuer: Issuer) -> None:
    """Nothing is asked for it."""
    used = InUse(None)
    assert await used.name(f"Authorization: Bearer {issuer.token()}") == "invalid_api_key"
    assert issuer.asked == 0 and used.challenge("invalid_api_key") == "Bearer"
    assert used.challenge("scope_missing") is None


async def test_reloaded_oauth_settings_take_effect_at_once(issuer: Issuer, used: InUse) -> None:
    """The keys of an issuer stay known while its settings do."""
    token = f"Authorization: Bearer {issuer.token()}"
    assert await used.name(token) == "oauth:anna"
    used.use(oauth(issuer))
    assert await used.name(token) == "oauth:anna" and issuer.asked == 1
    used.use(oauth(issuer, audience="https://other"))
    assert await used.name(token) == "invalid_token" and issuer.asked == 2
    used.use(None)
    assert await used.name(token) == "invalid_api_key"
    assert await used.name(f"Authorization: Bearer {issuer.token(key=OTHER_RSA_KEY)}") == "invalid_api_key"


async def test_www_authenticate_challenge_names_metadata_error_and_scopes(issuer: Issuer, used: InUse) -> None:
    """RFC 9728: the place of the metadata; RFC 6750: the reason, and the scopes to request."""
    metadata = 'resource_metadata="https://gateway.example.com/.well-known/oauth-protected-resource/mcp"'
    assert used.challenge("missing_api_key") == f'Bearer scope="mcp:use mcp:boss", {metadata}'
    invalid = f'Bearer error="invalid_token", scope="mcp:use mcp:boss", {metadata}'
    assert used.challenge("invalid_token") == used.challenge("invalid_api_key") == invalid
    missing = f'Bearer error="insufficient_scope", scope="mcp:use mcp:boss", {metadata}'
    assert used.challenge("scope_missing") == missing
    assert used.challenge("issuer_unavailable") is None and used.challenge("tool_not_found") is None
    used.use(oauth(issuer, scope_claim="roles"))
    assert used.challenge("missing_api_key") == f"Bearer {metadata}"
