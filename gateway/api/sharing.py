"""Answers of our own pages that pages of other sites may read (CORS): those of origins that the configuration names."""

from collections.abc import Callable

from aiohttp import web

from gateway.http.request_head import RequestHead
from gateway.lanes.door import Door
from gateway.lanes.local import Facade

_METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
#: How long a browser may keep the answer to a preflight.
_MAX_AGE_S = 600


class Sharing:
    """`door` is that of the configuration in use."""

    def __init__(self, door: Callable[[], Door]) -> None:
        self._door = door

    def preflight(self, request: web.Request) -> web.Response | None:
        """The answer to a browser that asks what a page of another site may send; None: it is another request."""
        head = _head_of(request) if request.method == "OPTIONS" else None
        if head is None or not self._door().is_preflight(head):
            return None
        wanted = head.value(b"access-control-request-headers") or b""
        headers = {"Access-Control-Allow-Methods": _METHODS, "Access-Control-Max-Age": str(_MAX_AGE_S)}
        if wanted:
            headers["Access-Control-Allow-Headers"] = wanted.decode("latin-1")
        if head.value(b"access-control-request-private-network") == b"true":
            headers["Access-Control-Allow-Private-Network"] = "true"
        return web.Response(status=204, headers=headers)

    async def share(self, request: web.Request, response: web.StreamResponse) -> None:
        """`on_response_prepare` hook: lets the page read this answer."""
        door = self._door()
        head = _head_of(request) if door.origins else None
        if head is not None:
            response.headers.extend(door.sharing(head))


def _head_of(request: web.Request) -> RequestHead | None:
    return request.transport.head if isinstance(request.transport, Facade) else None
