"""The pages of lasting decisions: grants, and conversations that ask before each call."""

from collections.abc import Sequence
from typing import Literal

from aiohttp import web
from msgspec import field

from gateway.api.decisions import ApiContext, convert_store_errors
from gateway.api.ops_pages import Route, build_readable_routes
from gateway.api.request import VIEWING, build_stale_cursor_error, get_via, parse_limit, parse_query
from gateway.api.views import build_page_answer
from gateway.contracts.api_bounds import LIMIT_MOST
from gateway.contracts.caller import Caller
from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.journal import AskBefore, Grant
from gateway.contracts.views import UnixTime, View, fill_view
from gateway.tools.grants import RememberedDecisions

GRANTS, ASKS = "/context/grants", "/context/asks"


class GrantView(View, frozen=True, kw_only=True):
    """A remembered approval."""

    id: str
    object: Literal["grant"] = "grant"
    caller: str
    run_id: str | None
    conversation: str | None
    user: str | None
    tool: str
    sha256: str
    created_s: UnixTime = field(name="created_at")
    expires_s: UnixTime | None = field(name="expires_at")
    granted_by: str


class AskView(View, frozen=True, kw_only=True):
    """A conversation that asks before each call."""

    id: str
    object: Literal["ask"] = "ask"
    caller: str
    conversation: str
    user: str | None
    created_s: UnixTime = field(name="created_at")
    expires_s: UnixTime | None = field(name="expires_at")


class RememberedPages:
    """The pages of one worker."""

    def __init__(self, api: ApiContext) -> None:
        self._api = api

    @property
    def _grant_registry(self) -> RememberedDecisions:
        return self._api.approvals().remembered

    def list_routes(self) -> list[Route]:
        """Return (method, path, handler) for `add_route` of aiohttp's router."""
        return [
            *build_readable_routes(GRANTS, self._serve_grants),
            *build_readable_routes(ASKS, self._serve_asks),
            ("DELETE", GRANTS + "/{id}", self._revoke_grant),
            ("DELETE", ASKS + "/{id}", self._revoke_ask),
        ]

    async def _serve_grants(self, request: web.Request) -> web.Response:
        caller, after, limit = self._query(request)
        found = await self._grant_registry.list_grants(tenant=caller.tenant, after=after, limit=limit + 1)
        return _cut_page(found, GrantView, limit=limit)

    async def _serve_asks(self, request: web.Request) -> web.Response:
        caller, after, limit = self._query(request)
        found = await self._grant_registry.list_asks(tenant=caller.tenant, after=after, limit=limit + 1)
        return _cut_page(found, AskView, limit=limit)

    def _query(self, request: web.Request) -> tuple[Caller, str | None, int]:
        """Return the caller, the id behind which the page begins (or None), and its length. Raises GatewayError."""
        caller = self._api.authorise(request, *VIEWING)
        query = parse_query(request, "after", "limit")
        return caller, query.get("after"), parse_limit(query, default=LIMIT_MOST)

    async def _revoke_grant(self, request: web.Request) -> web.Response:
        caller = self._api.authorise(request, "approve")
        parse_query(request)
        with convert_store_errors("that a grant is gone"):
            revoked = await self._grant_registry.revoke_grant(request.match_info["id"], by=caller, via=get_via(request))
        if not revoked:
            raise GatewayError(
                "grant_not_found", "The gateway has no grant with this id: GET /context/grants lists all grants."
            )
        return web.Response(status=204)

    async def _revoke_ask(self, request: web.Request) -> web.Response:
        caller = self._api.authorise(request, "approve")
        parse_query(request)
        with convert_store_errors("that a conversation asks no more"):
            revoked = await self._grant_registry.revoke_ask(request.match_info["id"], by=caller, via=get_via(request))
        if not revoked:
            raise GatewayError(
                "grant_not_found",
                "No conversation with this id asks before each call: GET /context/asks lists those that do.",
            )
        return web.Response(status=204)


def _cut_page(found: Sequence[Grant | AskBefore] | None, kind: type[View], *, limit: int) -> web.Response:
    """Return a page of the first `limit` entries. One more entry means that the list goes on. Raises GatewayError."""
    if found is None:
        raise build_stale_cursor_error("after")
    following = found[limit - 1].id if len(found) > limit else None
    return build_page_answer([fill_view(kind, entry) for entry in found[:limit]], following=following)
