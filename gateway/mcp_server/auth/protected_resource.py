"""The metadata of `/mcp` as a protected resource (RFC 9728): it leads a client without a token to the issuer.

One document is for `/mcp` and all below it. Without `mcp.serve.oauth` there is none.
"""

import re
from collections.abc import Callable, Sequence
from typing import Final

from aiohttp import web

from gateway.api.ops_pages import Route, build_readable_routes
from gateway.config import Settings
from gateway.config.schema.serve_oauth import ServeOAuth
from gateway.contracts.errors import GatewayError

WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"
#: Scopes that can stand in a header (RFC 6749, section 3.3).
_SCOPE = re.compile(r"[\x21\x23-\x5B\x5D-\x7E]+")


class ProtectedResource:
    """The page. `in_use` returns the configuration in use."""

    def __init__(self, *, in_use: Callable[[], Settings]) -> None:
        self._in_use = in_use

    def list_routes(self) -> Sequence[Route]:
        return build_readable_routes(WELL_KNOWN + "{path:.*}", self._serve_metadata)

    async def _serve_metadata(self, request: web.Request) -> web.Response:
        """Answer with the metadata as JSON. Raises GatewayError if there is none at this path."""
        settings = self._in_use()
        oauth = find_oauth(settings)
        if oauth is None or request.path not in list_metadata_paths(settings):
            raise GatewayError("unknown_route", "The gateway has no metadata at this path.")
        found = {
            "resource": get_resource_url(settings),
            "resource_name": "Twolane",
            "authorization_servers": [oauth.issuer],
            "bearer_methods_supported": ["header"],
        }
        scopes = list_requestable_scopes(oauth)
        return web.json_response({**found, "scopes_supported": scopes} if scopes else found)


def find_oauth(settings: Settings) -> ServeOAuth | None:
    """Return the settings of tokens; None: only keys are accepted."""
    return None if settings.mcp.serve is None else settings.mcp.serve.oauth


def list_metadata_paths(settings: Settings) -> frozenset[str]:
    """Return the paths of the metadata: where the header points, and at the root, where clients look without it."""
    serve = settings.mcp.serve
    if serve is None or serve.oauth is None:
        return frozenset()
    return frozenset((WELL_KNOWN, WELL_KNOWN + serve.path))


def get_resource_url(settings: Settings) -> str:
    """Return the URL of the endpoint, as clients name it to the issuer."""
    assert settings.mcp.serve is not None
    return _get_base_url(settings) + settings.mcp.serve.path


def get_metadata_url(settings: Settings) -> str:
    """Return the URL of the metadata."""
    assert settings.mcp.serve is not None
    return _get_base_url(settings) + WELL_KNOWN + settings.mcp.serve.path


def list_requestable_scopes(oauth: ServeOAuth) -> list[str]:
    """Return the scopes that a client may request: an issuer knows only the words of the claim `scope`."""
    return [scope for scope in oauth.scopes if _SCOPE.fullmatch(scope)] if oauth.scope_claim == "scope" else []


def list_granting_scopes(oauth: ServeOAuth, granted: str) -> list[str]:
    """Return the requestable scopes that grant a scope of the gateway."""
    return [scope for scope in list_requestable_scopes(oauth) if granted in oauth.scopes[scope]]


def _get_base_url(settings: Settings) -> str:
    assert settings.public_url is not None  # a configuration with tokens and without it is refused
    return settings.public_url.rstrip("/")
