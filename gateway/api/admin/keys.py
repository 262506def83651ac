"""The pages of keys: operators list, make, rotate and revoke the keys of their tenant while the gateway runs."""

from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Final

from aiohttp import web

from gateway.api.decisions import convert_store_errors, still_answered
from gateway.api.ops_pages import Route, build_readable_routes
from gateway.api.request import (
    BODY_LIMIT_BYTES,
    Authorise,
    build_stale_cursor_error,
    get_via,
    parse_json,
    parse_limit,
    parse_query,
    read_body_text,
    require_object,
)
from gateway.api.views import build_json_answer, build_page_answer
from gateway.auth.issuing import IssuedKey, KeyIssuer
from gateway.auth.key_policy import parse_terms
from gateway.auth.key_view import KeyView, build_configured_key_view, build_key_view, build_new_key_view
from gateway.config import Settings
from gateway.config.values.units import parse_duration
from gateway.contracts.caller import Caller
from gateway.contracts.errors import GatewayError
from gateway.contracts.plugin import Clock
from gateway.contracts.storage.keys import KeyStore, StoredKey
from gateway.contracts.storage.store import Json

KEYS: Final = "/context/keys"
_SCOPE: Final = "admin"
_UNWRITTEN: Final = "a change of a key"


class KeyPages:
    """The pages of one worker. `refresh` makes it accept the keys that the store has now."""

    def __init__(
        self,
        store: KeyStore,
        *,
        settings: Callable[[], Settings],
        refresh: Callable[[], Awaitable[None]],
        authorise: Authorise,
        clock: Clock,
    ) -> None:
        self._store = store
        self._settings = settings
        self._refresh = refresh
        self._authorise = authorise
        self._clock = clock
        self._issuer = KeyIssuer(store, settings=settings, clock=clock)

    def list_routes(self) -> list[Route]:
        """Return (method, path, handler) for `add_route` of aiohttp's router."""
        return [
            *build_readable_routes(KEYS, self._list),
            ("POST", KEYS, self._create),
            *build_readable_routes(KEYS + "/{id}", self._show),
            ("POST", KEYS + "/{id}/rotate", self._rotate),
            ("DELETE", KEYS + "/{id}", self._revoke),
        ]

    async def _list(self, request: web.Request) -> web.Response:
        """List the keys of the store, the newest first, and behind them the keys of the configuration."""
        caller = self._authorise(request, _SCOPE)
        query = parse_query(request, "after", "limit")
        limit, after = parse_limit(query), query.get("after")
        if after is not None and await self._store.get_key(after, tenant=caller.tenant) is None:
            raise build_stale_cursor_error("after")
        found = await self._store.list_keys(tenant=caller.tenant, after=after, limit=limit + 1)
        views = [self._build_view(key) for key in found[:limit]]
        if len(found) > limit:
            return build_page_answer(views, following=found[limit - 1].id)
        now_s, keys = self._clock.time(), self._settings().keys
        configured = [build_configured_key_view(key, now_s=now_s) for key in keys if key.tenant_name == caller.tenant]
        return build_page_answer([*views, *configured], following=None)

    async def _show(self, request: web.Request) -> web.Response:
        caller = self._authorise(request, _SCOPE)
        parse_query(request)
        return build_json_answer(
            self._build_view(await self._issuer.get_key(request.match_info["id"], tenant=caller.tenant))
        )

    async def _create(self, request: web.Request) -> web.Response:
        caller = self._authorise(request, _SCOPE)
        terms = parse_terms(await _read_json_object(request, caller))
        with convert_store_errors(_UNWRITTEN):
            issued = await self._issuer.create(terms, by=caller, via=get_via(request))
        await self._accept()
        return self._build_issued_answer(issued)

    async def _rotate(self, request: web.Request) -> web.Response:
        caller = self._authorise(request, _SCOPE)
        body = await _read_json_object(request, caller)
        with convert_store_errors(_UNWRITTEN):
            issued = await self._issuer.rotate(
                self._get_key_id(request),
                tenant=caller.tenant,
                grace_s=_parse_grace(body),
                by=caller,
                via=get_via(request),
            )
        await self._accept()
        return self._build_issued_answer(issued)

    async def _revoke(self, request: web.Request) -> web.Response:
        caller = self._authorise(request, _SCOPE)
        parse_query(request)
        with convert_store_errors(_UNWRITTEN):
            key_id = self._get_key_id(request)
            await self._issuer.revoke(key_id, tenant=caller.tenant, by=caller, via=get_via(request))
        await self._accept()
        return web.Response(status=HTTPStatus.NO_CONTENT)

    async def _accept(self) -> None:
        """Accept the keys that the store has now: behind a change, which stands whether or not they can be read."""
        with still_answered(_UNWRITTEN):
            await self._refresh()

    def _get_key_id(self, request: web.Request) -> str:
        """Return the id in the path. Raises GatewayError (key_is_configured) for the name of a configured key."""
        key_id = request.match_info["id"]
        if any(key.name == key_id for key in self._settings().keys):
            raise GatewayError("key_is_configured", "This key is in the configuration: change it there, and reload.")
        return key_id

    def _build_issued_answer(self, issued: IssuedKey) -> web.Response:
        answer = build_json_answer(
            build_new_key_view(issued.key, issued.text, now_s=self._clock.time()), status=HTTPStatus.CREATED
        )
        answer.headers["Cache-Control"] = "no-store"
        return answer

    def _build_view(self, key: StoredKey) -> KeyView:
        return build_key_view(key, now_s=self._clock.time())


async def _read_json_object(request: web.Request, caller: Caller) -> Json:
    """Return the body, {} for none. Raises GatewayError (request_too_large, invalid_json)."""
    text = await read_body_text(request, caller, limit_bytes=BODY_LIMIT_BYTES)
    return require_object(parse_json(text)) if text.strip() else {}


def _parse_grace(body: Mapping[str, object]) -> float | None:
    """Return for how many seconds a rotated key stays valid, or None: as configured. Raises GatewayError."""
    if unknown := next((name for name in body if name != "grace"), None):
        raise GatewayError("unknown_field", "The body does not have this field: send 'grace'.", param=unknown[:100])
    if body.get("grace") is None:
        return None
    try:
        return parse_duration(body["grace"])
    except ValueError as error:
        raise GatewayError("invalid_field", f"The value of 'grace' is not valid: {error}.", param="grace") from None
