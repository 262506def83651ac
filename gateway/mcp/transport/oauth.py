"""Tokens for one MCP server by OAuth client credentials (RFC 6749, section 4.4), from the issuer that is configured.

Secret and token go to that issuer and to the server only, even if the server names other issuers.

The SDK's `ClientOAuthOAuthProvider` would work over our guarded network, too. It is not used for three reasons:

1. It holds one lock from the sending of a request to the headers of its answer. Calls of one server would wait for
   each other.
2. It sends the first request without a token, and asks the server for its issuer. A server that names none, or that
   answers with something else than 401, gets no token. Ours asks the configured issuer alone.
3. It reads the wall clock, and uses a token until its last second.
"""

import asyncio
import base64
from urllib.parse import quote, urlsplit

import httpx2

from gateway.contracts.plugin import Clock
from gateway.contracts.store import Json
from gateway.mcp.types import OAuth

# A token that is about to end is not used any more.
_MARGIN_S = 30.0
_DEFAULT_LIFE_S = 300.0


class TokenError(Exception):
    """The error that there is no token; the text is for the operator."""


class Tokens:
    """The token of one server. `resource`: the server's URL, without query (RFC 8707)."""

    def __init__(self, credentials: OAuth, *, resource: str, web: httpx2.AsyncBaseTransport, clock: Clock) -> None:
        self._credentials = credentials
        self._resource = resource
        self._client = httpx2.AsyncClient(
            transport=web, trust_env=False, timeout=10.0, headers={"accept-encoding": "identity"}
        )
        self._clock = clock
        self._asking = asyncio.Lock()
        self._token: str | None = None
        self._until_s = 0.0

    async def token(self) -> str:
        """Return a token that is valid for a while. Raises TokenError.

        It requests a new one only if necessary, and once for all concurrent callers.
        """
        async with self._asking:
            if self._token is None or self._clock.monotonic() >= self._until_s:
                self._token, life_s = await self._new()
                self._until_s = self._clock.monotonic() + max(life_s - _MARGIN_S, life_s / 2)
            return self._token

    def refused(self, token: str) -> None:
        """Discard a token that the server does not accept any more."""
        if token == self._token:
            self._token = None

    async def _new(self) -> tuple[str, float]:
        credentials = self._credentials
        form = {"grant_type": "client_credentials", "resource": self._resource}
        if credentials.scope:
            form["scope"] = credentials.scope
        pair = f"{quote(credentials.client_id, safe='')}:{quote(credentials.client_secret, safe='')}"
        basic = base64.b64encode(pair.encode()).decode()
        answer = await self._json(
            "POST", await self._endpoint(), data=form, headers={"Authorization": f"Basic {basic}"}
        )
        token, life_s = answer.get("access_token"), answer.get("expires_in", _DEFAULT_LIFE_S)
        if not isinstance(token, str) or not token.isascii() or not token.isprintable() or " " in token:
            raise TokenError("the issuer's answer holds no access_token")
        if str(answer.get("token_type", "bearer")).lower() != "bearer":
            raise TokenError("the issuer's token is no bearer token")
        if isinstance(life_s, bool) or not isinstance(life_s, int | float):
            life_s = _DEFAULT_LIFE_S
        return token, float(life_s)

    async def _endpoint(self) -> str:
        """Return the token endpoint of the issuer's metadata (RFC 8414, OpenID Connect Discovery). Raises TokenError.

        The metadata must be about that issuer.
        """
        issuer = self._credentials.issuer
        origin, path = _origin(issuer), urlsplit(issuer).path.rstrip("/")
        places = [
            f"{origin}/.well-known/oauth-authorization-server{path}",
            f"{origin}/.well-known/openid-configuration{path}",
            f"{origin}{path}/.well-known/openid-configuration",
        ]
        for place in dict.fromkeys(places):
            try:
                metadata = await self._json("GET", place)
            except _AbsentError:
                continue
            if str(metadata.get("issuer", "")).rstrip("/") != issuer.rstrip("/"):
                raise TokenError("the issuer's metadata is that of another issuer")
            endpoint = metadata.get("token_endpoint")
            if not isinstance(endpoint, str) or urlsplit(endpoint).scheme not in {urlsplit(issuer).scheme, "https"}:
                raise TokenError("the issuer's metadata names no token_endpoint that is as safe as the issuer")
            return endpoint
        raise TokenError("the issuer has no metadata at /.well-known/oauth-authorization-server")

    async def _json(
        self, method: str, url: str, *, data: dict[str, str] | None = None, headers: dict[str, str] | None = None
    ) -> Json:
        try:
            response = await self._client.request(method, url, data=data, headers=headers)
            body = response.json()
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            raise TokenError(f"the issuer cannot be asked: {error}") from None
        except (ValueError, RecursionError):
            body = None
        if response.status_code in {404, 405} and method == "GET":
            raise _AbsentError
        if response.status_code != 200:
            reason = body.get("error") if isinstance(body, dict) else None
            words = f", {reason[:100]!r}" if isinstance(reason, str) else ""
            raise TokenError(f"the issuer answered with HTTP {response.status_code}{words}")
        if not isinstance(body, dict):
            raise TokenError("the issuer's answer is no JSON object")
        return body


class _AbsentError(Exception):
    pass


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
