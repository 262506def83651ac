"""CORS for our own pages: pages of the configured origins may read their answers."""

from collections.abc import Callable

from aiohttp import web

from gateway.auth.host_guard import HostGuard
from gateway.http.request_head import RequestHead
from gateway.lanes.aiohttp_adapter import Facade

_METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
#: How long a browser may keep the answer to a preflight.
_MAX_AGE_S = 600


class CorsHeaders:
    """The CORS headers of one site. `door` is that of the configuration in use."""

    def __init__(self, door: Callable[[], HostGuard]) -> None:
        self._door = door

    def answer_preflight(self, request: web.Request) -> web.Response | None:
        """Return the answer to a CORS preflight, or None for another request."""
        head = _find_head(request) if request.method == "OPTIONS" else None
        if head is None or not self._door().is_preflight(head):
            return None
        wanted = head.find_value(b"access-control-request-headers") or b""
        headers = {"Access-Control-Allow-Methods": _METHODS, "Access-Control-Max-Age": str(_MAX_AGE_S)}
        if wanted:
            headers["Access-Control-Allow-Headers"] = wanted.decode("latin-1")
        if head.find_value(b"access-control-request-private-network") == b"true":
            headers["Access-Control-Allow-Private-Network"] = "true"
        return web.Response(status=204, headers=headers)

    async def add_cors_headers(self, request: web.Request, response: web.StreamResponse) -> None:
        """Add the CORS headers to an answer. This is an `on_response_prepare` hook."""
        door = self._door()
        head = _find_head(request) if door.origins else None
        if head is not None:
            response.headers.extend(door.get_cors_fields(head))


def _find_head(request: web.Request) -> RequestHead | None:
    return request.transport.head if isinstance(request.transport, Facade) else None
