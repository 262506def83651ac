"""The pages of lasting decisions: grants, and conversations that ask before each call."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from aiohttp import web

from gateway.api.decisions import ApiContext, convert_store_errors
from gateway.api.ops_pages import Route, readable
from gateway.api.request import VIEWING, build_stale_cursor_error, get_via, parse_limit, parse_query
from gateway.api.views import page_answer
from gateway.contracts.api_bounds import LIMIT_MOST
from gateway.contracts.caller import Caller
from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.journal import AskBefore, Grant
from gateway.contracts.storage.store import Json
from gateway.tools.grants import RememberedDecisions

GRANTS, ASKS = "/context/grants", "/context/asks"
EntryT = TypeVar("EntryT", Grant, AskBefore)


class RememberedPages:
    """The pages of one worker."""

    def __init__(self, api: ApiContext) -> None:
        self._api = api

    @property
    def _grant_registry(self) -> RememberedDecisions:
        return self._api.approvals().remembered

    def routes(self) -> list[Route]:
        """Return (method, path, handler) for `add_route` of aiohttp's router."""
        return [
            *readable(GRANTS, self._grants),
            *readable(ASKS, self._asks),
            ("DELETE", GRANTS + "/{id}", self._revoke_grant),
            ("DELETE", ASKS + "/{id}", self._revoke_ask),
        ]

    async def _grants(self, request: web.Request) -> web.Response:
        caller, after, limit = self._query(request)
        found = await self._grant_registry.grants(tenant=caller.tenant, after=after, limit=limit + 1)
        return _page(found, _grant_view, limit=limit)

    async def _asks(self, request: web.Request) -> web.Response:
        caller, after, limit = self._query(request)
        found = await self._grant_registry.asks(tenant=caller.tenant, after=after, limit=limit + 1)
        return _page(found, _ask_view, limit=limit)

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


def _page(found: Sequence[EntryT] | None, view: Callable[[EntryT], Json], *, limit: int) -> web.Response:
    """Return a page of the first `limit` entries. One more entry means that the list goes on. Raises GatewayError."""
    if found is None:
        raise build_stale_cursor_error("after")
    following = found[limit - 1].id if len(found) > limit else None
    return page_answer([view(entry) for entry in found[:limit]], following=following)


def _grant_view(grant: Grant) -> Json:
    return {
        "id": grant.id,
        "object": "grant",
        "caller": grant.caller,
        "run_id": grant.run_id,
        "conversation": grant.conversation,
        "user": grant.user,
        "tool": grant.tool,
        "sha256": grant.sha256,
        "created_at": grant.created_s,
        "expires_at": grant.expires_s,
        "granted_by": grant.granted_by,
    }


def _ask_view(ask: AskBefore) -> Json:
    return {
        "id": ask.id,
        "object": "ask",
        "caller": ask.caller,
        "conversation": ask.conversation,
        "user": ask.user,
        "created_at": ask.created_s,
        "expires_at": ask.expires_s,
    }
