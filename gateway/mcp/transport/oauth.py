"""Tokens for one MCP server by OAuth client credentials (RFC 6749, section 4.4), from the issuer that is configured.

Secret and token go to that issuer and to the server only, even if the server names other issuers.

The SDK's `ClientOAuthOAuthProvider` would work over the guarded network, too. It is not used for three reasons:

1. It holds one lock from the sending of a request to the headers of its answer. Calls of one server would wait for
   each other.
2. It sends the first request without a token, and looks for the issuer in the server's answer. A server that names
   none, or that answers with something else than 401, gets no token. This module uses the configured issuer alone.
3. It reads the wall clock, and uses a token until its last second.
"""

import asyncio
import base64
from urllib.parse import quote

import httpx2

from gateway.contracts.plugin import Clock
from gateway.mcp.server_facts import OAuth
from gateway.mcp.transport.issuer import Issuer, IssuerError

# A token that is about to end is not used any more.
_MARGIN_S = 30.0
_DEFAULT_LIFE_S = 300.0


class OAuthTokenSource:
    """The token of one server. `resource`: the server's URL, without query (RFC 8707)."""

    def __init__(self, credentials: OAuth, *, resource: str, web: httpx2.AsyncBaseTransport, clock: Clock) -> None:
        self._credentials = credentials
        self._resource = resource
        self._issuer = Issuer(credentials.issuer, web=web)
        self._clock = clock
        self._asking = asyncio.Lock()
        self._token: str | None = None
        self._until_s = 0.0

    async def get_token(self) -> str:
        """Return a token that is valid for a while. Raises IssuerError.

        It requests a new one only if necessary, and once for all concurrent callers.
        """
        async with self._asking:
            if self._token is None or self._clock.monotonic() >= self._until_s:
                self._token, life_s = await self._request_token()
                self._until_s = self._clock.monotonic() + max(life_s - _MARGIN_S, life_s / 2)
            return self._token

    def discard_token(self, token: str) -> None:
        """Discard a token that the server does not accept any more."""
        if token == self._token:
            self._token = None

    async def _request_token(self) -> tuple[str, float]:
        """Return a token from the issuer, and its life in seconds. Raises IssuerError."""
        credentials = self._credentials
        form = {"grant_type": "client_credentials", "resource": self._resource}
        if credentials.scope:
            form["scope"] = credentials.scope
        pair = f"{quote(credentials.client_id, safe='')}:{quote(credentials.client_secret, safe='')}"
        basic = base64.b64encode(pair.encode()).decode()
        endpoint = await self._issuer.get_url("token_endpoint")
        answer = await self._issuer.request_json(
            "POST", endpoint, data=form, headers={"Authorization": f"Basic {basic}"}
        )
        token, life_s = answer.get("access_token"), answer.get("expires_in", _DEFAULT_LIFE_S)
        if not isinstance(token, str) or not token.isascii() or not token.isprintable() or " " in token:
            raise IssuerError("the issuer's answer holds no access_token")
        if str(answer.get("token_type", "bearer")).lower() != "bearer":
            raise IssuerError("the issuer's token is no bearer token")
        if isinstance(life_s, bool) or not isinstance(life_s, int | float):
            life_s = _DEFAULT_LIFE_S
        return token, float(life_s)
