"""Our own pages: liveness, readiness, metrics. Only this gateway's names reach them, and no foreign origin."""

import ipaddress
import logging
import math
from collections.abc import Awaitable, Callable, Collection, Sequence
from http import HTTPStatus
from typing import Literal

from aiohttp import web

from gateway.errors import GatewayError
from gateway.lanes.own import take_back
from gateway.store import StoreError, unwritten
from gateway.wire.answer import error_body, new_request_id
from gateway.wire.web import TOOL_HEADER

EXPOSITION_TYPE = "text/plain; version=0.0.4; charset=utf-8"
log = logging.getLogger("gateway")

#: Answered to anybody, under any name: it says nothing (Claude Code asks `HEAD /` first).
ROOT = "/"

#: Where a page that has given its request an id leaves it for error answers.
REQUEST_ID = web.RequestKey("request_id", str)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Route = tuple[str, str, Handler]
#: The answer of /health/ready: 200 for the first, 503 for the others.
Readiness = Literal["ready", "draining", "store_lost"]


class Pages:
    """The pages of one worker. `exposition` gives the metrics of all workers, `ready` whether requests are welcome."""

    def __init__(
        self,
        *,
        exposition: Callable[[], Awaitable[bytes]] | None,
        ready: Callable[[], Readiness],
        allowed_hosts: Callable[[], Collection[str]],
        further: Sequence[Route] = (),
    ) -> None:
        self._exposition = exposition
        self._ready = ready
        self._allowed_hosts = allowed_hosts
        self._further = further

    def application(self) -> web.Application:
        app = web.Application(middlewares=[self._guard])
        app.router.add_get(ROOT, self._root)
        app.router.add_get("/health/live", self._live)
        app.router.add_get("/health/ready", self._readiness)
        if self._exposition is not None:
            app.router.add_get("/metrics", self._metrics)
        for method, path, handler in self._further:
            app.router.add_route(method, path, handler)
        app.on_response_prepare.append(take_back)
        return app

    async def _root(self, _request: web.Request) -> web.Response:
        return _json({"status": "ok"})

    async def _live(self, _request: web.Request) -> web.Response:
        return _json({"status": "ok"})

    async def _readiness(self, _request: web.Request) -> web.Response:
        status = self._ready()
        return _json({"status": status}, status=200 if status == "ready" else 503)

    async def _metrics(self, _request: web.Request) -> web.Response:
        assert self._exposition is not None
        return web.Response(body=await self._exposition(), headers={"Content-Type": EXPOSITION_TYPE})

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            if request.path != ROOT:
                self._check(request)
            return await handler(request)
        except web.HTTPMethodNotAllowed:
            return _error(GatewayError("method_not_allowed", "This page does not know that method."))
        except web.HTTPNotFound:
            return _error(GatewayError("unknown_route", "There is no such page."))
        except web.HTTPRequestEntityTooLarge:
            return _error(GatewayError("request_too_large", "The request body is larger than this page takes."))
        except GatewayError as error:
            return _error(error, request_id=request.get(REQUEST_ID))
        except StoreError as error:
            log.error("the store failed: %s", error)
            failure = unwritten(error, "The gateway's store failed; its log says why. Nothing was done.")
            return _error(failure, request_id=request.get(REQUEST_ID))
        except ConnectionResetError:
            raise  # the client left; there is nobody to tell
        except Exception:
            failure = GatewayError("internal_error", "The gateway failed; its log has this request id.")
            answer = _error(failure, request_id=request.get(REQUEST_ID))
            log.exception("a page failed, request id %s", answer.headers["x-request-id"])
            return answer

    def _check(self, request: web.Request) -> None:
        """A browser page of another site, or a name that was rebound to us, must not reach our pages (K8).

        Nor must a model, through a tool of ours: it would approve its own calls.
        """
        if TOOL_HEADER in request.headers:
            raise GatewayError(
                "origin_not_allowed", "Tools of a gateway do not reach its own pages.", param=TOOL_HEADER
            )
        allowed = self._allowed_hosts()
        if not _is_ours(request.headers.get("Host", ""), allowed):
            raise GatewayError(
                "host_not_allowed",
                "This Host is not served here; add it to 'allowed_hosts' if it is yours.",
                param="host",
            )
        origins = request.headers.getall("Origin", ())
        if not all(_is_ours(origin.partition("://")[2], allowed) for origin in origins):
            raise GatewayError("origin_not_allowed", "Requests from other sites are refused here.", param="origin")


def _is_ours(host: str, allowed: Collection[str]) -> bool:
    """Whether `host` (with or without port) is localhost or an allowed name. `*` stands for every address literal."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    if name.lower() == "localhost" or name.lower() in allowed:
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    return address.is_loopback or "*" in allowed


def _json(content: dict[str, str], *, status: int = 200) -> web.Response:
    return web.json_response(content, status=status)


def _error(error: GatewayError, *, request_id: str | None = None) -> web.Response:
    request_id = request_id or new_request_id()
    headers = {"Content-Type": "application/json", "x-request-id": request_id}
    if error.facts.status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(math.ceil(error.retry_after_s))
        if error.retry_after_s % 1:
            headers["retry-after-ms"] = str(round(error.retry_after_s * 1000))
    if error.settled:
        headers["x-should-retry"] = "false"
    return web.Response(status=error.facts.status, body=error_body(error, request_id=request_id), headers=headers)
