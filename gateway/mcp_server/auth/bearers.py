"""The caller of a request for `/mcp`: by a key of the gateway, else by an access token of the issuer."""

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from gateway.auth.credentials import GATEWAY_HEADER
from gateway.auth.keyring import Identify, Identity
from gateway.config import Settings
from gateway.config.schema.serve_oauth import ServeOAuth
from gateway.contracts.errors import GatewayError
from gateway.contracts.plugin import Clock
from gateway.http.request_head import RequestHead
from gateway.mcp.sdk_import import IMPORTING
from gateway.mcp_server.auth.protected_resource import find_oauth, get_metadata_url, list_granting_scopes

if TYPE_CHECKING:
    from gateway.mcp_server.auth.tokens import AccessTokenVerifier

SCOPE = "tools"
_AUTHORIZATION = b"authorization"
#: The parts of a token: header, claims, signature.
_DOTS = 2


class Bearers:
    """The check of callers. `identify` knows the gateway's own keys; `in_use` returns the configuration in use."""

    def __init__(self, *, identify: Identify, in_use: Callable[[], Settings], clock: Clock) -> None:
        self._identify = identify
        self._in_use = in_use
        self._clock = clock
        self._tokens: AccessTokenVerifier | None = None
        self._closing: set[asyncio.Task[None]] = set()

    async def identify(self, head: RequestHead) -> Identity:
        """Return the caller, who may use tools.

        Raises GatewayError: 401 without a valid key or token, 403 if that does not grant tools, 503 if tokens cannot be
        checked now.
        """
        try:
            return self._identify(head, True, SCOPE)
        except GatewayError as error:
            oauth, token = find_oauth(self._in_use()), _parse_token(head)
            if error.code != "invalid_api_key" or oauth is None or token is None:
                raise
        caller = await (await self._get_verifier(oauth)).find_caller(token)
        if SCOPE not in caller.scopes:
            raise GatewayError(
                "scope_missing",
                "This access token does not allow the use of tools: request one with a scope that 'mcp.serve.oauth' "
                "of the gateway maps to 'tools'.",
            )
        return Identity(caller, frozenset((_AUTHORIZATION, GATEWAY_HEADER)))

    def challenge(self, error: GatewayError) -> Mapping[str, str]:
        """Return the header that describes how a client gets in (RFC 6750, RFC 9728); none for other errors."""
        settings = self._in_use()
        oauth = find_oauth(settings)
        if error.facts.status == 401:
            reason = () if error.code == "missing_api_key" else ('error="invalid_token"',)
        elif error.code == "scope_missing" and oauth is not None:
            reason = ('error="insufficient_scope"',)
        else:
            return {}
        if oauth is None:
            return {"WWW-Authenticate": "Bearer"}
        scopes = " ".join(list_granting_scopes(oauth, SCOPE))
        wanted = (f'scope="{scopes}"',) if scopes else ()
        return {
            "WWW-Authenticate": "Bearer "
            + ", ".join((*reason, *wanted, f'resource_metadata="{get_metadata_url(settings)}"'))
        }

    async def close(self) -> None:
        """End requests to the issuer that are under way."""
        if self._tokens is not None:
            await self._tokens.close()
        await asyncio.gather(*self._closing)

    async def _get_verifier(self, oauth: ServeOAuth) -> "AccessTokenVerifier":
        """Return the verifier for these settings; it and its keys are kept until the settings change."""
        if self._tokens is None:
            make = await asyncio.to_thread(_import_verifier)
        else:
            make = type(self._tokens)
        tokens = self._tokens  # another request may have built it meanwhile
        if tokens is None or (tokens.settings is not oauth and tokens.settings != oauth):
            if tokens is not None:
                closing = asyncio.get_running_loop().create_task(tokens.close())
                self._closing.add(closing)
                closing.add_done_callback(self._closing.discard)
            self._tokens = tokens = make(oauth, clock=self._clock)
        return tokens


def _import_verifier() -> "type[AccessTokenVerifier]":
    """Return the class of verifiers; its import takes a while."""
    with IMPORTING:
        # Imported here: without `mcp.serve.oauth` nothing needs the library of tokens.
        from gateway.mcp_server.auth.tokens import AccessTokenVerifier
    return AccessTokenVerifier


def _parse_token(head: RequestHead) -> bytes | None:
    """Return the access token of a request; None if its credential cannot be one."""
    value = head.find_value(_AUTHORIZATION)
    if value is None or head.find_value(GATEWAY_HEADER) is not None:
        return None
    scheme, _, token = value.partition(b" ")
    token = token.strip()
    return token if scheme.lower() == b"bearer" and token.count(b".") == _DOTS else None
